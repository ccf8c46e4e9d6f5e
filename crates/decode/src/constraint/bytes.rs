//! A deterministic automaton over bytes, of live states alone: from each of them an accepted text can be reached
//! (specs/structure.md#3).

use super::automaton::Dfa;

/// A state of a [`ByteAutomaton`], below its [`states`](ByteAutomaton::states).
pub type ByteState = u32;

/// The table's entry for a byte after which no accepted text can be reached.
const DEAD: ByteState = ByteState::MAX;

/// A language of byte strings as an automaton whose states are all live.
///
/// Bytes that lead to the same state from every state share a column of its table: a table takes `states * columns * 4`
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteAutomaton {
    columns: Box<[u8; 256]>,
    stride: usize,
    next: Vec<ByteState>,
    accepting: Vec<bool>,
    distance: Vec<u32>,
    start: ByteState,
}

impl ByteAutomaton {
    /// Returns the automaton of a total table: `next[state][byte]`, with `None` for no transition. States from which no
    /// acceptance can be reached are left out, and so are those that `start` does not reach.
    ///
    /// `None` if the language is empty.
    pub fn new(start: usize, next: &[[Option<u32>; 256]], accepting: &[bool]) -> Option<Self> {
        let distance = distances(|state| next[state].iter().flatten().copied(), accepting);
        let live = |state: usize| distance[state] != u32::MAX;
        if !live(start) {
            return None;
        }
        let kept = reachable(start, next, &live);
        let mut number = vec![DEAD; next.len()];
        for (index, &state) in kept.iter().enumerate() {
            number[state] = index as u32;
        }
        let target = |state: usize, byte: usize| {
            next[state][byte].map_or(DEAD, |to| if live(to as usize) { number[to as usize] } else { DEAD })
        };
        let (columns, samples) = columns(&kept, target);
        let table = kept.iter().flat_map(|&state| samples.iter().map(move |&byte| target(state, byte))).collect();
        Some(Self {
            columns,
            stride: samples.len(),
            next: table,
            accepting: kept.iter().map(|&state| accepting[state]).collect(),
            distance: kept.iter().map(|&state| distance[state]).collect(),
            start: 0,
        })
    }

    /// The automaton of a table over bytes, `None` if the language is empty.
    pub(super) fn from_table(dfa: &Dfa) -> Option<Self> {
        if dfa.is_empty() {
            return None;
        }
        let mut columns = Box::new([0; 256]);
        let mut used = Vec::new();
        for byte in 0..256 {
            let column = dfa.column(byte as u32);
            let place = used.iter().position(|&known| known == column).unwrap_or_else(|| {
                used.push(column);
                used.len() - 1
            });
            columns[byte] = place as u8;
        }
        let states = dfa.states();
        let next: Vec<ByteState> =
            (0..states as u32).flat_map(|state| used.iter().map(move |&column| dfa.step(state, column))).collect();
        let accepting: Vec<bool> = (0..states as u32).map(|state| dfa.accepts(state)).collect();
        let targets = |state: usize| next[state * used.len()..][..used.len()].iter().copied().filter(|&to| to != DEAD);
        let distance = distances(targets, &accepting);
        Some(Self { columns, stride: used.len(), next, accepting, distance, start: 0 })
    }

    /// The state before the first byte.
    pub fn start(&self) -> ByteState {
        self.start
    }

    /// Number of states: at least 1.
    pub fn states(&self) -> usize {
        self.accepting.len()
    }

    /// Returns the memory of its table, in bytes.
    pub fn memory(&self) -> usize {
        self.next.len() * size_of::<ByteState>()
    }

    /// Returns the state after a byte, `None` if no accepted text continues so.
    pub fn next(&self, state: ByteState, byte: u8) -> Option<ByteState> {
        let index = state as usize * self.stride + usize::from(self.columns[usize::from(byte)]);
        Some(self.next[index]).filter(|&to| to != DEAD)
    }

    /// Returns the state after all of these bytes.
    pub fn run(&self, state: ByteState, bytes: &[u8]) -> Option<ByteState> {
        bytes.iter().try_fold(state, |state, &byte| self.next(state, byte))
    }

    /// Reports whether the bytes up to this state are an accepted text.
    pub fn accepts(&self, state: ByteState) -> bool {
        self.accepting[state as usize]
    }

    /// Returns the fewest bytes from this state to an accepted text: 0 for an accepting one.
    pub fn distance(&self, state: ByteState) -> u32 {
        self.distance[state as usize]
    }

    /// Reports whether the language contains this text.
    pub fn contains(&self, text: &[u8]) -> bool {
        self.run(self.start, text).is_some_and(|state| self.accepts(state))
    }
}

/// Fewest bytes from each state to acceptance, `u32::MAX` where there is no way.
fn distances<I: Iterator<Item = u32>>(targets: impl Fn(usize) -> I, accepting: &[bool]) -> Vec<u32> {
    let mut before = vec![Vec::new(); accepting.len()];
    for state in 0..accepting.len() {
        let mut targets: Vec<u32> = targets(state).collect();
        targets.sort_unstable();
        targets.dedup();
        for to in targets {
            before[to as usize].push(state);
        }
    }
    let mut distance = vec![u32::MAX; accepting.len()];
    let mut queue: std::collections::VecDeque<usize> = (0..accepting.len()).filter(|&state| accepting[state]).collect();
    for &state in &queue {
        distance[state] = 0;
    }
    while let Some(state) = queue.pop_front() {
        for &from in &before[state] {
            if distance[from] == u32::MAX {
                distance[from] = distance[state] + 1;
                queue.push_back(from);
            }
        }
    }
    distance
}

/// The live states that `start` reaches, in the order in which they are met.
fn reachable(start: usize, next: &[[Option<u32>; 256]], live: &impl Fn(usize) -> bool) -> Vec<usize> {
    let mut met = vec![false; next.len()];
    met[start] = true;
    let mut order = vec![start];
    let mut done = 0;
    while let Some(&state) = order.get(done) {
        done += 1;
        for to in next[state].iter().flatten().map(|&to| to as usize) {
            if live(to) && !std::mem::replace(&mut met[to], true) {
                order.push(to);
            }
        }
    }
    order
}

/// The column of each byte, and a byte of each column.
fn columns(kept: &[usize], target: impl Fn(usize, usize) -> u32) -> (Box<[u8; 256]>, Vec<usize>) {
    let mut columns = Box::new([0; 256]);
    let mut samples = Vec::new();
    let mut known = std::collections::HashMap::new();
    for byte in 0..256 {
        let column: Vec<u32> = kept.iter().map(|&state| target(state, byte)).collect();
        let index = *known.entry(column).or_insert_with(|| {
            samples.push(byte);
            samples.len() - 1
        });
        columns[byte] = index as u8;
    }
    (columns, samples)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            automaton::Fuel,
            pattern::{self, Reach},
        },
        ByteAutomaton,
    };

    /// `ab*`, with a state from which nothing is accepted and one that is never reached.
    fn table() -> Option<ByteAutomaton> {
        let mut next = vec![[None; 256]; 4];
        next[0][usize::from(b'a')] = Some(1);
        next[0][usize::from(b'x')] = Some(2);
        next[1][usize::from(b'b')] = Some(1);
        next[3][usize::from(b'a')] = Some(1);
        ByteAutomaton::new(0, &next, &[false, true, false, true])
    }

    #[test]
    fn only_live_states_are_kept() {
        let automaton = table().unwrap();
        assert_eq!(automaton.states(), 2);
        assert!(automaton.contains(b"abb") && automaton.contains(b"a"));
        assert!(!automaton.contains(b"") && !automaton.contains(b"x") && !automaton.contains(b"ba"));
        assert_eq!(automaton.next(automaton.start(), b'x'), None);
        assert_eq!(automaton.distance(automaton.start()), 1);
        assert!(ByteAutomaton::new(2, &[[None; 256]; 3], &[true, true, false]).is_none());
    }

    #[test]
    fn a_table_is_read_as_its_rows_are() {
        let dfa = pattern::automaton("(?:[ab]c?)*[x-z]{2}|b+", Reach::Whole, &mut Fuel::new(100_000)).unwrap();
        let mut next = vec![[None; 256]; dfa.states()];
        for (state, row) in next.iter_mut().enumerate() {
            for (low, high, to) in dfa.row(state as u32) {
                row[low as usize..=high as usize].fill(Some(to));
            }
        }
        let accepting: Vec<bool> = (0..dfa.states() as u32).map(|state| dfa.accepts(state)).collect();
        assert_eq!(ByteAutomaton::from_table(&dfa), ByteAutomaton::new(0, &next, &accepting));
        let nothing = pattern::automaton("a$b", Reach::Whole, &mut Fuel::new(1_000)).unwrap();
        assert_eq!(ByteAutomaton::from_table(&nothing), None);
    }
}
