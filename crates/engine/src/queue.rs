//! Requests that wait for memory: in which order they enter, and how long one may be overtaken.

use crate::{params::SchedulingParams, request::Request};

/// Blocked requests that may be overtaken in one look at the queue: a long queue does not lengthen each forward.
const LOOK_AHEAD: usize = 256;

/// Requests that may enter before a forward: thousands that come at once do not hold the first forward up, which is full long
/// before.
const ENTRIES: usize = 64;

/// Waiting requests. Those that were preempted enter first, and nothing overtakes them. The others enter in turns by tenant, of a
/// tenant by priority, deadline, arrival, but one that was overtaken long enough is the first of them.
pub(crate) struct Queue {
    waiting: Vec<Box<Request>>,
    /// Forwards for which a request that waits for memory may be overtaken.
    pub(crate) patience: u64,
    /// Sum of the rows of all of them.
    rows: u64,
}

/// Outcome of the attempt to let a request enter.
pub(crate) enum Entry {
    /// Done: it entered, or ended, and waits no more.
    Left,
    /// Blocked: there is no memory for it now.
    Blocked(Box<Request>),
    /// Held back: a running request is about to write the prefix that this one begins with.
    HeldBack(Box<Request>),
}

impl Queue {
    pub(crate) fn new(patience: u64) -> Self {
        Self { waiting: Vec::new(), patience, rows: 0 }
    }

    pub(crate) fn push(&mut self, request: Box<Request>) {
        self.rows += request.rows();
        self.waiting.push(request);
    }

    /// Puts requests into the order in which they enter. `entered` returns how many of a tenant have entered.
    fn order(&mut self, entered: impl Fn(u64) -> usize) {
        let order = |Request { scheduling, id, .. }: &Request| {
            (-i64::from(scheduling.priority), scheduling.deadline.is_none(), scheduling.deadline, *id)
        };
        self.waiting.sort_by_key(|request| order(request));
        // Each request's turn is the number of those of its tenant before it, by the tenant's weight.
        let mut before: Vec<(u64, usize)> = Vec::new();
        let mut turns: Vec<f64> = Vec::with_capacity(self.waiting.len());
        for SchedulingParams { tenant, .. } in self.waiting.iter().map(|request| request.scheduling) {
            let place = before.iter().position(|&(id, _)| id == tenant.id).unwrap_or_else(|| {
                before.push((tenant.id, entered(tenant.id)));
                before.len() - 1
            });
            turns.push(before[place].1 as f64 / tenant.weight);
            before[place].1 += 1;
        }
        if before.len() > 1 {
            let mut turned: Vec<_> = turns.into_iter().zip(self.waiting.drain(..)).collect();
            turned.sort_by(|(left, _), (right, _)| left.total_cmp(right));
            self.waiting.extend(turned.into_iter().map(|(_, request)| request));
        }
    }

    /// Takes out the requests for which `of` returns true.
    pub(crate) fn take(&mut self, of: impl Fn(&Request) -> bool) -> Vec<Box<Request>> {
        let taken: Vec<_> = self.waiting.extract_if(.., |request| of(request)).collect();
        self.rows -= taken.iter().map(|request| request.rows()).sum::<u64>();
        taken
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Counts the waiting requests for which `of` returns true.
    pub(crate) fn count(&self, of: impl Fn(&Request) -> bool) -> usize {
        self.waiting.iter().filter(|request| of(request)).count()
    }

    /// Returns the rows of all waiting requests together.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the longest wait for memory, in forwards.
    pub(crate) fn oldest(&self, forwards: u64) -> u64 {
        self.waiting.iter().map(|request| request.age(forwards)).max().unwrap_or(0)
    }

    /// Lets requests enter in their order, [`ENTRIES`] at most; returns whether more might. One that is blocked is overtaken until
    /// its patience ends; then none enters before it.
    pub(crate) fn admit(
        &mut self,
        forwards: u64,
        entered: impl Fn(u64) -> usize,
        mut enter: impl FnMut(Box<Request>) -> Entry,
    ) -> bool {
        self.order(entered);
        let patience = self.patience;
        let overdue = |request: &Request| request.blocked.is_some() && request.age(forwards) >= patience;
        if let Some(first) = self.overdue(&overdue) {
            self.waiting[..=first].rotate_right(1);
        }
        // What has run goes on before anything else begins.
        self.waiting.sort_by_key(|request| !request.preempted);
        let (mut waiting, mut blocked, mut entered) = (std::mem::take(&mut self.waiting).into_iter(), 0, 0);
        while entered < ENTRIES
            && let Some(request) = waiting.next()
        {
            let rows = request.rows();
            blocked += 1;
            let ends = match enter(request) {
                Entry::Left => {
                    self.rows -= rows;
                    (blocked, entered) = (blocked - 1, entered + 1);
                    continue;
                }
                Entry::Blocked(mut request) => {
                    request.blocked = request.blocked.or(Some(forwards));
                    let ends = request.preempted || overdue(&request);
                    self.waiting.push(request);
                    ends
                }
                Entry::HeldBack(request) => {
                    self.waiting.push(request);
                    false
                }
            };
            let ends = ends || blocked == LOOK_AHEAD;
            if ends {
                break;
            }
        }
        self.waiting.extend(waiting);
        entered == ENTRIES
    }

    /// Finds the one that has waited longest of all that are overdue.
    fn overdue(&self, overdue: &impl Fn(&Request) -> bool) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate().filter(|(_, request)| overdue(request));
        waiting.min_by_key(|(_, request)| (request.blocked, request.id)).map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use demask_step::{Job, Pending, Predictions, SequenceSpec};

    use super::*;
    use crate::{ids::RequestId, params::Tenant};

    /// A job that wants nothing.
    struct Nothing;

    impl Job for Nothing {
        fn needs(&self) -> &[SequenceSpec] {
            &[]
        }

        fn pending(&self) -> Pending<'_> {
            Pending::Done
        }

        fn feed(&mut self, _: &[Predictions]) {}
    }

    fn push(queue: &mut Queue, id: u64, scheduling: SchedulingParams) {
        let mut request = Request::new(Nothing);
        request.id = RequestId(id);
        request.set_scheduling(scheduling);
        queue.push(Box::new(request));
    }

    fn ids(queue: &Queue) -> Vec<u64> {
        queue.waiting.iter().map(|request| request.id.0).collect()
    }

    fn order(queue: &mut Queue) -> Vec<u64> {
        queue.order(|_| 0);
        ids(queue)
    }

    #[test]
    fn order_is_priority_then_deadline_then_arrival() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        let later = |seconds| Some(now + Duration::from_secs(seconds));
        push(&mut queue, 0, SchedulingParams::default());
        push(&mut queue, 1, SchedulingParams { deadline: later(9), ..SchedulingParams::default() });
        push(&mut queue, 2, SchedulingParams { deadline: later(3), ..SchedulingParams::default() });
        push(&mut queue, 3, SchedulingParams::default());
        push(&mut queue, 4, SchedulingParams { priority: 1, ..SchedulingParams::default() });
        push(&mut queue, 5, SchedulingParams { priority: -1, deadline: later(1), ..SchedulingParams::default() });
        assert_eq!(order(&mut queue), [4, 2, 1, 0, 3, 5]);
    }

    #[test]
    fn tenants_enter_in_turns_however_many_works_each_has() {
        let mut queue = Queue::new(4);
        let of = |id, weight, priority| SchedulingParams {
            priority,
            tenant: Tenant { id, weight },
            ..SchedulingParams::default()
        };
        for id in 0..6 {
            push(&mut queue, id, of(1, 1.0, 0));
        }
        push(&mut queue, 6, of(2, 2.0, 0));
        push(&mut queue, 7, of(2, 2.0, 0));
        push(&mut queue, 8, of(2, 2.0, 1));
        push(&mut queue, 9, of(1, 1.0, 9));
        // A priority is one among the tenant's own.
        assert_eq!(order(&mut queue), [9, 8, 6, 0, 7, 1, 2, 3, 4, 5]);
        // Of tenant 1 four are in: the other goes first.
        queue.order(|tenant| if tenant == 1 { 4 } else { 0 });
        assert_eq!(ids(&queue)[..4], [8, 6, 7, 9]);
    }

    #[test]
    fn what_is_late_is_taken_out_and_nothing_else() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        let at = |milliseconds| SchedulingParams {
            deadline: Some(now + Duration::from_millis(milliseconds)),
            ..SchedulingParams::default()
        };
        [at(5), at(9), SchedulingParams::default(), at(7)].into_iter().enumerate().for_each(|(id, scheduling)| {
            push(&mut queue, id as u64, scheduling);
        });
        let late = queue.take(|request| request.is_late(now + Duration::from_millis(7)));
        let late: Vec<_> = late.iter().map(|request| request.id.0).collect();
        assert_eq!((late, order(&mut queue)), (vec![0, 3], vec![1, 2]));
    }

    #[test]
    fn a_head_without_memory_is_overtaken_until_its_patience_ends() {
        let mut queue = Queue::new(4);
        push(&mut queue, 0, SchedulingParams::default());
        for forwards in 10..20 {
            push(&mut queue, forwards, SchedulingParams { priority: 1, ..SchedulingParams::default() });
            let mut entered = Vec::new();
            queue.admit(
                forwards,
                |_| 0,
                |request| match request.id.0 {
                    0 => Entry::Blocked(request),
                    id => {
                        entered.push(id);
                        Entry::Left
                    }
                },
            );
            // Blocked since 10: from 14 on none enters before it, whatever the priority.
            assert_eq!(entered, if forwards < 14 { vec![forwards] } else { vec![] }, "{forwards}");
        }
        assert_eq!((queue.len(), queue.oldest(20)), (7, 10));
    }
}
