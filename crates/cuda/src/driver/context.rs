//! A context, and what lives in it: everything goes back to the driver when it is dropped, the context last.

use std::{
    ffi::{c_int, c_void},
    ptr, slice,
    sync::{Arc, OnceLock},
};

use super::library::{Failure, Handle, Library, code};
use crate::gpu::GpuError;

/// Streams that do not wait for what others do on the device.
const NON_BLOCKING: u32 = 1;
/// Events that tell the time.
const TIMED: u32 = 0;

/// The context of one device: that which all users of the device within this process share.
pub(super) struct Context {
    library: Arc<Library>,
    device: c_int,
    handle: Handle,
    /// First error of the context. All later calls fail for that reason, and would only hide it.
    broken: OnceLock<GpuError>,
}

impl Context {
    /// Opens the context of a device.
    pub fn new(library: Arc<Library>, device: c_int) -> Result<Arc<Self>, GpuError> {
        let mut handle = Handle::NULL;
        // SAFETY: the device is one that the driver has named; the context is given back once, when this is dropped.
        unsafe { library.context_retain(&raw mut handle, device) }?;
        Ok(Arc::new(Self { library, device, handle, broken: OnceLock::new() }))
    }

    /// Calls the driver with this context as the thread's.
    pub fn call<T>(&self, call: impl FnOnce(&Library) -> Result<T, Failure>) -> Result<T, GpuError> {
        self.attempt(call).map_err(Attempt::into_gpu)
    }

    /// Calls the driver, for callers who tell errors apart.
    pub fn attempt<T>(&self, call: impl FnOnce(&Library) -> Result<T, Failure>) -> Result<T, Attempt> {
        if let Some(broken) = self.broken.get() {
            return Err(Attempt::Broken(broken.clone()));
        }
        // SAFETY: the context is there until this is dropped.
        let entered = unsafe { self.library.context_set_current(self.handle) };
        entered.and_then(|()| call(&self.library)).map_err(|failure| {
            if code::is_final(failure.code) {
                return Attempt::Broken(self.broken.get_or_init(|| failure.into()).clone());
            }
            Attempt::Failed(failure)
        })
    }

    /// Gives something back. What cannot be given back is lost: nobody waits for an answer.
    fn give_back(&self, call: impl FnOnce(&Library) -> Result<(), Failure>) {
        // SAFETY: as above. A context that is broken takes nothing back, and says so.
        let _ = unsafe { self.library.context_set_current(self.handle) }.and_then(|()| call(&self.library));
    }

    /// Returns the free bytes, and all bytes.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: it writes two numbers.
        self.call(|library| unsafe { library.memory_info(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once; nothing lives in it any more, for all that does holds the context.
        let _ = unsafe { self.library.context_release(self.device) };
    }
}

/// Reason why a call failed.
pub(super) enum Attempt {
    /// Failure of this call.
    Failed(Failure),
    /// Failure of this call or an earlier one, after which nothing works.
    Broken(GpuError),
}

impl Attempt {
    /// Converts it to the error that users see.
    pub fn into_gpu(self) -> GpuError {
        match self {
            Self::Failed(failure) => failure.into(),
            Self::Broken(error) => error,
        }
    }
}

/// Something that is given back when it is dropped.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $destroy:ident) => {
        $(#[$doc])*
        pub(super) struct $name {
            context: Arc<Context>,
            pub handle: Handle,
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made once by the driver, and nobody else gives it back.
                self.context.give_back(|library| unsafe { library.$destroy(self.handle) });
            }
        }

        impl $name {
            /// Takes over the result of a call of the driver.
            pub fn made(
                context: &Arc<Context>,
                make: impl FnOnce(&Library, *mut Handle) -> Result<(), Failure>,
            ) -> Result<Self, GpuError> {
                let mut handle = Handle::NULL;
                context.call(|library| make(library, &raw mut handle))?;
                Ok(Self { context: context.clone(), handle })
            }
        }
    };
}

owned!(
    /// Work in order.
    Stream, stream_destroy
);
owned!(
    /// A point in a stream.
    Event, event_destroy
);
owned!(
    /// Kernels.
    Module, module_unload
);
owned!(
    /// Recorded work, not yet fit to run.
    Recorded, recorded_destroy
);
owned!(
    /// Recorded work that can be run again and again.
    Executable, graph_destroy
);

impl Stream {
    /// An empty one.
    pub fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        // SAFETY: it writes one handle.
        Self::made(context, |library, handle| unsafe { library.stream_create(handle, NON_BLOCKING) })
    }

    /// Waits until all of it is done.
    pub fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: the stream is there.
        self.context.call(|library| unsafe { library.stream_wait(self.handle) })
    }
}

impl Event {
    /// One that has not happened.
    pub fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        // SAFETY: it writes one handle.
        Self::made(context, |library, handle| unsafe { library.event_create(handle, TIMED) })
    }

    /// Puts it after all work that is in the stream.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: both are there, in one context.
        self.context.call(|library| unsafe { library.event_record(self.handle, stream.handle) })
    }

    /// Waits until it has happened; one that was never recorded has.
    pub fn wait(&self) -> Result<(), GpuError> {
        // SAFETY: the event is there.
        self.context.call(|library| unsafe { library.event_wait(self.handle) })
    }

    /// Seconds since an earlier one; both have happened.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64, GpuError> {
        let mut milliseconds = 0.0;
        let (begin, end) = (earlier.handle, self.handle);
        // SAFETY: it writes one number; both events are there.
        self.context.call(|library| unsafe { library.event_elapsed(&raw mut milliseconds, begin, end) })?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

/// Memory of the host that the device copies from and to by itself.
pub(super) struct Pinned {
    context: Arc<Context>,
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is this value's own.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates bytes filled with zeros.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, GpuError> {
        let mut memory = ptr::null_mut::<c_void>();
        // SAFETY: it writes one address.
        context.call(|library| unsafe { library.host_allocate(&raw mut memory, bytes, 0) })?;
        // SAFETY: the driver gave so many bytes.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(Self { context: context.clone(), memory: memory.cast(), bytes })
    }

    /// Returns all bytes, to be read.
    ///
    /// # Safety
    /// The device is not copying to it.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes, filled; nobody changes them as long as this value is borrowed, as the caller promises.
        unsafe { slice::from_raw_parts(self.memory, self.bytes) }
    }

    /// Returns all bytes, to be written.
    ///
    /// # Safety
    /// The device copies neither from it nor to it, or at least not where it will be written.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.memory, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver and given back once; the driver waits for copies that are under way.
        self.context.give_back(|library| unsafe { library.host_free(self.memory.cast()) });
    }
}
