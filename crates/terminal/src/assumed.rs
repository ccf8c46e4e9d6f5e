//! Runs whose predictions are assumed: the share of drafts that come true, as it is typed.

use demask::{
    ModelInfo,
    costs::dry_run::{Assumed, dry_run},
    layers::decode::Session,
};

use crate::exit::usage;

/// Refuses an acceptance that changes nothing about the sessions of a model.
pub fn check_acceptance(
    model: &ModelInfo,
    seed: u64,
    session: impl Fn() -> Result<Session, demask::Error>,
) -> anyhow::Result<()> {
    let run = |acceptance| {
        let mut session = session()?;
        dry_run(&mut session, &mut Assumed::new(model, acceptance, seed), &mut |_, _| {})?;
        anyhow::Ok(session)
    };
    let (all, none) = (run(1.0)?, run(0.0)?);
    if all.counts().forwards == none.counts().forwards {
        let decoder = all.receipt().decoder;
        return Err(usage(format!("--acceptance changes nothing with decoder {decoder} here: omit it")));
    }
    Ok(())
}

/// Refuses what no share can be.
pub fn share(acceptance: f64) -> anyhow::Result<f64> {
    if (0.0..=1.0).contains(&acceptance) {
        return Ok(acceptance);
    }
    Err(usage(format!("--acceptance is {acceptance}, expected a share from 0 to 1")))
}
