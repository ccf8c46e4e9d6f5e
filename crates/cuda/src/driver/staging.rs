//! The way between a caller's bytes and the device's: through pinned memory, so that uploads return before they are done.

use std::sync::Arc;

use super::context::{Context, Event, Pinned, Stream};
use crate::gpu::{Address, GpuError};

/// Bytes of each half of the uploads' memory: long enough that a copy's start costs nothing beside it.
const HALF: usize = 16 << 20;
/// Bytes that come back at once.
const BACK: usize = 4 << 20;
/// Uploads begin at multiples of this, as copies between hosts like it.
const ALIGNMENT: usize = 64;

/// Two halves that take turns: while the device copies from one, the other is filled.
pub(super) struct Staging {
    context: Arc<Context>,
    halves: [Half; 2],
    /// The half that is being filled, and how far it is.
    current: usize,
    used: usize,
    back: Pinned,
}

struct Half {
    memory: Pinned,
    /// After the last copy from it.
    copied: Event,
}

impl Half {
    fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        Ok(Self { memory: Pinned::new(context, HALF)?, copied: Event::new(context)? })
    }
}

impl Staging {
    /// Takes its memory.
    pub fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        Ok(Self {
            context: context.clone(),
            halves: [Half::new(context)?, Half::new(context)?],
            current: 0,
            used: 0,
            back: Pinned::new(context, BACK)?,
        })
    }

    /// Copies to the device in the stream's order.
    ///
    /// # Safety
    /// `to` has room for the bytes.
    pub unsafe fn upload(&mut self, stream: &Stream, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        let mut done = 0;
        while done < bytes.len() {
            if self.used >= HALF {
                self.turn(stream)?;
            }
            let piece = &bytes[done..bytes.len().min(done + HALF - self.used)];
            // SAFETY: the device copies from what lies before `used` alone; `turn` waited for the rest.
            let half = unsafe { self.halves[self.current].memory.bytes_mut() };
            let staged = &mut half[self.used..self.used + piece.len()];
            staged.copy_from_slice(piece);
            let from = staged.as_ptr().cast();
            let target = to.offset(done).0;
            // SAFETY: the caller's promise; the staged bytes stay until `turn` has waited for this copy.
            self.context.call(|library| unsafe { library.copy_to_device(target, from, piece.len(), stream.handle) })?;
            done += piece.len();
            self.used = (self.used + piece.len()).next_multiple_of(ALIGNMENT);
        }
        Ok(())
    }

    /// Goes over to the other half as soon as the device has read it.
    fn turn(&mut self, stream: &Stream) -> Result<(), GpuError> {
        self.halves[self.current].copied.record(stream)?;
        self.current = 1 - self.current;
        self.used = 0;
        self.halves[self.current].copied.wait()
    }

    /// Waits for all work in the stream, then copies from the device.
    ///
    /// # Safety
    /// `from` has as many bytes.
    pub unsafe fn download(&mut self, stream: &Stream, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        if bytes.is_empty() {
            return stream.wait();
        }
        // Copies stand behind all work in the stream: waiting for the first is waiting for that.
        for (index, piece) in bytes.chunks_mut(BACK).enumerate() {
            // SAFETY: the copy before has been waited for.
            let to = unsafe { self.back.bytes_mut() }.as_mut_ptr().cast();
            let source = from.offset(index * BACK).0;
            // SAFETY: the caller's promise, and a piece is no longer than the memory.
            self.context.call(|library| unsafe { library.copy_to_host(to, source, piece.len(), stream.handle) })?;
            stream.wait()?;
            // SAFETY: the copy is done.
            piece.copy_from_slice(&unsafe { self.back.bytes() }[..piece.len()]);
        }
        Ok(())
    }
}
