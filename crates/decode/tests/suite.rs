//! Every method of the registries, held to what every method must hold.

use demask_decode::{caches::CACHES, methods::DECODERS};
use demask_testkit::suite;

#[test]
fn every_decoder_holds_what_decoders_must() {
    for method in DECODERS {
        suite::decoder(method).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn every_cache_holds_what_caches_must() {
    for method in CACHES {
        suite::cache(method).unwrap_or_else(|broken| panic!("{broken}"));
    }
}
