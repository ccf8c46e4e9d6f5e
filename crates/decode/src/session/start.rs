//! Construction of a session.

use demask_step::{HeadAsk, NO_TOKEN, Predictions, SequenceLimits, SequenceSpec};

use super::{
    CANVAS, Phase, Session, UNCONDITIONAL,
    logprobs::Logprobs,
    request::{RetainedDraft, helper_request, needs, requests},
    stop::Ending,
    tally::Tally,
};
use crate::{
    adjust::Adjuster,
    blockwise::Blockwise,
    constraint::AtDeadline,
    error::OptionsError,
    legality,
    method::{SessionOptions, Setup},
    resolve::{Resolved, resolve},
    step::{Decoder, Progress, Query},
};

impl Session {
    /// Checks the options, chooses those that were not given, and prepares the first step.
    pub fn new(options: SessionOptions) -> Result<Self, OptionsError> {
        legality::check_decoder(&options)?;
        let (options, shift) = options.decoded();
        let Resolved { layout, clock, mut canvas, steps, most_forwards, enforcer } = resolve(&options)?;
        let ranking = options.ranking();
        let setup = Setup { layout: &layout, clock: &clock, steps, ranking: &ranking, options: &options };
        setup.check()?;
        let cache = options.cache.build(&setup);
        let decoder = match &options.rule {
            Some(rule) => {
                legality::check_own_rule(rule, &options)?;
                Box::new(Blockwise::new(rule.transfer(), &setup))
            }
            None => options.decoder.build(&setup, &*cache),
        };
        let all = needs(&options, &*decoder, &*cache, &layout);
        if all.len() > UNCONDITIONAL {
            canvas = canvas.with_unconditional();
        }
        if options.traits().revises.is_some() {
            canvas = canvas.open_to_revision();
        }
        let requests = requests(&options, &*decoder, &all);
        let own = &all[CANVAS];
        let drafted = if own.drafts > 0 { layout.len() + 1 } else { 0 };
        // Commits of one forward: the draft that has most of them.
        let commits = own.predictions / own.drafts.max(1);
        let mut progress = Progress { commits: Vec::with_capacity(commits), ..Progress::default() };
        if options.traits().revises.is_some() {
            progress.replaced.reserve(commits);
        }
        if own.drafts > 0 || !decoder.helpers().is_empty() {
            // A guide judges as many drafts as there are masks, one after the other.
            progress.drafted.reserve(layout.len() + 1, own.drafts.max(layout.len()) + 1);
            progress.targets.reserve(commits + own.drafts + 1);
        }
        let mut query = Query::default();
        query.predict.reserve(layout.len());
        query.foreseen.reserve(layout.len());
        query.score.reserve(own.predictions * own.score_width);
        query.branches.reserve(drafted, own.drafts);
        let kept = requests.iter().map(|_| RetainedDraft::with_capacity(drafted)).collect();
        let helper = helper_request(&options, decoder.helpers());
        let group_rows = all.iter().map(|needs| needs.rows).sum();
        let own = all.into_iter().map(|needs| SequenceLimits { group_rows, ..needs });
        let needs =
            own.map(|limits| SequenceSpec { network: 0, limits }).chain(decoder.helpers().iter().cloned()).collect();
        let keeps_logits = enforcer.is_some() || reads_logits(&*decoder);
        let adjuster = Adjuster::new(
            &options.adjustments,
            (&canvas, layout.response()),
            (&requests[CANVAS].ask.wanted, options.facts.vocab),
            [&options.end_ids[..], &options.stop_ids[..]].concat(),
            keeps_logits,
        );
        let ending = Ending::new(&options);
        let logprobs = options.top_logprobs.map(|width| Logprobs::new(layout.len(), width));
        let counts_stores = options.traits().stores.is_none();
        let length = layout.len();
        let mut session = Self {
            options,
            layout,
            canvas,
            steps,
            most_forwards,
            decoder,
            cache,
            needs,
            retained: kept,
            requests,
            running: 0,
            rides: false,
            counts_stores,
            helper,
            query,
            progress,
            unconstrained: vec![NO_TOKEN; if enforcer.is_some() { length } else { 0 }],
            last: enforcer
                .as_ref()
                .filter(|enforcer| enforcer.constraint.deadline == AtDeadline::Complete)
                .map(|_| Predictions::default()),
            adjuster,
            adjusted: Predictions::default(),
            enforcer,
            read: Predictions::default(),
            phase: Phase::Over,
            block: 0,
            ending,
            tally: Tally::with_capacity(drafted),
            events: Vec::with_capacity(commits + 1),
            tells_drafts: false,
            salt: 0,
            shift,
            recompute: None,
            logprobs,
            fault: None,
        };
        session.open_closed();
        session.look_back();
        session.advance();
        // One sequence whose slots can be computed again takes memory as it is used.
        if session.needs.len() == UNCONDITIONAL && session.cache.recomputes() {
            session.needs[CANVAS].limits.opens_with = Some(session.requests[CANVAS].plan.kv_len as usize);
        }
        Ok(session)
    }
}

/// Reports whether a decoder reads rows of logits.
fn reads_logits(decoder: &dyn Decoder) -> bool {
    let mut ask = HeadAsk::default();
    decoder.ask(&mut ask);
    ask.wanted.logits
}
