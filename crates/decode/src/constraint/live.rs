//! Which states a stretch of a canvas may be in, and with them which tokens may stand where (specs/structure.md#5); the joint
//! choice of several tokens, and closure (specs/structure.md#6).

use demask_step::TokenId;

use super::{
    classes::{NOTHING, better},
    tokens::{Edge, Scores, State, TokenAutomaton},
};

/// Positions that a constraint speaks of, one after the other: an answer, its part up to a block's end, or a hole.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    /// The state before the first position; none if the tokens before it begin no answer.
    pub start: Option<State>,
    /// The token of each position; none where it is open.
    pub tokens: Vec<Option<TokenId>>,
    /// Positions that may hold text; those after them hold ends and fills alone.
    pub budget: usize,
    /// Records whether it is a hole: it has no end, and is a text as a whole.
    pub in_hole: bool,
    /// Positions of the budget after it, where it is not the whole: the text may go on there.
    pub left: Option<usize>,
}

impl Stretch {
    /// Reports whether a position may lead to a state.
    fn allows(&self, automaton: &TokenAutomaton, position: usize, target: State) -> bool {
        let ended = target == automaton.end();
        if self.in_hole { !ended } else { ended || position < self.budget }
    }

    /// Reports whether it may end in a state.
    fn may_end(&self, automaton: &TokenAutomaton, state: State) -> bool {
        match self.left {
            Some(left) => automaton.distance(state) as usize <= left,
            None => automaton.accepts(state),
        }
    }
}

/// States of a stretch, before each position and after the last: those that its start reaches and from which it can be
/// completed, ascending.
#[derive(Debug)]
pub(super) struct Live<'a> {
    automaton: &'a TokenAutomaton,
    stretch: &'a Stretch,
    sets: Vec<Vec<State>>,
}

impl<'a> Live<'a> {
    /// Finds the states of a stretch; none if nothing completes it.
    pub(super) fn of(automaton: &'a TokenAutomaton, stretch: &'a Stretch) -> Option<Self> {
        let mut live = Self { automaton, stretch, sets: Vec::with_capacity(stretch.tokens.len() + 1) };
        live.reach();
        live.prune();
        (!live.sets[0].is_empty()).then_some(live)
    }

    /// Fills in the states that the start reaches.
    fn reach(&mut self) {
        let Self { automaton, stretch, sets } = self;
        let mut met = vec![false; automaton.end() as usize + 2];
        sets.push(stretch.start.into_iter().collect());
        for (position, token) in stretch.tokens.iter().enumerate() {
            let mut reached = Vec::new();
            for &state in &sets[position] {
                let mut reach = |target: State| {
                    if stretch.allows(automaton, position, target)
                        && !std::mem::replace(&mut met[target as usize], true)
                    {
                        reached.push(target);
                    }
                };
                match *token {
                    Some(token) => automaton.next(state, token).into_iter().for_each(reach),
                    None => automaton.row(state).iter().for_each(|edge| reach(edge.target)),
                }
            }
            for &state in &reached {
                met[state as usize] = false;
            }
            reached.sort_unstable();
            sets.push(reached);
        }
    }

    /// Leaves the states from which it can be completed.
    fn prune(&mut self) {
        let (automaton, stretch) = (self.automaton, self.stretch);
        let last = self.sets.len() - 1;
        self.sets[last].retain(|&state| stretch.may_end(automaton, state));
        for position in (0..last).rev() {
            let (before, behind) = self.sets.split_at_mut(position + 1);
            let goes_on =
                |target: State| stretch.allows(automaton, position, target) && behind[0].binary_search(&target).is_ok();
            before[position].retain(|&state| match stretch.tokens[position] {
                Some(token) => automaton.next(state, token).is_some_and(goes_on),
                None => automaton.row(state).iter().any(|edge| goes_on(edge.target)),
            });
        }
    }

    /// Reports whether a position may lead to a state.
    fn leads_to(&self, position: usize, target: State) -> bool {
        self.stretch.allows(self.automaton, position, target) && self.sets[position + 1].binary_search(&target).is_ok()
    }

    /// Calls for each edge that an accepted filling may take at an open position.
    fn edges(&self, position: usize, mut each: impl FnMut(&Edge)) {
        for &state in &self.sets[position] {
            let row = self.automaton.row(state);
            row.iter().filter(|edge| self.leads_to(position, edge.target)).for_each(&mut each);
        }
    }

    /// Reports whether an accepted filling has a token at an open position.
    pub(super) fn admits(&self, position: usize, token: TokenId) -> bool {
        let next = |&state: &State| self.automaton.next(state, token);
        self.sets[position].iter().filter_map(next).any(|target| self.leads_to(position, target))
    }

    /// Returns the admissible token of the highest score at an open position, the lowest of several.
    pub(super) fn best(&self, position: usize, scores: &mut Scores) -> Option<TokenId> {
        let mut found = NOTHING;
        self.edges(position, |edge| found = better(found, self.automaton.best(edge, scores)));
        Some(found.1).filter(|_| found != NOTHING)
    }

    /// Marks the admissible tokens of an open position.
    pub(super) fn mark(&self, position: usize, marks: &mut [bool]) {
        self.edges(position, |edge| self.automaton.mark(edge, marks));
    }

    /// Returns the only admissible token of an open position, if there is but one.
    fn only(&self, position: usize) -> Option<TokenId> {
        let (mut found, mut several) = (None, false);
        self.edges(position, |edge| {
            several |= edge.count > 1 || found.is_some_and(|found| found != edge.lowest);
            found = Some(edge.lowest);
        });
        found.filter(|_| !several)
    }

    /// Returns the tokens that every accepted filling has at open positions. Positions that must follow the end get the
    /// token that fills. They change nothing about the tokens that are admissible elsewhere.
    pub(super) fn closure(&self) -> Vec<(usize, TokenId)> {
        let open = (0..self.stretch.tokens.len()).filter(|&position| self.stretch.tokens[position].is_none());
        let forced = |position: usize| {
            let token = match self.sets[position][..] {
                [state] if state == self.automaton.end() => Some(self.automaton.vocabulary().fill()),
                _ => self.only(position),
            };
            Some((position, token?))
        };
        open.filter_map(forced).collect()
    }

    /// Returns the bytes that every accepted filling continues with in front of the first open position, and that position.
    pub(super) fn forced_text(&self) -> Option<(usize, Vec<u8>)> {
        let first = self.stretch.tokens.iter().position(Option::is_none)?;
        let [state] = self.sets[first][..] else { return None };
        let bytes = self.automaton.shared_bytes(state, MOST_FORCED);
        (!bytes.is_empty()).then_some((first, bytes))
    }

    /// Returns the accepted filling of the largest sum of scores, with ties as specified: the token of each position.
    ///
    /// `scores` fills in those of an open position and returns whether it counts; positions that do not count add nothing.
    pub(super) fn joint(&self, mut scores: impl FnMut(usize, &mut Scores) -> bool) -> Vec<TokenId> {
        let (automaton, tokens) = (self.automaton, &self.stretch.tokens);
        let mut buffer = Scores::default();
        // Of each live state at a position: the largest sum after it, the token that it takes, and where that leads.
        let mut values = vec![0.0; self.sets[tokens.len()].len()];
        let mut choices: Vec<Vec<(TokenId, usize)>> = vec![Vec::new(); tokens.len()];
        for position in (0..tokens.len()).rev() {
            let counts = tokens[position].is_none() && scores(position, &mut buffer);
            let behind = &self.sets[position + 1];
            let place = |target: State| {
                let allowed = self.stretch.allows(automaton, position, target);
                behind.binary_search(&target).ok().filter(|_| allowed)
            };
            let mut sums = Vec::with_capacity(self.sets[position].len());
            for &state in &self.sets[position] {
                let (mut found, mut to) = (NOTHING, 0);
                let mut take = |(score, token): (f64, TokenId), place: usize| {
                    let next = (score + values[place], token);
                    if better(found, next) == next {
                        (found, to) = (next, place);
                    }
                };
                match tokens[position] {
                    Some(token) => {
                        let place = automaton.next(state, token).and_then(place);
                        if let Some(place) = place {
                            take((0.0, token), place);
                        }
                    }
                    None => {
                        for edge in automaton.row(state).iter() {
                            let Some(place) = place(edge.target) else { continue };
                            take(if counts { automaton.best(edge, &mut buffer) } else { (0.0, edge.lowest) }, place);
                        }
                    }
                }
                sums.push(found.0);
                choices[position].push((found.1, to));
            }
            values = sums;
        }
        let mut at = 0;
        let follow = |choices: &Vec<(TokenId, usize)>| {
            let (token, to) = choices[at];
            at = to;
            token
        };
        choices.iter().map(follow).collect()
    }
}

/// Bytes of a forced text that are looked at, at most.
const MOST_FORCED: usize = 4096;
