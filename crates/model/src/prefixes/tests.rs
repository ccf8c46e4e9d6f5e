//! Tiny pages, and a model of the index.

use demask_step::random::mix;

use super::*;

const CAUSAL: Mask = Mask::Causal;

fn blocks(block: u32) -> Mask {
    Mask::blocks(block)
}

fn prefix(tokens: &[TokenId], mask: Mask) -> Prefix<'_> {
    Prefix { tokens, mask, salt: 0 }
}

/// Publishes tokens from a sequence of its own, whose pages begin with this one.
fn cache(index: &mut PrefixIndex, prefix: Prefix<'_>, first: u32) -> (Vec<NodeId>, Vec<u32>, CachedPages) {
    let mut pages: Vec<u32> = (first..).take(prefix.tokens.len().div_ceil(index.page)).collect();
    let mut held = Vec::new();
    let cached = index.cache(prefix, false, &mut held, &mut pages);
    (held, pages, cached)
}

/// Pages that a sequence finds, which lets go of them at once.
fn found(index: &mut PrefixIndex, prefix: Prefix<'_>) -> Vec<u32> {
    let mut pages = Vec::new();
    let PrefixMatch { shared, copied } = index.hold(prefix, usize::MAX, &mut pages);
    index.release(&shared);
    index.release(copied.map(|(node, _)| node).as_slice());
    pages
}

#[test]
fn units_are_whole_blocks_and_whole_pages() {
    let index = PrefixIndex::new(4);
    for (mask, unit) in [
        (Mask::Full, None),
        (CAUSAL, Some(4)),
        (blocks(1), Some(4)),
        (blocks(2), Some(4)),
        (blocks(3), Some(12)),
        (blocks(4), Some(4)),
        (blocks(6), Some(12)),
        (blocks(8), Some(8)),
    ] {
        assert_eq!(index.unit(mask), unit, "{mask}");
    }
}

#[test]
fn only_whole_units_of_the_same_tokens_mask_and_salt_are_found() {
    let mut index = PrefixIndex::new(2);
    let tokens: Vec<u32> = (0..13).collect();
    // Units of 6: two of them, and a position that nobody shares.
    let (held, pages, cached) = cache(&mut index, prefix(&tokens, blocks(3)), 10);
    assert_eq!((held.len(), pages, cached.adopted), (2, (10..17).collect(), 6));
    index.release(&held);
    assert_eq!(index.idle_pages(), 6);
    let first = |length: usize| prefix(&tokens[..length], blocks(3));
    for (length, expected) in [(5, 0), (6, 3), (7, 3), (11, 3), (12, 6), (13, 6)] {
        assert_eq!(found(&mut index, first(length)).len(), expected, "{length}");
    }
    let mut other = tokens.clone();
    other[7] = 99;
    assert_eq!(found(&mut index, prefix(&other, blocks(3))), [10, 11, 12]);
    other[0] = 99;
    assert_eq!(found(&mut index, prefix(&other, blocks(3))), []);
    for stranger in [
        Prefix { salt: 1, ..first(12) },
        prefix(&tokens, blocks(6)),
        prefix(&tokens, blocks(1)),
        prefix(&tokens, CAUSAL),
        prefix(&tokens, Mask::Full),
    ] {
        assert_eq!(found(&mut index, stranger), [], "{stranger:?}");
    }
    let mut pages = Vec::new();
    let found = index.hold(first(12), 11, &mut pages);
    assert_eq!(
        (found.shared.len(), found.copied.map(|(_, positions)| positions)),
        (1, Some(3)),
        "no further than asked for"
    );
}

#[test]
fn the_same_cached_twice_is_kept_once() {
    let mut index = PrefixIndex::new(2);
    let tokens: Vec<u32> = (0..8).collect();
    let (first, _, _) = cache(&mut index, prefix(&tokens[..4], CAUSAL), 10);
    let (second, pages, cached) = cache(&mut index, prefix(&tokens, CAUSAL), 20);
    assert_eq!(pages, [10, 11, 22, 23]);
    assert_eq!(cached, CachedPages { adopted: 2, replaced: vec![20, 21] });
    // The first goes on where the second was before.
    let (mut held, mut pages) = (first, vec![10, 11, 12, 13]);
    let cached = index.cache(prefix(&tokens, CAUSAL), false, &mut held, &mut pages);
    assert_eq!((cached, pages), (CachedPages { adopted: 0, replaced: vec![12, 13] }, vec![10, 11, 22, 23]));
    assert_eq!(held, second);
    index.release(&held);
    assert_eq!(index.idle_pages(), 0, "the second still holds all of it");
    assert!(index.evict().is_none());
    index.release(&second);
    assert_eq!(index.idle_pages(), 4);
}

#[test]
fn what_a_sequence_began_with_is_not_cached_as_something_else() {
    let mut index = PrefixIndex::new(2);
    let (mut held, mut pages, _) = cache(&mut index, prefix(&[1, 2], CAUSAL), 10);
    for stranger in [prefix(&[1, 3, 4, 5], CAUSAL), Prefix { salt: 7, ..prefix(&[1, 2, 4, 5], CAUSAL) }] {
        assert_eq!(index.cache(stranger, false, &mut held, &mut pages), CachedPages::default());
        assert_eq!((held.len(), found(&mut index, stranger)), (1, vec![]));
    }
}

#[test]
fn leaves_go_first_and_those_used_longest_ago_before_others() {
    let mut index = PrefixIndex::new(1);
    for (tokens, first) in [([1, 2, 3], 10), ([1, 2, 4], 20), ([5, 6, 7], 30)] {
        let (held, ..) = cache(&mut index, prefix(&tokens, CAUSAL), first);
        index.release(&held);
    }
    assert_eq!(index.idle_pages(), 7);
    // Of what is asked for now nothing goes before everything else is gone.
    assert_eq!(index.touch_prefix(prefix(&[1, 2, 3], CAUSAL), usize::MAX), 3);
    let evicted: Vec<u32> = std::iter::from_fn(|| index.evict()).flatten().collect();
    assert_eq!(evicted, [22, 32, 31, 30, 12, 11, 10]);
    assert_eq!((index.idle_pages(), index.by_edge.len(), index.leaves.len()), (0, 0, 0));
}

/// Random sequences that begin, publish and end, beside a list of everything that was ever cached and not evicted.
#[test]
fn counts_are_right_whatever_comes_and_goes() {
    for seed in 0..300 {
        let mut state = mix(seed);
        let mut roll = |sides: usize| {
            state = mix(state);
            (state % sides as u64) as usize
        };
        let mut index = PrefixIndex::new(2);
        let (mut open, mut next) = (Vec::<(Vec<u32>, Vec<NodeId>, Vec<u32>)>::new(), 0);
        for _ in 0..60 {
            match roll(5) {
                0 | 1 => {
                    let tokens: Vec<u32> = (0..roll(12)).map(|_| roll(2) as u32).collect();
                    let mut pages = Vec::new();
                    let most = roll(16);
                    let PrefixMatch { shared: held, copied } = index.hold(prefix(&tokens, blocks(4)), most, &mut pages);
                    assert_eq!(pages.len(), 2 * held.len());
                    if let Some((node, positions)) = copied {
                        let (start, same) = (4 * held.len(), &index.node(node).unwrap().edge.tokens[..positions]);
                        assert!(positions.is_multiple_of(4) && start + positions <= most);
                        assert_eq!(same, &tokens[start..][..positions]);
                        index.release(&[node]);
                    }
                    let own = tokens.len().div_ceil(2) - pages.len();
                    pages.extend(next..next + own as u32);
                    next += own as u32;
                    open.push((tokens, held, pages));
                }
                2 if !open.is_empty() => {
                    let one = roll(open.len());
                    let (tokens, held, pages) = &mut open[one];
                    let length = roll(tokens.len() + 1);
                    let before = pages.clone();
                    let CachedPages { adopted: taken, replaced } =
                        index.cache(prefix(&tokens[..length], blocks(4)), false, held, pages);
                    let changed = before.iter().zip(&*pages).filter(|(before, now)| before != now).count();
                    assert_eq!(changed, replaced.len());
                    assert!(taken + changed <= pages.len() && held.len() * 4 <= tokens.len());
                }
                3 if !open.is_empty() => {
                    let (tokens, mut held, mut pages) = open.swap_remove(roll(open.len()));
                    let length = roll(tokens.len() + 1);
                    index.cache(prefix(&tokens[..length], blocks(4)), true, &mut held, &mut pages);
                    index.release(&held);
                }
                _ => drop(index.evict()),
            }
            check(&index, &open);
        }
        for (_, held, _) in open.drain(..) {
            index.release(&held);
        }
        check(&index, &open);
        while index.evict().is_some() {}
        assert_eq!((index.idle_pages(), index.by_edge.len()), (0, 0), "all of it can go");
    }
}

fn check(index: &PrefixIndex, open: &[(Vec<u32>, Vec<NodeId>, Vec<u32>)]) {
    let mut seen = BTreeSet::new();
    let mut idle = 0;
    for (id, node) in index.nodes.iter().enumerate().filter_map(|(id, node)| Some((id as NodeId, node.as_ref()?))) {
        let held = open.iter().filter(|(_, held, _)| held.contains(&id)).count();
        let below = index.nodes.iter().flatten().filter(|other| other.edge.above == Above::Node(id)).count();
        assert_eq!((node.held, node.below), (held, below), "node {id}");
        assert_eq!(index.leaves.contains(&(node.used, id)), held == 0 && below == 0);
        assert!(node.pages.iter().all(|page| seen.insert(*page)), "a page belongs to one node");
        idle += if held == 0 { node.pages.len() } else { 0 };
    }
    assert_eq!(index.idle_pages(), idle);
    for (tokens, held, pages) in open {
        for (at, &id) in held.iter().enumerate() {
            let node = index.node(id).unwrap();
            assert_eq!((&*node.edge.tokens, &*node.pages), (&tokens[4 * at..][..4], &pages[2 * at..][..2]));
        }
    }
}

/// Where pages are longer than blocks, the rest of a sequence beyond its whole pages is copied.
#[test]
fn what_is_less_than_a_unit_is_copied_in_whole_blocks() {
    let mut index = PrefixIndex::new(8);
    let tokens: Vec<u32> = (0..23).collect();
    let first = |length: usize| prefix(&tokens[..length], blocks(4));
    let mut leave = |length: usize, page: u32| {
        let (mut held, mut pages) = (Vec::new(), vec![page, page + 1, page + 2]);
        let cached = index.cache(first(length), true, &mut held, &mut pages);
        index.release(&held);
        cached.adopted
    };
    // 5 blocks: two pages, and half of the third. What is known already is not kept again.
    assert_eq!([leave(22, 10), leave(21, 20), leave(14, 30)], [3, 0, 0]);
    let mut find = |tokens: &[u32], most: usize| {
        let mut pages = Vec::new();
        let PrefixMatch { shared, copied } = index.hold(prefix(tokens, blocks(4)), most, &mut pages);
        index.release(&shared);
        let copied = copied.map(|(node, positions)| {
            index.release(&[node]);
            (index.pages_of(node).next().unwrap(), positions)
        });
        (pages, copied)
    };
    let all = usize::MAX;
    assert_eq!(find(&tokens, all), (vec![10, 11], Some((12, 4))));
    assert_eq!(find(&tokens, 19), (vec![10, 11], None), "of the last block three positions");
    assert_eq!(find(&tokens[..15], all), (vec![10], Some((11, 4))), "the beginning of a page that is whole");
    let mut other = tokens.clone();
    other[6] = 99;
    assert_eq!(find(&other, all), (vec![], Some((10, 4))), "the beginning of a page that goes on otherwise");
    other[3] = 99;
    assert_eq!(find(&other, all), (vec![], None));
}
