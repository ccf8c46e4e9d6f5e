//! All integration tests of this crate in one binary: each more is linked anew, and has the cores to itself.

mod adjust;
mod common;
mod constraint;
mod dkv;
mod editing;
mod fast_caches;
mod freecache;
mod freedave;
mod freedave_random;
mod golden;
#[path = "guided/main.rs"]
mod guided;
mod isd;
mod isd_draws;
#[path = "language/main.rs"]
mod language;
mod methods;
mod options;
mod plans;
mod selfspec;
mod session;
mod slowfast;
mod suite;
