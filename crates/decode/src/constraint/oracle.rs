//! Small canvases against a program that knows nothing but all of their accepted fillings, one by one.

use std::sync::Arc;

use demask_step::TokenId;
use demask_testkit::{
    language::{Language, Rolls},
    property,
};

use super::{
    bytes::ByteAutomaton,
    live::{Live, Stretch},
    tokens::{Limits, Scores, TokenAutomaton},
    vocabulary::{Ends, Role, Vocabulary},
};

/// The same for the program; none if the language is empty.
fn automaton(language: &Language, limits: Limits) -> Option<TokenAutomaton> {
    let bytes = ByteAutomaton::new(&language.table(), &language.accepting)?;
    let roles: Vec<Role> = language.texts[0].iter().map(|text| Role::Text(Language::spell(text))).collect();
    let ends = Ends { ends: language.ends.clone(), padding: language.fills.clone(), fill: language.fill };
    let vocabulary = Vocabulary::new(&roles, ends).unwrap();
    let start: Vec<Vec<u8>> = language.texts[1].iter().map(|text| Language::spell(text)).collect();
    let apart = language.texts[0] != language.texts[1];
    let vocabulary = if apart { vocabulary.with_start(&start).unwrap() } else { vocabulary };
    Some(TokenAutomaton::new(bytes, Arc::new(vocabulary), limits))
}

/// Tokens that all fillings have at open positions, and the fill where all have ended before.
fn closure(language: &Language, canvas: &[Option<TokenId>], fillings: &[Vec<TokenId>]) -> Vec<(usize, TokenId)> {
    let open = (0..canvas.len()).filter(|&position| canvas[position].is_none());
    let forced = |position: usize| {
        let ended = |filling: &Vec<TokenId>| filling[..position].iter().any(|token| language.ends.contains(token));
        let token = fillings[0][position];
        if fillings.iter().all(ended) {
            Some((position, language.fill))
        } else {
            fillings.iter().all(|filling| filling[position] == token).then_some((position, token))
        }
    };
    open.filter_map(forced).collect()
}

/// A canvas that is filled in any order: how long it is, where its block ends, and the scores of a forward's head, which are
/// whole eighths so that sums are exact.
struct Case {
    naive: Language,
    canvas: Vec<Option<TokenId>>,
    budget: usize,
    in_hole: bool,
}

impl Case {
    fn roll(rolls: &mut Rolls) -> Self {
        let tokens = 2 + rolls.below(5);
        let naive = Language::roll(rolls, tokens, None);
        let most = [6, 6, 6, 6, 5, 4, 4][tokens];
        let length = 1 + rolls.below(most);
        let in_hole = rolls.one_in(5);
        let budget = if in_hole || rolls.one_in(2) { length } else { 1 + rolls.below(length) };
        let given = |_| rolls.one_in(6).then(|| rolls.below(tokens) as TokenId);
        Self { canvas: (0..length).map(given).collect(), naive, budget, in_hole }
    }

    /// The canvas up to a block's end, or as a whole.
    fn stretch(&self, automaton: &TokenAutomaton, end: usize) -> Stretch {
        let whole = end == self.canvas.len() || end >= self.budget;
        let end = if whole { self.canvas.len() } else { end };
        Stretch {
            start: Some(automaton.start(self.in_hole)),
            tokens: self.canvas[..end].to_vec(),
            budget: self.budget,
            in_hole: self.in_hole,
            left: (!whole).then(|| self.budget - end),
        }
    }

    /// A block's end in front of which a position is open; only where something may follow.
    fn roll_end(&self, rolls: &mut Rolls) -> usize {
        let first = self.canvas.iter().position(Option::is_none).unwrap_or(0);
        let behind_is_open = |end: usize| self.canvas[end..].iter().all(Option::is_none);
        if self.in_hole || self.naive.ends.is_empty() {
            return self.canvas.len();
        }
        let end = first + 1 + rolls.below(self.canvas.len() - first);
        if behind_is_open(end) { end } else { self.canvas.len() }
    }

    fn fillings(&self) -> Vec<Vec<TokenId>> {
        self.naive.fillings(&self.canvas, self.budget, self.in_hole)
    }
}

/// Fills a canvas forward by forward and compares everything with its fillings. Returns whether it could be filled at all.
fn decode(mut case: Case, automaton: &TokenAutomaton, rolls: &mut Rolls) -> bool {
    let mut fillings = case.fillings();
    let end = case.roll_end(rolls);
    let completable = Live::of(automaton, &case.stretch(automaton, end)).is_some();
    assert_eq!(completable, !fillings.is_empty(), "S16");
    if !completable {
        return false;
    }
    loop {
        // S8: what is forced, found once, is all that is forced.
        let end = case.roll_end(rolls);
        let stretch = case.stretch(automaton, end);
        let length = stretch.tokens.len();
        let mut forced = Live::of(automaton, &stretch).unwrap().closure();
        let mut expected = closure(&case.naive, &case.canvas, &fillings);
        expected.retain(|&(position, _)| position < length);
        assert_eq!(forced, expected, "S8");
        // Any part of it, in any order, leaves the rest forced.
        while !forced.is_empty() {
            let (position, token) = forced.remove(rolls.below(forced.len()));
            case.canvas[position] = Some(token);
            if rolls.one_in(3) {
                let stretch = case.stretch(automaton, end);
                assert_eq!(Live::of(automaton, &stretch).unwrap().closure(), forced, "S8");
            }
        }
        fillings = case.fillings();
        let end = case.roll_end(rolls);
        let stretch = case.stretch(automaton, end);
        let live = Live::of(automaton, &stretch).unwrap();
        let open: Vec<usize> = (0..stretch.tokens.len()).filter(|&at| case.canvas[at].is_none()).collect();
        if open.is_empty() {
            if stretch.tokens.len() == case.canvas.len() {
                return true;
            }
            continue;
        }
        let tokens = case.naive.texts[0].len();
        let mut head = vec![Vec::new(); case.canvas.len()];
        for scores in &mut head {
            *scores = (0..tokens).map(|_| -(rolls.below(9) as f64) / 8.0).collect::<Vec<_>>();
        }
        check_admissible(&live, &fillings, &open, &head, tokens);
        let wanted: Vec<usize> = open.iter().copied().filter(|_| rolls.one_in(2)).collect();
        let chosen = live.joint(|position, scores| {
            scores.fill(|of| of.extend_from_slice(&head[position]));
            wanted.contains(&position)
        });
        let sum = |filling: &[TokenId]| wanted.iter().map(|&at| head[at][filling[at] as usize]).sum::<f64>();
        let most = fillings.iter().map(|filling| sum(filling)).fold(f64::NEG_INFINITY, f64::max);
        let best = fillings.iter().filter(|filling| sum(filling) == most).min().unwrap();
        assert_eq!(
            wanted.iter().map(|&at| chosen[at]).collect::<Vec<_>>(),
            wanted.iter().map(|&at| best[at]).collect::<Vec<_>>(),
            "S6"
        );
        // Some of a joint choice, or a single candidate.
        let kept: Vec<usize> = wanted.iter().copied().filter(|_| !rolls.one_in(3)).collect();
        if kept.is_empty() {
            let position = open[rolls.below(open.len())];
            let mut scores = Scores::default();
            scores.fill(|of| of.extend_from_slice(&head[position]));
            case.canvas[position] = live.best(position, &mut scores);
        } else {
            for position in kept {
                case.canvas[position] = Some(chosen[position]);
            }
        }
        fillings = case.fillings();
        assert!(!fillings.is_empty(), "S2 and S5");
    }
}

/// Compares the tokens that may stand at open positions, the best of them by a head's scores, and the marks.
fn check_admissible(live: &Live<'_>, fillings: &[Vec<TokenId>], open: &[usize], head: &[Vec<f64>], tokens: usize) {
    for &position in open {
        let there = |token: TokenId| fillings.iter().any(|filling| filling[position] == token);
        let mut marks = vec![false; tokens];
        live.mark(position, &mut marks);
        for token in 0..tokens as TokenId {
            assert_eq!(live.admits(position, token), there(token), "S3");
            assert_eq!(marks[token as usize], there(token), "S3");
        }
        let score = |token: &TokenId| head[position][*token as usize];
        let first = |best: TokenId, next: TokenId| if score(&next) > score(&best) { next } else { best };
        let expected = (0..tokens as TokenId).filter(|&token| there(token)).reduce(first);
        let mut scores = Scores::default();
        scores.fill(|of| of.extend_from_slice(&head[position]));
        assert_eq!(live.best(position, &mut scores), expected);
    }
}

/// Classes, memory and distances in tokens that are kept or not.
const LIMITS: [Limits; 3] = [
    Limits { classes: 4096, memory: 1 << 20, states: 4096 },
    Limits { classes: 2, memory: 1 << 20, states: 4096 },
    Limits { classes: 0, memory: 0, states: 4096 },
];

/// 100,000 canvases in the optimised build.
#[test]
fn structure_s2_s3_s4_s5_s6_s8_s11_s13_s16_small_canvases_are_those_of_all_fillings() {
    let cases = u64::from(property::count(100_000)) as u64;
    let mut filled = 0;
    for seed in 0..cases {
        let mut rolls = Rolls(seed);
        let case = Case::roll(&mut rolls);
        let Some(automaton) = automaton(&case.naive, LIMITS[rolls.below(3)]) else {
            assert!(case.fillings().is_empty(), "an empty language");
            continue;
        };
        filled += u64::from(decode(case, &automaton, &mut rolls));
    }
    assert!(filled * 3 > cases, "only {filled} of {cases} canvases could be filled");
}
