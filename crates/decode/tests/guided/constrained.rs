//! Guides under a constraint: they rank the tokens that a text of the language may go on with, in whatever tokens they read
//! (specs/structure.md#7 and S10).

use std::sync::Arc;

use demask_decode::{
    CanvasSpec, Event, GuideOptions, Session, SessionOptions,
    constraint::{
        ByteAutomaton, Constraint, Ends, Language, Limits, Role, Source, TokenAutomaton, TokenConstraint, Vocabulary,
    },
};
use demask_step::{ForwardInput, Job, Predictions, TokenId, TokenScore, random};
use demask_testkit::{by_hand::ByHand, naive::head, property};
use proptest::prelude::*;

use super::{
    guided, shared,
    vocabularies::{GUIDE, MODEL, foreign},
};
use crate::common::{EOS, MASK_ID, VOCAB};

/// The guide's own end, which the model's vocabulary does not have.
const GUIDE_END: TokenId = 14;

/// The bytes of a regular expression.
fn bytes(form: &str) -> Arc<ByteAutomaton> {
    Arc::new(Constraint::new(Language::Regex(form.to_owned())).compile().unwrap().automaton)
}

/// The automaton over these texts and an end; `limits` say how much of it is kept.
fn automaton(bytes: &Arc<ByteAutomaton>, texts: &[&[u8]], end: TokenId, limits: Limits) -> Arc<TokenAutomaton> {
    let mut roles = vec![Role::Special; VOCAB];
    roles.iter_mut().zip(texts).for_each(|(role, text)| *role = Role::Text(text.to_vec()));
    let vocabulary = Vocabulary::new(&roles, Ends { ends: vec![end], padding: Vec::new(), fill: end }).unwrap();
    Arc::new(TokenAutomaton::new(Arc::clone(bytes), Arc::new(vocabulary), limits))
}

/// Options of a model under a form: with a guide of its own tokens, or of others, which may have an automaton of its own.
fn held(decoder: &str, form: &str, gen_length: usize, guide: GuideOptions, limits: Limits) -> SessionOptions {
    let bytes = bytes(form);
    let constraint = TokenConstraint::new(automaton(&bytes, MODEL, EOS, limits), Source::default());
    let mut options = guided(decoder, 0, 2, gen_length);
    let mut guide = GuideOptions { end_ids: vec![GUIDE_END], ..guide };
    if let Some(text) = &mut guide.text {
        text.automaton = Some(automaton(&bytes, GUIDE, GUIDE_END, limits));
    }
    (options.end_ids, options.guide, options.constraint) = (vec![EOS], Some(guide), Some(constraint));
    options
}

/// A head over rows of logits. Each row is answered by its position.
fn hear(request: &ForwardInput, mut row: impl FnMut(u32) -> Vec<f32>) -> Predictions {
    let (plan, wanted) = (&request.plan, &request.ask.wanted);
    let mut out = Predictions { lanes: 1, ..Predictions::default() };
    out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
    for (index, position) in out.positions.clone().iter().enumerate() {
        let logits = row(position);
        let width = wanted.score_width;
        let asked = request.ask.score.get(index * width..(index + 1) * width).unwrap_or(&[]);
        let answer = head::answer(&logits, wanted, request.ask.key(0, position), asked);
        out.tokens.push(answer.token);
        out.confidence.push(answer.confidence as f32);
        out.scores.extend(answer.judged.iter().map(|&(rank, log_probability, best)| TokenScore {
            rank,
            log_probability: log_probability as f32,
            best: best as f32,
        }));
        if wanted.logits {
            out.logits.extend(logits);
        }
    }
    out
}

/// Runs a session. The guide answers by the tokens that it has read.
fn events(
    options: SessionOptions,
    model: impl Fn(&[TokenId], u32) -> Vec<f32>,
    guide: impl Fn(&[TokenId]) -> Vec<f32>,
) -> (Vec<Event>, Session) {
    let mut session = Session::new(options).unwrap();
    session.tell_drafts();
    let (mut slots, mut events): (Vec<TokenId>, Vec<Event>) = (Vec::new(), session.events().collect());
    while let Some(network) = session.wants() {
        let request = &session.requests()[0];
        let answer = if network == 1 {
            slots.truncate(request.plan.query.first().unwrap_or(0) as usize);
            slots.extend_from_slice(&request.tokens);
            hear(request, |position| guide(&slots[..position as usize]))
        } else {
            hear(request, |position| model(session.canvas(), position))
        };
        session.feed(&[answer]);
        events.extend(session.events());
    }
    assert_eq!(session.fault(), None);
    (events, session)
}

/// Logits of which these tokens are the best, the first one first.
fn first(tokens: &[TokenId]) -> Vec<f32> {
    let mut row = vec![-20.0; VOCAB];
    tokens.iter().zip(0..).for_each(|(&token, rank)| row[token as usize] = -(rank as f32));
    row
}

/// The drafts that stood in each step, and the guide's own tokens.
fn judged(events: &[Event]) -> (Vec<usize>, Vec<TokenId>) {
    let stood = |event: &Event| if let Event::Step { accepted, .. } = event { Some(*accepted) } else { None };
    let own = |event: &Event| if let Event::Target { token, by_guide: true, .. } = event { Some(*token) } else { None };
    (events.iter().filter_map(stood).collect(), events.iter().filter_map(own).collect())
}

/// Worked out by hand. The model drafts `a b c d` and an end, `abc d` to the guide, which likes `d` best everywhere: no text
/// of the form begins so. Of what fits it likes `abc` best, then `d`, then its end: all drafts stand at once. Where it
/// likes `ab` better than `abc`, that one is its own token.
#[test]
fn structure_s10_a_guide_of_other_tokens_ranks_what_fits() {
    let model = |_: &[TokenId], position: u32| first(&[[0, 1, 2, 3, EOS, EOS][position as usize - 2]]);
    let run = |of: &[TokenId], own: bool| {
        let mut options = held("guided", "abc(d|e)a*", 6, foreign(VOCAB), Limits::default());
        if let (false, Some(text)) = (own, options.guide.as_mut().and_then(|guide| guide.text.as_mut())) {
            text.automaton = None;
        }
        let of = of.to_vec();
        let (events, session) = events(options, model, move |_| first(&of));
        assert_eq!(session.output().tokens, [0, 1, 2, 3, EOS]);
        judged(&events)
    };
    let wanted = [6, 0, 10, GUIDE_END];
    assert_eq!(run(&wanted, true), (vec![5], vec![]));
    // A guide that knows nothing of the form wants what does not fit.
    let (stood, own) = run(&wanted, false);
    assert_eq!((stood[0], own[0]), (0, 6));
    let (stood, own) = run(&[6, 1, 0, GUIDE_END], true);
    assert_eq!((stood[0], own[0]), (0, 1));
}

/// Worked out by hand. The model fills the first hole with `abc`, and the guide likes `d` best everywhere. In the second hole `abc` is its best that
/// fits, too. After a given `a` its `abc` begins before the hole, where no form holds, so what it likes best counts.
#[test]
fn structure_s10_a_guide_of_other_tokens_is_held_in_each_hole() {
    let run = |given: TokenId, drafts: [TokenId; 3]| {
        let mut options = held("guided", "[ab][bc][cd]", 6, foreign(VOCAB), Limits::default());
        let tokens = [&[8, 8][..], &[MASK_ID; 3], &[given], &[MASK_ID; 3]].concat();
        options.canvas = CanvasSpec::Infill { tokens };
        let model = |_: &[TokenId], position: u32| {
            first(&[[0, 1, 2, 0, drafts[0], drafts[1], drafts[2]][position as usize - 2]])
        };
        let (events, session) = events(options, model, |_| first(&[6, 0, 1, 2]));
        assert_eq!(session.canvas()[6..], drafts);
        judged(&events).0
    };
    assert_eq!(run(3, [0, 1, 2]), [6]);
    assert_eq!(run(0, [1, 2, 2])[0], 3);
}

/// A guide of the model's own tokens, whose token is taken where it agrees with none: the best that fits, or the model's if
/// that one cannot be completed in time.
#[test]
fn structure_s10_a_guides_own_token_is_its_best_that_fits() {
    let model = |_: &[TokenId], position: u32| first(&[[0, 1, 2, 3, EOS, EOS][position as usize - 2]]);
    let run = |form: &str, length: usize| {
        let options = held("guided:fallback=ar", form, length, shared(), Limits::default());
        let (events, session) = events(options, model, |_| first(&[9, 4, 3, GUIDE_END]));
        (judged(&events), session.output().tokens)
    };
    // `e` fits nowhere; `ab` does.
    let ((stood, own), tokens) = run("a?(b|ab)cd", 6);
    assert_eq!((stood[0], own[0]), (0, 4));
    assert_eq!(tokens, [4, 2, 3, EOS], "{own:?}");
    // `e` fits, but not within three tokens.
    let ((stood, own), tokens) = run("abc|eabcdabcd", 3);
    assert_eq!((stood[0], own[0]), (0, 9));
    assert_eq!(tokens, [0, 1, 2]);
}

/// The rank of a token among those that a text may go on with, from the definition.
fn rank(bytes: &ByteAutomaton, text: &[u8], row: &[f32], token: TokenId) -> usize {
    let Some(state) = bytes.run(bytes.start(), text) else { panic!("a draft that no text begins with") };
    let is_live = |token: usize| match token as TokenId {
        EOS | GUIDE_END => bytes.accepts(state),
        _ => MODEL.get(token).is_some_and(|text| !text.is_empty() && bytes.run(state, text).is_some()),
    };
    let own = (row[token as usize], std::cmp::Reverse(token as usize));
    (0..VOCAB).filter(|&other| is_live(other) && (row[other], std::cmp::Reverse(other)) > own).count()
}

const FORMS: [&str; 4] = ["[a-e]{1,9}", "(abc|cd|é)+e?", "a(b|cd)*e", "(?s:.)*"];

/// Logits made of a hash.
fn hashed(seed: u64, tokens: &[TokenId]) -> Vec<f32> {
    let place = tokens.iter().fold(random::mix(seed), |place, &token| random::mix(place ^ u64::from(token)));
    (0..VOCAB as u64).map(|token| 3.0 * random::gumbel(random::mix(place ^ token)) as f32).collect()
}

fn model(seed: u64) -> impl Fn(&[TokenId], u32) -> Vec<f32> + Copy {
    move |canvas, position| {
        let mut seen: Vec<TokenId> = canvas.iter().copied().filter(|&token| token != MASK_ID).collect();
        seen.push(position);
        hashed(seed, &seen)
    }
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// Ranks are those among tokens that the text may go on with, whatever else the guide likes.
    #[test]
    fn structure_s10_agreement_is_among_what_fits(
        (seed, form, gen_length, k, verify) in (any::<u64>(), 0usize..4, 3usize..14, 1usize..4, 1usize..9),
    ) {
        let decoder = format!("guided:match=topk,k={k},verify={verify}");
        let options = held(&decoder, FORMS[form], gen_length, shared(), Limits::default());
        let guide = move |before: &[TokenId]| hashed(seed ^ 1, before);
        let (events, session) = events(options, model(seed), guide);
        let bytes = bytes(FORMS[form]);
        let mut text: Vec<TokenId> = session.canvas()[..2].to_vec();
        let (mut drafts, mut commits, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Draft { token, .. } => drafts.push(token),
                Event::Commit { position, token, .. } => commits.push((position, token)),
                Event::Step { accepted, .. } => {
                    let mut before = text.clone();
                    let mut stands = |&draft: &TokenId| {
                        let spelled: Vec<u8> = before[2..].iter().flat_map(|&token| MODEL[token as usize]).copied().collect();
                        let row = guide(&before);
                        let best = if draft == EOS { [EOS, GUIDE_END].to_vec() } else { vec![draft] };
                        before.push(draft);
                        best.iter().any(|&token| rank(&bytes, &spelled, &row, token) < k)
                    };
                    let end = drafts.iter().position(|&draft| draft == EOS).map_or(drafts.len(), |end| end + 1);
                    let expected = drafts[..end].iter().take_while(|draft| stands(draft)).count();
                    prop_assert_eq!(accepted, expected);
                    settled.append(&mut commits);
                    settled.sort_unstable();
                    text.truncate(2);
                    text.extend(settled.iter().zip(2..).take_while(|(commit, at)| commit.0 == *at).map(|(commit, _)| commit.1));
                    drafts.clear();
                }
                _ => {}
            }
        }
    }

    /// S1, S11, and G5 of the guides: answers are texts of the form, whatever is kept, however many tokens are judged at once.
    #[test]
    fn structure_s1_s11_guided_answers_are_texts_whatever_is_kept(
        (seed, form, gen_length, rule) in (any::<u64>(), 0usize..4, 3usize..14, 0usize..4),
    ) {
        let rule = ["exact", "topk,k=3", "topk_relative,k=3,tau=0.3", "confidence,tau=0.5"][rule];
        let whole = regex::bytes::Regex::new(&format!(r"\A(?:{})\z", FORMS[form])).unwrap();
        for guide in [shared(), foreign(VOCAB)] {
            let run = |verify: usize, limits: Limits| {
                let decoder = format!("guided:match={rule},verify={verify}");
                let options = held(&decoder, FORMS[form], gen_length, guide.clone(), limits);
                let (events, session) = events(options, model(seed), |before| hashed(seed ^ 1, before));
                (events, session.output())
            };
            let (expected, output) = run(4, Limits::default());
            let mut text = output.tokens.clone();
            text.retain(|&token| token != EOS);
            let spelled: Vec<u8> = text.iter().flat_map(|&token| MODEL[token as usize]).copied().collect();
            prop_assert!(whole.is_match(&spelled), "{:?}", spelled);
            let little = Limits { classes: 3, memory: 0, states: 4096 };
            prop_assert_eq!(&run(4, little).0, &expected);
            prop_assert_eq!(run(1, Limits::default()).1.tokens, output.tokens.clone());
        }
    }
}
