//! The driver's library: exactly the functions that are used, found by name when it is loaded.
//!
//! The version is asked first: a driver that is too old is told as that, and not as one that lacks a function.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void},
    mem::ManuallyDrop,
    ptr,
};

use crate::{gpu::GpuError, probe::NoGpu, version::Version};

/// The driver of CUDA 11.8: the first that knows every card since capability 8.0 up to 9.0, and every function below.
const OLDEST: Version = Version { major: 11, minor: 8 };

/// Status code of the driver; 0: success.
type Code = c_int;

/// A function that tells an answer in words.
type ReadText = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// The answers that are told apart.
pub(super) mod code {
    use super::Code;

    pub const OUT_OF_MEMORY: Code = 2;
    pub const NO_DEVICE: Code = 100;
    pub const NOT_FOUND: Code = 500;

    /// Reports whether nothing works on the device any more: the driver has ended or lost it (4, 46), its memory or its
    /// links are broken (214, 220), a kernel broke off (700, 702, 710, 714 to 719), the context is gone (709), or
    /// nobody knows (999).
    pub fn is_final(code: Code) -> bool {
        matches!(code, 4 | 46 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
    }
}

/// Something of the driver's: a context, a stream, a module. An address that only the driver reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Handle(pub usize);

impl Handle {
    pub const NULL: Self = Self(0);
}

/// A call of the driver that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The function.
    pub call: &'static str,
    /// Status code that was returned.
    pub code: Code,
    /// Description of the code in words.
    pub message: String,
}

impl From<Failure> for GpuError {
    fn from(Failure { call, message, .. }: Failure) -> Self {
        Self::Call { call, message }
    }
}

/// Declares the functions: their fields, how they are found, and a method each that makes an error of an answer.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*);)*) => {
        /// The functions, as they were found. They may be called as long as the library is loaded.
        struct Functions {
            $($name: unsafe extern "C" fn($($kind),*) -> Code,)*
            error_name: ReadText,
            error_string: ReadText,
        }

        impl Functions {
            /// Finds all of them, or tells which one is missing.
            ///
            /// # Safety
            /// The library is NVIDIA's driver: its functions have the arguments declared here.
            unsafe fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                let reader = |symbol: &'static str| -> Result<ReadText, &'static str> {
                    // SAFETY: the caller's promise.
                    Ok(*unsafe { library.get(symbol.as_bytes()) }.map_err(|_| symbol)?)
                };
                Ok(Self {
                    // SAFETY: the caller's promise.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| $symbol)?,)*
                    error_name: reader("cuGetErrorName")?,
                    error_string: reader("cuGetErrorString")?,
                })
            }
        }

        impl Library {
            $(
                /// # Safety
                /// The arguments are as the driver's own documentation of the function has them.
                #[allow(clippy::too_many_arguments, reason = "as many as the driver's function has")]
                pub(super) unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), Failure> {
                    // SAFETY: the caller's promise; the library is loaded.
                    let code = unsafe { (self.functions.$name)($($argument),*) };
                    self.check($symbol, code)
                }
            )*
        }
    };
}

functions! {
    init = "cuInit"(flags: c_uint);
    device_count = "cuDeviceGetCount"(count: *mut c_int);
    device_get = "cuDeviceGet"(device: *mut c_int, number: c_int);
    device_name = "cuDeviceGetName"(name: *mut c_char, room: c_int, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    device_memory = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    context_set_current = "cuCtxSetCurrent"(context: Handle);
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    memory_allocate = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    memory_free = "cuMemFree_v2"(address: u64);
    host_allocate = "cuMemHostAlloc"(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(memory: *mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    fill = "cuMemsetD8Async"(at: u64, value: u8, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    stream_wait = "cuStreamSynchronize"(stream: Handle);
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    capture_begin = "cuStreamBeginCapture_v2"(stream: Handle, mode: c_int);
    capture_end = "cuStreamEndCapture"(stream: Handle, graph: *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags"(graph: *mut Handle, recorded: Handle, flags: u64);
    graph_launch = "cuGraphLaunch"(graph: Handle, stream: Handle);
    graph_destroy = "cuGraphExecDestroy"(graph: Handle);
    recorded_destroy = "cuGraphDestroy"(recorded: Handle);
    event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
    event_record = "cuEventRecord"(event: Handle, stream: Handle);
    event_wait = "cuEventSynchronize"(event: Handle);
    event_elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, begin: Handle, end: Handle);
    event_destroy = "cuEventDestroy_v2"(event: Handle);
    module_load = "cuModuleLoadData"(module: *mut Handle, image: *const c_void);
    module_unload = "cuModuleUnload"(module: Handle);
    module_function = "cuModuleGetFunction"(function: *mut Handle, module: Handle, name: *const c_char);
    function_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: Handle);
    set_function_attribute = "cuFuncSetAttribute"(function: Handle, attribute: c_int, value: c_int);
    launch = "cuLaunchKernel"(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
}

/// The driver, loaded and begun.
pub(crate) struct Library {
    functions: Functions,
    version: Version,
    /// Keeps the functions where they are. The driver has threads of its own: it is never unloaded.
    _loaded: ManuallyDrop<libloading::Library>,
}

impl Library {
    /// Loads the driver by a path, or by a name that the system finds, and begins it.
    ///
    /// # Errors
    /// If there is none, if it is too old or not complete, or if it does not begin.
    pub(crate) fn load(file: &OsStr) -> Result<Self, NoGpu> {
        let name = || file.to_string_lossy().into_owned();
        // SAFETY: what the driver does when it is loaded is its maker's promise; a path to something else is the user's.
        let library = unsafe { libloading::Library::new(file) }
            .map_err(|error| NoGpu::NoDriver { library: name(), reason: reason(&error) })?;
        let version = version(&library).map_err(|symbol| NoGpu::NotADriver { library: name(), symbol })?;
        if version < OLDEST {
            return Err(NoGpu::OldDriver { library: name(), found: version, needed: OLDEST });
        }
        // SAFETY: a library that tells the driver's version is the driver.
        let functions = unsafe { Functions::find(&library) }.map_err(|symbol| NoGpu::IncompleteDriver {
            library: name(),
            version,
            symbol,
        })?;
        let library = Self { functions, version, _loaded: ManuallyDrop::new(library) };
        // SAFETY: no flags are defined.
        match unsafe { library.init(0) } {
            Err(Failure { code: code::NO_DEVICE, .. }) => Err(NoGpu::NoDevice { version }),
            begun => begun.map_err(|failure| NoGpu::Fails(failure.into())).map(|()| library),
        }
    }

    /// Version of CUDA that the driver supports.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), Failure> {
        if code == 0 { Ok(()) } else { Err(Failure { call, code, message: self.message(code) }) }
    }

    /// An answer in the driver's own words.
    fn message(&self, code: Code) -> String {
        let text_by = |read: ReadText| {
            let mut text = ptr::null();
            // SAFETY: both functions write the address of a text that stays, or null.
            let known = unsafe { read(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: the text ends with a zero.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text_by(self.functions.error_name), text_by(self.functions.error_string)) {
            (Some(name), Some(words)) => format!("{name} ({code}): {words}"),
            (Some(name), None) => format!("{name} ({code})"),
            _ => format!("error {code}"),
        }
    }
}

/// The version of a driver, or the function that is missing to tell it.
fn version(library: &libloading::Library) -> Result<Version, &'static str> {
    const SYMBOL: &str = "cuDriverGetVersion";
    // SAFETY: of this name there is only the driver's function.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> Code>(SYMBOL.as_bytes()) };
    let get = get.map_err(|_| SYMBOL)?;
    let mut number = 0;
    // SAFETY: it writes one number.
    let code = unsafe { get(&raw mut number) };
    if code == 0 { Ok(Version::of_driver(number)) } else { Err(SYMBOL) }
}

/// Reason why a library cannot be loaded, in the words of the system's linker.
pub(crate) fn reason(error: &libloading::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
