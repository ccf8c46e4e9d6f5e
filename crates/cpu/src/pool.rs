//! A fixed set of threads that run numbered tasks.
//!
//! [`Pool::run`] opens a job, works on it together with whichever threads come along, closes it when no task is left
//! to take, and waits for the threads inside. A thread that wakes too late finds the job closed: nobody waits for it.
//! Threads spin briefly between jobs, because the next operation of a forward pass follows at once, and then sleep.
//!
//! Each thread begins with the tasks of its own share, neighbouring numbers that are the same in every job of as many
//! tasks: the output of one operation is most often its input of the next, from its own cache. Then it takes the tasks left
//! of the other shares. Which thread runs a task is thus chance after all: results must not depend on it.

use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    hint,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Checks of the gate before a thread sleeps: some tens of microseconds, more than the time between two operations.
const SPINS: usize = 2_000;

/// Set in the gate while a job is open.
const OPEN: u64 = 1 << 31;
/// The part of the gate that counts the threads inside.
const INSIDE: u64 = OPEN - 1;
/// The part of the gate that numbers the jobs.
const EPOCH: u64 = 1 << 32;

thread_local! {
    /// Records whether this thread is running a task of any pool.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Threads that run tasks, the calling thread among them.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let sum = AtomicUsize::new(0);
/// demask_cpu::pool::Pool::new(2).run(4, &|task| {
///     sum.fetch_add(task, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 6);
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a job, so that two callers take turns.
    turn: Mutex<()>,
}

/// State that the threads of a pool see.
struct Shared {
    /// Number of the job, whether it is open, and how many threads are inside.
    gate: AtomicU64,
    /// The job; written only while the gate is closed and empty, read only by threads inside.
    job: UnsafeCell<Option<Job>>,
    /// The next task to take of each thread's share.
    next: Vec<Next>,
    /// Threads asleep, or about to be.
    sleepers: AtomicUsize,
    /// Threads that have begun to work.
    started: AtomicUsize,
    stop: AtomicBool,
    /// Guards both conditions; holds the first panic of a task.
    thrown: Mutex<Option<Box<dyn Any + Send>>>,
    /// A job was opened, or the pool ends.
    opened: Condvar,
    /// The last thread left a closed job.
    emptied: Condvar,
}

// SAFETY: `job` is the only field that is not Sync by itself. It is written by the holder of `turn` while the gate is
// closed and nobody is inside, and read by threads that entered through the gate afterwards.
unsafe impl Sync for Shared {}
// SAFETY: the job's pointer is dereferenced only while `run` waits, on a task that is Sync.
unsafe impl Send for Shared {}

/// The next task of a share, on cache lines of its own: prefetchers take them in pairs.
#[repr(align(128))]
struct Next(AtomicUsize);

/// A task function, its lifetime erased, and how often to call it.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

impl Pool {
    /// A pool in which `threads` threads work: the caller of [`Pool::run`] and `threads - 1` of its own. Fewer if the
    /// system gives no more.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: (0..threads.max(1)).map(|_| Next(AtomicUsize::new(0))).collect(),
            sleepers: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            thrown: Mutex::new(None),
            opened: Condvar::new(),
            emptied: Condvar::new(),
        });
        let spawn = |index: usize| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("demask-{index}")).spawn(move || shared.work(index))
        };
        let workers: Vec<_> = (1..threads).map_while(|index| spawn(index).ok()).collect();
        // What the system and the standard library allocate for a new thread is then behind us.
        while shared.started.load(Ordering::SeqCst) < workers.len() {
            thread::yield_now();
        }
        Self { shared, workers, turn: Mutex::new(()) }
    }

    /// Threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for each `i` in `0..tasks`, on any thread and in any order, and returns when all are done.
    /// Allocates nothing.
    ///
    /// # Panics
    /// With the panic of a task, once no task is running any more; the tasks not yet begun are left out. And when called
    /// from inside a task of any pool: tasks do not nest.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        assert!(!IN_TASK.get(), "Pool::run was called from inside a task: tasks do not nest");
        if self.workers.is_empty() || tasks <= 1 {
            let _inside = TaskGuard::enter();
            (0..tasks).for_each(task);
            return;
        }
        let _turn = locked(&self.turn);
        self.shared.open(task, tasks);
        self.shared.take_tasks(0);
        self.shared.close();
        let thrown = locked(&self.shared.thrown).take();
        if let Some(payload) = thrown {
            panic::resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.shared.thrown));
        self.shared.opened.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches what tasks throw: there is nothing to hear from it.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Publishes a job and wakes the sleepers. The caller holds `turn` and will call `close` before `task` ends.
    fn open(&self, task: &(dyn Fn(usize) + Sync), tasks: usize) {
        // SAFETY: only the lifetime changes. The pointer is dereferenced by threads inside the gate, and `close` does
        // not return before they have left.
        let task: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(task) };
        // SAFETY: the gate is closed and empty and the caller holds `turn`: nobody reads or writes the job.
        unsafe { *self.job.get() = Some(Job { task, tasks }) };
        for (share, next) in self.next.iter().enumerate() {
            next.0.store(self.share(share, tasks).start, Ordering::Relaxed);
        }
        let epoch = self.gate.load(Ordering::Relaxed) & !(EPOCH - 1);
        self.gate.store(epoch.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper checks the gate under this lock before it waits: it sees the job or the notification.
            drop(locked(&self.thrown));
            self.opened.notify_all();
        }
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self) {
        self.gate.fetch_and(!OPEN, Ordering::SeqCst);
        self.wait(&self.emptied, || (self.gate.load(Ordering::SeqCst) & INSIDE == 0).then_some(()));
    }

    /// Waits for news, which `signal` announces: spins a while, then sleeps.
    fn wait<T>(&self, signal: &Condvar, news: impl Fn() -> Option<T>) -> T {
        for _ in 0..SPINS {
            if let Some(news) = news() {
                return news;
            }
            hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut lock = locked(&self.thrown);
        let news = loop {
            if let Some(news) = news() {
                break news;
            }
            lock = signal.wait(lock).unwrap_or_else(PoisonError::into_inner);
        };
        drop(lock);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        news
    }

    /// The tasks that a thread begins with.
    fn share(&self, thread: usize, tasks: usize) -> Range<usize> {
        let threads = self.next.len();
        thread * tasks / threads..(thread + 1) * tasks / threads
    }

    /// Life of the worker with a number.
    fn work(&self, thread: usize) {
        self.started.fetch_add(1, Ordering::SeqCst);
        let mut seen = 0;
        while let Some(epoch) = self.wait_for_job(seen) {
            seen = epoch;
            if self.enter(epoch) {
                self.take_tasks(thread);
                self.leave();
            }
        }
    }

    /// Waits for a job other than `seen` and answers its number; `None` when the pool ends.
    fn wait_for_job(&self, seen: u64) -> Option<u64> {
        self.wait(&self.opened, || {
            let epoch = self.gate.load(Ordering::SeqCst) & !(EPOCH - 1);
            let stops = self.stop.load(Ordering::SeqCst);
            (stops || epoch != seen).then_some((!stops).then_some(epoch))
        })
    }

    /// Enters the job of a number if it is still open.
    fn enter(&self, epoch: u64) -> bool {
        let entered = self.gate.try_update(Ordering::SeqCst, Ordering::SeqCst, |gate| {
            (gate & !(EPOCH - 1) == epoch && gate & OPEN != 0).then_some(gate + 1)
        });
        entered.is_ok()
    }

    /// Leaves a job; the last one out of a closed job tells the caller, who may be asleep.
    fn leave(&self) {
        let before = self.gate.fetch_sub(1, Ordering::SeqCst);
        if before & (OPEN | INSIDE) == 1 {
            drop(locked(&self.thrown));
            self.emptied.notify_one();
        }
    }

    /// Runs tasks until none is left, those of the thread's share first. A panic ends the job and is kept for the caller.
    fn take_tasks(&self, thread: usize) {
        // SAFETY: called by the thread that opened the job before it closes it, or by a thread inside: the job is not
        // written meanwhile.
        let Some(Job { task, tasks }) = (unsafe { *self.job.get() }) else { return };
        let _inside = TaskGuard::enter();
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            for share in (thread..self.next.len()).chain(0..thread) {
                let (next, end) = (&self.next[share].0, self.share(share, tasks).end);
                // Looking first leaves shares that are done where they are.
                while next.load(Ordering::Relaxed) < end {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= end {
                        break;
                    }
                    // SAFETY: `run` holds the borrow of the task until `close` has returned.
                    unsafe { (*task)(index) };
                }
            }
        }));
        if let Err(payload) = outcome {
            self.next.iter().for_each(|next| next.0.store(tasks, Ordering::Relaxed));
            locked(&self.thrown).get_or_insert(payload);
        }
    }
}

/// Marks the thread as running a task while it lives.
struct TaskGuard;

impl TaskGuard {
    fn enter() -> Self {
        IN_TASK.set(true);
        Self
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        IN_TASK.set(false);
    }
}

/// Locks; a panic elsewhere leaves nothing half-done under these locks.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        thread::sleep,
        time::{Duration, Instant},
    };

    use super::*;

    fn thrown_message(pool: &Pool, tasks: usize, task: &(dyn Fn(usize) + Sync)) -> String {
        let payload = panic::catch_unwind(AssertUnwindSafe(|| pool.run(tasks, task))).unwrap_err();
        payload.downcast_ref::<&str>().map_or_else(String::new, ToString::to_string)
    }

    /// Runs as many tasks as there are threads, each of which waits for all others.
    fn meet(pool: &Pool) {
        let met = AtomicUsize::new(0);
        pool.run(pool.threads(), &|_| {
            met.fetch_add(1, Ordering::SeqCst);
            while met.load(Ordering::SeqCst) < pool.threads() {
                thread::yield_now();
            }
        });
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 7, 100] {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.into_iter().all(|count| count.into_inner() == 1));
            }
        }
    }

    #[test]
    fn tasks_share_the_threads() {
        meet(&Pool::new(3));
    }

    #[test]
    fn ten_thousand_runs_end() {
        let pool = Pool::new(4);
        let sum = AtomicUsize::new(0);
        for _ in 0..10_000 {
            pool.run(5, &|task| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.into_inner(), 100_000);
    }

    #[test]
    fn threads_wake_from_sleep() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            sleep(Duration::from_millis(5));
            meet(&pool);
        }
    }

    #[test]
    fn a_slow_task_is_waited_for() {
        let pool = Pool::new(2);
        let done = AtomicUsize::new(0);
        pool.run(2, &|task| {
            sleep(Duration::from_millis(20 * task as u64));
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(done.into_inner(), 2);
    }

    /// Time of a run of tasks that take 2 ms on the caller, and twice as long on another thread. They sleep, so that no
    /// neighbour of the test has a say.
    fn uneven(pool: &Pool, tasks: usize) -> Duration {
        let started = Instant::now();
        pool.run(tasks, &|_| {
            let slow = thread::current().name().is_some_and(|name| name == "demask-1");
            sleep(Duration::from_millis(if slow { 4 } else { 2 }));
        });
        started.elapsed()
    }

    #[test]
    fn a_thread_of_half_the_speed_costs_little_more_than_it_must() {
        let pool = Pool::new(2);
        for tasks in [12, 48] {
            let most = Duration::from_millis(2 * tasks as u64).mul_f64(1.1 / 1.5);
            let found: Vec<_> = (0..50).map(|_| uneven(&pool, tasks)).take_while(|&time| time > most).collect();
            assert!(found.len() < 50, "{tasks} tasks took {found:?}, and at most {most:?} are fair");
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for threads in [1, 2, 4] {
            let pool = Pool::new(threads);
            for victim in 0..6 {
                let message = thrown_message(&pool, 6, &|task| assert!(task != victim, "the task failed"));
                assert_eq!(message, "the task failed");
            }
            let count = AtomicUsize::new(0);
            pool.run(6, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 6);
        }
    }

    #[test]
    fn nested_use_is_refused() {
        let (pool, other) = (Pool::new(2), Pool::new(1));
        for inner in [&pool, &other] {
            let message = thrown_message(&pool, 4, &|_| inner.run(2, &|_| {}));
            assert_eq!(message, "Pool::run was called from inside a task: tasks do not nest");
        }
    }

    #[test]
    fn two_callers_take_turns() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        pool.run(3, &|_| {
                            sum.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4_500);
    }
}
