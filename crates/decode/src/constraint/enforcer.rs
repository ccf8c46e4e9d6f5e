//! A constraint held on one session's canvas: predictions are read through it, several of them are made to fit
//! together, and the tokens that it forces are committed (specs/structure.md#6).

use std::ops::Range;

use demask_step::{Mask, NO_TOKEN, Position, Predictions, TokenId};

use super::{
    Measured, TokenConstraint,
    heard::Heard,
    live::{Live, Stretch},
    tokens::{Scores, State},
};
use crate::{canvas::Canvas, event::Commit, layout::Layout};

/// Fewest tokens of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    pub tokens: u32,
    /// Records whether each byte was counted as a token, as in an automaton of many states: fewer may do.
    pub as_bytes: bool,
}

/// A constraint and the canvas of a session.
#[derive(Debug)]
pub(crate) struct Enforcer {
    pub(crate) constraint: TokenConstraint,
    layout: Layout,
    /// The positions that it speaks of: the answer, or each hole of a text.
    places: Vec<Range<usize>>,
    in_holes: bool,
    /// Records whether tokens that were written may still change.
    revises: bool,
    vocab: usize,
}

/// The tokens of a canvas: none where one is open.
type Tokens = Vec<Option<TokenId>>;

impl Enforcer {
    /// Holds a constraint on a canvas, which has holes or is an answer after a prompt.
    pub(crate) fn new(
        constraint: TokenConstraint,
        (canvas, layout): (&Canvas, &Layout),
        in_holes: bool,
        revises: bool,
        vocab: usize,
    ) -> Self {
        let answer = layout.response()..layout.end();
        let mut places = vec![answer.clone()];
        if in_holes {
            places.clear();
            for position in answer.filter(|&position| !canvas.is_given(position as Position)) {
                match places.last_mut().filter(|last| last.end == position) {
                    Some(last) => last.end += 1,
                    None => places.push(position..position + 1),
                }
            }
        }
        Self { constraint, layout: layout.clone(), places, in_holes, revises, vocab }
    }

    /// Returns the first place that nothing completes as the first step counts, and the fewest tokens that it needs.
    pub(crate) fn impossible(&self, canvas: &Canvas) -> Option<(Range<usize>, Option<Needed>)> {
        let tokens = tokens_of(canvas, &[], &[]);
        let place = self.places.iter().find(|place| {
            let (front, state) = self.front(&tokens, place);
            let stretch = self.stretch(&tokens, place, (front, state), self.end_of(place, front, front + 1));
            Live::of(&self.constraint.automaton, &stretch).is_none()
        })?;
        let automaton = &self.constraint.automaton;
        let known = automaton.knows_distances().then(|| Needed {
            tokens: automaton.distance(automaton.start(self.in_holes)),
            as_bytes: automaton.counts_bytes(),
        });
        Some((place.clone(), known.filter(|known| known.tokens as usize > self.budget(place).len())))
    }

    /// Reports whether it must know how far an answer's end is, and cannot.
    pub(crate) fn is_blind(&self) -> bool {
        !self.sees_all() && !self.constraint.automaton.knows_distances()
    }

    /// Reports whether every position of a place counts in each step.
    fn sees_all(&self) -> bool {
        self.in_holes
            || self.layout.attention() == Mask::Full
            || self.constraint.automaton.vocabulary().ends().is_empty()
    }

    /// The positions of a place that may hold text.
    fn budget(&self, place: &Range<usize>) -> Range<usize> {
        if self.in_holes {
            return place.clone();
        }
        place.start..place.end.min(place.start + self.layout.gen_length())
    }

    /// The end of what counts for a position: of its place, its block, or the next position of a text that is written from left
    /// to right. Where several positions of such a text are wanted at once, `last` is the end of them.
    fn end_of(&self, place: &Range<usize>, position: usize, last: usize) -> usize {
        match self.layout.attention() {
            _ if self.sees_all() => place.end,
            Mask::Causal => last.min(place.end),
            _ => self.layout.block(self.layout.block_of(position as Position)).end as usize,
        }
    }

    /// The states before a place's tokens up to its first open position, or its end; none from where on it is no answer.
    fn states(&self, tokens: &Tokens, place: &Range<usize>) -> Vec<Option<State>> {
        let automaton = &self.constraint.automaton;
        let mut states = vec![Some(automaton.start(self.in_holes))];
        for token in tokens[place.clone()].iter().map_while(|&token| token) {
            let before = states.last().copied().flatten();
            states.push(before.and_then(|state| automaton.next(state, token)));
        }
        states
    }

    /// The first open position of a place, or its end, and the state before it.
    fn front(&self, tokens: &Tokens, place: &Range<usize>) -> (usize, Option<State>) {
        let states = self.states(tokens, place);
        (place.start + states.len() - 1, states.last().copied().flatten())
    }

    /// The stretch from a place's first open position up to an end.
    fn stretch(&self, tokens: &Tokens, place: &Range<usize>, front: (usize, Option<State>), end: usize) -> Stretch {
        let text = self.budget(place).end;
        let whole = self.sees_all() || end >= text;
        let end = if whole { place.end } else { end };
        Stretch {
            start: front.1,
            tokens: tokens[front.0.min(end)..end].to_vec(),
            budget: text.saturating_sub(front.0),
            in_hole: self.in_holes,
            left: (!whole).then(|| text - end),
        }
    }

    /// Reads predictions for a canvas or its drafts through the constraint: the admissible token of the highest score at each
    /// position where one is known, with its own probability. `lanes` returns what each draft fills in.
    pub(crate) fn read<'l>(
        &self,
        canvas: &Canvas,
        lanes: impl Fn(usize) -> &'l [Commit],
        heard: Heard<'_>,
        read: &mut Predictions,
    ) {
        let found = heard.predictions;
        read.copy_tokens(found);
        read.top.extend_from_slice(&found.top);
        for lane in 0..found.lanes {
            self.read_lane(&tokens_of(canvas, lanes(lane), &[]), lane, heard, read);
        }
    }

    /// Reads the predictions of a lane, whose canvas holds these tokens.
    pub(crate) fn read_lane(&self, tokens: &Tokens, lane: usize, heard: Heard<'_>, read: &mut Predictions) {
        let mut scores = Scores::default();
        for place in &self.places {
            let inside = |&position: &usize| place.contains(&position);
            let positions = heard.predictions.positions.iter().map(|position| position as usize);
            let positions: Vec<usize> = positions.filter(inside).collect();
            let states = self.states(tokens, place);
            let front = (place.start + states.len() - 1, states.last().copied().flatten());
            // Of a text that is written from left to right, drafts after a position count only where it is drafted too.
            let known = place.clone().rfind(|&at| tokens[at].is_some()).filter(|&known| known > front.0);
            let last = positions.last().copied().max(known).map_or(front.0, |last| last + 1);
            let is_next = |position: usize| position < front.0 || position == front.0 && known.is_none();
            let end =
                |position: usize| self.end_of(place, position, if is_next(position) { position + 1 } else { last });
            let (open, written): (Vec<usize>, Vec<usize>) =
                positions.iter().partition(|&&position| tokens[position].is_none());
            // Open positions are read together as far as they end together.
            for together in open.chunk_by(|&left, &right| end(left) == end(right)) {
                let stretch = self.stretch(tokens, place, front, end(together[0]));
                let live = Live::of(&self.constraint.automaton, &stretch);
                for &position in together {
                    self.settle(live.as_ref(), (position, position - front.0), (lane, heard), &mut scores, read);
                }
            }
            // Each that is written as if it alone were open.
            for position in written {
                let mut opened = tokens.clone();
                opened[position] = None;
                let before = states.get(position - place.start);
                let front = before.map_or(front, |&state| (position, state));
                let stretch = self.stretch(&opened, place, front, end(position));
                let live = Live::of(&self.constraint.automaton, &stretch);
                self.settle(live.as_ref(), (position, position - front.0), (lane, heard), &mut scores, read);
            }
        }
    }

    /// Writes the candidate of one position, the `at`-th after the first live one.
    fn settle(
        &self,
        live: Option<&Live<'_>>,
        (position, at): (usize, usize),
        (lane, heard): (usize, Heard<'_>),
        scores: &mut Scores,
        read: &mut Predictions,
    ) {
        let position = position as Position;
        let Some(index) = heard.predictions.index(lane, position) else { return };
        let Some(&predicted) = read.tokens.get(index).filter(|&&token| token != NO_TOKEN) else { return };
        let candidate = live.and_then(|live| {
            if live.admits(at, predicted) {
                return Some(predicted);
            }
            let admits = |token| live.admits(at, token);
            heard.best_admitted((lane, position), self.vocab, admits).or_else(|| {
                heard.fill(lane, position, self.vocab, scores)?;
                live.best(at, scores)
            })
        });
        let confidence = candidate.and_then(|token| heard.confidence(lane, position, token, self.vocab));
        read.tokens[index] = candidate.unwrap_or(NO_TOKEN);
        if let Some(place) = read.confidence.get_mut(index) {
            *place = confidence.unwrap_or(f32::NEG_INFINITY);
        }
        if let (Measured::Allowed, Some(live), Some(_)) = (self.constraint.confidence, live, candidate) {
            let mut marks = vec![false; self.vocab];
            live.mark(at, &mut marks);
            heard.renormalise(lane, position, &marks, read);
        }
    }

    /// Makes the tokens of several wanted commits fit together: of all fillings of the lane's canvas, the one with the
    /// largest sum of scores. A single commit stays as it is. Positions that are `opened` hold nothing.
    fn fit(&self, lane: LaneOf<'_>, opened: &[Position], heard: Heard<'_>, wanted: &mut [Commit]) {
        let mut open: Vec<Position> = opened.to_vec();
        open.extend(wanted.iter().map(|commit| commit.position));
        let tokens = tokens_of(lane.canvas, lane.filled, &open);
        for place in &self.places {
            let inside = || wanted.iter().map(|commit| commit.position as usize).filter(|at| place.contains(at));
            let (Some(first), Some(last)) = (inside().min(), inside().max()) else { continue };
            if first == last {
                continue;
            }
            let front = self.front(&tokens, place);
            // What stands after them counts too.
            let last = place.clone().rfind(|&at| tokens[at].is_some()).map_or(last, |known| known.max(last));
            let stretch = self.stretch(&tokens, place, front, self.end_of(place, last, last + 1));
            let Some(live) = Live::of(&self.constraint.automaton, &stretch) else { continue };
            let chosen = live.joint(|at, scores| {
                let position = (front.0 + at) as Position;
                wanted.iter().any(|commit| commit.position == position)
                    && heard.fill(lane.index, position, self.vocab, scores).is_some()
            });
            for commit in wanted.iter_mut().filter(|commit| place.contains(&(commit.position as usize))) {
                let token = chosen[commit.position as usize - front.0];
                if token != commit.token {
                    commit.token = token;
                    let confidence = heard.confidence(lane.index, commit.position, token, self.vocab);
                    commit.confidence = confidence.unwrap_or(f32::NEG_INFINITY);
                }
            }
        }
    }

    /// Returns the tokens that the constraint forces once these commits and changes are written, place by place. None
    /// if nothing completes the canvas then.
    pub(crate) fn closure(
        &self,
        canvas: &Canvas,
        filled: &[Commit],
        changes: impl IntoIterator<Item = (Position, Option<TokenId>)>,
    ) -> Option<Vec<Commit>> {
        let mut tokens = tokens_of(canvas, filled, &[]);
        changes.into_iter().for_each(|(position, token)| tokens[position as usize] = token);
        if self.revises {
            return self.is_completable(&tokens).then(|| self.closure_of_final(canvas));
        }
        let mut found = Vec::new();
        for place in &self.places {
            while self.close(&mut tokens, place, &mut found)? {}
        }
        Some(found)
    }

    /// Returns the tokens that are forced by those that can no longer change.
    fn closure_of_final(&self, canvas: &Canvas) -> Vec<Commit> {
        let may_change = |&position: &Position| canvas.is_open(position);
        let opened: Vec<Position> = (0..canvas.len() as Position).filter(may_change).collect();
        let (mut tokens, mut found) = (tokens_of(canvas, &[], &opened), Vec::new());
        for place in &self.places {
            while self.close(&mut tokens, place, &mut found) == Some(true) {}
        }
        found.retain(|commit| canvas.is_masked(commit.position));
        found
    }

    /// Reports whether something completes the written tokens.
    fn is_completable(&self, tokens: &Tokens) -> bool {
        self.places.iter().all(|place| {
            let (front, last) = (self.front(tokens, place), place.clone().rfind(|&at| tokens[at].is_some()));
            let end = self.end_of(place, front.0.max(last.unwrap_or(0)), front.0 + 1);
            Live::of(&self.constraint.automaton, &self.stretch(tokens, place, front, end)).is_some()
        })
    }

    /// Commits the forced tokens up to the end of the first open block, and says whether there may be more. None if
    /// nothing completes the written tokens.
    fn close(&self, tokens: &mut Tokens, place: &Range<usize>, found: &mut Vec<Commit>) -> Option<bool> {
        let front = self.front(tokens, place);
        if front.0 == place.end {
            let accepts = front.1.is_some_and(|state| self.constraint.automaton.accepts(state));
            return accepts.then_some(false);
        }
        let end = self.end_of(place, front.0, front.0 + 1);
        let stretch = self.stretch(tokens, place, front, end);
        let live = Live::of(&self.constraint.automaton, &stretch)?;
        let mut forced = live.closure();
        let spells = self.constraint.spelling.is_some();
        if forced.is_empty() && spells {
            forced = self.spelled(&live, &stretch);
        }
        for &(at, token) in &forced {
            tokens[front.0 + at] = Some(token);
            found.push(Commit { position: (front.0 + at) as Position, token, confidence: 1.0 });
        }
        let is_full = tokens[front.0..front.0 + stretch.tokens.len()].iter().all(Option::is_some);
        Some(!forced.is_empty() && (spells || is_full))
    }

    /// The tokenizer's own tokens of a text that every answer has next, but for the last one, which may join what follows.
    fn spelled(&self, live: &Live<'_>, stretch: &Stretch) -> Vec<(usize, TokenId)> {
        let Some((spelling, (first, bytes))) = self.constraint.spelling.as_ref().zip(live.forced_text()) else {
            return Vec::new();
        };
        let mut tokens = spelling.encode(&bytes);
        tokens.pop();
        let mut spelled = Vec::new();
        let mut stretch = stretch.clone();
        let mut rest = &bytes[..];
        for (at, token) in (first..stretch.tokens.len()).zip(tokens) {
            let Some(live) = Live::of(&self.constraint.automaton, &stretch) else { break };
            let text = self.constraint.automaton.vocabulary().text(token);
            // A token of other bytes than those that are forced is none of theirs.
            let Some(behind) = rest.strip_prefix(text).filter(|_| !text.is_empty()) else { break };
            if stretch.tokens[at].is_some() || !live.admits(at, token) {
                break;
            }
            stretch.tokens[at] = Some(token);
            spelled.push((at, token));
            rest = behind;
        }
        spelled
    }

    /// Returns the tokens of a complete answer: those with the largest sum of the last scores, at every open position. None if
    /// there is no such answer.
    pub(crate) fn complete(&self, canvas: &Canvas, lane: usize, heard: Heard<'_>) -> Option<Vec<Commit>> {
        let tokens = tokens_of(canvas, &[], &[]);
        let mut found = Vec::new();
        for place in &self.places {
            let front = self.front(&tokens, place);
            let stretch = Stretch { left: None, ..self.stretch(&tokens, place, front, place.end) };
            let live = Live::of(&self.constraint.automaton, &stretch)?;
            let chosen =
                live.joint(|at, scores| heard.fill(lane, (front.0 + at) as Position, self.vocab, scores).is_some());
            for (at, token) in chosen.into_iter().enumerate().filter(|&(at, _)| stretch.tokens[at].is_none()) {
                found.push(Commit { position: (front.0 + at) as Position, token, confidence: 1.0 });
            }
        }
        Some(found)
    }
}

/// The tokens of a canvas with commits to come; none where one is open.
pub(crate) fn tokens_of(canvas: &Canvas, filled: &[Commit], opened: &[Position]) -> Tokens {
    let known = |(position, &token): (Position, &TokenId)| (!canvas.is_masked(position)).then_some(token);
    let mut tokens: Tokens = (0..).zip(canvas.tokens()).map(known).collect();
    for commit in filled {
        if let Some(place) = tokens.get_mut(commit.position as usize) {
            *place = Some(commit.token);
        }
    }
    for &position in opened {
        if let Some(place) = tokens.get_mut(position as usize) {
            *place = None;
        }
    }
    tokens
}

/// A canvas and the commits of one of its drafts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneOf<'a> {
    pub canvas: &'a Canvas,
    pub index: usize,
    pub filled: &'a [Commit],
}

/// A constraint, and the predictions that a decoder's were read from.
#[derive(Debug, Clone, Copy)]
pub struct Enforced<'a> {
    pub(crate) enforcer: &'a Enforcer,
    pub(crate) heard: Heard<'a>,
}

impl Enforced<'_> {
    /// Makes the tokens of several wanted commits fit together with the tokens of a lane, and with each other.
    /// Positions that are `opened` hold nothing. A single commit stays as it is.
    pub(crate) fn fit(&self, lane: LaneOf<'_>, opened: &[Position], wanted: &mut [Commit]) {
        if wanted.len() > 1 {
            self.enforcer.fit(lane, opened, self.heard, wanted);
        }
    }

    /// Reports whether a token may stand at an open position of a lane.
    pub(crate) fn admits(&self, lane: LaneOf<'_>, position: Position, token: TokenId) -> bool {
        let (enforcer, at) = (self.enforcer, position as usize);
        let tokens = tokens_of(lane.canvas, lane.filled, &[]);
        let Some(place) = enforcer.places.iter().find(|place| place.contains(&at)) else { return false };
        let front = enforcer.front(&tokens, place);
        let stretch = enforcer.stretch(&tokens, place, front, enforcer.end_of(place, at, at + 1));
        let live = Live::of(&enforcer.constraint.automaton, &stretch);
        at >= front.0 && live.is_some_and(|live| live.admits(at - front.0, token))
    }

    /// Returns the first position of the answer or the hole that has a position.
    pub(crate) fn start_of(&self, position: usize) -> Option<usize> {
        self.enforcer.places.iter().find(|place| place.contains(&position)).map(|place| place.start)
    }

    /// Returns the tokens that are forced once a lane's commits are written.
    pub(crate) fn closure(&self, canvas: &Canvas, filled: &[Commit]) -> Vec<Commit> {
        self.enforcer.closure(canvas, filled, []).unwrap_or_default()
    }

    /// Reads the predictions of a lane again, now that its canvas holds these commits.
    pub(crate) fn read_again(&self, lane: LaneOf<'_>, read: &mut Predictions) {
        read.copy_tokens(self.heard.predictions);
        self.enforcer.read_lane(&tokens_of(lane.canvas, lane.filled, &[]), lane.index, self.heard, read);
    }
}
