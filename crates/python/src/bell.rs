//! A bell that an engine's thread rings and an event loop hears, without the interpreter.
//!
//! An engine that took the interpreter to wake somebody would wait for whatever Python does meanwhile, once a forward and
//! request. A bell is a socket that the loop watches, and a list of who is to look: the first entry sends a byte.

use std::{
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
    task::Wake,
};

use pyo3::prelude::*;

/// Wakes the tasks of one event loop.
#[pyclass(frozen, module = "demask._native")]
pub struct Bell {
    reader: UnixStream,
    shared: Arc<Shared>,
}

struct Shared {
    writer: UnixStream,
    /// Requests that have rung since it was last heard.
    rung: Mutex<Vec<u64>>,
}

/// Rings a bell with the number of who is to look.
pub struct Ringer {
    shared: Arc<Shared>,
    number: u64,
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        let mut rung = self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner);
        rung.push(self.number);
        if rung.len() == 1 {
            // A bell that nobody hears any more is let be; a full socket is heard anyway.
            let _ = (&self.shared.writer).write(&[1]);
        }
    }
}

impl Bell {
    /// Returns what rings it with a number.
    pub fn ringer(&self, number: u64) -> Arc<Ringer> {
        Arc::new(Ringer { shared: Arc::clone(&self.shared), number })
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, shared: Arc::new(Shared { writer, rung: Mutex::default() }) })
    }

    /// The socket that becomes readable when it rings.
    fn fileno(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Returns the requests that have rung since it was last heard.
    fn heard(&self) -> Vec<u64> {
        let mut byte = [0; 16];
        let mut rung = self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing to read: it was heard already.
        let _ = (&self.reader).read(&mut byte);
        std::mem::take(&mut *rung)
    }
}
