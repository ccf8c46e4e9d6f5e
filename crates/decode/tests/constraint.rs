//! Sessions under a constraint, against what a table says of every text (specs/structure.md#12; names carry its numbers).

use std::sync::Arc;

use demask_decode::{
    CanvasSpec, Event, Finish, Session, SessionOptions, StopRule,
    constraint::{
        AtDeadline, ByteAutomaton, Constraint, Ends, Language as Form, Limits, Role, Source, Spelling, TokenAutomaton,
        TokenConstraint, Vocabulary,
    },
};
use demask_step::{ForwardInput, Job, Mask, NO_TOKEN, Predictions, TokenId, random};
use demask_testkit::{
    by_hand::ByHand,
    language::{Language, Rolls},
    naive::{head, network},
    property,
};

use crate::common::{MASK_ID, VOCAB, options};

const FULL: Mask = Mask::Full;
const BLOCKS: Mask = Mask::blocks(4);
const EOS: TokenId = 2;

/// Tokens `a`, `b`, an end and the others that a session needs.
fn vocabulary(texts: &[(TokenId, &str)]) -> Arc<Vocabulary> {
    let mut roles = vec![Role::Special; VOCAB];
    roles[MASK_ID as usize] = Role::Mask;
    for &(token, text) in texts {
        roles[token as usize] = Role::Text(text.as_bytes().to_vec());
    }
    Arc::new(Vocabulary::new(&roles, Ends { ends: vec![EOS], padding: vec![], fill: EOS }).unwrap())
}

/// The constraint that a text is one of these.
fn choice(choices: &[&str], vocabulary: Arc<Vocabulary>) -> TokenConstraint {
    let mut table = vec![[None; 256]];
    let mut accepting = vec![false];
    for choice in choices {
        let mut state = 0;
        for &byte in choice.as_bytes() {
            let next = table[state][usize::from(byte)].unwrap_or_else(|| {
                table.push([None; 256]);
                accepting.push(false);
                table.len() as u32 - 1
            });
            table[state][usize::from(byte)] = Some(next);
            state = next as usize;
        }
        accepting[state] = true;
    }
    let bytes = ByteAutomaton::new(&table, &accepting).unwrap();
    let source = Source { kind: "choice".into(), hash: "5eed".into(), ..Source::default() };
    TokenConstraint::new(Arc::new(TokenAutomaton::new(bytes, vocabulary, Limits::default())), source)
}

fn letters() -> Arc<Vocabulary> {
    vocabulary(&[(0, "a"), (1, "b"), (3, "ab"), (4, "ba")])
}

fn constrained(mask: Mask, gen_length: usize, constraint: TokenConstraint) -> SessionOptions {
    let options = options(mask, 0, 4, gen_length);
    SessionOptions { constraint: Some(constraint), end_ids: vec![EOS], fill: EOS, ..options }
}

/// A head over rows of logits, from the definition.
fn hear(request: &ForwardInput, vocab: usize, logit: impl Fn(u32, TokenId) -> f32) -> Predictions {
    let (plan, wanted) = (&request.plan, &request.ask.wanted);
    let mut out = Predictions { lanes: plan.lanes.count(), ..Predictions::default() };
    out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    for lane in 0..out.lanes {
        for position in out.positions.clone().iter() {
            let row: Vec<f32> = (0..vocab as TokenId).map(|token| logit(position, token)).collect();
            let answer = head::answer(&row, wanted, request.ask.key(lane, position), &[]);
            out.tokens.push(answer.token);
            out.confidence.push(answer.confidence as f32);
            out.margin.push(answer.margin as f32);
            out.entropy.push(answer.entropy as f32);
            let best = answer.top.iter().map(|&(token, share)| (token, share as f32));
            out.top.extend(best.chain(std::iter::repeat((NO_TOKEN, 0.0))).take(wanted.top));
            out.logits.extend(row);
        }
    }
    out
}

/// Runs a session on logits that a seed makes, and returns all events.
fn run(session: &mut Session, seed: u64) -> Vec<Event> {
    let mut events: Vec<Event> = session.events().collect();
    while session.wants() == Some(0) {
        let forward = session.counts().forwards as u64;
        let logit = |position: u32, token: TokenId| {
            let place = random::mix(seed ^ (forward << 40) ^ (u64::from(position) << 20) ^ u64::from(token));
            3.0 * random::gumbel(place) as f32
        };
        let answer = hear(&session.requests()[0], session.options().facts.vocab, logit);
        session.feed(&[answer]);
        events.extend(session.events());
    }
    assert_eq!(session.fault(), None);
    events
}

fn commits(events: &[Event]) -> Vec<(u32, TokenId, bool)> {
    marked(events).into_iter().map(|(position, token, forced, _)| (position, token, forced)).collect()
}

/// Commits, and whether each was forced and was changed.
fn marked(events: &[Event]) -> Vec<(u32, TokenId, bool, bool)> {
    let commit = |event: &Event| match *event {
        Event::Commit { position, token, forced, changed, .. } => Some((position, token, forced, changed)),
        _ => None,
    };
    events.iter().filter_map(commit).collect()
}

#[test]
fn structure_s16_impossible_requests_are_refused_before_anything_runs() {
    for mask in [FULL, BLOCKS, Mask::Causal] {
        let shift = u32::from(mask == Mask::Causal);
        let possible = |length, choices: &[&str]| {
            let mut options = constrained(mask, length, choice(choices, letters()));
            options.facts.shift = shift;
            Session::new(options).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(possible(4, &["abababab"]), Ok(()), "four tokens of two letters");
        assert_eq!(
            possible(4, &["abababababa", "aabbaabbaa"]),
            Err("the shortest text of the constraint takes 6 tokens, and there is room for 4: ask for 6 or more".into()),
            "{mask:?}"
        );
        assert!(possible(4, &["c"]).unwrap_err().contains("in the model's tokens"));
    }
    // Blocks of four reach behind the budget.
    let mut short = constrained(BLOCKS, 6, choice(&["abababab"], letters()));
    assert!(Session::new(short.clone()).is_ok());
    short.max_tokens = Some(3);
    assert!(Session::new(short).is_err());
}

#[test]
fn what_knows_no_constraint_is_refused_beside_one() {
    let refused = |change: &dyn Fn(&mut SessionOptions)| {
        let mut options = constrained(FULL, 8, choice(&["ab"], letters()));
        change(&mut options);
        let error = Session::new(options).map(|_| ()).unwrap_err();
        assert_eq!(error.option(), Some("constraint"), "{error}");
        error.to_string()
    };
    assert!(refused(&|options| options.stop_ids = vec![1]).contains("omit `stop_token_ids`"));
    assert!(refused(&|options| options.end_ids.clear()).contains("omit `ignore_eos`"));
    assert!(refused(&|options| options.suppress = vec![EOS]).contains("omit `suppress_eos`"));
    assert!(refused(&|options| (options.stop, options.fill) = (StopRule::FillBehind, 7)).contains("stop rule"));
    let foreign = vocabulary(&[(0, "a"), (MASK_ID, "b")]);
    assert!(refused(&|options| options.constraint = Some(choice(&["ab"], foreign.clone()))).contains("the mask"));
    let mut ends = constrained(FULL, 8, choice(&["ab"], letters()));
    ends.facts.vocab = 4;
    ends.facts.mask_id = Some(3);
    assert!(Session::new(ends).is_err(), "a tokenizer of more tokens than the model's");
}

#[test]
fn structure_s8_what_leaves_no_choice_is_committed_without_a_forward() {
    // The only text takes the only way in tokens.
    let single = vocabulary(&[(0, "a"), (1, "b")]);
    for mask in [FULL, BLOCKS] {
        let mut session = Session::new(constrained(mask, 8, choice(&["abba"], Arc::clone(&single)))).unwrap();
        assert!(session.is_over());
        let events: Vec<Event> = session.events().collect();
        let forced: Vec<_> = commits(&events).into_iter().filter(|commit| commit.2).map(|commit| commit.1).collect();
        assert_eq!(forced, [0, 1, 1, 0, EOS, EOS, EOS, EOS]);
        assert_eq!((session.counts().forwards, session.finish()), (0, Finish::Eos));
        assert_eq!(session.output().tokens, [0, 1, 1, 0, EOS]);
        let receipt = serde_json::to_value(session.receipt()).unwrap();
        assert_eq!(receipt["constraint"]["forced"], 8);
        assert_eq!(
            (&receipt["constraint"]["kind"], &receipt["constraint"]["hash"]),
            (&"choice".into(), &"5eed".into())
        );
        assert_eq!((&receipt["constraint"]["changed"], &receipt["constraint"]["states"]), (&0.into(), &5.into()));
    }
    // Two ways to spell it leave a choice, but for text that is forced as the tokenizer spells it.
    let mut two = constrained(FULL, 8, choice(&["ababa"], letters()));
    let mut session = Session::new(two.clone()).unwrap();
    assert_eq!(commits(&session.events().collect::<Vec<_>>()), [(9, EOS, true), (10, EOS, true), (11, EOS, true)]);
    let constraint = two.constraint.as_mut().unwrap();
    constraint.spelling = Some(Spelling::new(|bytes| {
        assert_eq!(bytes, b"ababa");
        vec![3, 3, 0]
    }));
    let mut session = Session::new(two).unwrap();
    let found: Vec<_> =
        commits(&session.events().collect::<Vec<_>>()).iter().map(|commit| (commit.0, commit.1)).collect();
    assert_eq!(found, [(9, EOS), (10, EOS), (11, EOS), (4, 3), (5, 3), (6, 0), (7, EOS), (8, EOS)]);
}

#[test]
fn structure_s4_s14_a_full_answer_needs_no_end_and_is_valid_text() {
    // Characters of two bytes, whose tokens may end inside of one.
    let mut roles = vec![Role::Special; VOCAB];
    for (token, bytes) in [(0, &b"\xc3"[..]), (1, &b"\xa9"[..]), (3, &b"\xa9\xc3"[..]), (4, &b"\xc3\xa9"[..])] {
        roles[token] = Role::Text(bytes.to_vec());
    }
    let vocabulary = Arc::new(Vocabulary::new(&roles, Ends { ends: vec![EOS], padding: vec![], fill: EOS }).unwrap());
    let mut table = vec![[None; 256]; 2];
    (table[0][0xc3], table[1][0xa9]) = (Some(1), Some(0));
    let bytes = ByteAutomaton::new(&table, &[true, false]).unwrap();
    let automaton = Arc::new(TokenAutomaton::new(bytes, Arc::clone(&vocabulary), Limits::default()));
    let mut full = 0;
    for seed in 0..u64::from(property::count(200)) {
        let mask = [FULL, BLOCKS][seed as usize % 2];
        let mut options = constrained(mask, 6, TokenConstraint::new(Arc::clone(&automaton), Source::default()));
        options.max_tokens = Some(5);
        if mask == FULL {
            options.decoder = "threshold:tau=0.5".parse().unwrap();
        }
        let mut session = Session::new(options).unwrap();
        while session.wants() == Some(0) {
            let logit = |position: u32, token: TokenId| {
                random::gumbel(random::mix(seed ^ u64::from(position * 64 + token))) as f32
            };
            let answer = hear(&session.requests()[0], VOCAB, logit);
            session.feed(&[answer]);
            let told: Vec<u8> =
                session.output().tokens.iter().flat_map(|&token| vocabulary.text(token).to_vec()).collect();
            let valid = std::str::from_utf8(&told);
            assert!(
                valid.is_ok_and(|text| text.chars().all(|c| c == 'é'))
                    || valid.is_err_and(|error| error.error_len().is_none())
            );
        }
        let (output, finish) = (session.output(), session.finish());
        let ended = output.tokens.last() == Some(&EOS);
        assert_eq!(finish, if ended { Finish::Eos } else { Finish::Stop });
        let text: Vec<u8> = output.tokens.iter().flat_map(|&token| vocabulary.text(token).to_vec()).collect();
        assert!(output.tokens.len() <= 5 && std::str::from_utf8(&text).is_ok());
        full += usize::from(!ended);
    }
    assert!(cfg!(miri) || full > 0, "no answer used all of its tokens");
}

/// One token a step, in any order: each is the admissible token of the highest score, of what the filters leave, and is marked as
/// changed where the head alone would have had another one.
#[test]
fn structure_s3_s12_single_commits_are_the_best_admissible_ones() {
    let (mut compared, mut overruled) = (0, 0);
    for seed in 0..u64::from(property::count(2000)) {
        let mut rolls = Rolls(seed);
        let vocab = 6;
        let mut language = Language::roll(&mut rolls, vocab, Some(&[EOS]));
        language.leave_out(5);
        let Some(constraint) = language.constraint(Some(5), Limits::default()) else { continue };
        let mut options = constrained(FULL, 5, constraint);
        (options.facts.vocab, options.facts.mask_id) = (vocab, Some(5));
        options.canvas = CanvasSpec::Prompt { tokens: vec![0, 1], gen_length: 5 };
        options.temperature = [0.0, 0.8][rolls.below(2)];
        options.top_k = [0, 1, 2][rolls.below(3)];
        options.top_p = [1.0, 0.6][rolls.below(2)];
        options.seed = seed;
        let Ok(mut session) = Session::new(options) else { continue };
        let mut canvas: Vec<Option<TokenId>> = vec![None; 5];
        let events: Vec<Event> = session.events().collect();
        for (position, token, _) in commits(&events) {
            canvas[position as usize - 2] = Some(token);
        }
        while session.wants() == Some(0) {
            let forward = session.counts().forwards as u64;
            let logit = |position: u32, token: TokenId| {
                2.0 * random::gumbel(random::mix(seed ^ (forward << 30) ^ u64::from(position * 64 + token))) as f32
            };
            let request = session.requests()[0].clone();
            session.feed(&[hear(&request, vocab, logit)]);
            let events: Vec<Event> = session.events().collect();
            let fillings = language.fillings(&canvas, 5, false);
            for (position, token, forced, changed) in marked(&events) {
                let place = position as usize - 2;
                let row: Vec<f32> = (0..vocab as TokenId).map(|token| logit(position, token)).collect();
                let predicted = best(&row, &request, position, |token| request.ask.wanted.allows(token));
                assert_eq!(changed, !forced && token != predicted, "case {seed}");
                overruled += usize::from(changed);
                if !forced {
                    let expected =
                        best(&row, &request, position, |token| fillings.iter().any(|filling| filling[place] == token));
                    assert_eq!(token, expected, "case {seed}");
                    compared += 1;
                }
                canvas[place] = Some(token);
            }
        }
    }
    assert!(cfg!(miri) || compared > 2000 && (1..compared).contains(&overruled), "{overruled} of {compared}");
}

/// The best admissible token of a row: of those that the filters leave if any is, else of all.
fn best(row: &[f32], request: &ForwardInput, position: u32, admissible: impl Fn(TokenId) -> bool) -> TokenId {
    let (key, wanted) = (request.ask.key(0, position), &request.ask.wanted);
    let tokens = 0..row.len() as TokenId;
    let sampling = wanted.sampling;
    let mut left = row.to_vec();
    if sampling.temperature > 0.0 {
        network::top_p(&mut left, f64::from(sampling.top_p), f64::from(sampling.temperature));
        network::top_k(&mut left, sampling.top_k as usize);
        // The first that may be predicted passes, and so does what is before it.
        let order = network::falling(row);
        let first = order.iter().position(|&token| wanted.allows(token as TokenId)).unwrap();
        order[..=first].iter().for_each(|&token| left[token] = row[token]);
    }
    let passes = |token: TokenId| left[token as usize] > f32::NEG_INFINITY;
    let score = |token: TokenId| match wanted.sampling.temperature {
        0.0 => row[token as usize],
        temperature => row[token as usize] / temperature + random::token_gumbel(key, token),
    };
    let first = |best: TokenId, next: TokenId| if score(next) > score(best) { next } else { best };
    let left = tokens.clone().filter(|&token| admissible(token) && passes(token)).reduce(first);
    left.or_else(|| tokens.filter(|&token| admissible(token)).reduce(first)).unwrap()
}

/// The same answers whatever is kept of the automaton, and whichever requests share it.
#[test]
fn structure_s11_answers_do_not_depend_on_what_is_kept() {
    let mut compared = 0;
    for seed in 0..u64::from(property::count(300)) {
        let mut rolls = Rolls(seed);
        let mut language = Language::roll(&mut rolls, VOCAB, Some(&[EOS]));
        language.leave_out(MASK_ID);
        let decoder = ["static", "threshold:tau=0.3", "factor", "freedave:d=3"][rolls.below(4)];
        let mask = [FULL, BLOCKS][rolls.below(2)];
        let temperature = [0.0, 0.7][rolls.below(2)];
        let of = |constraint: TokenConstraint| {
            let mut options = constrained(mask, 12, constraint);
            options.decoder = decoder.parse().unwrap();
            options.temperature = temperature;
            options.steps = (mask == FULL).then_some(4);
            Session::new(options)
        };
        let limits = |classes, memory| Limits { classes, memory, ..Limits::default() };
        let Some(shared) = language.constraint(Some(MASK_ID), Limits::default()) else { continue };
        let Ok(mut first) = of(shared.clone()) else { continue };
        let expected = run(&mut first, seed);
        compared += 1;
        for (classes, memory) in [(0, 1 << 20), (3, 1 << 20), (4096, 0)] {
            let constraint = language.constraint(Some(MASK_ID), limits(classes, memory)).unwrap();
            assert_eq!(run(&mut of(constraint).unwrap(), seed), expected, "{classes} classes, {memory} bytes");
        }
        let others: Vec<_> = (0..3)
            .map(|other| {
                let mut session = of(shared.clone()).unwrap();
                std::thread::spawn(move || run(&mut session, if other == 0 { seed } else { seed ^ other }))
            })
            .collect();
        let events: Vec<Vec<Event>> = others.into_iter().map(|other| other.join().unwrap()).collect();
        assert_eq!(events[0], expected, "with others");
    }
    assert!(cfg!(miri) || compared > 100, "{compared}");
}

/// Distances in bytes narrow what may stand in a block, and never lead to where nothing completes it.
#[test]
fn structure_s2_blocks_by_distances_in_bytes_can_always_be_completed() {
    let mut roles: Vec<Role> = (0..=255u8).map(|byte| Role::Text(vec![byte])).collect();
    roles.extend([Role::Text(b"aba".to_vec()), Role::Text(b"bb".to_vec()), Role::Special, Role::Mask]);
    let (end, mask) = (258, 259);
    let vocabulary = Arc::new(Vocabulary::new(&roles, Ends { ends: vec![end], padding: vec![], fill: end }).unwrap());
    let mut answered = 0;
    for seed in 0..u64::from(property::count(200)) {
        let mut rolls = Rolls(seed);
        let language = Language::roll(&mut rolls, 4, Some(&[3]));
        let Some(bytes) = ByteAutomaton::new(&language.table(), &language.accepting) else { continue };
        let limits = Limits { states: 0, ..Limits::default() };
        let automaton = TokenAutomaton::new(bytes.clone(), Arc::clone(&vocabulary), limits);
        let mut options = constrained(BLOCKS, 12, TokenConstraint::new(Arc::new(automaton), Source::default()));
        (options.facts.vocab, options.facts.mask_id, options.end_ids, options.fill) = (260, Some(mask), vec![end], end);
        options.decoder = "threshold:tau=0.2".parse().unwrap();
        let Ok(mut session) = Session::new(options) else { continue };
        run(&mut session, seed);
        let text: Vec<u8> = session.output().tokens.iter().flat_map(|&token| vocabulary.text(token).to_vec()).collect();
        assert!(bytes.contains(&text), "{text:?}");
        answered += 1;
    }
    assert!(cfg!(miri) || answered > 100, "{answered}");
}

/// From left to right every step counts the rest of a large automaton in bytes. A text that fits in tokens alone was begun, and
/// no token could be its first.
#[test]
fn structure_s5_s16_a_text_that_is_too_long_in_bytes_is_refused_at_once() {
    let mut roles: Vec<Role> = (0..=255u8).map(|byte| Role::Text(vec![byte])).collect();
    roles.extend([Role::Text(b"aba".to_vec()), Role::Special, Role::Mask]);
    let (end, mask) = (257, 258);
    let vocabulary = Arc::new(Vocabulary::new(&roles, Ends { ends: vec![end], padding: vec![], fill: end }).unwrap());
    let bytes = Constraint::new(Form::Regex("(aba){4}".to_owned())).compile().unwrap().automaton;
    let session = |states: usize, gen_length: usize| {
        let limits = Limits { states, ..Limits::default() };
        let automaton = TokenAutomaton::new(bytes.clone(), Arc::clone(&vocabulary), limits);
        let mut options =
            constrained(Mask::Causal, gen_length, TokenConstraint::new(Arc::new(automaton), Source::default()));
        (options.facts.vocab, options.facts.mask_id, options.end_ids, options.fill) = (259, Some(mask), vec![end], end);
        options.facts.shift = 1;
        Session::new(options).map_err(|error| error.to_string())
    };
    let told = "the shortest text of the constraint has 12 bytes, which may be as many tokens, and there is room for 6: ask for 12 or more";
    assert_eq!(session(0, 6).err().as_deref(), Some(told));
    for (states, gen_length) in [(0, 12), (4096, 6)] {
        let mut session = session(states, gen_length).unwrap();
        run(&mut session, 1);
        let text: Vec<u8> = session.output().tokens.iter().flat_map(|&token| vocabulary.text(token).to_vec()).collect();
        assert_eq!(text, b"abaabaabaaba");
    }
}

#[test]
fn each_hole_is_a_text_of_its_own() {
    let constraint = choice(&["ab", "abba"], vocabulary(&[(0, "a"), (1, "b")]));
    let mut options = constrained(FULL, 8, constraint);
    let masks = |count: usize| vec![MASK_ID; count];
    options.canvas = CanvasSpec::Infill { tokens: [vec![7], masks(2), vec![9, 9], masks(4), vec![8]].concat() };
    options.suppress = vec![EOS];
    let mut session = Session::new(options.clone()).unwrap();
    run(&mut session, 1);
    assert_eq!(session.canvas(), [7, 0, 1, 9, 9, 0, 1, 1, 0, 8]);
    options.canvas = CanvasSpec::Infill { tokens: [vec![7], masks(2), vec![9], masks(3)].concat() };
    let refused = Session::new(options).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("the 3 tokens that there are"), "{refused}");
}

#[test]
fn the_last_predictions_complete_an_answer_whose_time_is_over() {
    for (mask, completes) in [(FULL, true), (FULL, false), (BLOCKS, true)] {
        let mut constraint = choice(&["abababab", "bababababa", "bb"], letters());
        constraint.deadline = if completes { AtDeadline::Complete } else { AtDeadline::Settled };
        let mut session = Session::new(constrained(mask, 12, constraint)).unwrap();
        let answer = hear(&session.requests()[0], VOCAB, |position, token| ((position * 7 + token * 5) % 11) as f32);
        session.feed(&[answer]);
        let forwards = session.counts().forwards;
        let _ = session.events().count();
        session.give_up();
        assert_eq!((session.counts().forwards, session.masks() == 0), (forwards, completes));
        for (position, token, forced, changed) in marked(&session.events().collect::<Vec<_>>()) {
            let predicted = (0..VOCAB as TokenId).filter(|&token| token != MASK_ID).rev();
            let predicted = predicted.max_by_key(|token| (position * 7 + token * 5) % 11).unwrap();
            // Blocks that no forward saw have no prediction that could be changed.
            let seen = mask == FULL || position < 8;
            assert_eq!((forced, changed), (false, seen && token != predicted), "{position}");
        }
        let text: String =
            session.output().tokens.iter().map(|&token| ["a", "b", "", "ab", "ba"][token as usize]).collect();
        assert_eq!(["abababab", "bababababa", "bb"].contains(&text.as_str()), completes, "{text}");
        assert_eq!(session.finish(), if completes { Finish::Eos } else { Finish::Deadline });
        assert_eq!(session.receipt().given_up, Some(session.masks()));
    }
}

/// Log-probabilities of commits are the model's own.
#[test]
fn log_probabilities_are_unconstrained() {
    let mut options = constrained(FULL, 4, choice(&["ab", "ba", "bbaa"], vocabulary(&[(0, "a"), (1, "b")])));
    options.top_logprobs = Some(1);
    options.decoder = "threshold:tau=0".parse().unwrap();
    let mut session = Session::new(options).unwrap();
    let row = |token: TokenId| if token == 9 { 4.0 } else { f64::from(token == 1) };
    let answer = hear(&session.requests()[0], VOCAB, |_, token| row(token) as f32);
    session.feed(&[answer]);
    let sum: f64 = (0..VOCAB as TokenId).map(|token| row(token).exp()).sum();
    assert_eq!(session.canvas()[4..], [1, 1, 0, 0], "the most of what is likely that fits");
    for (place, &token) in session.canvas()[4..].iter().enumerate() {
        let Some(found) = session.logprob(4 + place as u32) else { continue };
        let expected = (row(token).exp() / sum).ln();
        assert!((f64::from(found.log_probability) - expected).abs() < 1e-5, "{found:?}");
        assert_eq!(found.top[0].0, 9);
    }
    let receipt = serde_json::to_value(session.receipt()).unwrap();
    let counts = &receipt["constraint"];
    let decided = session.counts().commits - counts["forced"].as_u64().unwrap() as usize;
    assert_eq!(counts["changed"], decided);
}
