//! Keeps a failure of somebody else's library from becoming one of this process.
//!
//! The libraries that read tokenizers, templates and tables assert in places what they should check. On a hostile file that
//! is an error like any other: neither the process nor the user's screen may notice the panic.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Once,
};

thread_local! {
    /// Records whether this thread's panics are caught and returned as errors.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on somebody else's data; nothing, if it panics.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                others(panic);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_nothing_and_ends_with_its_guard() {
        assert_eq!(guarded(|| 7), Some(7));
        let nested = guarded(|| guarded(|| -> u8 { panic!("inside") }).is_none());
        assert_eq!(nested, Some(true));
        assert!(!GUARDED.get());
    }
}
