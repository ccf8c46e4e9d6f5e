//! Parts that the tests of FreeDave share: runs on scripted networks, the caches that drafts are lossless over, and a
//! model that knows its text.

use demask_decode::{CacheSpec, Event, Exactness, Session, SessionOptions, StopRule, caches::CACHES};
use demask_step::{ForwardInput, Job, Mask, NO_TOKEN, Network, Predictions, SequenceId, TokenId};
use demask_testkit::scripted::Scripted;

use super::{EOS, MASK_ID, Run, VOCAB, drive, options};

pub const FULL: Mask = Mask::Full;
pub const BLOCKS: Mask = Mask::blocks(4);

/// The model of a run.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    pub seed: u64,
    pub easy: f64,
    pub spread: f64,
    /// Position from which on it predicts nothing but the end token.
    pub end: u32,
}

impl Script {
    /// One that never ends its text.
    pub fn endless(seed: u64, easy: f64, spread: f64) -> Self {
        Self { seed, easy, spread, end: u32::MAX }
    }

    pub fn denoiser(self, shift: u32) -> Scripted {
        Scripted::new(self.seed, VOCAB, shift).with_spread(self.spread).with_easy(self.easy)
    }

    /// Puts the end token where it belongs.
    pub fn ends(self, answer: &mut Predictions) {
        let positions = answer.positions.len();
        for (index, token) in answer.tokens.iter_mut().enumerate() {
            let behind = answer.positions.as_slice()[index % positions] >= self.end;
            if behind && *token != NO_TOKEN {
                *token = EOS;
            }
        }
    }
}

/// Results of a run that are compared.
#[derive(Debug)]
pub struct Found {
    /// Position, token and confidence in the order of the commits.
    pub commits: Vec<(u32, TokenId, f32)>,
    pub run: Run,
    pub session: Session,
}

pub fn run(script: Script, mut options: SessionOptions, decoder: &str) -> Result<Found, String> {
    options.decoder = decoder.parse().unwrap();
    run_as(script, options)
}

/// Runs the decoder of the options.
pub fn run_as(script: Script, options: SessionOptions) -> Result<Found, String> {
    let mut model = script.denoiser(options.facts.shift);
    let mut session = Session::new(options).map_err(|error| error.to_string())?;
    let ids: Vec<SequenceId> = session.needs().iter().map(|needs| model.open(&needs.limits).unwrap()).collect();
    let run = drive(&mut session, |_, requests| {
        let batch: Vec<_> = requests.iter().map(|request| request.step(ids[request.sequence])).collect();
        let mut out = vec![Predictions::default(); batch.len()];
        model.step(&batch, &mut out).unwrap();
        script.ends(&mut out[0]);
        out
    });
    Ok(Found { commits: commits(&run.events), run, session })
}

/// Position, token and confidence of each commit.
pub fn commits(events: &[Event]) -> Vec<(u32, TokenId, f32)> {
    let commit = |event: &Event| match *event {
        Event::Commit { position, token, confidence, .. } => Some((position, token, confidence)),
        _ => None,
    };
    events.iter().filter_map(commit).collect()
}

/// Every cache over which drafts promise the tokens of static decoding on these models: with its defaults, and with
/// parameters that change when rows run.
pub fn caches(mask: Mask, shift: u32) -> Vec<CacheSpec> {
    let lossless = |cache: &CacheSpec| {
        let mut options = options(mask, shift, 4, 8);
        (options.decoder, options.cache) = ("freedave".parse().unwrap(), cache.clone());
        Session::new(options).is_ok_and(|session| matches!(session.exactness(), Exactness::Lossless { .. }))
    };
    let more = ["dual:prompt=first", "dual:prompt=2,start=one", "prefix:prompt=2", "prefix:prompt=first,start=one"];
    let more = more.iter().map(|cache| cache.parse().unwrap());
    CACHES.iter().map(CacheSpec::of).chain(more).filter(lossless).collect()
}

/// Caches whose slots depend on the steps that were run, with the parameters that matter.
pub const OF_HISTORY: &[&str] = &[
    "dkv:refresh=3",
    "dkv:refresh=4,shift=un_right",
    "dkv:variant=prefill",
    "dkv:variant=pd,refresh=3",
    "dllm:prompt=5,response=3",
    "dllm:prompt=4,response=3,rho=0.5,first_layer=same",
    "dllm:prompt=3,response=2,rho=0,boundary=before",
    "dllm:response=4,probe=k,rho=0.4",
    "dllm:response=4,count=forwards,rows=block",
    "dllm:response=4,count=tokens,rho=0",
    "dllm:response=5,rows=drift,count=forwards,rho=0.4",
    "dllm:response=4,rows=drift,rho=0.5",
    "dllm:prompt=2,response=5,probe=random,rho=0.3,cfg=3",
    "freecache:block=2,freeze=reference",
    "freecache:block=3,freeze=reference,lookahead=2,lag=1",
    "freecache:block=3",
    "freecache:lookahead=2",
];

/// The answers to all lanes of a request for a model that knows the text, the leftmost the surest.
pub fn recite(request: &ForwardInput, text: &[TokenId]) -> Predictions {
    let plan = &request.plan;
    let mut out = Predictions { lanes: plan.lanes.count(), ..Predictions::default() };
    out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    for lane in 0..out.lanes {
        for position in out.positions.clone().iter() {
            let held = plan.row(lane, position).map(|row| request.tokens[row]);
            let masked = held.is_none_or(|token| token == MASK_ID);
            out.tokens.push(if masked { text[position as usize] } else { NO_TOKEN });
            out.confidence.push(if masked { 0.9 - position as f32 / 10000.0 } else { f32::NEG_INFINITY });
        }
    }
    out
}

/// Forwards that a known text takes.
pub fn forwards(mut options: SessionOptions, decoder: &str, cache: &str) -> usize {
    (options.decoder, options.cache) = (decoder.parse().unwrap(), cache.parse().unwrap());
    options.stop = StopRule::Never;
    let mut session = Session::new(options).unwrap();
    let text: Vec<TokenId> = (0..session.canvas().len() as TokenId).map(|position| position % 20).collect();
    let run = drive(&mut session, |_, requests| requests.iter().map(|request| recite(request, &text)).collect());
    assert_eq!(run.output.canvas, text);
    session.counts().forwards
}
