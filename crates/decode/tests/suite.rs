//! Every method of the registries, held to what every method must hold.

use demask_decode::{caches::CACHES, methods::DECODERS};
use demask_testkit::suite;

#[test]
fn structure_s1_s2_s4_s5_s7_s9_s10_s13_s18_every_decoder_holds_what_decoders_must() {
    let broken: Vec<String> =
        DECODERS.iter().filter_map(|method| Some(suite::decoder(method).err()?.to_string())).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_cache_holds_what_caches_must() {
    for method in CACHES {
        suite::cache(method).unwrap_or_else(|broken| panic!("{broken}"));
    }
}
