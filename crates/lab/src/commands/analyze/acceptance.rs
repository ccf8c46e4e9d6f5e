//! `demask-lab analyze acceptance`: which drafts are accepted, and how often a prediction of a confidence is right.

use demask::Options;
use demask_decode::Session;

use crate::analysis::acceptance::{Acceptance, measure};

use super::{Subject, loaded};
use crate::{
    args::AcceptanceArgs,
    interrupt::{self, Watched},
    settings::Settings,
};

/// The decoder whose drafts are looked at if none is named.
const DECODER: &str = "freedave";

/// Runs the command.
pub fn run(settings: &Settings, args: &AcceptanceArgs) -> anyhow::Result<()> {
    let subject =
        Subject::resolve(settings, &args.subject, &["cfg_scale"], "analyze acceptance decodes without guidance")?;
    let options = match subject.options.decoder {
        Some(_) => subject.options.clone(),
        None => Options { decoder: Some(DECODER.parse().map_err(demask::Error::from)?), ..subject.options.clone() },
    };
    settings.device()?;
    let opened = subject.open(settings)?;
    let first = subject.first(&opened, &options)?;
    let methods = first.session().map(Session::receipt).map(|receipt| [receipt.decoder, receipt.cache]);
    let mut model = loaded(settings, opened, &first)?;
    let methods = methods.unwrap_or_default();
    let mut found = Acceptance::new(model.name(), &model.network().describe(), methods);
    let _watched = Watched::begin();
    subject.each(settings, "", |prompt, bar| {
        let session = model.session(prompt, &options)?;
        let positions = session.layout().gen_length() as u64;
        measure(&mut model, session, &mut found, &mut |done| {
            bar.set(done as u64, positions);
            !interrupt::requested()
        })?;
        Ok(())
    })?;
    subject.report(settings, &found)
}
