//! Automata over numbers: bytes, or characters by their code points. Everything that they cost is counted, by no clock.

mod dfa;
mod distances;
mod fuel;
mod minimal;
mod nfa;

pub(super) use dfa::{DEAD, Dfa, Operation};
pub(super) use distances::distances;
pub(super) use fuel::Fuel;
pub(super) use nfa::{Kind, Nfa, Node};
