//! Filters of the tokens that may be drawn: top-k, top-p and min-p.

use std::cmp::Ordering;

use demask_step::{FilterOrder, Sampling};

use super::statistics::Statistics;

/// Cuts below the best scaled logit, beyond which tokens are not looked at: first near ones, in the end none. The
/// tokens beyond a cut cannot pass if the filter ends before it.
const CUTS: [f32; 4] = [4.0, 12.0, 30.0, f32::INFINITY];

/// A row of logits and its whole distribution.
#[derive(Clone, Copy)]
pub(super) struct Scaled<'a> {
    pub(super) values: &'a [f32],
    pub(super) statistics: Statistics,
    /// 1 / temperature.
    pub(super) inverse: f32,
}

/// Fills `order` with the tokens that pass, best first, ties by id: the filter's, and at least the first that may be
/// predicted with all before it. Allocates nothing if `order` has room for the vocabulary.
pub(super) fn passing(row: Scaled<'_>, filter: &Sampling, allows: &dyn Fn(u32) -> bool, order: &mut Vec<u32>) {
    fill(row, filter, order);
    if !order.iter().any(|&token| allows(token)) {
        let values = row.values;
        let possible = |&token: &u32| values[token as usize] > f32::NEG_INFINITY && allows(token);
        let Some(first) = (0..values.len() as u32).filter(possible).min_by(|&a, &b| better(values, a, b)) else {
            return;
        };
        order.clear();
        let number = |&token: &u32| values[token as usize] > f32::NEG_INFINITY;
        order.extend((0..values.len() as u32).filter(number).filter(|&token| better(values, token, first).is_le()));
        order.sort_unstable_by(|&a, &b| better(values, a, b));
    }
}

/// The order of tokens: the better first, ties by id.
fn better(values: &[f32], a: u32, b: u32) -> Ordering {
    values[b as usize].total_cmp(&values[a as usize]).then(a.cmp(&b))
}

/// Fills `order` with the tokens that the filter lets pass.
fn fill(row: Scaled<'_>, filter: &Sampling, order: &mut Vec<u32>) {
    let Scaled { values, statistics, inverse } = row;
    let bound = statistics.base + filter.reach();
    let reaches = |token: &u32| values[*token as usize].partial_cmp(&bound) != Some(Ordering::Less);
    if filter.top_k == 0 && filter.top_p >= 1.0 {
        order.clear();
        order.extend((0..values.len() as u32).filter(|&token| reaches(&token)));
        return sort(values, filter, order);
    }
    for cut in CUTS {
        let whole = cut == f32::INFINITY;
        let lowest = if whole { f32::NEG_INFINITY } else { statistics.base - cut / inverse };
        let near = |&token: &u32| values[token as usize] >= lowest && values[token as usize] > f32::NEG_INFINITY;
        order.clear();
        order.extend((0..values.len() as u32).filter(near));
        if !whole && !may_end_within(row, filter, order) {
            continue;
        }
        sort(values, filter, order);
        if let Some(count) = prefix(row, filter, order, whole) {
            order.truncate(count);
            order.truncate(order.partition_point(reaches));
            return;
        }
    }
}

/// Reports whether top-k alone decides, or decides first.
fn begins_with_top_k(filter: &Sampling) -> bool {
    filter.top_k > 0 && (filter.order == FilterOrder::TopKFirst || filter.top_p >= 1.0)
}

/// Reports whether the filter may end within these tokens: a guess that saves sorting too few of them.
fn may_end_within(row: Scaled<'_>, filter: &Sampling, order: &[u32]) -> bool {
    if begins_with_top_k(filter) {
        return order.len() >= filter.top_k as usize;
    }
    let weight = |&token: &u32| f64::from(row.statistics.probability(row.values[token as usize], row.inverse));
    order.iter().map(weight).sum::<f64>() > f64::from(filter.top_p)
}

/// Best first, ties by id; without the tokens that top-k, if it comes first, leaves out.
fn sort(values: &[f32], filter: &Sampling, order: &mut Vec<u32>) {
    let better = |a: &u32, b: &u32| better(values, *a, *b);
    let k = filter.top_k as usize;
    if begins_with_top_k(filter) && k < order.len() {
        let last = values[*order.select_nth_unstable_by(k - 1, better).1 as usize];
        order.retain(|&token| values[token as usize] >= last);
    }
    order.sort_unstable_by(better);
}

/// Number of the ordered tokens that pass, or `None` if that depends on tokens that are not among them; `whole` says
/// that there are no others.
fn prefix(row: Scaled<'_>, filter: &Sampling, order: &[u32], whole: bool) -> Option<usize> {
    match filter.order {
        FilterOrder::TopKFirst if filter.top_k > 0 => {
            if order.len() < filter.top_k as usize && !whole {
                return None;
            }
            let best = &order[..top_k(row, filter.top_k, order)];
            let weight = |&token: &u32| row.statistics.probability(row.values[token as usize], row.inverse);
            let total = best.iter().map(|token| f64::from(weight(token))).sum();
            top_p(row, filter.top_p, best, total).or(Some(best.len()))
        }
        _ => {
            let count = top_p(row, filter.top_p, order, 1.0).or(whole.then_some(order.len()));
            let enough = filter.top_k > 0 && order.len() >= filter.top_k as usize && filter.top_p >= 1.0;
            let count = count.or(enough.then_some(order.len()))?;
            Some(top_k(row, filter.top_k, &order[..count]))
        }
    }
}

/// Number of tokens that are at least as good as number `k`.
fn top_k(row: Scaled<'_>, k: u32, order: &[u32]) -> usize {
    let k = k as usize;
    if k == 0 || k >= order.len() {
        return order.len();
    }
    let last = row.values[order[k - 1] as usize];
    k + order[k..].iter().take_while(|&&token| row.values[token as usize] == last).count()
}

/// Number of tokens until the probability before one exceeds `p`, or `None` if it never does.
fn top_p(row: Scaled<'_>, p: f32, order: &[u32], total: f64) -> Option<usize> {
    if p >= 1.0 {
        return None;
    }
    let mut before = 0.0;
    for (count, &token) in order.iter().enumerate() {
        if count > 0 && before > f64::from(p) {
            return Some(count);
        }
        before += f64::from(row.statistics.probability(row.values[token as usize], row.inverse)) / total;
    }
    None
}
