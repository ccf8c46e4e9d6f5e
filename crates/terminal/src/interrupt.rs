//! Ctrl-C: work in progress is asked to stop and cleans up after itself; anything else ends at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::exit::{INTERRUPTED, Interrupted};

/// Number of pieces of work that look at [`REQUESTED`].
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// Number of times that the user has asked to stop.
static REQUESTED: AtomicUsize = AtomicUsize::new(0);
/// Records whether a second request ends nothing by itself.
static TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C.
pub fn install() -> anyhow::Result<()> {
    Ok(ctrlc::set_handler(|| {
        let again = REQUESTED.fetch_add(1, Ordering::SeqCst) > 0;
        if TAKEN_OVER.load(Ordering::SeqCst) {
            return;
        }
        if again || WATCHED.load(Ordering::SeqCst) == 0 {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })?)
}

/// Leaves the meaning of a second request to stop to the code that reads [`count`].
pub fn take_over() {
    TAKEN_OVER.store(true, Ordering::SeqCst);
}

/// Number of times that the user has asked to stop.
pub fn count() -> usize {
    REQUESTED.load(Ordering::SeqCst)
}

/// Work that looks at [`requested`] now and then. While one of these lives, Ctrl-C does not end the process by itself.
pub struct Watched(());

impl Watched {
    /// Starts such work.
    pub fn begin() -> Self {
        WATCHED.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        WATCHED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reports whether the user has asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst) > 0
}

/// Clears the user's requests to stop, once the work under way has stopped.
pub fn forget() {
    REQUESTED.store(0, Ordering::SeqCst);
}

/// An error if the user has asked to stop.
pub fn check() -> Result<(), Interrupted> {
    if requested() { Err(Interrupted) } else { Ok(()) }
}
