//! A deterministic automaton over bytes, of live states alone: from each of them an accepted text can be reached
//! (specs/structure.md#3).

use super::automaton::{DEAD, Dfa};

/// A state of a [`ByteAutomaton`], below its [`states`](ByteAutomaton::states).
pub type ByteState = u32;

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
}

impl ByteAutomaton {
    /// Returns the automaton of a total table: `next[state][byte]`, with `None` for no transition. Texts start in state 0. States
    /// from which no acceptance can be reached are left out, and so are those that it does not reach.
    ///
    /// `None` if the language is empty.
    pub fn new(next: &[[Option<u32>; 256]], accepting: &[bool]) -> Option<Self> {
        let next = next.iter().flatten().map(|to| to.unwrap_or(DEAD)).collect();
        Self::from_table(&Dfa::new((0..256).collect(), next, accepting.to_vec()))
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
        Some(Self { columns, stride: used.len(), next, accepting, distance: dfa.distances() })
    }

    /// The state before the first byte.
    pub fn start(&self) -> ByteState {
        0
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
        self.run(self.start(), text).is_some_and(|state| self.accepts(state))
    }
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
        ByteAutomaton::new(&next, &[false, true, false, true])
    }

    #[test]
    fn only_live_states_are_kept() {
        let automaton = table().unwrap();
        assert_eq!(automaton.states(), 2);
        assert!(automaton.contains(b"abb") && automaton.contains(b"a"));
        assert!(!automaton.contains(b"") && !automaton.contains(b"x") && !automaton.contains(b"ba"));
        assert_eq!(automaton.next(automaton.start(), b'x'), None);
        assert_eq!(automaton.distance(automaton.start()), 1);
        assert!(ByteAutomaton::new(&[[None; 256]; 3], &[false, true, true]).is_none());
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
        assert_eq!(ByteAutomaton::from_table(&dfa), ByteAutomaton::new(&next, &accepting));
        let nothing = pattern::automaton("a$b", Reach::Whole, &mut Fuel::new(1_000)).unwrap();
        assert_eq!(ByteAutomaton::from_table(&nothing), None);
    }
}
