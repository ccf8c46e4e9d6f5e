//! One run on scripted networks, watched forward by forward.

use demask_decode::{CanvasSpec, Event, Exactness, Memory, Session, SessionOptions, StopRule};
use demask_step::{ForwardInput, Job, NO_TOKEN, Network, Pending, Predictions, Prefix, SequenceId, TokenId, random};

use super::case::{Case, MASK_ID, VOCAB};
use crate::scripted::Scripted;

/// Outcome of a run.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Position, token and the bits of the confidence, in the order of the commits.
    pub commits: Vec<(u32, TokenId, u32)>,
    /// The text, up to its end.
    pub text: Vec<TokenId>,
    pub exactness: Exactness,
    /// Forwards of the diffusion model.
    pub forwards: usize,
    /// Tokens that a constraint changed.
    pub changed: usize,
}

/// Equality of decoded tokens: slots that others left save forwards.
impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        (&self.commits, &self.text, &self.exactness) == (&other.commits, &other.text, &other.exactness)
    }
}

impl Outcome {
    /// Reports whether the run of a decoder that promises the tokens of another was over slots of this memory.
    pub(super) fn memory_is(&self, memory: Memory) -> bool {
        (self.exactness == Exactness::Approximate) == (memory == Memory::OfHistory)
    }
}

/// A rule that was broken, and the outcome that was found.
type Found = (&'static str, String);

/// Decodes a case on the networks that it names.
pub(super) fn run(case: &Case, options: &SessionOptions) -> Result<Outcome, Found> {
    let mut networks = [
        Scripted::new(case.seed, VOCAB, case.shift).with_spread(case.spread).with_easy(case.easy),
        Scripted::new(case.seed ^ 2, VOCAB, 1).with_spread(case.spread),
    ];
    let session = Session::new(options.clone()).map_err(|error| ("it runs", error.to_string()))?;
    run_on(&mut networks, session, (case, options), None)
}

/// Decodes a case on networks that take its memory away between forwards, as often as `seed` says, and give it back:
/// with some of the slots that it left there, or none. None if its memory is taken as a whole.
pub(super) fn run_preempted(case: &Case, options: &SessionOptions) -> Result<Option<Outcome>, Found> {
    let session = Session::new(options.clone()).map_err(|error| ("it runs", error.to_string()))?;
    if session.needs().iter().any(|need| need.limits.opens_with.is_none()) {
        return Ok(None);
    }
    let page = 1 + (case.seed % 3) as usize;
    let mut networks = [
        Scripted::new(case.seed, VOCAB, case.shift).with_spread(case.spread).with_easy(case.easy).with_pages(page),
        Scripted::new(case.seed ^ 2, VOCAB, 1),
    ];
    run_on(&mut networks, session, (case, options), Some(case.seed ^ 5)).map(Some)
}

/// Decodes a case twice on networks with tiny pages: the second run begins with the slots that the first one left.
/// Returns both, and how many slots the second one found filled.
pub(super) fn run_twice(case: &Case, options: &SessionOptions) -> Result<([Outcome; 2], u64), Found> {
    let page = 1 + (case.seed % 3) as usize;
    let mut networks = [
        Scripted::new(case.seed, VOCAB, case.shift).with_spread(case.spread).with_easy(case.easy).with_pages(page),
        Scripted::new(case.seed ^ 2, VOCAB, 1).with_spread(case.spread).with_pages(page),
    ];
    let mut run = || {
        let session = Session::new(options.clone()).map_err(|error| ("it runs", error.to_string()))?;
        run_on(&mut networks, session, (case, options), None)
    };
    let outcomes = [run()?, run()?];
    let hits = networks.iter().filter_map(Network::prefix_cache_stats).map(|counters| counters.hits).sum();
    Ok((outcomes, hits))
}

/// Opens all sequences of a session.
fn open(networks: &mut [Scripted; 2], session: &mut Session, finds: bool) -> Result<Vec<SequenceId>, Found> {
    let (mut ids, mut filled): (Vec<SequenceId>, Vec<_>) = (Vec::new(), Vec::new());
    for (index, need) in session.needs().iter().enumerate() {
        let prefix = if finds { session.prefix_tokens(index) } else { Prefix::default() };
        let opened = networks[need.network].open_with_prefix(&need.limits, prefix);
        let opened = opened.map_err(|error| ("its sequences can be opened", error.to_string()))?;
        ids.push(opened.sequence);
        filled.push(opened.filled);
    }
    session.opened(&filled);
    Ok(ids)
}

/// Decodes on networks, and leaves all that it can after each forward. With a seed its memory is taken away now and then.
fn run_on(
    networks: &mut [Scripted; 2],
    mut session: Session,
    (case, options): (&Case, &SessionOptions),
    preempts: Option<u64>,
) -> Result<Outcome, Found> {
    let mut ids = open(networks, &mut session, true)?;
    let mut state = preempts;
    let mut roll = move |sides: u64| {
        state = state.map(random::mix);
        state.map(|state| state % sides)
    };
    let outcome = watch(&mut session, (case, options), |session| {
        let of = |session: &Session, sequence: usize| session.needs()[sequence].network;
        for (index, &id) in ids.iter().enumerate() {
            let network = &mut networks[of(session, index)];
            network.cache_prefix(id, session.reusable(index), false);
            if let Some(wrong) = network.complaint() {
                return Err(("what it leaves of its slots is right", wrong.to_owned()));
            }
        }
        if roll(3) == Some(0) && !matches!(session.pending(), Pending::Done) {
            ids.iter().enumerate().for_each(|(index, &id)| networks[of(session, index)].close(id));
            session.preempted();
            ids = open(networks, session, roll(2) == Some(0))?;
        }
        let requests = session.pending().requests();
        let Some(first) = requests.first() else { return Ok(Vec::new()) };
        let network = &mut networks[of(session, first.sequence)];
        for request in requests {
            let grown = network.grow(ids[request.sequence], request.plan.kv_len as usize);
            grown.map_err(|error| ("its sequences can grow", error.to_string()))?;
        }
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        let found = |error: String| ("its plans are legal and within what it reserved", error);
        network.check(&batch).map_err(|error| found(error.to_string()))?;
        network.step(&batch, &mut out).map_err(|error| found(error.to_string()))?;
        Ok(out)
    })?;
    match session.fault() {
        Some(fault) => Err(("it comes to an end", fault.to_owned())),
        None => Ok(outcome),
    }
}

/// Decodes a case with predictions that make no sense.
pub(super) fn hostile(case: &Case, options: SessionOptions) -> Result<(), String> {
    let mut state = case.seed ^ 3;
    let mut roll = move |sides: u64| {
        state = random::mix(state);
        state % sides
    };
    // Such a run may be cut off before everything is decoded.
    let options = SessionOptions { stop: StopRule::Prefix, ..options };
    let mut session = Session::new(options.clone()).map_err(|error| error.to_string())?;
    let outcome = watch(&mut session, (case, &options), |session| {
        let requests = session.pending().requests();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers: Vec<Predictions> = requests.iter().map(|request| nonsense(request, &mut roll)).collect();
        match roll(6) {
            0 => answers.clear(),
            1 => answers[0].tokens.truncate(1),
            2 => answers[0].confidence.clear(),
            3 => answers[0].positions = (0..3).into(),
            _ => {}
        }
        Ok(answers)
    });
    outcome.map(|_| ()).map_err(|(rule, found)| format!("{found}, where {rule}"))
}

fn nonsense(request: &ForwardInput, roll: &mut impl FnMut(u64) -> u64) -> Predictions {
    let plan = &request.plan;
    let mut out = Predictions { lanes: plan.lanes.count(), ..Predictions::default() };
    out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    for _ in 0..out.lanes * out.positions.len() {
        out.tokens.push([NO_TOKEN, MASK_ID, 22, 1, 2][roll(5) as usize]);
        let number = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.5, 2.0][roll(6) as usize];
        out.confidence.push(number);
        out.margin.push(number);
        out.entropy.push(number);
    }
    out
}

/// Runs a session to its end and watches its writes. It is shown before each forward, and once when it is over.
fn watch(
    session: &mut Session,
    (case, options): (&Case, &SessionOptions),
    mut answer: impl FnMut(&mut Session) -> Result<Vec<Predictions>, Found>,
) -> Result<Outcome, Found> {
    let CanvasSpec::Prompt { tokens, .. } = &options.canvas else {
        return Err(("it runs", "a canvas of holes".into()));
    };
    let given: Vec<bool> = (0..session.canvas().len()).map(|position| position < tokens.len()).collect();
    let mut written: Vec<Option<TokenId>> = vec![None; given.len()];
    let exactness = session.exactness();
    let mut outcome = Outcome { commits: Vec::new(), text: Vec::new(), exactness, forwards: 0, changed: 0 };
    let mut settled = Vec::new();
    let mut forced = 0;
    // What a constraint leaves no choice about is written before the first forward.
    let mut is_first = true;
    loop {
        let end = session.layout().response() + settled.len();
        if !std::mem::take(&mut is_first) {
            let predictions = answer(session)?;
            if matches!(session.pending(), Pending::Done) {
                break;
            }
            session.feed(&predictions);
        }
        let events: Vec<Event> = session.events().collect();
        for event in events {
            if let Event::Commit { changed: true, .. } | Event::Replace { changed: true, .. } = event {
                outcome.changed += 1;
            }
            forced += usize::from(matches!(event, Event::Commit { forced: true, .. }));
            let (position, before, token, confidence) = match event {
                Event::Commit { position, token, confidence, .. } => (position, None, Some(token), confidence),
                Event::Replace { position, from, to, confidence, .. } => (position, Some(from), to, confidence),
                _ => continue,
            };
            let told = token.unwrap_or(NO_TOKEN);
            if given[position as usize] || (position as usize) < end {
                let found = format!("token {told} at position {position}, which was given or settled");
                return Err(("given and settled tokens stay", found));
            }
            if std::mem::replace(&mut written[position as usize], token) != before {
                return Err(("a position is committed once", format!("two commits at position {position}")));
            }
            if token.is_some_and(|token| token as usize >= VOCAB || Some(token) == options.facts.mask_id) {
                return Err(("commits are tokens", format!("{told} at position {position}")));
            }
            outcome.commits.push((position, told, confidence.to_bits()));
        }
        let now = session.output().tokens;
        if !now.starts_with(&settled) {
            return Err(("tokens that are settled stay", format!("{now:?} behind {settled:?}")));
        }
        settled = now;
        completes(case, session)?;
    }
    let counted = session.counts().constraint;
    let marked = [forced, outcome.changed];
    if marked != [counted.forced, counted.changed] || options.constraint.is_none() && marked != [0, 0] {
        let found = format!("{marked:?} marked as forced and changed, and {counted:?}");
        return Err(("what a constraint did is counted and marked alike", found));
    }
    outcome.text = settled;
    outcome.forwards = session.counts().forwards;
    let left = given.iter().zip(&written).filter(|(given, written)| !**given && written.is_none()).count();
    if options.stop == StopRule::Never && left > 0 {
        return Err(("a run decodes everything", format!("that it ends with {left} masks")));
    }
    Ok(outcome)
}

/// Reports whether some text of the case's language has all that is written, within the answer's length.
fn completes(case: &Case, session: &Session) -> Result<(), Found> {
    let Some(language) = &case.language else { return Ok(()) };
    let (layout, canvas) = (session.layout(), session.canvas());
    let open = |&token: &TokenId| (token != MASK_ID && token != NO_TOKEN).then_some(token);
    let answer: Vec<Option<TokenId>> = canvas[layout.response()..].iter().map(open).collect();
    let completes = language.completes(&answer, layout.gen_length());
    if completes { Ok(()) } else { Err(("what is written is part of a text of the language", format!("{answer:?}"))) }
}
