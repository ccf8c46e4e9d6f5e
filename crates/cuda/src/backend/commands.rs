//! Commands of a step for the device: a list of launches, run one by one or, once the same list was seen before, as a
//! graph. A device that refuses graphs goes on without them.
//!
//! Counts are read on the device and grids are as large as the bucket, so that steps of one bucket are the same list to
//! the byte, and one graph serves them all. A list that is equal runs the same kernels on the same memory: whatever was
//! allocated anew since has another address, or the same meaning.

use std::sync::{Arc, OnceLock};

use demask_step::DeviceError;
use demask_tensor::PartSeconds;

use crate::{
    arguments::Argument,
    gpu::{Geometry, Gpu, GpuError},
};

/// A kernel's name, and how many threads run it.
pub(super) type Kernel = (&'static str, Geometry);

/// A launch whose argument is a part of the list's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Command {
    kernel: Kernel,
    argument: &'static str,
    start: usize,
    words: usize,
}

/// Launches in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Commands {
    commands: Vec<Command>,
    words: Vec<u64>,
}

/// An argument whose bytes were kept.
struct KeptArgument<'a> {
    name: &'static str,
    words: &'a [u64],
}

// SAFETY: the bytes are those of an argument of this name, as they were given.
unsafe impl Argument for KeptArgument<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the words' own bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), size_of_val(self.words)) }
    }
}

impl Commands {
    fn push(&mut self, kernel: Kernel, argument: &dyn Argument) {
        let (start, bytes) = (self.words.len(), argument.bytes());
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty(), "{} is not whole words", argument.name());
        self.words.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
        self.commands.push(Command { kernel, argument: argument.name(), start, words: words.len() });
    }

    fn clear(&mut self) {
        self.commands.clear();
        self.words.clear();
    }

    /// Runs or records all of it.
    ///
    /// # Safety
    /// The targets of the arguments are there until the work is done.
    unsafe fn launch<G: Gpu>(&self, gpu: &G) -> Result<(), GpuError> {
        for command in &self.commands {
            let argument =
                KeptArgument { name: command.argument, words: &self.words[command.start..][..command.words] };
            // SAFETY: as our caller promises.
            unsafe { gpu.launch(command.kernel.0, command.kernel.1, &argument)? }
        }
        Ok(())
    }

    /// Equal lists have equal numbers; of different ones, nearly all differ.
    fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let grids = self.commands.iter().map(|command| {
            let (name, Geometry { grid: [x, y, z], .. }) = command.kernel;
            (u64::from(x) << 32 | u64::from(y)) ^ u64::from(z) << 16 ^ name.len() as u64
        });
        self.words.iter().copied().chain(grids).fold(self.commands.len() as u64, mix)
    }
}

/// A list that was recorded.
struct Recorded<T> {
    fingerprint: u64,
    commands: Commands,
    graph: T,
    /// Time of the last use.
    used: u64,
}

/// The graphs that are kept at most: a few for each bucket of rows in use.
const MOST_GRAPHS: usize = 64;

/// Kinds of work whose time is told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Products with the weights of the layers.
    Linear,
    /// Products with keys and values.
    Attention,
    /// The head.
    Head,
}

/// Queue of launches that did not run yet, with the graphs, and the error that ended everything, if there was one.
pub(super) struct Queue<G: Gpu> {
    gpu: Arc<G>,
    pending: Commands,
    /// Records whether a part of the step ran before its end was known: then it is no list that comes again.
    broken: bool,
    graphs: Vec<Recorded<G::Graph>>,
    /// Records whether the device records.
    records: bool,
    steps: u64,
    /// Seconds of parts, if they are counted.
    seconds: Option<PartSeconds>,
    failure: OnceLock<DeviceError>,
}

impl<G: Gpu> Queue<G> {
    pub(super) fn new(gpu: &Arc<G>) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            pending: Commands::default(),
            broken: false,
            graphs: Vec::new(),
            records: true,
            steps: 0,
            seconds: None,
            failure: OnceLock::new(),
        }
    }

    /// Remembers the first error: none that follows says more.
    pub(super) fn fail(&self, error: DeviceError) {
        let _ = self.failure.set(error);
    }

    /// Reports whether the device works still.
    pub(super) fn works(&self) -> bool {
        self.failure.get().is_none()
    }

    /// The error that ended everything.
    pub(super) fn failure(&self) -> Result<(), DeviceError> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The value, or nothing once the device has failed.
    pub(super) fn keep<T>(&self, result: Result<T, GpuError>) -> Option<T> {
        result.map_err(|error| self.fail(DeviceError(error.to_string()))).ok()
    }

    /// Counts the seconds of parts from 0, or does not.
    pub(super) fn time_parts(&mut self, on: bool) {
        self.seconds = on.then(PartSeconds::default);
    }

    pub(super) fn part_seconds(&self) -> PartSeconds {
        self.seconds.unwrap_or_default()
    }

    /// Begins a step: what an earlier one left is nothing to it.
    pub(super) fn begin(&mut self) {
        self.pending.clear();
        self.broken = self.seconds.is_some();
        self.steps += 1;
    }

    /// Adds a launch.
    pub(super) fn push(&mut self, kernel: Kernel, argument: &dyn Argument) {
        self.pending.push(kernel, argument);
    }

    /// Begins launches of a kind: when, if their time is to be counted.
    pub(super) fn begin_part(&mut self) -> Option<f64> {
        self.seconds?;
        self.flush();
        self.keep(self.gpu.seconds())
    }

    /// Ends launches of a kind that were begun.
    pub(super) fn end_part(&mut self, part: Part, began: Option<f64>) {
        let Some(began) = began else { return };
        self.flush();
        let ended = self.keep(self.gpu.seconds());
        if let (Some(seconds), Some(ended)) = (&mut self.seconds, ended) {
            let counter = match part {
                Part::Linear => &mut seconds.linear,
                Part::Attention => &mut seconds.attention,
                Part::Head => &mut seconds.head,
            };
            *counter += ended - began;
        }
    }

    /// Runs what there is, so that its results can be read in the middle of a step.
    pub(super) fn flush(&mut self) {
        self.broken = true;
        self.run_pending();
    }

    fn run_pending(&mut self) {
        if self.works() {
            // SAFETY: the backend keeps what its commands point to until the step is done: buffers wait for all work
            // before they are freed.
            self.keep(unsafe { self.pending.launch(&*self.gpu) });
        }
        self.pending.clear();
    }

    /// Runs what there is at the end of a step: as a graph if the same was run before; if not, one by one, and records
    /// it for the next time while the device works.
    pub(super) fn end(&mut self) {
        if self.pending.commands.is_empty() || !self.works() {
            return self.pending.clear();
        }
        if self.broken || !self.records {
            return self.run_pending();
        }
        let fingerprint = self.pending.fingerprint();
        let same = |known: &&mut Recorded<G::Graph>| known.fingerprint == fingerprint && known.commands == self.pending;
        if let Some(known) = self.graphs.iter_mut().find(same) {
            known.used = self.steps;
            // SAFETY: as for single launches: the list is equal, so is what it points to.
            let Err(error) = (unsafe { self.gpu.replay(&known.graph) }) else { return self.pending.clear() };
            // A graph that was refused did not run.
            self.run_pending();
            return self.do_without_graphs(&error);
        }
        // SAFETY: as in `run_pending`.
        if self.keep(unsafe { self.pending.launch(&*self.gpu) }).is_some() {
            self.record(fingerprint);
        }
        self.pending.clear();
    }

    fn record(&mut self, fingerprint: u64) {
        let (gpu, pending) = (&*self.gpu, &self.pending);
        // SAFETY: as in `run_pending`, for as long as the graph is replayed.
        let recorded = gpu.record(&mut || unsafe { pending.launch(gpu) });
        match recorded {
            Ok(Some(graph)) => {
                if self.graphs.len() == MOST_GRAPHS {
                    let oldest = (0..MOST_GRAPHS).min_by_key(|&index| self.graphs[index].used).unwrap_or(0);
                    self.graphs.swap_remove(oldest);
                }
                let commands = self.pending.clone();
                self.graphs.push(Recorded { fingerprint, commands, graph, used: self.steps });
            }
            Ok(None) => self.records = false,
            Err(error) => self.do_without_graphs(&error),
        }
    }

    /// Goes on launch by launch, for good, when graphs were refused: they save time and nothing else. A device that
    /// does not work any more fails the next wait for it, and that is an error.
    fn do_without_graphs(&mut self, refused: &GpuError) {
        self.records = false;
        let waited = self.gpu.wait();
        self.graphs.clear();
        if self.works() && self.keep(waited).is_some() {
            tracing::warn!("steps run without CUDA graphs, which takes longer: {refused}");
        }
    }

    /// Waits until everything is done.
    pub(super) fn wait(&mut self) {
        self.end();
        if self.works() {
            self.keep(self.gpu.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arguments::{List, MarkArgs},
        backend::fake::{Fake, Refusal},
        gpu::Address,
    };

    fn mark(flags: u64) -> MarkArgs {
        let list = List { rows: Address(8), count: Address(16) };
        MarkArgs { list, live: Address(24), flags: Address(flags) }
    }

    fn kernel(rows: u32) -> Kernel {
        ("mark", Geometry { grid: [rows, 1, 1], threads: 32, shared: 0 })
    }

    fn step(queue: &mut Queue<Fake>, rows: u32, flags: u64) {
        queue.begin();
        queue.push(kernel(rows), &mark(flags));
        queue.end();
    }

    #[test]
    fn the_second_time_is_a_replay_and_other_lists_are_not() {
        let gpu = Arc::new(Fake::recording());
        let mut queue = Queue::new(&gpu);
        step(&mut queue, 8, 1);
        assert_eq!(gpu.counts(), (1, 0));
        step(&mut queue, 8, 1);
        assert_eq!(gpu.counts(), (1, 1));
        step(&mut queue, 16, 1);
        step(&mut queue, 8, 2);
        assert_eq!(gpu.counts(), (3, 1));
        step(&mut queue, 8, 1);
        assert_eq!(gpu.counts(), (3, 2));
    }

    #[test]
    fn what_was_read_in_the_middle_is_no_graph() {
        let gpu = Arc::new(Fake::recording());
        let mut queue = Queue::new(&gpu);
        for _ in 0..3 {
            queue.begin();
            queue.push(kernel(8), &mark(1));
            queue.flush();
            queue.push(kernel(8), &mark(1));
            queue.end();
        }
        assert_eq!(gpu.counts(), (6, 0));
    }

    #[test]
    fn graphs_are_bounded_and_the_oldest_goes() {
        let gpu = Arc::new(Fake::recording());
        let mut queue = Queue::new(&gpu);
        for flags in 0..=MOST_GRAPHS as u64 {
            step(&mut queue, 8, flags);
        }
        assert_eq!(queue.graphs.len(), MOST_GRAPHS);
        let (launches, _) = gpu.counts();
        step(&mut queue, 8, 1);
        assert_eq!(gpu.counts(), (launches, 1), "the second is still there");
        step(&mut queue, 8, 0);
        assert_eq!(gpu.counts(), (launches + 1, 1), "the first had to go");
    }

    #[test]
    fn graphs_that_are_refused_are_not_tried_again_and_steps_run_on() {
        for refusal in [Refusal::Record, Refusal::Replay] {
            let gpu = Arc::new(Fake::refusing(refusal));
            let mut queue = Queue::new(&gpu);
            for (steps, flags) in (1..).zip([1, 1, 1, 2, 2]) {
                step(&mut queue, 8, flags);
                assert_eq!((gpu.counts(), queue.failure()), ((steps, 0), Ok(())), "{refusal:?}");
            }
            let attempts = if refusal == Refusal::Record { (1, 0) } else { (1, 1) };
            assert_eq!((gpu.attempts(), queue.graphs.len()), (attempts, 0), "{refusal:?}");
        }
    }

    #[test]
    fn a_device_that_broke_while_it_recorded_is_an_error() {
        let gpu = Arc::new(Fake::refusing(Refusal::Record));
        let mut queue = Queue::new(&gpu);
        gpu.fail_after_launches(1, "an illegal address");
        step(&mut queue, 8, 1);
        assert!(queue.failure().unwrap_err().to_string().contains("an illegal address"));
    }

    #[test]
    fn the_first_error_stays() {
        let gpu = Arc::new(Fake::recording());
        let mut queue = Queue::new(&gpu);
        gpu.fail_from_now_on("first");
        step(&mut queue, 8, 1);
        let error = queue.failure().unwrap_err();
        assert!(error.to_string().contains("first"), "{error}");
        gpu.fail_from_now_on("second");
        step(&mut queue, 8, 1);
        queue.wait();
        assert_eq!(queue.failure(), Err(error));
    }

    #[test]
    fn seconds_are_those_around_a_part() {
        let gpu = Arc::new(Fake::recording());
        let mut queue = Queue::new(&gpu);
        queue.time_parts(true);
        queue.begin();
        queue.push(kernel(8), &mark(1));
        for (part, launches) in [(Part::Linear, 1), (Part::Head, 3)] {
            let began = queue.begin_part();
            (0..launches).for_each(|_| queue.push(kernel(8), &mark(1)));
            queue.end_part(part, began);
        }
        queue.end();
        // The fake's clock counts launches.
        assert_eq!(queue.part_seconds(), PartSeconds { linear: 1.0, attention: 0.0, head: 3.0 });
        assert_eq!(gpu.counts(), (5, 0));
    }
}
