//! An automaton without choices as a table, and automata made of two of them.

use std::collections::HashMap;

use super::{
    super::error::ConstraintError,
    distances::distances,
    fuel::{ENTRIES, Fuel, STATES},
};

/// The entry of a symbol after which nothing is accepted.
pub(in super::super) const DEAD: u32 = u32::MAX;

/// Operation that makes an automaton of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Operation {
    /// Intersection: texts that both accept.
    And,
    /// Difference: texts that the first accepts and the second does not.
    Without,
    /// Union: texts that either accepts.
    Or,
}

/// An automaton whose states are all live and reached; the first is the start. One that accepts nothing has one state.
///
/// Symbols that lead to the same state from every state share a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Dfa {
    /// First symbols of the ranges that have a column each, from 0 on.
    pub(super) starts: Vec<u32>,
    /// Column of each range.
    pub(super) columns: Vec<u32>,
    /// Columns of the table.
    pub(super) width: usize,
    /// States after each state and column, `[states, width]`.
    pub(super) next: Vec<u32>,
    pub(super) accepting: Vec<bool>,
}

impl Dfa {
    /// An automaton of a table with a column for each range; the first state is the start.
    pub(in super::super) fn new(starts: Vec<u32>, next: Vec<u32>, accepting: Vec<bool>) -> Self {
        let width = starts.len();
        let columns = (0..width as u32).collect();
        Self { starts, columns, width, next, accepting }.trimmed().joined()
    }

    /// Number of states.
    pub(in super::super) fn states(&self) -> usize {
        self.accepting.len()
    }

    /// Reports whether no text is accepted.
    pub(in super::super) fn is_empty(&self) -> bool {
        !self.accepting.contains(&true)
    }

    /// Reports whether a text may end in this state.
    pub(in super::super) fn accepts(&self, state: u32) -> bool {
        self.accepting[state as usize]
    }

    /// The state after a symbol, or [`DEAD`].
    pub(in super::super) fn after(&self, state: u32, symbol: u32) -> u32 {
        self.step(state, self.column(symbol))
    }

    /// Reports whether this text is accepted.
    pub(in super::super) fn contains(&self, text: impl IntoIterator<Item = u32>) -> bool {
        let state =
            text.into_iter().try_fold(0, |state, symbol| Some(self.after(state, symbol)).filter(|&to| to != DEAD));
        state.is_some_and(|state| self.accepts(state))
    }

    /// Ranges of symbols with the states that they lead to, in order; those side by side with one target are joined.
    pub(in super::super) fn row(&self, state: u32) -> Vec<(u32, u32, u32)> {
        let mut row: Vec<(u32, u32, u32)> = Vec::new();
        for (range, &low) in self.starts.iter().enumerate() {
            let to = self.next[state as usize * self.width + self.columns[range] as usize];
            if to == DEAD {
                continue;
            }
            let high = self.starts.get(range + 1).map_or(u32::MAX, |&next| next - 1);
            match row.last_mut() {
                Some(last) if last.2 == to && last.1 + 1 == low => last.1 = high,
                _ => row.push((low, high, to)),
            }
        }
        row
    }

    /// Texts of the two automata, put together.
    pub(in super::super) fn combine(
        &self,
        operation: Operation,
        other: &Self,
        fuel: &mut Fuel,
    ) -> Result<Self, ConstraintError> {
        let mut starts = [self.starts.as_slice(), &other.starts].concat();
        starts.sort_unstable();
        starts.dedup();
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        let columns: Vec<u32> = starts
            .iter()
            .map(|&start| {
                let pair = (self.column(start), other.column(start));
                *known.entry(pair).or_insert_with(|| {
                    pairs.push(pair);
                    pairs.len() as u32 - 1
                })
            })
            .collect();
        let width = pairs.len();
        let mut states = vec![(0, 0)];
        let mut known = HashMap::from([((0, 0), 0)]);
        let (mut next, mut accepting) = (Vec::new(), Vec::new());
        let mut done = 0;
        while let Some(&(left, right)) = states.get(done) {
            done += 1;
            fuel.spend(width)?;
            accepting.push(operation.accepts(self.accepts_or_dead(left), other.accepts_or_dead(right)));
            for &(a, b) in &pairs {
                let to = (self.step(left, a), other.step(right, b));
                if operation.is_dead(to.0 == DEAD, to.1 == DEAD) {
                    next.push(DEAD);
                    continue;
                }
                next.push(*known.entry(to).or_insert_with(|| {
                    states.push(to);
                    states.len() as u32 - 1
                }));
            }
            if states.len() > STATES {
                return Err(ConstraintError::TooLarge { limit: STATES, unit: "states" });
            }
            if next.len() > ENTRIES {
                return Err(ConstraintError::TooLarge { limit: ENTRIES, unit: "entries of a table" });
            }
        }
        Self { starts, columns, width, next, accepting }.trimmed().joined().minimal(fuel)
    }

    fn accepts_or_dead(&self, state: u32) -> bool {
        state != DEAD && self.accepts(state)
    }

    /// The column of a symbol.
    pub(in super::super) fn column(&self, symbol: u32) -> u32 {
        self.columns[self.starts.partition_point(|&start| start <= symbol) - 1]
    }

    /// The state after a symbol of a column, or [`DEAD`].
    pub(in super::super) fn step(&self, state: u32, column: u32) -> u32 {
        if state == DEAD { DEAD } else { self.next[state as usize * self.width + column as usize] }
    }

    /// Leaves out states from which nothing is accepted, and those that are not reached.
    pub(super) fn trimmed(self) -> Self {
        let distances = self.distances();
        let is_live = |to: u32| to != DEAD && distances[to as usize] != u32::MAX;
        let mut number = vec![DEAD; self.states()];
        let mut order = vec![0];
        number[0] = 0;
        let mut done = 0;
        while let Some(&state) = order.get(done) {
            done += 1;
            for &to in &self.next[state * self.width..(state + 1) * self.width] {
                if is_live(to) && number[to as usize] == DEAD {
                    number[to as usize] = order.len() as u32;
                    order.push(to as usize);
                }
            }
        }
        let mut next = Vec::with_capacity(order.len() * self.width);
        for &state in &order {
            let row = &self.next[state * self.width..(state + 1) * self.width];
            next.extend(row.iter().map(|&to| if is_live(to) { number[to as usize] } else { DEAD }));
        }
        let accepting = order.iter().map(|&state| self.accepting[state]).collect();
        Self { next, accepting, ..self }
    }

    /// Fewest symbols from each state to an accepted text, `u32::MAX` where there is none.
    pub(in super::super) fn distances(&self) -> Vec<u32> {
        distances(&self.accepting, |state| {
            self.next[state * self.width..(state + 1) * self.width].iter().copied().filter(|&to| to != DEAD)
        })
    }

    /// Gives equal columns one place.
    pub(super) fn joined(self) -> Self {
        let states = self.states();
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let mut samples = Vec::new();
        let place: Vec<u32> = (0..self.width)
            .map(|column| {
                let values: Vec<u32> = (0..states).map(|state| self.next[state * self.width + column]).collect();
                *known.entry(values).or_insert_with(|| {
                    samples.push(column);
                    samples.len() as u32 - 1
                })
            })
            .collect();
        let mut next = Vec::with_capacity(states * samples.len());
        for row in self.next.chunks_exact(self.width) {
            next.extend(samples.iter().map(|&column| row[column]));
        }
        let (mut starts, mut columns) = (Vec::new(), Vec::new());
        for (&start, &column) in self.starts.iter().zip(&self.columns) {
            let column = place[column as usize];
            if columns.last() != Some(&column) {
                starts.push(start);
                columns.push(column);
            }
        }
        Self { starts, columns, width: samples.len(), next, accepting: self.accepting }
    }
}

impl Operation {
    fn accepts(self, left: bool, right: bool) -> bool {
        match self {
            Self::And => left && right,
            Self::Without => left && !right,
            Self::Or => left || right,
        }
    }

    /// Reports whether nothing can be accepted where the automata are dead.
    fn is_dead(self, left: bool, right: bool) -> bool {
        match self {
            Self::And => left || right,
            Self::Without => left,
            Self::Or => left && right,
        }
    }
}
