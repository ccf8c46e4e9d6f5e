//! The compiler's functions, found by name, and its programs.

use std::{
    ffi::{CStr, OsStr, c_char, c_int},
    mem::ManuallyDrop,
    ptr,
};

use super::{NvrtcError, Source, text};
use crate::{driver::reason, version::Version};

/// Status code of the compiler; 0: success.
type Code = c_int;

/// A program: an address that only the compiler reads.
type Handle = usize;

/// Declares the functions, and how they are found.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*);)*) => {
        /// The functions, as they were found. They may be called as long as the library is loaded.
        struct Functions {
            $($name: unsafe extern "C" fn($($kind),*) -> Code,)*
            error_string: unsafe extern "C" fn(Code) -> *const c_char,
        }

        impl Functions {
            /// Finds all of them, or tells which one is missing.
            ///
            /// # Safety
            /// The library is NVRTC: its functions have the arguments declared here.
            unsafe fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                const ERROR_STRING: &str = "nvrtcGetErrorString";
                Ok(Self {
                    // SAFETY: the caller's promise.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| $symbol)?,)*
                    // SAFETY: the same.
                    error_string: *unsafe { library.get(ERROR_STRING.as_bytes()) }.map_err(|_| ERROR_STRING)?,
                })
            }
        }

        impl Library {
            $(
                /// # Safety
                /// The arguments are as the compiler's own documentation of the function has them.
                unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), NvrtcError> {
                    // SAFETY: the caller's promise; the library is loaded.
                    let code = unsafe { (self.functions.$name)($($argument),*) };
                    self.check($symbol, code)
                }
            )*
        }
    };
}

functions! {
    get_version = "nvrtcVersion"(major: *mut c_int, minor: *mut c_int);
    known_count = "nvrtcGetNumSupportedArchs"(count: *mut c_int);
    known = "nvrtcGetSupportedArchs"(capabilities: *mut c_int);
    create = "nvrtcCreateProgram"(
        program: *mut Handle, source: *const c_char, name: *const c_char, headers: c_int,
        texts: *const *const c_char, names: *const *const c_char
    );
    compile = "nvrtcCompileProgram"(program: Handle, count: c_int, options: *const *const c_char);
    log_size = "nvrtcGetProgramLogSize"(program: Handle, bytes: *mut usize);
    log = "nvrtcGetProgramLog"(program: Handle, text: *mut c_char);
    cubin_size = "nvrtcGetCUBINSize"(program: Handle, bytes: *mut usize);
    cubin = "nvrtcGetCUBIN"(program: Handle, image: *mut c_char);
    ptx_size = "nvrtcGetPTXSize"(program: Handle, bytes: *mut usize);
    ptx = "nvrtcGetPTX"(program: Handle, image: *mut c_char);
    destroy = "nvrtcDestroyProgram"(program: *mut Handle);
}

/// The compiler's library.
pub(super) struct Library {
    functions: Functions,
    /// Keeps the functions where they are. The compiler keeps more than its functions tell: it is never unloaded.
    _loaded: ManuallyDrop<libloading::Library>,
}

impl Library {
    /// Loads it.
    pub fn load(file: &OsStr) -> Result<Self, NvrtcError> {
        // SAFETY: what it does when it is loaded is its maker's promise; a path to something else is the user's.
        let library = unsafe { libloading::Library::new(file) }
            .map_err(|error| NvrtcError::Missing { reason: reason(&error) })?;
        // SAFETY: the library of this name has these functions.
        let functions = unsafe { Functions::find(&library) }
            .map_err(|symbol| NvrtcError::Incomplete { library: file.to_string_lossy().into_owned(), symbol })?;
        Ok(Self { functions, _loaded: ManuallyDrop::new(library) })
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), NvrtcError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number.
        let text = unsafe { (self.functions.error_string)(code) };
        // SAFETY: a text that stays and ends with a zero, unless it is null.
        let known = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        Err(NvrtcError::Call { call, message: known.unwrap_or_else(|| format!("error {code}")) })
    }

    /// Returns the version.
    pub fn version(&self) -> Result<Version, NvrtcError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { self.get_version(&raw mut major, &raw mut minor) }?;
        Ok(Version { major: major.max(0) as u32, minor: minor.max(0) as u32 })
    }

    /// Capabilities that it makes machine code for.
    pub fn capabilities(&self) -> Result<Vec<u32>, NvrtcError> {
        let mut count = 0;
        // SAFETY: it writes one number.
        unsafe { self.known_count(&raw mut count) }?;
        let mut known: Vec<c_int> = vec![0; count.max(0) as usize];
        // SAFETY: it writes as many numbers as it has told.
        unsafe { self.known(known.as_mut_ptr()) }?;
        Ok(known.into_iter().map(|capability| capability.max(0) as u32).collect())
    }

    /// A program of a text that includes nothing.
    pub fn program(&self, source: &Source) -> Result<Program<'_>, NvrtcError> {
        let (name, source) = (text("a name", &source.name)?, text("a kernel", &source.text)?);
        let mut handle = 0;
        // SAFETY: texts that end with a zero, which the compiler copies, and no headers.
        unsafe { self.create(&raw mut handle, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) }?;
        Ok(Program { library: self, handle })
    }
}

/// A text on its way to code.
pub(super) struct Program<'a> {
    library: &'a Library,
    handle: Handle,
}

impl Program<'_> {
    /// Compiles it.
    pub fn compile(&self, options: &[*const c_char]) -> Result<(), NvrtcError> {
        // SAFETY: as many options as are told, each ending with a zero.
        unsafe { self.library.compile(self.handle, options.len() as c_int, options.as_ptr()) }
    }

    /// Returns the compiler's messages.
    pub fn log(&self) -> Result<String, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: it writes one number.
        unsafe { self.library.log_size(self.handle, &raw mut bytes) }?;
        let mut log = vec![0u8; bytes.max(1)];
        // SAFETY: it writes as many bytes as it has told, a zero at the end.
        unsafe { self.library.log(self.handle, log.as_mut_ptr().cast()) }?;
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        Ok(String::from_utf8_lossy(&log[..end]).into_owned())
    }

    /// Machine code.
    pub fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: it writes one number.
        unsafe { self.library.cubin_size(self.handle, &raw mut bytes) }?;
        let mut image = vec![0u8; bytes];
        // SAFETY: it writes as many bytes as it has told.
        unsafe { self.library.cubin(self.handle, image.as_mut_ptr().cast()) }?;
        Ok(image)
    }

    /// Text for the driver to compile, a zero at its end.
    pub fn ptx(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: it writes one number.
        unsafe { self.library.ptx_size(self.handle, &raw mut bytes) }?;
        let mut image = vec![0u8; bytes];
        // SAFETY: it writes as many bytes as it has told.
        unsafe { self.library.ptx(self.handle, image.as_mut_ptr().cast()) }?;
        if image.last() != Some(&0) {
            image.push(0);
        }
        Ok(image)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made once and destroyed once; that it cannot fail is all the same to everybody.
        let _ = unsafe { self.library.destroy(&raw mut self.handle) };
    }
}
