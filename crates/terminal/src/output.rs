//! The only way to standard output and standard error.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use demask::MatrixFormats;
use serde::Serialize;

use crate::env;
pub use crate::words::{bytes, counted, seconds, three_digits};

/// Destination of each kind of output.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Standard output holds JSON and nothing else.
    pub json: bool,
    /// Flag for errors alone on standard error.
    pub quiet: bool,
}

impl Screen {
    /// Reports whether progress bars are drawn: on a terminal, unless nobody wants to see them.
    pub fn has_bars(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// A remark that is not part of the answer.
    pub fn remark(self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// Reports whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Reports whether standard error shows colours.
pub fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && env::wants_colour()
}

/// Text as it is, at once.
pub fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
}

/// One line.
pub fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}

/// One JSON document on one line.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(line(&serde_json::to_string(value)?)?)
}

/// One line on standard error. If that fails, there is nowhere to report it.
pub fn note(line: &str) {
    write_note(format!("{line}\n"));
}

fn write_note(text: String) {
    match ASIDE.get() {
        Some(aside) => aside.put(text),
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

/// Lines that may wait for standard error to take them.
const WAITING: usize = 1024;
/// Time that the last lines get at the end.
const SETTLING: Duration = Duration::from_secs(1);

/// The thread that writes notes, once there is one.
static ASIDE: OnceLock<Aside> = OnceLock::new();

/// A bounded queue of notes: who has something to note never waits for who reads standard error.
struct Aside {
    notes: SyncSender<Note>,
    dropped: AtomicU64,
}

/// Something to do for the thread that writes notes.
enum Note {
    /// Write this.
    Text(String),
    /// Say that everything before is written.
    Settled(SyncSender<()>),
}

impl Aside {
    fn put(&self, text: String) {
        if let Err(TrySendError::Full(_)) = self.notes.try_send(Note::Text(text)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Lets a thread of its own write all notes from now on. Where standard error is not read, those that find no room in the
/// queue are dropped and counted, and the count is noted as soon as there is room.
///
/// # Errors
/// If there is no thread.
pub fn note_aside() -> io::Result<()> {
    let (notes, waiting) = sync_channel(WAITING);
    thread::Builder::new().name("notes".to_owned()).spawn(move || write_aside(&waiting))?;
    let _ = ASIDE.set(Aside { notes, dropped: AtomicU64::new(0) });
    // A panic is told by a thread that others wait for.
    panic::set_hook(Box::new(|info| {
        let trace = Backtrace::capture();
        let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
        note(&format!("{info}{trace}"));
    }));
    Ok(())
}

fn write_aside(waiting: &Receiver<Note>) {
    for note in waiting {
        match note {
            Note::Text(text) => drop(io::stderr().lock().write_all(text.as_bytes())),
            Note::Settled(tell) => drop(tell.try_send(())),
        }
        let dropped = ASIDE.get().map_or(0, |aside| aside.dropped.swap(0, Ordering::Relaxed));
        if dropped > 0 {
            let text = format!("{{\"dropped_lines\":{dropped}}}\n");
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

/// Waits until all notes are written, or a second where standard error is not read.
pub fn settle() {
    let Some(aside) = ASIDE.get() else { return };
    let (tell, settled) = sync_channel(1);
    // Full, it is read by nobody.
    if aside.notes.try_send(Note::Settled(tell)).is_ok() {
        let _ = settled.recv_timeout(SETTLING);
    }
}

/// Notes of libraries, as their log writes them.
#[derive(Debug)]
pub struct Notes;

impl Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_note(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Matrices that take more memory than in their file.
pub fn widened(matrices: &MatrixFormats) -> String {
    let MatrixFormats { stored, format, tensors, stored_bytes, bytes: taken, .. } = matrices;
    let (stored_bytes, taken) = (bytes(*stored_bytes), bytes(*taken));
    format!("{} of {stored}, {stored_bytes} in the file, as {format} in {taken}", counted(*tensors, "tensor"))
}
