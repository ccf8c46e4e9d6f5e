//! Rounds of introspective strided decoding: those of a golden trace, and those of a session (`golden/README.md`).

use demask_decode::{CanvasSpec, Event, ModelFacts, Session, SessionOptions, StopRule};
use demask_step::{FilterOrder, ForwardInput, Job, Position, Predictions, TokenId};
use serde_json::Value;

use crate::by_hand::ByHand;

/// One forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Records whether it verified drafts.
    pub verifies: bool,
    /// First position that it fed: K/V of all before it are stored.
    pub start: usize,
    /// Rows that it fed.
    pub rows: usize,
    /// Tokens that it settled, with their positions.
    pub settled: Vec<(Position, TokenId)>,
    /// Drafts that came true.
    pub accepted: usize,
    /// Drafts that the next forward verifies.
    pub drafts: Vec<TokenId>,
}

/// Runs a session to its end, forward by forward.
pub fn of_session(session: &mut Session, mut answer: impl FnMut(&ForwardInput) -> Predictions) -> Vec<Round> {
    session.tell_drafts();
    let mut rounds: Vec<Round> = Vec::new();
    while let [request] = session.requests() {
        let (start, rows) = (request.plan.query.first().unwrap() as usize, request.plan.query.len());
        let predictions = answer(request);
        session.feed(&[predictions]);
        let (mut settled, mut drafts, mut accepted) = (Vec::new(), Vec::new(), 0);
        for event in session.events() {
            match event {
                Event::Commit { position, token, .. } => settled.push((position, token)),
                Event::Draft { token, .. } => drafts.push(token),
                Event::Step { accepted: held, .. } => accepted = held,
                _ => {}
            }
        }
        let verifies = !drafts.is_empty();
        if let Some(last) = rounds.last_mut() {
            last.drafts = drafts;
        }
        rounds.push(Round { verifies, start, rows, settled, accepted, drafts: Vec::new() });
    }
    rounds
}

/// A golden trace.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// The checkpoint or script.
    pub model: String,
    /// Adapter that masks take.
    pub adapter: Option<String>,
    /// The mask token.
    pub mask_id: TokenId,
    /// The text of autoregressive decoding, prompt included.
    pub ar_output: Vec<TokenId>,
    params: Value,
    prompt: Vec<TokenId>,
    output: Vec<TokenId>,
    /// Records whether the prompt ran alone.
    apart: bool,
    rounds: Vec<Round>,
    /// K/V that each forward left.
    kept: Vec<usize>,
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number")) as usize
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn tokens(value: &Value) -> Vec<TokenId> {
    list(value).iter().map(|token| number(token) as TokenId).collect()
}

impl Case {
    /// Reads the cases of a file.
    pub fn all(text: &str) -> Vec<Self> {
        let file: Value = serde_json::from_str(text).unwrap();
        list(&file["cases"]).iter().map(Self::read).collect()
    }

    fn read(case: &Value) -> Self {
        let of = |key: &str, round: usize| number(&case[key][round]);
        let round = |index: usize| Round {
            verifies: case["kinds"][index] == "verify",
            start: of("starts", index),
            rows: of("fed_rows", index),
            settled: list(&case["steps"][index]).iter().map(|step| pair(&tokens(step))).collect(),
            accepted: of("accepted", index),
            drafts: tokens(&case["drafts"][index]),
        };
        let name = |key: &str| case[key].as_str().map(str::to_owned);
        Self {
            id: name("id").unwrap(),
            model: name("model").or(name("script")).unwrap(),
            adapter: name("adapter"),
            mask_id: number(&case["mask_id"]) as TokenId,
            ar_output: tokens(&case["ar_output"]),
            params: case["params"].clone(),
            prompt: tokens(&case["prompt"]),
            output: tokens(&case["output"]),
            apart: case["params"]["first"] == "apart",
            rounds: (0..number(&case["nfe"])).map(round).collect(),
            kept: list(&case["kept"]).iter().map(number).collect(),
        }
    }

    /// Reports whether its text must equal autoregressive decoding's.
    pub fn is_lossless(&self) -> bool {
        self.temperature() == 0.0 || self.params["rule"] == "coupled"
    }

    fn temperature(&self) -> f32 {
        self.params["temperature"].as_f64().unwrap() as f32
    }

    /// The options of the case, for a decoder. A trace whose prompt ran alone goes on as one whose prompt has its token.
    pub fn options(&self, facts: ModelFacts, decoder: &str) -> SessionOptions {
        let mut prompt = self.prompt.clone();
        let mut gen_length = number(&self.params["max_new_tokens"]);
        if self.apart && self.output.len() > prompt.len() + 1 {
            prompt.push(self.output[prompt.len()]);
            gen_length -= 1;
        }
        let mut options = SessionOptions::new(facts, CanvasSpec::Prompt { tokens: prompt, gen_length });
        (options.decoder, options.cache) = (decoder.parse().unwrap(), "causal".parse().unwrap());
        (options.temperature, options.filter_order) = (self.temperature(), FilterOrder::TopKFirst);
        options.top_k = number(&self.params["top_k"]) as u32;
        options.top_p = self.params["top_p"].as_f64().unwrap() as f32;
        options.seed = self.params["seed"].as_u64().unwrap();
        options.end_ids = self.params["eos_token_id"].as_u64().map(|end| end as TokenId).into_iter().collect();
        options.stop = StopRule::Prefix;
        options
    }

    /// Returns the decoder of the case.
    pub fn decoder(&self) -> String {
        format!("isd:stride={},rule={}", self.params["stride"], self.params["rule"].as_str().unwrap())
    }

    /// Returns the first difference of a run of the case.
    pub fn difference(&self, facts: ModelFacts, run: impl FnOnce(&mut Session) -> Vec<Round>) -> Option<String> {
        let mut session =
            Session::new(self.options(facts, &self.decoder())).map_err(|error| error.to_string()).unwrap();
        let length = session.canvas().len();
        let found = run(&mut session);
        let expected = self.expected(length);
        for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
            if expected != found {
                return Some(format!("round {index}: expected {expected:?}, found {found:?}"));
            }
        }
        if expected.len() != found.len() {
            return Some(format!("expected {} rounds, found {}", expected.len(), found.len()));
        }
        let response = session.layout().response();
        let text = [&session.canvas()[..response], &session.output().tokens].concat();
        (text != self.output).then(|| format!("expected {:?}, found {text:?}", self.output))
    }

    /// The rounds of a session on a canvas of this length.
    fn expected(&self, length: usize) -> Vec<Round> {
        let first = usize::from(self.apart && self.rounds.len() > 1);
        let mut rounds = self.rounds[first..].to_vec();
        for (index, kept) in self.kept[first..].iter().enumerate() {
            if let Some(next) = rounds.get(index + 1) {
                assert_eq!(*kept, next.start, "{}: what is kept is what the next forward need not feed", self.id);
            }
        }
        for round in &mut rounds {
            // The traces feed the last draft even where its row predicts behind the end.
            round.rows = round.rows.min(length - 1 - round.start);
        }
        if let Some(round) = rounds.first_mut() {
            // A prompt that ran alone is read with the first masks here.
            (round.rows, round.start) = (round.rows + round.start, 0);
            round.verifies = false;
        }
        if let Some(last) = rounds.last_mut() {
            last.drafts.clear();
        }
        rounds
    }
}

fn pair(step: &[TokenId]) -> (Position, TokenId) {
    (step[0], step[1])
}
