//! All integration tests of this crate in one binary, but the goldens, which also run on other folders, and those whose
//! allocator counts.

mod accuracy;
mod arrows;
mod batch;
mod caches;
mod common;
mod company;
mod costs;
mod estimates;
mod face;
mod footprint;
#[path = "gguf/main.rs"]
mod gguf;
mod heads;
#[path = "invariance/main.rs"]
mod invariance;
mod invariants_list;
mod lossless;
mod map;
mod options;
mod own_methods;
mod prefixes;
mod staleness;
mod watch;
