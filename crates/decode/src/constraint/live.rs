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
    /// Leaves the states of a set that a position may lead to: a hole has no end, and nothing else is after the budget.
    fn limit(&self, automaton: &TokenAutomaton, position: usize, states: &mut [u64]) {
        let (word, end) = (automaton.end() as usize / 64, 1 << (automaton.end() % 64));
        if self.in_hole {
            states[word] &= !end;
        } else if position >= self.budget {
            let ended = states[word] & end;
            states.fill(0);
            states[word] = ended;
        }
    }

    /// Reports whether it may end in a state.
    fn may_end(&self, automaton: &TokenAutomaton, state: State) -> bool {
        match self.left {
            Some(left) => automaton.distance(state) as usize <= left,
            None => automaton.accepts(state),
        }
    }
}

/// Some states: as bits, and one by one in ascending order.
#[derive(Debug, Default)]
struct States {
    bits: Vec<u64>,
    list: Vec<State>,
}

impl States {
    fn new(bits: Vec<u64>) -> Self {
        let mut list = Vec::new();
        for (&word, first) in bits.iter().zip((0..).step_by(64)) {
            let mut rest = word;
            while rest != 0 {
                list.push(first + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        Self { bits, list }
    }

    fn has(&self, state: State) -> bool {
        self.bits[state as usize / 64] >> (state % 64) & 1 == 1
    }

    /// Leaves the states of which something is true.
    fn retain(&mut self, is_left: impl Fn(State) -> bool) {
        let bits = &mut self.bits;
        self.list.retain(|&state| {
            let stays = is_left(state);
            bits[state as usize / 64] &= !(u64::from(!stays) << (state % 64));
            stays
        });
    }
}

/// States of a stretch, before each position and after the last: those that its start reaches and from which it can be
/// completed.
#[derive(Debug)]
pub(super) struct Live<'a> {
    automaton: &'a TokenAutomaton,
    stretch: &'a Stretch,
    sets: Vec<States>,
}

impl<'a> Live<'a> {
    /// Finds the states of a stretch; none if nothing completes it.
    pub(super) fn of(automaton: &'a TokenAutomaton, stretch: &'a Stretch) -> Option<Self> {
        let mut live = Self { automaton, stretch, sets: Vec::with_capacity(stretch.tokens.len() + 1) };
        live.reach();
        live.prune();
        (!live.sets[0].list.is_empty()).then_some(live)
    }

    /// Fills in the states that the start reaches.
    fn reach(&mut self) {
        let Self { automaton, stretch, sets } = self;
        let none = vec![0; automaton.end() as usize / 64 + 1];
        let with = |bits: &mut Vec<u64>, state: State| bits[state as usize / 64] |= 1 << (state % 64);
        // The start of an answer may be the state after the end's.
        let mut start = vec![0; (automaton.end() as usize + 1) / 64 + 1];
        stretch.start.into_iter().for_each(|state| with(&mut start, state));
        sets.push(States::new(start));
        for (position, token) in stretch.tokens.iter().enumerate() {
            let mut reached = none.clone();
            for &state in &sets[position].list {
                match *token {
                    Some(token) => {
                        automaton.next(state, token).into_iter().for_each(|state| with(&mut reached, state));
                    }
                    None => automaton.row(state).targets().add_to(&mut reached),
                }
            }
            stretch.limit(automaton, position, &mut reached);
            sets.push(States::new(reached));
        }
    }

    /// Leaves the states from which it can be completed.
    fn prune(&mut self) {
        let (automaton, stretch) = (self.automaton, self.stretch);
        let last = self.sets.len() - 1;
        self.sets[last].retain(|state| stretch.may_end(automaton, state));
        for position in (0..last).rev() {
            let (before, after) = self.sets.split_at_mut(position + 1);
            before[position].retain(|state| match stretch.tokens[position] {
                Some(token) => automaton.next(state, token).is_some_and(|target| after[0].has(target)),
                None => automaton.row(state).targets().meets(&after[0].bits),
            });
        }
    }

    /// Reports whether a position may lead to a state.
    fn leads_to(&self, position: usize, target: State) -> bool {
        self.sets[position + 1].has(target)
    }

    /// Calls for each edge that an accepted filling may take at an open position.
    fn edges(&self, position: usize, mut each: impl FnMut(&Edge)) {
        for &state in &self.sets[position].list {
            let row = self.automaton.row(state);
            row.edges().iter().filter(|edge| self.leads_to(position, edge.target)).for_each(&mut each);
        }
    }

    /// Reports whether an accepted filling has a token at an open position.
    pub(super) fn admits(&self, position: usize, token: TokenId) -> bool {
        let next = |&state: &State| self.automaton.next(state, token);
        self.sets[position].list.iter().filter_map(next).any(|target| self.leads_to(position, target))
    }

    /// Returns the admissible token of the highest score at an open position, the lowest of several.
    pub(super) fn best(&self, position: usize, scores: &mut Scores) -> Option<TokenId> {
        let mut found = NOTHING;
        self.edges(position, |edge| found = better(found, self.automaton.best(edge, scores)));
        Some(found.1).filter(|_| found != NOTHING)
    }

    /// Marks the admissible tokens of an open position.
    pub(super) fn mark(&self, position: usize, marks: &mut [bool]) {
        let is_target = |target: State| self.leads_to(position, target);
        self.sets[position].list.iter().for_each(|&state| self.automaton.mark(state, is_target, marks));
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
            let token = match self.sets[position].list[..] {
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
        let [state] = self.sets[first].list[..] else { return None };
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
        let mut values = vec![0.0; self.automaton.end() as usize + 2];
        let mut before = values.clone();
        let mut choices: Vec<Vec<(TokenId, State)>> = vec![Vec::new(); tokens.len()];
        for position in (0..tokens.len()).rev() {
            let counts = tokens[position].is_none() && scores(position, &mut buffer);
            for &state in &self.sets[position].list {
                let (mut found, mut to) = (NOTHING, 0);
                let mut take = |(score, token): (f64, TokenId), target: State| {
                    let next = (score + values[target as usize], token);
                    if better(found, next) == next {
                        (found, to) = (next, target);
                    }
                };
                if let Some(token) = tokens[position] {
                    let target = automaton.next(state, token).filter(|&target| self.leads_to(position, target));
                    if let Some(target) = target {
                        take((0.0, token), target);
                    }
                } else {
                    let row = automaton.row(state);
                    for edge in row.edges().iter().filter(|edge| self.leads_to(position, edge.target)) {
                        let best = if counts { automaton.best(edge, &mut buffer) } else { (0.0, edge.lowest) };
                        take(best, edge.target);
                    }
                }
                before[state as usize] = found.0;
                choices[position].push((found.1, to));
            }
            std::mem::swap(&mut values, &mut before);
        }
        let mut at = self.sets[0].list[0];
        let follow = |(states, choices): (&States, &Vec<(TokenId, State)>)| {
            let place = states.list.binary_search(&at).unwrap_or_default();
            let (token, to) = choices[place];
            at = to;
            token
        };
        self.sets.iter().zip(&choices).map(follow).collect()
    }
}

/// Bytes of a forced text that are looked at, at most.
const MOST_FORCED: usize = 4096;
