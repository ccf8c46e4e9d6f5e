use std::path::Path;

use demask_checkpoint::ModelFiles;
use demask_step::{Mask, TokenId};
use serde_json::{Value, json};

use super::*;
use crate::{DeviceOptions, DtypeChoice, Model, Options, Prompt};

const ASKED: &str = "Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?";

/// One model for each way of seeing: everything, everything with shifted rows, blocks from position 0, tokens before, blocks
/// whose first token the text before it predicts, and blocks from the prompt's end.
const MODELS: [&str; 6] = [
    "demo/demo-llada",
    "demo/demo-dream",
    "demo/demo-sdar",
    "demo/demo-qwen",
    "golden/ckpt/dense-fastdllm2-toy",
    "golden/ckpt/dense-a2d-qwen3-bd3lm-toy",
];

fn model(folder: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let device = DeviceOptions { dtype: DtypeChoice::F32, ..DeviceOptions::default() };
    Model::load(ModelFiles::directory(path).unwrap(), &device, &mut |_| true).unwrap()
}

fn choice(instructions: &str, choices: &[&str]) -> Question {
    let texts = choices.iter().map(|&text| text.to_owned()).collect();
    Question::new(instructions, QuestionKind::Choice(texts))
}

/// Questions with choices of one token, of several, of unlike lengths, and of which one begins as another ends.
fn questions() -> Vec<Question> {
    vec![
        choice("3+4=7 pears.\nThe final answer is", &["7", "9", "1"]),
        choice("The final answer is", &["17", "7", "175", "71"]),
        Question::new("How many?", QuestionKind::Score { min: 8, max: 11 }),
        Question::new("Is this right?", QuestionKind::Predicate),
    ]
}

/// Log-probability of a token at a position after these tokens, by all logits of one forward.
fn naive(model: &Model, tokens: &[TokenId], attention: Mask, row: usize, token: TokenId) -> f64 {
    let (tokens, vocabulary) = (tokens.to_vec(), model.info().facts().vocab);
    let all = model.with_network(move |network| network.inspect(&tokens, attention, false)).unwrap().unwrap().logits;
    let row: Vec<f64> = all[row * vocabulary..][..vocabulary].iter().map(|&logit| f64::from(logit)).collect();
    let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row[token as usize] - best - row.iter().map(|logit| (logit - best).exp()).sum::<f64>().ln()
}

/// Tokens of each question: those before its slot, and each choice with its end if it is shorter than another one.
fn in_tokens(
    model: &Model,
    questions: &[Question],
    end_of: impl Fn(usize) -> TokenId,
) -> Vec<(Vec<TokenId>, Vec<Vec<TokenId>>)> {
    let encode = |text: &str| model.info().tokenizer().unwrap().encode(text, false).unwrap();
    let of = |(index, question): (usize, &Question)| {
        let mut before = encode(&question.instructions);
        let all =
            question.texts("").unwrap().into_iter().map(|text| encode(&format!("{} {text}", question.instructions)));
        let mut choices: Vec<Vec<TokenId>> = all.map(|all| all[before.len()..].to_vec()).collect();
        while choices.iter().all(|choice| choice.first().is_some_and(|first| Some(first) == choices[0].first())) {
            before.push(choices[0][0]);
            for choice in &mut choices {
                choice.remove(0);
            }
        }
        let longest = choices.iter().map(Vec::len).max().unwrap();
        choices.iter_mut().filter(|choice| choice.len() < longest).for_each(|choice| choice.push(end_of(index)));
        (before, choices)
    };
    questions.iter().enumerate().map(of).collect()
}

/// The chain of each choice, token after token, each in a forward of its own.
fn chains(model: &Model, questions: &[Question]) -> Vec<Vec<f64>> {
    let facts = model.info().facts();
    let context = model.info().ids(&Prompt::from(ASKED)).unwrap();
    let special = &model.info().text.special;
    let (line_feed, turn_end) = (
        *model.info().tokenizer().unwrap().encode("\n", false).unwrap().last().unwrap(),
        special.turn_end.or(special.eos).unwrap(),
    );
    let last = questions.len() - 1;
    let end_of = |index| if facts.mask == Mask::Full && index < last { line_feed } else { turn_end };
    let lines = in_tokens(model, questions, end_of);
    let slot = |choices: &[Vec<TokenId>]| choices.iter().map(Vec::len).max().unwrap();
    let whole = |own: usize, written: &[TokenId]| {
        let mut tokens = context.clone();
        let mut start = 0;
        for (index, (before, choices)) in lines.iter().enumerate() {
            tokens.extend((index > 0).then_some(line_feed));
            tokens.extend(before);
            let place = tokens.len();
            tokens.resize(place + slot(choices), facts.mask_id.unwrap());
            if index == own {
                start = place;
                tokens[place..place + written.len()].copy_from_slice(written);
            }
        }
        tokens.push(turn_end);
        (tokens, start)
    };
    let predicted = |own: usize, written: &[TokenId], token: TokenId| {
        if facts.mask == Mask::Full {
            let (tokens, start) = whole(own, written);
            let row = start + written.len() - facts.shift as usize;
            return naive(model, &tokens, Mask::Full, row, token);
        }
        let mut tokens = [&context, &lines[own].0[..], written].concat();
        let (place, first) = (tokens.len(), context.len() + lines[own].0.len());
        let Mask::BlockCausal { block, .. } = facts.mask else {
            return naive(model, &tokens, Mask::Causal, place - 1, token);
        };
        let block = block as usize;
        let from = if facts.blocks.origin == demask_step::Origin::Prompt { first % block } else { 0 };
        let mask = Mask::BlockCausal { block: block as u32, offset: ((block - from) % block) as u32 };
        if facts.blocks.seeds && (place - from).is_multiple_of(block) {
            return naive(model, &tokens, mask, place - 1, token);
        }
        tokens.resize(((place - from) / block + 1) * block + from, facts.mask_id.unwrap());
        naive(model, &tokens, mask, place - facts.shift as usize, token)
    };
    let chain = |own: usize, choice: &[TokenId]| {
        (0..choice.len()).map(|place| predicted(own, &choice[..place], choice[place])).sum::<f64>()
    };
    lines
        .iter()
        .enumerate()
        .map(|(own, (_, choices))| choices.iter().map(|choice| chain(own, choice)).collect())
        .collect()
}

#[test]
fn the_probability_of_a_choice_is_that_of_its_tokens_one_after_the_other() {
    for folder in MODELS {
        let model = model(folder);
        let questions = questions();
        let found = model.decide(ASKED, &questions).unwrap();
        for (own, (expected, answer)) in chains(&model, &questions).iter().zip(&found.answers).enumerate() {
            let mass: f64 = expected.iter().map(|log| log.exp()).sum();
            let near = |found: f64, expected: f64| (found - expected).abs() <= 1e-3 * expected + 1e-9;
            assert!(near(answer.mass, mass), "{folder}, {own}: {} instead of {mass}", answer.mass);
            for (found, log) in answer.probabilities.iter().zip(expected) {
                assert!(near(*found, log.exp() / mass), "{folder}, {own}: {found} instead of {}", log.exp() / mass);
            }
            assert!((answer.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(answer.mass > 0.0 && answer.mass <= 1.0);
            assert!(answer.probabilities.iter().all(|&other| other <= answer.confidence()));
        }
    }
}

#[test]
fn questions_whose_choices_are_one_token_take_one_forward_together() {
    for folder in &MODELS[..2] {
        let model = model(folder);
        let ask = |count: usize| {
            let question = choice("The final answer is", &["7", "9", "1", "4"]);
            model.decide(ASKED, &vec![question; count]).unwrap()
        };
        assert_eq!((ask(1).forwards, ask(12).forwards), (1, 1), "{folder}");
        let alone: usize =
            questions().iter().map(|one| model.decide(ASKED, std::slice::from_ref(one)).unwrap().forwards).sum();
        assert_eq!(model.decide(ASKED, &questions()).unwrap().forwards, alone - (questions().len() - 1));
    }
}

#[test]
fn the_demo_knows_the_answer_of_a_sum() {
    for folder in &MODELS[..4] {
        let model = model(folder);
        let question = choice("3+4=7 pears.\nThe final answer is", &["12", "7", "71", "9"]);
        let answer = &model.decide(ASKED, &[question]).unwrap().answers[0];
        assert_eq!(answer.choices[answer.choice], "7", "{folder}: {:?}", answer.probabilities);
        assert!(answer.confidence() > 0.9 && answer.mass > 0.9, "{folder}: {answer:?}");
    }
}

#[test]
fn answers_have_the_same_bits_beside_other_requests() {
    for folder in &MODELS[..4] {
        let model = model(folder);
        let bits = |found: &Decisions| -> Vec<u64> {
            let of = |one: &Decision| [&one.probabilities[..], &[one.mass]].concat();
            found.answers.iter().flat_map(of).map(f64::to_bits).collect()
        };
        let expected = bits(&model.decide(ASKED, &questions()).unwrap());
        let options = Options { gen_length: Some(16), ..Options::default() };
        let others: Vec<_> = (0..3).map(|_| model.stream("Eva has 5 cups. How many?", &options).unwrap()).collect();
        let prompt = Prompt::from(ASKED);
        let asked = (0..4)
            .map(|_| model.submit_decisions(&prompt, &questions(), crate::SchedulingParams::default(), None).unwrap());
        for one in asked.collect::<Vec<_>>() {
            assert_eq!(bits(&one.wait().unwrap()), expected, "{folder}");
        }
        for other in others {
            other.wait().unwrap();
        }
    }
}

#[test]
fn a_score_is_the_mean_of_its_values() {
    let question = Question::new("How many?", QuestionKind::Score { min: -1, max: 1 });
    let decision = Decision::of(&question, question.texts("").unwrap(), &[-3.0, -2.0, -2.5]);
    let shares = [(-1.0f64).exp(), 1.0, (-0.5f64).exp()];
    let all: f64 = shares.iter().sum();
    assert!((decision.score.unwrap() - (shares[2] - shares[0]) / all).abs() < 1e-12);
    assert!((decision.mass - all * (-2.0f64).exp()).abs() < 1e-12);
    assert_eq!(decision.choice, 1);
    let levels = Question::new("How?", QuestionKind::Levels(vec!["low".to_owned(), "high".to_owned()]));
    let decision = Decision::of(&levels, levels.texts("").unwrap(), &[-1.0, -1.0]);
    assert_eq!((decision.score, decision.choice), (Some(0.5), 0), "the first of equal ones");
}

/// The line that is said of questions.
fn refused(model: &Model, prompt: &Prompt, questions: &[Question]) -> String {
    let error = model.decide(prompt, questions).unwrap_err();
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn questions_that_cannot_be_answered_are_refused() {
    let model = model(MODELS[0]);
    let prompt = Prompt::from(ASKED);
    let many: Vec<String> = (0..=MOST_CHOICES).map(|index| index.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let score = |min, max| Question::new("How many?", QuestionKind::Score { min, max });
    let right = choice("Is it?", &["a", "b"]);
    for (questions, expected) in [
        (vec![], "`questions`: there are 0, expected 1 to 400"),
        (vec![right.clone(); 401], "`questions`: there are 401, expected 1 to 400"),
        (vec![right.clone(), choice("Which?", &["a"])], "`questions[1].choices`: there are 1, expected 2 to 255"),
        (vec![choice("Which?", &many)], "`questions[0].choices`: there are 256, expected 2 to 255"),
        (vec![choice("Which?", &["a", "b", "a"])], "`questions[0].choices[2]`: \"a\" is choice 0 already: omit one"),
        (
            vec![choice("Which?", &["a", " "])],
            "`questions[0].choices[1]`: \" \" cannot be chosen, expected a text of one line",
        ),
        (vec![choice("Which?", &["a", "b\nc"])], "`questions[0].choices[1]`: \"b\\nc\" cannot be chosen"),
        (vec![choice(" ", &["a", "b"])], "`questions[0].instructions`: it is empty"),
        (vec![score(4, 4)], "`questions[0].max`: the score goes from 4 to 4, expected `min` below `max`"),
        (vec![score(5, 1)], "`questions[0].max`: the score goes from 5 to 1"),
        (vec![score(0, 255)], "`questions[0].max`: the score goes from 0 to 255"),
        (vec![score(i64::MIN, i64::MAX)], "`questions[0].max`: the score goes from -9223372036854775808"),
    ] {
        let found = refused(&model, &prompt, &questions);
        assert!(found.starts_with(expected), "{found}");
    }
    let long = Prompt::from("a ".repeat(model.info().facts().context + 1));
    assert!(refused(&model, &long, std::slice::from_ref(&right)).contains("context"));
    let holes = Prompt::Infill("a <mask:3>".to_owned());
    assert_eq!(
        refused(&model, &holes, &[right]),
        "`infill` has no meaning with questions: their slots are what is filled: omit it"
    );
}

#[test]
fn control_tokens_that_a_question_spells_are_text() {
    let model = model(MODELS[0]);
    let spelled = choice("Is <|eot_id|> an end?", &["<|mdm_mask|>", "no"]);
    let found = model.decide(ASKED, &[spelled]).unwrap();
    assert_eq!(found.answers[0].choices[0], "<|mdm_mask|>");
}

#[test]
fn questions_are_read_as_programs_write_them() {
    let list = json!([
        {"type": "predicate", "name": "urgent", "instructions": "Is it?"},
        {"type": "choice", "instructions": "Which?", "choices": ["a", {"value": "b", "description": "the other"}]},
        {"type": "score", "instructions": "How many?", "min": 1, "max": 5, "name": null},
        {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high"}]},
    ]);
    let read = Question::list(&list).unwrap();
    assert_eq!(
        read[0],
        Question { name: Some("urgent".to_owned()), ..Question::new("Is it?", QuestionKind::Predicate) }
    );
    assert_eq!(read[1], choice("Which?\n- b: the other\n", &["a", "b"]));
    assert_eq!(read[2], Question::new("How many?", QuestionKind::Score { min: 1, max: 5 }));
    assert_eq!(read[3], Question::new("How?", QuestionKind::Levels(vec!["low".to_owned(), "high".to_owned()])));
    let answer =
        |question: &Question, logs: &[f64]| question.answer(&Decision::of(question, question.texts("").unwrap(), logs));
    let half = 0.5f64.ln();
    let predicate = answer(&read[0], &[(0.25f64).ln(), (0.25f64).ln()]);
    assert_eq!(
        predicate,
        json!({"type": "predicate", "name": "urgent", "probability": 0.5, "choice": true, "confidence": 0.5, "mass": 0.5})
    );
    let chosen = answer(&read[1], &[half, half]);
    let shares = json!([{"value": "a", "probability": 0.5}, {"value": "b", "probability": 0.5}]);
    assert_eq!(
        chosen,
        json!({"type": "choice", "name": null, "choice": "a", "confidence": 0.5, "probabilities": shares, "mass": 1.0})
    );
    let score = answer(&read[3], &[half, half]);
    let shares =
        json!([{"value": 0, "label": "low", "probability": 0.5}, {"value": 1, "label": "high", "probability": 0.5}]);
    assert_eq!(
        score,
        json!({"type": "score", "name": null, "score": 0.5, "choice": 0, "confidence": 0.5, "probabilities": shares, "mass": 1.0})
    );
}

#[test]
fn json_that_is_no_question_is_refused_by_its_place() {
    let one = |question: Value| json!([question]);
    for (list, expected) in [
        (json!({}), "`questions`: it is {}, expected a list of questions"),
        (json!([]), "`questions`: there are 0, expected 1 to 400"),
        (one(json!("a")), "`questions[0]`: it is \"a\", expected an object"),
        (one(json!({"instructions": "a"})), "`questions[0].type`: it is missing, expected a text"),
        (
            one(json!({"type": "noul", "instructions": "a"})),
            "`questions[0].type`: it is \"noul\", expected predicate, choice or score",
        ),
        (one(json!({"type": "predicate"})), "`questions[0].instructions`: it is missing"),
        (
            one(json!({"type": "predicate", "instructions": "a", "min": 1})),
            "`questions[0].min`: it is unknown: omit it",
        ),
        (
            one(json!({"type": "choice", "instructions": "a"})),
            "`questions[0].choices`: it is missing, expected a list of texts",
        ),
        (
            one(json!({"type": "choice", "instructions": "a", "choices": [1]})),
            "`questions[0].choices[0]`: it is 1, expected a text",
        ),
        (
            one(json!({"type": "choice", "instructions": "a", "choices": [{"value": true}]})),
            "`questions[0].choices[0].value`: it is true, expected a text",
        ),
        (
            one(json!({"type": "score", "instructions": "a", "min": 1})),
            "`questions[0].max`: it is missing, expected an integer",
        ),
        (
            one(json!({"type": "score", "instructions": "a", "min": 1, "max": 2.5})),
            "`questions[0].max`: it is 2.5, expected an integer",
        ),
    ] {
        let found = Question::list(&list).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}");
    }
}
