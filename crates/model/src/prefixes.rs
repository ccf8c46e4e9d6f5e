//! The index of cached prefixes: which pages hold the K/V of which leading tokens, who holds them, and which go first.
//!
//! A node is a *unit* of positions: the least number that is whole blocks and whole pages, so that its pages' K/V
//! depend on its own tokens and on those of the nodes above it alone. The rest of a sequence beyond its last whole unit
//! is a shorter node with none below it. Units are shared. Of a node that begins as a sequence does, and goes on
//! otherwise, the sequence gets a copy. Pages stay the backend's: the index knows their owners alone. A sequence that
//! holds a node holds all nodes above it, so idle ones can go from the leaves on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use demask_step::{Mask, Prefix, PrefixCacheStats, TokenId};

/// Names a node. Numbers of nodes that are gone are used again.
pub(crate) type NodeId = u32;

/// Pages by the tokens that they hold.
#[derive(Debug, Default)]
pub(crate) struct PrefixIndex {
    /// Positions of a page.
    page: usize,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    /// Ordered, so that tokens with a long common beginning are beside each other.
    by_edge: BTreeMap<Edge, NodeId>,
    /// Nodes that nobody holds and that have none below them, by last use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Counts uses.
    clock: u64,
    idle_pages: usize,
    counters: PrefixCacheStats,
}

/// Key of a node among all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    above: Above,
    tokens: Arc<[TokenId]>,
}

/// Parent of a node: another one, or nothing but what all K/V depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Above {
    Nothing { mask: Mask, salt: u64 },
    Node(NodeId),
}

#[derive(Debug)]
struct Node {
    edge: Edge,
    pages: Box<[u32]>,
    /// Sequences that hold it.
    held: usize,
    /// Nodes right below it.
    below: usize,
    used: u64,
}

/// CachedPages part of a prefix.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct PrefixMatch {
    /// The nodes of its whole units, from the first on.
    pub(crate) shared: Vec<NodeId>,
    /// The node whose first positions are the next ones, and how many these are: whole blocks.
    pub(crate) copied: Option<(NodeId, usize)>,
}

/// Fate of the pages of a sequence that cached them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CachedPages {
    /// Number of pages that belong to the index now.
    pub(crate) adopted: usize,
    /// Pages that the sequence gives back, because another one cached the same before.
    pub(crate) replaced: Vec<u32>,
}

impl PrefixIndex {
    /// Makes an empty one, for pages of so many positions.
    pub(crate) fn new(page: usize) -> Self {
        Self { page, ..Self::default() }
    }

    /// Returns the positions of a node; none where what stands after a token changes its K/V.
    pub(crate) fn unit(&self, mask: Mask) -> Option<usize> {
        let block = block(mask)?;
        let (mut divisor, mut rest) = (self.page, block);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        (self.page / divisor).checked_mul(block)
    }

    /// Pages that nobody holds.
    pub(crate) fn idle_pages(&self) -> usize {
        self.idle_pages
    }

    pub(crate) fn counters(&self) -> PrefixCacheStats {
        self.counters
    }

    /// Returns the longest cached part of a prefix that ends within `most` positions.
    fn find(&self, prefix: Prefix<'_>, most: usize) -> PrefixMatch {
        let mut found = PrefixMatch::default();
        let Some((unit, block)) = self.unit(prefix.mask).zip(block(prefix.mask)) else { return found };
        let mut above = Above::Nothing { mask: prefix.mask, salt: prefix.salt };
        for tokens in prefix.tokens[..prefix.tokens.len().min(most)].chunks(unit) {
            let edge = Edge { above, tokens: tokens.into() };
            match self.by_edge.get(&edge) {
                Some(&node) if tokens.len() == unit => {
                    found.shared.push(node);
                    above = Above::Node(node);
                }
                _ => {
                    found.copied = self.nearest(&edge, block);
                    break;
                }
            }
        }
        found
    }

    /// Finds the node with the longest beginning in common with an edge, in whole blocks.
    fn nearest(&self, edge: &Edge, block: usize) -> Option<(NodeId, usize)> {
        // No other one in the order of all has a longer one.
        let beside = [self.by_edge.range(..=edge).next_back(), self.by_edge.range(edge..).next()];
        let common = |other: &Edge| {
            let same = edge.tokens.iter().zip(&*other.tokens).take_while(|(own, other)| own == other).count();
            if other.above == edge.above { same / block * block } else { 0 }
        };
        let found = beside.into_iter().flatten().map(|(other, &node)| (node, common(other)));
        found.max_by_key(|&(_, common)| common).filter(|&(_, common)| common > 0)
    }

    /// Reports whether more of a prefix would be found once `filler` is cached, at least half of what that adds.
    pub(crate) fn gains(&self, prefix: Prefix<'_>, filler: Prefix<'_>) -> bool {
        let Some(unit) = self.unit(prefix.mask) else { return false };
        if (prefix.mask, prefix.salt) != (filler.mask, filler.salt) {
            return false;
        }
        let common = prefix.tokens.iter().zip(filler.tokens).take_while(|(own, other)| own == other).count() / unit;
        let known = self.find(prefix, common * unit).shared.len();
        // What is known of the common part is known of both.
        common > known && 2 * (common - known) * unit >= filler.tokens.len() - known * unit
    }

    /// Marks the cached part of a prefix as used last. Returns its pages without a holder.
    pub(crate) fn touch_prefix(&mut self, prefix: Prefix<'_>, most: usize) -> usize {
        let PrefixMatch { shared, copied } = self.find(prefix, most);
        self.touch(&shared);
        self.touch(copied.map(|(node, _)| node).as_slice());
        let idle = shared.iter().filter_map(|&node| self.node(node)).filter(|node| node.held == 0);
        idle.map(|node| node.pages.len()).sum()
    }

    /// Holds the cached part of a prefix, the nodes to copy too, and appends the shared pages.
    pub(crate) fn hold(&mut self, prefix: Prefix<'_>, most: usize, pages: &mut Vec<u32>) -> PrefixMatch {
        let found = self.find(prefix, most);
        for &node in &found.shared {
            self.hold_node(node);
            pages.extend(self.pages_of(node));
        }
        self.touch(&found.shared);
        if let Some((node, _)) = found.copied {
            self.hold_node(node);
            self.touch(&[node]);
        }
        let copied = found.copied.map_or(0, |(_, positions)| positions);
        self.counters.queries += prefix.tokens.len() as u64;
        self.counters.hits += (found.shared.len() * self.unit(prefix.mask).unwrap_or(0) + copied) as u64;
        found
    }

    /// Returns the pages of a node.
    pub(crate) fn pages_of(&self, node: NodeId) -> impl Iterator<Item = u32> {
        self.node(node).into_iter().flat_map(|node| node.pages.iter().copied())
    }

    /// Takes the leading pages of a sequence over that hold the prefix, and holds them for it: `held` are the nodes that it
    /// holds already. Where another sequence cached the same before, the sequence gets those pages instead. Whole units are
    /// cached, and with `ends` the rest of whole blocks too: no forward writes to its pages any more.
    pub(crate) fn cache(
        &mut self,
        prefix: Prefix<'_>,
        ends: bool,
        held: &mut Vec<NodeId>,
        pages: &mut [u32],
    ) -> CachedPages {
        let mut cached = CachedPages::default();
        let Some((unit, block)) = self.unit(prefix.mask).zip(block(prefix.mask)) else { return cached };
        let mut above = Above::Nothing { mask: prefix.mask, salt: prefix.salt };
        let units = prefix.tokens.chunks(unit).zip(pages.chunks_mut(unit / self.page));
        for (index, (tokens, pages)) in units.enumerate() {
            let whole = if tokens.len() == unit || ends { tokens.len() / block * block } else { 0 };
            if whole == 0 {
                break;
            }
            let (tokens, pages) = (&tokens[..whole], &mut pages[..whole.div_ceil(self.page)]);
            let edge = Edge { above, tokens: tokens.into() };
            let covers = |(_, common): (NodeId, usize)| common == whole;
            if whole < unit && self.nearest(&edge, block).is_some_and(covers) {
                break;
            }
            let found = self.by_edge.get(&edge).copied();
            let node = match (held.get(index), found) {
                (Some(&own), Some(node)) if own == node => node,
                // It began with something else: nothing of it can be told apart any more.
                (Some(_), _) => break,
                (None, Some(node)) => {
                    let kept = self.node(node).map(|node| node.pages.clone()).unwrap_or_default();
                    cached.replaced.extend_from_slice(pages);
                    pages.copy_from_slice(&kept);
                    self.hold_node(node);
                    held.push(node);
                    node
                }
                (None, None) => {
                    cached.adopted += pages.len();
                    let node = self.insert(edge, pages);
                    held.push(node);
                    node
                }
            };
            above = Above::Node(node);
        }
        self.touch(held);
        cached
    }

    /// Lets go of nodes that a sequence held.
    pub(crate) fn release(&mut self, held: &[NodeId]) {
        self.touch(held);
        for &id in held {
            let Some(node) = self.node_mut(id) else { continue };
            node.held -= 1;
            let (idle, leaf, used, pages) = (node.held == 0, node.below == 0, node.used, node.pages.len());
            if idle {
                self.idle_pages += pages;
                if leaf {
                    self.leaves.insert((used, id));
                }
            }
        }
    }

    /// Forgets the leaf that was used longest ago of those that nobody holds, and hands its pages over.
    pub(crate) fn evict(&mut self) -> Option<Box<[u32]>> {
        let (_, id) = self.leaves.pop_first()?;
        let node = self.nodes[id as usize].take()?;
        self.vacant.push(id);
        self.by_edge.remove(&node.edge);
        self.idle_pages -= node.pages.len();
        if let Above::Node(above) = node.edge.above
            && let Some(parent) = self.node_mut(above)
        {
            parent.below -= 1;
            let (leaf, used) = (parent.held == 0 && parent.below == 0, parent.used);
            if leaf {
                self.leaves.insert((used, above));
            }
        }
        Some(node.pages)
    }

    fn insert(&mut self, edge: Edge, pages: &[u32]) -> NodeId {
        if let Above::Node(above) = edge.above
            && let Some(parent) = self.node_mut(above)
        {
            parent.below += 1;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() as NodeId - 1
        });
        self.by_edge.insert(edge.clone(), id);
        self.nodes[id as usize] = Some(Node { edge, pages: pages.into(), held: 1, below: 0, used: 0 });
        id
    }

    fn hold_node(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        node.held += 1;
        let (first, used, pages) = (node.held == 1, node.used, node.pages.len());
        if first {
            self.idle_pages -= pages;
            self.leaves.remove(&(used, id));
        }
    }

    /// Marks nodes as used last.
    fn touch(&mut self, nodes: &[NodeId]) {
        self.clock += 1;
        let now = self.clock;
        for &id in nodes {
            let Some(node) = self.node_mut(id) else { continue };
            let before = std::mem::replace(&mut node.used, now);
            if self.leaves.remove(&(before, id)) {
                self.leaves.insert((now, id));
            }
        }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)?.as_ref()
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize)?.as_mut()
    }
}

/// Returns how many positions are final together; none where later tokens change the K/V of earlier ones.
fn block(mask: Mask) -> Option<usize> {
    match mask {
        Mask::Full => None,
        // What is stored of a context is causal.
        Mask::Causal | Mask::Context { .. } => Some(1),
        // Blocks that are not counted from position 0 do not lie alike in two requests.
        Mask::BlockCausal { offset, .. } if offset > 0 => None,
        Mask::BlockCausal { block, .. } => Some(block.max(1) as usize),
    }
}

#[cfg(test)]
mod tests;
