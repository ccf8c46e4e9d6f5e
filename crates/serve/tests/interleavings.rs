//! The places of a server, taken, grown and given back by several threads in every order that their steps may have.
//!
//! The admission is compiled here once more, over locks whose holders a scheduler of the test chooses. Without a harness,
//! because its own tests are not for these locks.

mod sync {
    pub use loom::sync::{Mutex, MutexGuard};
    pub use std::sync::{Arc, PoisonError};
}
#[path = "../src/admission.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests of the admission are left out")]
mod admission;
#[path = "../src/shares.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "its tests are left out")]
mod shares;

use std::sync::Arc;

use demask_serve::Refusal;
use loom::{model::Builder, thread};

use admission::Admission;

/// How often a thread is interrupted where it need not be, at most: orders beyond that are many, and find little.
const INTERRUPTIONS: usize = 3;

fn main() {
    let mut orders = Builder::new();
    orders.preemption_bound = Some(INTERRUPTIONS);
    orders.check(crowd);
}

/// Three requests, each of which wants two of three places.
fn crowd() {
    const PLACES: usize = 3;
    let admission = Admission::new(PLACES, &[1.0]);
    let request = |_| {
        let admission = Arc::clone(&admission);
        thread::spawn(move || {
            let Ok(mut places) = admission.enter(0) else { return };
            assert!((1..=PLACES).contains(&admission.in_use()));
            let grown = places.grow(2).is_ok();
            assert!((1 + usize::from(grown)..=PLACES).contains(&admission.in_use()));
        })
    };
    let requests: Vec<_> = (0..3).map(request).collect();
    for request in requests {
        request.join().unwrap();
    }
    assert_eq!(admission.in_use(), 0, "all are given back");
    // And whoever comes now is served.
    admission.enter(0).unwrap().grow(PLACES).unwrap();
}
