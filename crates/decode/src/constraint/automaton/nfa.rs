//! Automata with choices, built from their ends to their starts, and their determinization.

use std::collections::HashMap;

use super::{
    super::error::ConstraintError,
    dfa::{DEAD, Dfa},
    fuel::{ENTRIES, Fuel, STATES},
};

/// A node of an [`Nfa`].
pub(in super::super) type Node = u32;

/// Most nodes, edges and choices of an automaton, each.
const NODES: usize = 200_000;

/// Most members of all sets of nodes that are states.
const MEMBERS: usize = 2_000_000;

/// How a node goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    /// By one symbol: a run of the edges.
    Edges(u32, u32),
    /// Without a symbol, to each of a run of the choices.
    Split(u32, u32),
    /// Without a symbol, before the first one alone.
    AtStart(Node),
    /// Without a symbol, after the last one alone.
    AtEnd(Node),
    /// The text may end.
    Accept,
}

/// An automaton with choices.
#[derive(Debug, Default)]
pub(in super::super) struct Nfa {
    kinds: Vec<Kind>,
    edges: Vec<(u32, u32, Node)>,
    splits: Vec<Node>,
}

impl Nfa {
    /// Adds a node.
    pub(in super::super) fn add(&mut self, kind: Kind) -> Result<Node, ConstraintError> {
        if self.kinds.len().max(self.edges.len()).max(self.splits.len()) >= NODES {
            return Err(ConstraintError::TooLarge { limit: NODES, unit: "parts" });
        }
        self.kinds.push(kind);
        Ok(self.kinds.len() as Node - 1)
    }

    /// Adds a node that goes on by one symbol of these ranges, both ends included, each to its node.
    pub(in super::super) fn edges(&mut self, edges: &[(u32, u32, Node)]) -> Result<Node, ConstraintError> {
        let kind = self.edges_kind(edges);
        self.add(kind)
    }

    /// The kind of a node with these edges.
    pub(in super::super) fn edges_kind(&mut self, edges: &[(u32, u32, Node)]) -> Kind {
        let first = self.edges.len() as u32;
        self.edges.extend_from_slice(edges);
        Kind::Edges(first, edges.len() as u32)
    }

    /// Adds a node that goes on as any of these.
    pub(in super::super) fn split(&mut self, nodes: &[Node]) -> Result<Node, ConstraintError> {
        if let &[node] = nodes {
            return Ok(node);
        }
        let kind = self.split_kind(nodes);
        self.add(kind)
    }

    /// The kind of a node that goes on as any of these.
    pub(in super::super) fn split_kind(&mut self, nodes: &[Node]) -> Kind {
        let first = self.splits.len() as u32;
        self.splits.extend_from_slice(nodes);
        Kind::Split(first, nodes.len() as u32)
    }

    /// Adds a node that is filled later: loops need it.
    pub(in super::super) fn hole(&mut self) -> Result<Node, ConstraintError> {
        self.add(Kind::Split(0, 0))
    }

    /// Fills a hole.
    pub(in super::super) fn fill(&mut self, hole: Node, kind: Kind) {
        self.kinds[hole as usize] = kind;
    }

    /// Returns the automaton without choices for the texts from `start` to an accepting node.
    pub(in super::super) fn determinize(&self, start: Node, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
        let mut subsets = Subsets::new(self, fuel);
        let first = subsets.closure(&[start], true)?;
        if self.kinds.iter().any(|kind| matches!(kind, Kind::AtStart(_))) {
            // What is there before the first symbol is no state of later ones, which may have the same members.
            subsets.sets.push(first.into());
        } else {
            subsets.state(first)?;
        }
        let (mut rows, mut accepting) = (Vec::new(), Vec::new());
        let mut sets = 0;
        while sets < subsets.sets.len() {
            let members = subsets.sets[sets].clone();
            accepting.push(subsets.accepts(&members, sets == 0));
            rows.push(subsets.row(&members)?);
            sets += 1;
        }
        drop(subsets);
        table(&rows, accepting, fuel)
    }
}

/// The table of rows of disjoint ranges, in order.
fn table(rows: &[Vec<(u32, u32, u32)>], accepting: Vec<bool>, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
    let mut starts: Vec<u32> = rows.iter().flatten().flat_map(|&(low, high, _)| [low, high + 1]).collect();
    starts.push(0);
    starts.sort_unstable();
    starts.dedup();
    let width = starts.len();
    if rows.len() * width > ENTRIES {
        return Err(ConstraintError::TooLarge { limit: ENTRIES, unit: "entries of a table" });
    }
    fuel.spend(rows.len() * width)?;
    let mut next = vec![DEAD; rows.len() * width];
    for (row, ranges) in next.chunks_exact_mut(width).zip(rows) {
        for &(low, high, to) in ranges {
            let from = starts.partition_point(|&start| start < low);
            let until = from + starts[from..].partition_point(|&start| start <= high);
            row[from..until].fill(to);
        }
    }
    Ok(Dfa::new(starts, next, accepting))
}

/// Sets of nodes that are reached together: the states.
struct Subsets<'a> {
    nfa: &'a Nfa,
    fuel: &'a mut Fuel,
    sets: Vec<std::rc::Rc<[Node]>>,
    known: HashMap<std::rc::Rc<[Node]>, u32>,
    /// The state of one node's closure, where it was asked for.
    single: HashMap<Node, u32>,
    members: usize,
    met: Vec<u32>,
    round: u32,
}

impl<'a> Subsets<'a> {
    fn new(nfa: &'a Nfa, fuel: &'a mut Fuel) -> Self {
        let met = vec![0; nfa.kinds.len()];
        Self { nfa, fuel, sets: Vec::new(), known: HashMap::new(), single: HashMap::new(), members: 0, met, round: 0 }
    }

    /// The nodes that are reached without a symbol and take one, or may end the text; sorted.
    fn closure(&mut self, nodes: &[Node], at_start: bool) -> Result<Vec<Node>, ConstraintError> {
        self.round += 1;
        let mut stack: Vec<Node> = nodes.to_vec();
        let mut found = Vec::new();
        while let Some(node) = stack.pop() {
            if std::mem::replace(&mut self.met[node as usize], self.round) == self.round {
                continue;
            }
            self.fuel.spend(1)?;
            match self.nfa.kinds[node as usize] {
                Kind::Split(first, count) => {
                    stack.extend(&self.nfa.splits[first as usize..(first + count) as usize]);
                }
                Kind::AtStart(next) if at_start => stack.push(next),
                Kind::AtStart(_) | Kind::Edges(_, 0) => (),
                Kind::Edges(..) | Kind::AtEnd(_) | Kind::Accept => found.push(node),
            }
        }
        self.fuel.spend(4 * found.len())?;
        found.sort_unstable();
        Ok(found)
    }

    /// The state of a closure.
    fn state(&mut self, set: Vec<Node>) -> Result<u32, ConstraintError> {
        self.fuel.spend(set.len())?;
        if let Some(&state) = self.known.get(set.as_slice()) {
            return Ok(state);
        }
        self.members += set.len();
        if self.sets.len() >= STATES {
            return Err(ConstraintError::TooLarge { limit: STATES, unit: "states" });
        }
        if self.members > MEMBERS {
            return Err(ConstraintError::TooLarge { limit: MEMBERS, unit: "members of states" });
        }
        let set: std::rc::Rc<[Node]> = set.into();
        let state = self.sets.len() as u32;
        self.known.insert(set.clone(), state);
        self.sets.push(set);
        Ok(state)
    }

    /// The state after one of these nodes.
    fn target(&mut self, nodes: &[Node]) -> Result<u32, ConstraintError> {
        if let &[node] = nodes {
            if let Some(&state) = self.single.get(&node) {
                return Ok(state);
            }
            let set = self.closure(nodes, false)?;
            let state = self.state(set)?;
            self.single.insert(node, state);
            return Ok(state);
        }
        let set = self.closure(nodes, false)?;
        self.state(set)
    }

    /// Reports whether the text may end here, which may be before its first symbol.
    fn accepts(&mut self, members: &[Node], at_start: bool) -> bool {
        self.round += 1;
        let mut stack = members.to_vec();
        while let Some(node) = stack.pop() {
            if std::mem::replace(&mut self.met[node as usize], self.round) == self.round {
                continue;
            }
            match self.nfa.kinds[node as usize] {
                Kind::Accept => return true,
                Kind::AtEnd(next) => stack.push(next),
                Kind::AtStart(next) if at_start => stack.push(next),
                Kind::Split(first, count) => {
                    stack.extend(&self.nfa.splits[first as usize..(first + count) as usize]);
                }
                Kind::Edges(..) | Kind::AtStart(_) => (),
            }
        }
        false
    }

    /// Where a state goes: disjoint ranges in order, those side by side with one target joined.
    fn row(&mut self, members: &[Node]) -> Result<Vec<(u32, u32, u32)>, ConstraintError> {
        let mut edges = Vec::new();
        for &node in members {
            if let Kind::Edges(first, count) = self.nfa.kinds[node as usize] {
                edges.extend_from_slice(&self.nfa.edges[first as usize..(first + count) as usize]);
            }
        }
        self.fuel.spend(2 * edges.len())?;
        edges.sort_unstable();
        edges.dedup();
        let mut row: Vec<(u32, u32, u32)> = Vec::new();
        let mut active: Vec<(u32, Node)> = Vec::new();
        let (mut at, mut taken) = (0, 0);
        while taken < edges.len() || !active.is_empty() {
            if active.is_empty() {
                at = edges[taken].0;
            }
            while taken < edges.len() && edges[taken].0 == at {
                active.push((edges[taken].1, edges[taken].2));
                taken += 1;
            }
            let ends = active.iter().map(|of| of.0).min().unwrap_or(at);
            let high = edges.get(taken).map_or(ends, |edge| ends.min(edge.0 - 1));
            let mut nodes: Vec<Node> = active.iter().map(|of| of.1).collect();
            nodes.sort_unstable();
            nodes.dedup();
            self.fuel.spend(nodes.len())?;
            let to = self.target(&nodes)?;
            match row.last_mut() {
                Some(last) if last.2 == to && last.1 + 1 == at => last.1 = high,
                _ => row.push((at, high, to)),
            }
            active.retain(|of| of.0 > high);
            at = high + 1;
        }
        Ok(row)
    }
}
