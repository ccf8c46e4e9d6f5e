//! Introspective strided decoding against autoregressive decoding of the same network, on random scripts: the invariants of
//! specs/families.md#7.1.

use std::ops::Range;

use demask_decode::{Session, SessionOptions, StopRule};
use demask_step::{ForwardInput, Job, Mask, NO_TOKEN, Network, Position, Predictions, SequenceId, TokenId, random};
use demask_testkit::{
    property,
    rounds::{Round, of_session},
    scripted::Scripted,
};

use crate::common::{
    EOS, MASK_ID, VOCAB,
    freedave::{Script, recite, run},
    options,
};

/// Cases, unless the environment asks for another number.
fn cases() -> u64 {
    let asked = std::env::var("DEMASK_CASES").ok().and_then(|count| count.parse().ok());
    asked.unwrap_or(property::count(if cfg!(debug_assertions) { 300 } else { 3_000 })).into()
}

/// Options of a causal model with a mask.
fn causal(prompt: usize, gen_length: usize, decoder: &str) -> SessionOptions {
    let mut options = options(Mask::Causal, 1, prompt, gen_length);
    options.facts.mask_id = Some(MASK_ID);
    (options.decoder, options.cache) = (decoder.parse().unwrap(), "causal".parse().unwrap());
    options
}

/// A random case, with the rounds that it takes.
struct Drawn {
    script: Script,
    options: SessionOptions,
    stride: usize,
    seed: u64,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let mut state = random::mix(seed);
        let mut roll = |sides: u64| {
            state = random::mix(state);
            state % sides
        };
        let (prompt, gen_length, stride) = (1 + roll(9) as usize, 1 + roll(40) as usize, 2 + roll(15) as usize);
        let end = if roll(2) == 0 { u32::MAX } else { roll(50) as u32 };
        let (easy, spread) = ([0.0, 0.6, 0.95, 1.0][roll(4) as usize], [3.0, 12.0][roll(2) as usize]);
        let mut options = causal(prompt, gen_length, &format!("isd:stride={stride}"));
        options.end_ids = vec![EOS];
        options.stop = if roll(3) == 0 { StopRule::Never } else { StopRule::Prefix };
        options.temperature = [0.0, 0.7, 1.0][roll(3) as usize];
        options.seed = seed;
        Self { script: Script { seed, easy, spread, end }, options, stride, seed }
    }

    /// Runs the case; `change` sees each answer before the session, with the positions that mask rows predict.
    fn rounds(&self, mut change: impl FnMut(&mut Predictions, Range<Position>)) -> (Session, Vec<Round>) {
        let mut model = self.script.denoiser(1);
        let mut session = Session::new(self.options.clone()).unwrap();
        let id = model.open(&session.needs()[0].limits).unwrap();
        let mut piece = random::mix(self.seed ^ 7) as usize % 12 + 1;
        let rounds = of_session(&mut session, |request| {
            piece = piece % 12 + 1;
            let mut answer = in_pieces(&mut model, id, request, piece);
            self.script.ends(&mut answer);
            let guessed = guessed(request);
            change(&mut answer, guessed);
            answer
        });
        (session, rounds)
    }
}

/// Runs a request in pieces of so many rows, where it can be cut.
fn in_pieces(model: &mut Scripted, id: SequenceId, request: &ForwardInput, most: usize) -> Predictions {
    let (mut whole, mut from) = (Predictions::default(), 0);
    while from < request.plan.query.len() {
        let end = request.plan.piece_end(from, most);
        let mut piece = ForwardInput::default();
        if (from, end) == (0, request.plan.query.len()) {
            piece = request.clone();
        } else {
            request.fill_piece(from..end, 1, &mut piece);
        }
        let mut out = [Predictions::default()];
        model.step(&[piece.step(id)], &mut out).unwrap();
        whole.append(&out[0]);
        from = end;
    }
    whole
}

/// Positions that mask rows of a request predict.
fn guessed(request: &ForwardInput) -> Range<Position> {
    let masks = request.tokens.iter().rev().take_while(|&&token| token == MASK_ID).count() as Position;
    let end = request.plan.query.last().unwrap() + 2;
    end - masks..end
}

/// The text of `ar`, token by token at every temperature, whatever the masks guess; rounds, rows and stores as specified.
#[test]
fn idlm_1_2_5_7_8_11_12_13_14_rounds_write_the_text_of_ar() {
    let (mut verified, mut refused, mut held) = (0, 0, 0);
    for seed in 0..cases() {
        let case = Drawn::new(seed);
        let reference = run(case.script, case.options.clone(), "ar").unwrap();
        let (session, rounds) = case.rounds(|_, _| {});
        let what = format!("case {seed}, {}", case.options.decoder);
        assert_eq!(session.output().tokens, reference.run.output.tokens, "{what}");
        assert_eq!(session.output().finish, reference.run.output.finish, "{what}");
        assert_eq!(session.exactness().against(), Some("ar, cache causal"));
        assert!(!session.output().tokens.contains(&MASK_ID), "{what}");
        assert!(session.counts().forwards <= reference.session.counts().forwards, "{what}");
        hold(&case, &session, &rounds, &what);
        verified += rounds.iter().filter(|round| round.verifies).count();
        refused += rounds.windows(2).filter(|pair| pair[0].verifies && !pair[1].verifies).count();
        held += rounds.iter().map(|round| round.accepted).sum::<usize>();
        // Whatever mask rows say.
        let mut noise = random::mix(seed ^ 0x63);
        let (poisoned, rounds) = case.rounds(|answer, guessed| {
            for position in guessed {
                noise = random::mix(noise);
                let Some(index) = answer.index(0, position) else { continue };
                answer.tokens[index] = [noise as TokenId % MASK_ID, NO_TOKEN][usize::from(noise >> 60 == 0)];
                answer.confidence[index] = f32::NAN;
            }
        });
        assert_eq!(poisoned.output(), session.output(), "{what}: the guesses were poisoned");
        hold(&case, &poisoned, &rounds, &what);
    }
    assert!(verified > 0 && refused > 0 && held > refused, "{verified} {refused} {held}");
}

/// Checks kinds, rows, starts and counts of the rounds of a run.
fn hold(case: &Drawn, session: &Session, rounds: &[Round], what: &str) {
    let (length, stride) = (session.canvas().len(), case.stride);
    let mut settled = session.layout().response();
    for (index, round) in rounds.iter().enumerate() {
        let drafts = if index > 0 { rounds[index - 1].drafts.len() } else { 0 };
        assert!(drafts < stride && round.verifies == (drafts > 0), "{what}, round {index}");
        // Stored is what lies before the last settled token, neither more nor less.
        let pending = settled - 1;
        assert_eq!(round.start, if index == 0 { 0 } else { pending }, "{what}, round {index}");
        let behind = round.start + round.rows;
        assert_eq!(behind, (pending + drafts + stride).min(length - 1), "{what}, round {index}");
        let count = round.settled.len();
        let last = index + 1 == rounds.len();
        assert!((1..=stride).contains(&count), "{what}, round {index}");
        let whole = if round.verifies { round.accepted + 1 } else { 1 };
        assert!(count == whole || last && count < whole, "{what}, round {index}: {round:?}");
        if round.verifies && round.accepted < drafts {
            assert!(round.drafts.is_empty(), "{what}: a refusal is followed by a cold round or the end");
        }
        settled += count;
    }
    assert_eq!(rounds.len(), session.counts().forwards);
    let told: usize = session.receipt().acceptance.iter().sum();
    let with_drafts = rounds.iter().filter(|round| round.verifies && round.start + 2 < length).count();
    assert_eq!(told, with_drafts, "{what}: forwards with drafts by how many came true");
    let counted = session.receipt().rounds;
    assert_eq!(counted.is_some(), with_drafts > 0, "{what}");
    if let Some(counted) = counted {
        assert_eq!((counted.verify, counted.cold), (with_drafts, rounds.len() - with_drafts), "{what}");
        let came_true =
            rounds.iter().filter(|round| round.start + 2 < length).map(|round| round.accepted).sum::<usize>();
        assert_eq!(counted.accepted.iter().sum::<usize>(), came_true, "{what}");
        assert!(counted.drafted.len() < case.stride && counted.drafted[0] == with_drafts, "{what}");
    }
}

/// A network that knows its text settles a stride a forward.
#[test]
fn idlm_9_right_guesses_settle_a_stride_each() {
    for (prompt, gen_length) in [(1, 1), (5, 2), (3, 17), (4, 40)] {
        for stride in 2..=16 {
            let mut session = Session::new(causal(prompt, gen_length, &format!("isd:stride={stride}"))).unwrap();
            let text: Vec<TokenId> = (0..prompt + gen_length).map(|position| position as TokenId % 20).collect();
            let rounds = of_session(&mut session, |request| knows(request, &text));
            assert_eq!(session.canvas(), text);
            assert_eq!(rounds.len(), (gen_length - 1).div_ceil(stride) + 1, "{gen_length} by {stride}");
        }
    }
}

/// The answer of a model that knows the text.
fn knows(request: &ForwardInput, text: &[TokenId]) -> Predictions {
    let mut out = recite(request, text);
    // Each row predicts the next position, whatever stands there.
    for (index, position) in out.positions.clone().iter().enumerate() {
        (out.tokens[index], out.confidence[index]) = (text[position as usize], 0.9);
    }
    out
}

/// Guesses that are always wrong: no forward more than tokens, and the same text.
#[test]
fn idlm_10_wrong_guesses_cost_no_forward() {
    for stride in 2..=16 {
        let mut session = Session::new(causal(4, 30, &format!("isd:stride={stride}"))).unwrap();
        let text: Vec<TokenId> = (0..34).map(|position| position % 20).collect();
        let rounds = of_session(&mut session, |request| {
            let mut answer = knows(request, &text);
            for position in guessed(request) {
                let index = answer.index(0, position).unwrap();
                answer.tokens[index] = (answer.tokens[index] + 1) % 20;
            }
            answer
        });
        assert_eq!((session.canvas(), rounds.len()), (&text[..], 30));
        assert_eq!(rounds.iter().map(|round| round.accepted).sum::<usize>(), 0);
    }
}

#[test]
fn plans_of_rounds() {
    let mut session = Session::new(causal(4, 11, "isd:stride=3")).unwrap();
    let (text, mut plans): (Vec<TokenId>, Vec<String>) = ((0..15).map(|position| position % 20).collect(), Vec::new());
    of_session(&mut session, |request| {
        plans.push(request.plan.to_string());
        let mut answer = knows(request, &text);
        // The second draft of the second verified round does not come true.
        if let (Some(8), Some(index)) = (request.plan.predict.first(), answer.index(0, 9)) {
            answer.tokens[index] = 1;
        }
        answer
    });
    assert_eq!(
        plans,
        [
            "live 0..6 visible 6 causal canvas predict 4..7",
            "live 4..9 visible 9 causal drafts 1 predict 5..10",
            "keep 4..7 of lane 0; live 7..12 visible 12 causal drafts 1 predict 8..13",
            "keep 7..9 of lane 0; live 9..12 visible 12 causal canvas predict 10..13",
            "live 10..14 visible 14 causal drafts 1 predict 11..15",
            "keep 10..13 of lane 0; live 13 visible 14 causal canvas predict 14",
        ]
    );
}

/// Log-probabilities are those of rows that predict as `ar` does, never a guess's own.
#[test]
fn idlm_15_log_probabilities_are_those_of_ar() {
    for (seed, temperature) in [(1, 0.0), (2, 0.7), (3, 1.0)] {
        let script = Script::endless(seed, 0.8, 3.0);
        let mut options = causal(5, 40, "ar");
        (options.temperature, options.seed, options.top_logprobs) = (temperature, seed, Some(3));
        options.stop = StopRule::Never;
        let reference = run(script, options.clone(), "ar").unwrap();
        for decoder in ["isd", "isd:stride=9"] {
            let found = run(script, options.clone(), decoder).unwrap();
            assert!(found.session.receipt().acceptance.len() > 1, "some drafts come true");
            for position in 5..45 {
                let own = found.session.logprob(position);
                assert!(own.is_some() && own == reference.session.logprob(position), "{decoder}: position {position}");
            }
        }
    }
}

#[test]
fn what_cannot_stride_is_refused() {
    let refused = |options: SessionOptions| Session::new(options).unwrap_err().to_string();
    let mut unmasked = causal(4, 8, "isd");
    unmasked.facts.mask_id = None;
    assert_eq!(
        refused(unmasked),
        "decoder isd guesses at masks, and the model names no mask token: load it as `family` NAME:mask=ID, with an id that no \
         text has, or use ar"
    );
    let mut outside = causal(4, 8, "isd");
    outside.facts.mask_id = Some(VOCAB as TokenId);
    assert_eq!(
        refused(outside),
        "mask id 24 is outside the vocabulary, expected ids below 24: check that the tokenizer is the model's"
    );
    let mut prompted = causal(4, 8, "ar");
    prompted.facts.mask_id = Some(2);
    assert_eq!(refused(prompted), "the prompt holds the mask token (2) at position 2, expected text only: remove it");
    let uncached = SessionOptions { cache: "none".parse().unwrap(), ..causal(4, 8, "isd") };
    assert_eq!(refused(uncached), "decoder isd keeps the K/V of its causal passes, found cache none: use cache causal");
    let mut full = options(Mask::Full, 0, 4, 8);
    full.decoder = "isd".parse().unwrap();
    assert!(refused(full).starts_with("decoder isd cannot run a model with full attention: use static, "));
    for (text, told) in [
        ("isd:stride=1", "isd: stride is \"1\", expected a whole number from 2 to 16 (default: 4)"),
        ("isd:stride=17", "isd: stride is \"17\", expected a whole number from 2 to 16 (default: 4)"),
        ("isd:rule=exact", "isd: rule is \"exact\", expected one of coupled, pq, released (default: coupled)"),
    ] {
        assert_eq!(text.parse::<demask_decode::DecoderSpec>().unwrap_err().to_string(), told);
    }
}

/// What each rule may claim, at temperature 0 and above.
#[test]
fn claims_follow_from_the_rule_and_the_temperature() {
    let claim = |decoder: &str, temperature: f32| {
        let options = SessionOptions { temperature, ..causal(4, 8, decoder) };
        Session::new(options).unwrap().exactness().name()
    };
    assert_eq!(["isd", "isd:rule=pq", "isd:rule=released"].map(|rule| claim(rule, 0.0)), ["lossless"; 3]);
    assert_eq!(
        ["isd", "isd:rule=pq", "isd:rule=released"].map(|rule| claim(rule, 0.5)),
        ["lossless", "approximate", "approximate"]
    );
}
