//! The smallest automaton of a language: Hopcroft's partition, for tables without a state of failure.

use super::{
    super::error::ConstraintError,
    dfa::{DEAD, Dfa},
    fuel::Fuel,
};

impl Dfa {
    /// Returns the automaton of the fewest states with the same texts.
    pub(in super::super) fn minimal(self, fuel: &mut Fuel) -> Result<Self, ConstraintError> {
        let states = self.states();
        let before = Before::new(&self);
        let mut partition = Partition::new(&self.accepting);
        let mut waiting: Vec<usize> = (0..partition.blocks.len()).collect();
        let mut waits = vec![true; waiting.len()];
        let mut touched = Vec::new();
        while let Some(splitter) = waiting.pop() {
            waits[splitter] = false;
            let members = partition.members(splitter).to_vec();
            fuel.spend(members.len() * self.width)?;
            for column in 0..self.width {
                for &state in &members {
                    let sources = before.of(column, state as usize);
                    fuel.spend(sources.len())?;
                    for &source in sources {
                        partition.mark(source, &mut touched);
                    }
                }
                for block in touched.drain(..) {
                    let Some(new) = partition.split(block) else { continue };
                    waits.push(false);
                    let smaller = if partition.size(new) <= partition.size(block) { new } else { block };
                    let added = if waits[block] { new } else { smaller };
                    waits[added] = true;
                    waiting.push(added);
                }
            }
        }
        if partition.blocks.len() == states {
            return Ok(self);
        }
        Ok(self.quotient(&partition))
    }

    /// The automaton whose states are the blocks of a partition.
    fn quotient(self, partition: &Partition) -> Self {
        let blocks = partition.blocks.len();
        // The start's block comes first, as the automaton wants it.
        let start = partition.block_of[0];
        let number = |block: u32| match block {
            block if block == start => 0,
            block if block < start => block + 1,
            block => block,
        };
        let mut next = vec![DEAD; blocks * self.width];
        let mut accepting = vec![false; blocks];
        for block in 0..blocks {
            let (sample, place) = (partition.members(block)[0] as usize, number(block as u32) as usize);
            accepting[place] = self.accepting[sample];
            for column in 0..self.width {
                let to = self.next[sample * self.width + column];
                if to != DEAD {
                    next[place * self.width + column] = number(partition.block_of[to as usize]);
                }
            }
        }
        Self { next, accepting, ..self }.trimmed().joined()
    }
}

/// The states from which each state is reached, by column.
struct Before {
    states: usize,
    first: Vec<u32>,
    sources: Vec<u32>,
}

impl Before {
    fn new(dfa: &Dfa) -> Self {
        let states = dfa.states();
        let mut first = vec![0; states * dfa.width + 1];
        let transitions = || {
            let entries = dfa.next.iter().enumerate().filter(|&(_, &to)| to != DEAD);
            entries.map(|(index, &to)| ((index % dfa.width) * states + to as usize, (index / dfa.width) as u32))
        };
        for (place, _) in transitions() {
            first[place + 1] += 1;
        }
        for place in 0..states * dfa.width {
            first[place + 1] += first[place];
        }
        let mut sources = vec![0; first[states * dfa.width] as usize];
        let mut filled = first.clone();
        for (place, source) in transitions() {
            sources[filled[place] as usize] = source;
            filled[place] += 1;
        }
        Self { states, first, sources }
    }

    fn of(&self, column: usize, state: usize) -> &[u32] {
        let place = column * self.states + state;
        &self.sources[self.first[place] as usize..self.first[place + 1] as usize]
    }
}

/// States in blocks; those of a block that are marked come first in it.
struct Partition {
    order: Vec<u32>,
    place: Vec<usize>,
    block_of: Vec<u32>,
    /// First, after the last, and after the last marked one.
    blocks: Vec<(usize, usize, usize)>,
}

impl Partition {
    fn new(accepting: &[bool]) -> Self {
        let states = accepting.len();
        let mut order: Vec<u32> = (0..states as u32).collect();
        order.sort_by_key(|&state| accepting[state as usize]);
        let border = accepting.iter().filter(|&&accepts| !accepts).count();
        let mut place = vec![0; states];
        for (at, &state) in order.iter().enumerate() {
            place[state as usize] = at;
        }
        let blocks: Vec<_> = [(0, border, 0), (border, states, border)].into_iter().filter(|of| of.0 < of.1).collect();
        let last = blocks.len() as u32 - 1;
        let block_of = accepting.iter().map(|&accepts| if accepts { last } else { 0 }).collect();
        Self { order, place, block_of, blocks }
    }

    fn members(&self, block: usize) -> &[u32] {
        &self.order[self.blocks[block].0..self.blocks[block].1]
    }

    fn size(&self, block: usize) -> usize {
        self.blocks[block].1 - self.blocks[block].0
    }

    fn mark(&mut self, state: u32, touched: &mut Vec<usize>) {
        let block = self.block_of[state as usize] as usize;
        let (first, _, marked) = self.blocks[block];
        let at = self.place[state as usize];
        if at < marked {
            return;
        }
        if marked == first {
            touched.push(block);
        }
        let other = self.order[marked];
        self.order.swap(at, marked);
        self.place[other as usize] = at;
        self.place[state as usize] = marked;
        self.blocks[block].2 += 1;
    }

    /// Makes a block of the marked ones, none if all are.
    fn split(&mut self, block: usize) -> Option<usize> {
        let (first, end, marked) = self.blocks[block];
        self.blocks[block].2 = first;
        if marked == end {
            return None;
        }
        let new = self.blocks.len();
        for &state in &self.order[first..marked] {
            self.block_of[state as usize] = new as u32;
        }
        self.blocks.push((first, marked, first));
        self.blocks[block] = (marked, end, marked);
        Some(new)
    }
}
