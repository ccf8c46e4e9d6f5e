//! The driver as a [`Gpu`]: one context, one stream, pinned memory between, kernels of loaded modules, recorded graphs.
//!
//! Nothing of CUDA is linked: the driver's library is loaded when a [`Cuda`](crate::Cuda) is probed, and a machine without
//! it gets one sentence. A failure after which the device does nothing more is kept, and is what every later call tells.

mod context;
mod library;
mod staging;

use std::{
    collections::HashMap,
    ffi::{CString, c_int},
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use context::{Attempt, Context, Event, Executable, Module, Recorded, Stream};
use demask_step::{Allocated, OutOfMemory};
use library::{Handle, code};
use staging::Staging;

use crate::{
    arguments::Argument,
    gpu::{Address, Geometry, Gpu, GpuError, Limits},
    probe::{Card, NoGpu},
};

pub(crate) use library::{Library, reason};

/// Attributes of devices.
const MULTIPROCESSORS: c_int = 16;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const SHARED_MEMORY_OPT_IN: c_int = 97;
/// Attributes of functions: bytes of shared memory that a kernel has by itself, and that it may be given beside them.
const STATIC_SHARED: c_int = 1;
const DYNAMIC_SHARED: c_int = 8;
/// Recording mode in which only this thread's calls are recorded, and other threads go on.
const THREAD_LOCAL: c_int = 1;
/// The driver's own alignment, and the least that it gives.
const ALIGNMENT: usize = 256;

/// A GPU, through NVIDIA's driver.
pub struct Driver {
    card: Card,
    context: Arc<Context>,
    stream: Stream,
    modules: Vec<Module>,
    /// Kernels that were asked for before.
    functions: Mutex<HashMap<&'static str, Handle>>,
    staging: Mutex<Staging>,
    clock: Mutex<Clock>,
    recording: AtomicBool,
    allocated: Allocated,
}

/// Time since the driver was opened. The driver tells times between two events in single precision, so that each is
/// measured from the one before.
struct Clock {
    passed: f64,
    last: Event,
    spare: Event,
}

/// Recorded launches.
pub struct Graph(Executable);

impl Driver {
    /// Opens a card with the compiled modules that hold its kernels.
    ///
    /// # Errors
    /// If the driver refuses something; a module that it cannot read is one of that.
    pub(crate) fn open(library: &Arc<Library>, card: Card, images: &[Vec<u8>]) -> Result<Self, GpuError> {
        let mut device = 0;
        // SAFETY: it writes one number.
        unsafe { library.device_get(&raw mut device, card.number as c_int) }?;
        let context = Context::new(library.clone(), device)?;
        let stream = Stream::new(&context)?;
        let load = |image: &Vec<u8>| {
            // SAFETY: an image is a whole cubin, or a text that ends with a zero; the driver copies what it keeps.
            Module::made(&context, |library, module| unsafe { library.module_load(module, image.as_ptr().cast()) })
        };
        let modules = images.iter().map(load).collect::<Result<_, _>>()?;
        let clock = Clock { passed: 0.0, last: Event::new(&context)?, spare: Event::new(&context)? };
        clock.last.record(&stream)?;
        Ok(Self {
            card,
            staging: Mutex::new(Staging::new(&context)?),
            context,
            stream,
            modules,
            functions: Mutex::default(),
            clock: Mutex::new(clock),
            recording: AtomicBool::new(false),
            allocated: Allocated::default(),
        })
    }

    /// The card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// A kernel by its name, fit for all the shared memory that the card has.
    fn function(&self, kernel: &'static str) -> Result<Handle, GpuError> {
        let mut functions = locked(&self.functions);
        if let Some(&function) = functions.get(kernel) {
            return Ok(function);
        }
        let function = self.find(kernel)?;
        let mut held = 0;
        // SAFETY: it writes one number.
        self.context.call(|library| unsafe { library.function_attribute(&raw mut held, STATIC_SHARED, function) })?;
        let left = (self.card.shared as c_int).saturating_sub(held);
        // SAFETY: the function is one of a module that is loaded.
        self.context.call(|library| unsafe { library.set_function_attribute(function, DYNAMIC_SHARED, left) })?;
        functions.insert(kernel, function);
        Ok(function)
    }

    fn find(&self, kernel: &'static str) -> Result<Handle, GpuError> {
        let missing = || GpuError::Kernel(kernel.to_owned());
        let name = CString::new(kernel).map_err(|_| missing())?;
        for module in &self.modules {
            let mut function = Handle::NULL;
            // SAFETY: the module is loaded, the name ends with a zero.
            let found = self
                .context
                .attempt(|library| unsafe { library.module_function(&raw mut function, module.handle, name.as_ptr()) });
            match found {
                Ok(()) => return Ok(function),
                Err(Attempt::Failed(failure)) if failure.code == code::NOT_FOUND => {}
                Err(error) => return Err(error.into_gpu()),
            }
        }
        Err(missing())
    }

    /// Refuses what cannot be a part of a recorded graph.
    fn refuse_recording(&self, call: &'static str) -> Result<(), GpuError> {
        if self.recording.load(Ordering::Relaxed) {
            let message = "this cannot be a part of a recorded graph".to_owned();
            return Err(GpuError::Call { call, message });
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Work may still use memory that is given back behind this. If it failed, there is nobody left to be told.
        let _ = self.stream.wait();
    }
}

impl Gpu for Driver {
    type Graph = Graph;

    fn describe(&self) -> String {
        format!("cuda:{} {}", self.card.number, self.card.name)
    }

    fn number(&self) -> u32 {
        self.card.number as u32
    }

    fn limits(&self) -> Limits {
        let Card { capability, processors, shared, memory, .. } = self.card;
        Limits { capability, processors, shared, memory }
    }

    fn available(&self) -> u64 {
        // A device that does not answer has no memory to give.
        self.context.memory().map_or(0, |(free, _)| free)
    }

    fn allocated(&self) -> &Allocated {
        &self.allocated
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let mut address = 0;
        let wanted = bytes.max(ALIGNMENT);
        // SAFETY: it writes one address.
        match self.context.attempt(|library| unsafe { library.memory_allocate(&raw mut address, wanted) }) {
            Ok(()) => Ok(Address(address)),
            Err(Attempt::Failed(failure)) if failure.code == code::OUT_OF_MEMORY => {
                Err(GpuError::Memory(OutOfMemory { needed: wanted as u64, available: self.available() }))
            }
            Err(error) => Err(error.into_gpu()),
        }
    }

    unsafe fn free(&self, address: Address) {
        // SAFETY: the caller's promise. What a broken device does not take back, the process's end does.
        let _ = self.context.call(|library| unsafe { library.memory_free(address.0) });
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        // A recorded copy would read the pinned memory again when other bytes lie there.
        self.refuse_recording("upload")?;
        // SAFETY: the caller's promise.
        unsafe { locked(&self.staging).upload(&self.stream, to, bytes) }
    }

    unsafe fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.refuse_recording("download")?;
        // SAFETY: the caller's promise.
        unsafe { locked(&self.staging).download(&self.stream, from, bytes) }
    }

    unsafe fn zero(&self, at: Address, bytes: usize) -> Result<(), GpuError> {
        // A recorded fill would be done again with every replay, whatever the memory is used for by then.
        self.refuse_recording("zero")?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        self.context.call(|library| unsafe { library.fill(at.0, 0, bytes, self.stream.handle) })
    }

    unsafe fn launch(&self, kernel: &'static str, geometry: Geometry, argument: &dyn Argument) -> Result<(), GpuError> {
        let function = self.function(kernel)?;
        let Geometry { grid: [x, y, z], threads, shared } = geometry;
        let mut arguments = [argument.bytes().as_ptr().cast_mut().cast()];
        // SAFETY: the kernel takes one structure, which the driver copies before it returns; the caller promises the rest.
        self.context.call(|library| unsafe {
            library.launch(
                function,
                x,
                y,
                z,
                threads,
                1,
                1,
                shared,
                self.stream.handle,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.refuse_recording("wait")?;
        self.stream.wait()
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<(), GpuError>) -> Result<Option<Graph>, GpuError> {
        let recording = Recording::begin(self)?;
        let done = work();
        let recorded = recording.end();
        done?;
        let recorded = recorded?;
        // SAFETY: it writes one handle; the recorded work is whole.
        let graph = Executable::made(&self.context, |library, graph| unsafe {
            library.graph_instantiate(graph, recorded.handle, 0)
        })?;
        Ok(Some(Graph(graph)))
    }

    unsafe fn replay(&self, graph: &Graph) -> Result<(), GpuError> {
        // SAFETY: the caller's promise; both are there.
        self.context.call(|library| unsafe { library.graph_launch(graph.0.handle, self.stream.handle) })
    }

    fn seconds(&self) -> Result<f64, GpuError> {
        self.refuse_recording("seconds")?;
        let mut clock = locked(&self.clock);
        clock.spare.record(&self.stream)?;
        clock.spare.wait()?;
        clock.passed += clock.spare.seconds_since(&clock.last)?;
        let Clock { last, spare, .. } = &mut *clock;
        std::mem::swap(last, spare);
        Ok(clock.passed)
    }
}

/// A stream that records its work, until this is dropped.
struct Recording<'a>(&'a Driver);

impl<'a> Recording<'a> {
    fn begin(driver: &'a Driver) -> Result<Self, GpuError> {
        driver.refuse_recording("record")?;
        let stream = driver.stream.handle;
        // SAFETY: the stream is there.
        driver.context.call(|library| unsafe { library.capture_begin(stream, THREAD_LOCAL) })?;
        driver.recording.store(true, Ordering::Relaxed);
        Ok(Self(driver))
    }

    fn finish(&self) -> Result<Recorded, GpuError> {
        self.0.recording.store(false, Ordering::Relaxed);
        let stream = self.0.stream.handle;
        // SAFETY: it writes one handle; the stream records.
        Recorded::made(&self.0.context, |library, graph| unsafe { library.capture_end(stream, graph) })
    }

    /// Ends the recording and returns it.
    fn end(self) -> Result<Recorded, GpuError> {
        let recorded = self.finish();
        std::mem::forget(self);
        recorded
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // Only if the work panicked: the stream must not go on recording.
        let _ = self.finish();
    }
}

/// A lock whose holder cannot have left anything half done but by a panic of ours, which would be told.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices that a driver has, as far as they can be asked without a context.
pub(crate) fn cards(library: &Library) -> Result<Vec<Card>, NoGpu> {
    let mut count = 0;
    // SAFETY: it writes one number.
    let counted = unsafe { library.device_count(&raw mut count) };
    counted.map_err(|failure| NoGpu::Fails(failure.into()))?;
    let cards = (0..count).map(|number| card(library, number).map_err(|failure| NoGpu::Fails(failure.into())));
    cards.collect()
}

fn card(library: &Library, number: c_int) -> Result<Card, library::Failure> {
    /// Room for a name, its zero included.
    const ROOM: usize = 256;
    let (mut device, mut name, mut memory) = (0, [0u8; ROOM], 0usize);
    // SAFETY: it writes one number.
    unsafe { library.device_get(&raw mut device, number) }?;
    // SAFETY: the name has the room that is told, less its zero.
    unsafe { library.device_name(name.as_mut_ptr().cast(), ROOM as c_int - 1, device) }?;
    // SAFETY: it writes one number.
    unsafe { library.device_memory(&raw mut memory, device) }?;
    let attribute = |attribute| {
        let mut value: c_int = 0;
        // SAFETY: it writes one number.
        unsafe { library.device_attribute(&raw mut value, attribute, device) }?;
        Ok(value.max(0) as u32)
    };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(ROOM);
    Ok(Card {
        number: number as usize,
        name: String::from_utf8_lossy(&name[..end]).trim().to_owned(),
        capability: attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?,
        processors: attribute(MULTIPROCESSORS)?,
        shared: attribute(SHARED_MEMORY_OPT_IN)?,
        memory: memory as u64,
    })
}
