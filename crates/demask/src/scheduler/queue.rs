//! Work that waits for memory: in which order it enters, and how long it may be overtaken.

use std::time::Instant;

/// Priority class of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Requests of a higher priority enter first. The default is 0.
    pub priority: i32,
    /// Among requests of one priority those with the earliest deadline enter first, those without one last. One that still
    /// waits for memory by then is refused; an answer under way ends with what is settled.
    pub deadline: Option<Instant>,
    /// Share of the rows that a network computes while requests of a tenant compete for it: one of weight 2 is served twice
    /// the rows of one of weight 1. Above 0; the default is 1.
    pub weight: f64,
    /// Tenant that the request is for. Tenants share first, however many requests each of them has.
    pub tenant: Tenant,
}

/// Somebody on whose behalf requests are made: rows, and turns to enter, are divided among tenants before each divides its
/// own among its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Name of the tenant. The default is 0: all requests are one tenant's.
    pub id: u64,
    /// Share of the rows while tenants compete. Above 0; the default is 1.
    pub weight: f64,
}

impl Default for Tenant {
    fn default() -> Self {
        Self { id: 0, weight: 1.0 }
    }
}

impl Default for Class {
    fn default() -> Self {
        Self { priority: 0, deadline: None, weight: 1.0, tenant: Tenant::default() }
    }
}

/// Work that has not entered.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) id: u64,
    pub(super) class: Class,
    /// Count of forwards when there was no memory for it for the first time.
    pub(super) blocked: Option<u64>,
    pub(super) job: T,
}

impl<T> Waiting<T> {
    fn is_late(&self, now: Instant) -> bool {
        self.class.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Forwards for which it has waited for memory.
    pub(super) fn age(&self, forwards: u64) -> u64 {
        self.blocked.map_or(0, |since| forwards - since)
    }
}

/// Waiting work. It enters in turns by tenant, of a tenant by priority, deadline, arrival; but what was overtaken long enough
/// is first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Vec<Waiting<T>>,
    /// Forwards for which work that waits for memory may be overtaken.
    pub(super) patience: u64,
}

/// Outcome of the attempt to let work enter.
pub(super) enum Entry<T> {
    /// Done: the work entered, or ended, and waits no more.
    Left,
    /// Blocked: there is no memory for the work now.
    Blocked(T),
}

impl<T> Queue<T> {
    pub(super) fn new(patience: u64) -> Self {
        Self { waiting: Vec::new(), patience }
    }

    pub(super) fn push(&mut self, id: u64, class: Class, job: T) {
        self.waiting.push(Waiting { id, class, blocked: None, job });
    }

    /// Puts work into the order in which it enters. `entered` tells how many works of a tenant have entered.
    fn order(&mut self, entered: impl Fn(u64) -> usize) {
        let order = |waiting: &Waiting<T>| {
            let class = &waiting.class;
            (-i64::from(class.priority), class.deadline.is_none(), class.deadline, waiting.id)
        };
        self.waiting.sort_by_key(order);
        // Each work's turn is the number of those of its tenant before it, by the tenant's weight.
        let mut before: Vec<(u64, usize)> = Vec::new();
        let mut turns: Vec<f64> = Vec::with_capacity(self.waiting.len());
        for Waiting { class: Class { tenant, .. }, .. } in &self.waiting {
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
            self.waiting.extend(turned.into_iter().map(|(_, waiting)| waiting));
        }
    }

    /// Takes out work whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, mut over: impl FnMut(u64, T)) {
        while let Some(place) = self.waiting.iter().position(|waiting| waiting.is_late(now)) {
            let Waiting { id, job, .. } = self.waiting.remove(place);
            over(id, job);
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let place = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.remove(place).job)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Counts waiting work of a kind.
    pub(super) fn count(&self, of: impl Fn(&T) -> bool) -> usize {
        self.waiting.iter().filter(|waiting| of(&waiting.job)).count()
    }

    /// Adds up something of all waiting work.
    pub(super) fn sum(&self, of: impl Fn(&T) -> u64) -> u64 {
        self.waiting.iter().map(|waiting| of(&waiting.job)).sum()
    }

    /// Returns the longest wait for memory, in forwards.
    pub(super) fn oldest(&self, forwards: u64) -> u64 {
        self.waiting.iter().map(|waiting| waiting.age(forwards)).max().unwrap_or(0)
    }

    /// Lets work enter in its order. What is blocked is overtaken until its patience ends; then nothing enters before it.
    pub(super) fn admit(
        &mut self,
        forwards: u64,
        entered: impl Fn(u64) -> usize,
        mut enter: impl FnMut(u64, Class, T) -> Entry<T>,
    ) {
        self.order(entered);
        let patience = self.patience;
        let overdue = |waiting: &Waiting<T>| waiting.blocked.is_some() && waiting.age(forwards) >= patience;
        let mut place = match self.overdue(&overdue) {
            Some(first) => {
                let waiting = self.waiting.remove(first);
                self.waiting.insert(0, waiting);
                0
            }
            None => 0,
        };
        while place < self.waiting.len() {
            let Waiting { id, class, blocked, job } = self.waiting.remove(place);
            let Entry::Blocked(job) = enter(id, class, job) else { continue };
            let waiting = Waiting { id, class, blocked: blocked.or(Some(forwards)), job };
            let ends = overdue(&waiting);
            self.waiting.insert(place, waiting);
            if ends {
                return;
            }
            place += 1;
        }
    }

    /// Finds what has waited longest of all that is overdue.
    fn overdue(&self, overdue: &impl Fn(&Waiting<T>) -> bool) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate().filter(|(_, waiting)| overdue(waiting));
        waiting.min_by_key(|(_, waiting)| (waiting.blocked, waiting.id)).map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn order(queue: &mut Queue<()>) -> Vec<u64> {
        queue.order(|_| 0);
        queue.waiting.iter().map(|waiting| waiting.id).collect()
    }

    #[test]
    fn order_is_priority_then_deadline_then_arrival() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        let later = |seconds| Some(now + Duration::from_secs(seconds));
        queue.push(0, Class::default(), ());
        queue.push(1, Class { deadline: later(9), ..Class::default() }, ());
        queue.push(2, Class { deadline: later(3), ..Class::default() }, ());
        queue.push(3, Class::default(), ());
        queue.push(4, Class { priority: 1, ..Class::default() }, ());
        queue.push(5, Class { priority: -1, deadline: later(1), ..Class::default() }, ());
        assert_eq!(order(&mut queue), [4, 2, 1, 0, 3, 5]);
    }

    #[test]
    fn tenants_enter_in_turns_however_many_works_each_has() {
        let mut queue = Queue::new(4);
        let of = |id, weight, priority| Class { priority, tenant: Tenant { id, weight }, ..Class::default() };
        for id in 0..6 {
            queue.push(id, of(1, 1.0, 0), ());
        }
        queue.push(6, of(2, 2.0, 0), ());
        queue.push(7, of(2, 2.0, 0), ());
        queue.push(8, of(2, 2.0, 1), ());
        queue.push(9, of(1, 1.0, 9), ());
        // A priority is one among the tenant's own.
        assert_eq!(order(&mut queue), [9, 8, 6, 0, 7, 1, 2, 3, 4, 5]);
        // Of tenant 1 four are in: the other goes first.
        queue.order(|tenant| if tenant == 1 { 4 } else { 0 });
        assert_eq!(queue.waiting.iter().map(|one| one.id).collect::<Vec<_>>()[..4], [8, 6, 7, 9]);
    }

    #[test]
    fn what_is_late_is_taken_out_and_nothing_else() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        let at = |milliseconds| Class { deadline: Some(now + Duration::from_millis(milliseconds)), ..Class::default() };
        [at(5), at(9), Class::default(), at(7)].into_iter().enumerate().for_each(|(id, class)| {
            queue.push(id as u64, class, ());
        });
        let mut late = Vec::new();
        queue.expire(now + Duration::from_millis(7), |id, ()| late.push(id));
        assert_eq!((late, order(&mut queue)), (vec![0, 3], vec![1, 2]));
    }

    #[test]
    fn a_head_without_memory_is_overtaken_until_its_patience_ends() {
        let mut queue = Queue::new(4);
        queue.push(0, Class::default(), ());
        for forwards in 10..20 {
            queue.push(forwards, Class { priority: 1, ..Class::default() }, ());
            let mut entered = Vec::new();
            queue.admit(
                forwards,
                |_| 0,
                |id, _, ()| match id {
                    0 => Entry::Blocked(()),
                    id => {
                        entered.push(id);
                        Entry::Left
                    }
                },
            );
            // Blocked since 10: from 14 on nobody enters before it, whatever the priority.
            assert_eq!(entered, if forwards < 14 { vec![forwards] } else { vec![] }, "{forwards}");
        }
        assert_eq!((queue.len(), queue.oldest(20)), (7, 10));
    }
}
