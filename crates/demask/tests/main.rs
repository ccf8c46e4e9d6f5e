//! All integration tests of this crate in one binary, but the goldens, which also run on other folders, and those whose
//! allocator counts.

mod accuracy;
mod adapters;
mod arrows;
mod batch;
mod caches;
mod circles;
mod common;
mod company;
mod costs;
mod damaged;
mod editing;
mod endings;
mod engine;
mod face;
mod footprint;
#[path = "gguf/main.rs"]
mod gguf;
mod guides;
mod heads;
mod infill;
#[path = "invariance/main.rs"]
mod invariance;
mod invariants_list;
mod logprobs;
mod lossless;
mod options;
mod outlines;
mod own_methods;
mod pages;
mod prefixes;
mod rnd1;
mod staleness;
mod steps;
mod structure;
mod updates;
mod watch;
