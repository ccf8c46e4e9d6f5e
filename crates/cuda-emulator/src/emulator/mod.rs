//! A device that is no device: the kernels' own text, compiled as C++, run on the processor.
//!
//! It is for tests on machines without a GPU, and strict: memory is poisoned until it is written (with bytes that are no
//! number), writes beyond an allocation are found, copies are checked, threads that wait at different barriers are told.
//! Each kernel can run in two opposite orders ([`Schedule`]): a result that differs between them lacks a barrier. How
//! threads are played is described in `kernels/emulated.h`.

pub(crate) mod compiler;
mod memory;

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_void},
    mem::ManuallyDrop,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use compiler::Compiler;
use demask_cuda::{
    arguments::Argument,
    gpu::{Address, Geometry, Gpu, GpuError, Limits},
    kernels::{MODULES, Module},
};
use demask_step::{Allocated, OutOfMemory};
use libloading::Library;
use memory::Memory;

/// The order in which threads and blocks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Ascending; asynchronous copies are done when they are waited for.
    Forward,
    /// Descending; asynchronous copies are done at once.
    Backward,
}

/// Limits of an A100.
pub(crate) const A100: Limits = Limits { capability: 80, processors: 108, shared: 163 << 10, memory: 64 << 30 };

/// Runs the kernels on the processor.
pub struct Emulator {
    schedule: Schedule,
    limits: Limits,
    /// Kernels that this emulator can run, by module.
    modules: &'static [&'static [Module]],
    compiler: Compiler,
    began: Instant,
    allocated: Allocated,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    memory: Memory,
    modules: HashMap<&'static str, Loaded>,
    recording: Option<Vec<Launch>>,
    /// Error of an earlier launch that has not been reported yet.
    failure: Option<GpuError>,
}

/// A recorded sequence.
pub struct Recording(Vec<Launch>);

/// A launch with its own copy of the argument.
struct Launch {
    kernel: &'static str,
    geometry: Geometry,
    name: &'static str,
    argument: Vec<u8>,
}

impl Emulator {
    /// A device like an A100. Fails if there is no C++ compiler.
    pub fn new(schedule: Schedule) -> Result<Self, GpuError> {
        Self::with_limits(schedule, A100)
    }

    /// A device with these limits; allocations beyond its memory are refused.
    pub fn with_limits(schedule: Schedule, limits: Limits) -> Result<Self, GpuError> {
        Ok(Self::of_modules(MODULES, Compiler::find()?, (schedule, limits)))
    }

    /// A device that has other kernels, by a compiler that was found.
    pub(crate) fn of_modules(
        modules: &'static [&'static [Module]],
        compiler: Compiler,
        (schedule, limits): (Schedule, Limits),
    ) -> Self {
        Self {
            schedule,
            limits,
            modules,
            compiler,
            began: Instant::now(),
            allocated: Allocated::default(),
            state: Mutex::default(),
        }
    }

    /// Matrices of eight rows that kernels have loaded from shared memory in more than one go, because rows lay in the same
    /// banks.
    pub fn bank_conflicts(&self) -> u64 {
        let of = |loaded: &Loaded| {
            // SAFETY: the stage and the function belong to the same library.
            unsafe { (loaded.conflicts)(loaded.stage) }
        };
        self.state().modules.values().map(of).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for what cannot be a part of a recorded graph.
    fn not_recorded(&self, call: &'static str) -> Result<MutexGuard<'_, State>, GpuError> {
        let state = self.state();
        if state.recording.is_some() {
            return Err(GpuError::Call { call, message: "this cannot be a part of a recorded graph".to_owned() });
        }
        Ok(state)
    }

    fn run(&self, state: &mut State, launch: &Launch) -> Result<(), GpuError> {
        let found = self.run_kernel(state, launch)?;
        if let (Some(message), None) = (found, &state.failure) {
            state.failure = Some(GpuError::Call { call: launch.kernel, message });
        }
        Ok(())
    }

    /// Name and bytes of the structure that a kernel takes.
    pub fn takes(&self, kernel: &str) -> Result<(String, usize), GpuError> {
        let mut state = self.state();
        let (_, kernel) = self.entry(&mut state, kernel)?;
        // SAFETY: the emulated header gives each kernel the name of its structure, a literal.
        let name = unsafe { CStr::from_ptr(kernel.arguments) };
        Ok((name.to_string_lossy().into_owned(), kernel.bytes as usize))
    }

    /// Checks a launch as a driver would, and what no driver can: that the kernel takes this structure.
    fn check(&self, state: &mut State, launch: &Launch) -> Result<(), GpuError> {
        let (_, kernel) = self.entry(state, launch.kernel)?;
        let Launch { geometry, .. } = launch;
        // SAFETY: the emulated header gives each kernel the name of its structure, a literal.
        let takes = unsafe { CStr::from_ptr(kernel.arguments) };
        let wrong = |message: String| Err(GpuError::Call { call: launch.kernel, message });
        if takes.to_str() != Ok(launch.name) || kernel.bytes as usize != launch.argument.len() {
            return wrong(format!("given {}, takes {}", launch.name, takes.to_string_lossy()));
        }
        let threads = geometry.threads;
        if threads == 0 || !threads.is_multiple_of(32) || threads > kernel.most_threads {
            return wrong(format!("{threads} threads, takes whole warps up to {}", kernel.most_threads));
        }
        if geometry.grid.contains(&0) || geometry.grid[1] > 65535 || geometry.grid[2] > 65535 {
            return wrong(format!("a grid of {:?}", geometry.grid));
        }
        if geometry.shared > self.limits.shared {
            return wrong(format!("{} bytes of shared memory, there are {}", geometry.shared, self.limits.shared));
        }
        Ok(())
    }

    /// Runs a launch that has been checked; the message of the kernel's fault.
    fn run_kernel(&self, state: &mut State, launch: &Launch) -> Result<Option<String>, GpuError> {
        let (loaded, kernel) = self.entry(state, launch.kernel)?;
        let Geometry { grid, threads, shared } = launch.geometry;
        let backward = u32::from(self.schedule == Schedule::Backward);
        let geometry = EmulatedLaunch { grid, threads, shared, backward };
        // Kernels read arguments by fields: they want the alignment of the structure.
        let argument: Vec<u64> = launch.argument.chunks(8).map(word).collect();
        // SAFETY: the stage and the function belong to the same library; whoever launches vouches for what the kernel
        // reads and writes.
        let message = unsafe { (loaded.run)(loaded.stage, kernel, &raw const geometry, argument.as_ptr().cast()) };
        // SAFETY: a message ends with zero, and stays until the next run.
        Ok((!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()))
    }

    /// A kernel and its module, which is compiled if this is the first kernel of it.
    fn entry<'a>(&self, state: &'a mut State, kernel: &str) -> Result<(&'a Loaded, &'a EmulatedKernel), GpuError> {
        let missing = || GpuError::Kernel(kernel.to_owned());
        let mut modules = self.modules.iter().copied().flatten();
        let module = modules.find(|module| module.kernels.contains(&kernel)).ok_or_else(missing)?;
        if !state.modules.contains_key(module.name) {
            let loaded = Loaded::open(&self.compiler, module)?;
            state.modules.insert(module.name, loaded);
        }
        let loaded = &state.modules[module.name];
        // SAFETY: all exported data of that name are entries; the library stays open as long as the state.
        let entry = unsafe { loaded.library.get::<*const EmulatedKernel>(kernel.as_bytes()) };
        // SAFETY: as above.
        entry.map(|entry| (loaded, unsafe { &**entry })).map_err(|_| missing())
    }

    /// Returns the error that occurred since the last call, if any.
    fn last_error(state: &mut State) -> Result<(), GpuError> {
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => state.memory.check_zones(),
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

impl Gpu for Emulator {
    type Graph = Recording;

    fn describe(&self) -> String {
        format!("emulated GPU ({})", self.compiler.describe())
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn available(&self) -> u64 {
        self.limits.memory.saturating_sub(self.state().memory.used())
    }

    fn allocated(&self) -> &Allocated {
        &self.allocated
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let available = self.available();
        if bytes as u64 > available {
            return Err(GpuError::Memory(OutOfMemory { needed: bytes as u64, available }));
        }
        Ok(self.state().memory.allocate(bytes))
    }

    unsafe fn free(&self, address: Address) {
        let mut state = self.state();
        if let Err(failure) = state.memory.free(address) {
            state.failure.get_or_insert(failure);
        }
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.not_recorded("upload")?.memory.write(to, bytes)
    }

    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        let mut state = self.not_recorded("download")?;
        Self::last_error(&mut state)?;
        state.memory.read(from, bytes)
    }

    unsafe fn zero(&self, at: Address, bytes: usize) -> Result<(), GpuError> {
        self.not_recorded("zero")?.memory.zero(at, bytes)
    }

    unsafe fn launch(&self, kernel: &'static str, geometry: Geometry, argument: &dyn Argument) -> Result<(), GpuError> {
        let (name, argument) = (argument.name(), argument.bytes().to_vec());
        let launch = Launch { kernel, geometry, name, argument };
        let mut state = self.state();
        self.check(&mut state, &launch)?;
        if let Some(recording) = &mut state.recording {
            recording.push(launch);
            return Ok(());
        }
        self.run(&mut state, &launch)
    }

    fn wait(&self) -> Result<(), GpuError> {
        let mut state = self.not_recorded("wait")?;
        Self::last_error(&mut state)
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<(), GpuError>) -> Result<Option<Recording>, GpuError> {
        self.state().recording = Some(Vec::new());
        let done = work();
        let recorded = self.state().recording.take();
        done.map(|()| recorded.map(Recording))
    }

    unsafe fn replay(&self, graph: &Recording) -> Result<(), GpuError> {
        let mut state = self.state();
        graph.0.iter().try_for_each(|launch| self.run(&mut state, launch))
    }

    fn seconds(&self) -> Result<f64, GpuError> {
        self.wait()?;
        Ok(self.began.elapsed().as_secs_f64())
    }
}

/// A compiled module.
struct Loaded {
    /// Stays open: the system does not reuse the thread-local memory of libraries that come and go in any order, of which
    /// it has little. Opened again, it is the same library.
    library: ManuallyDrop<Library>,
    /// Memory that the launches run on.
    stage: *mut c_void,
    run: Run,
    conflicts: unsafe extern "C" fn(*const c_void) -> u64,
    close: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the stage is used by one thread at a time, behind the lock of the state.
unsafe impl Send for Loaded {}

type Run = unsafe extern "C" fn(
    stage: *mut c_void,
    kernel: *const EmulatedKernel,
    launch: *const EmulatedLaunch,
    arguments: *const c_void,
) -> *const c_char;

/// Twin of `emulated::Kernel`.
#[repr(C)]
struct EmulatedKernel {
    function: unsafe extern "C" fn(*const c_void),
    arguments: *const c_char,
    bytes: u32,
    most_threads: u32,
}

/// Twin of `emulated::Launch`.
#[repr(C)]
struct EmulatedLaunch {
    grid: [u32; 3],
    threads: u32,
    shared: u32,
    backward: u32,
}

impl Loaded {
    /// Compiles a module, if that has not been done before, and loads it.
    fn open(compiler: &Compiler, module: &Module) -> Result<Self, GpuError> {
        let path = compiler.compile(module)?;
        let failed = |error: libloading::Error| GpuError::Call { call: "dlopen", message: error.to_string() };
        // SAFETY: the library was made from our own text and runs nothing when it is loaded.
        let library = ManuallyDrop::new(unsafe { Library::new(path) }.map_err(failed)?);
        // SAFETY: the functions have these types in the emulated header.
        unsafe {
            let open = *library.get::<unsafe extern "C" fn() -> *mut c_void>(b"demask_open").map_err(failed)?;
            let close = *library.get::<unsafe extern "C" fn(*mut c_void)>(b"demask_close").map_err(failed)?;
            let run = *library.get::<Run>(b"demask_run").map_err(failed)?;
            let conflicts = b"demask_conflicts";
            let conflicts = *library.get::<unsafe extern "C" fn(*const c_void) -> u64>(conflicts).map_err(failed)?;
            Ok(Self { library, stage: open(), run, conflicts, close })
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the stage came from the same library, which stays open.
        unsafe { (self.close)(self.stage) }
    }
}
