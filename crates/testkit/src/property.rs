//! Settings of tests on random cases, in one place for all crates.

use proptest::test_runner::Config;

/// Number of random cases that a test runs, of those it wants. Miri runs a test some thousand times slower, and looks at
/// what code does with memory, which a few cases show.
pub const fn count(wanted: u32) -> u32 {
    const UNDER_MIRI: u32 = 2;
    if cfg!(miri) && wanted > UNDER_MIRI { UNDER_MIRI } else { wanted }
}

/// Settings of a property test that wants a number of cases. A case that fails is printed, not written beside the source:
/// it belongs into a test of its own.
pub fn cases(wanted: u32) -> Config {
    Config { cases: count(wanted), failure_persistence: None, ..Config::default() }
}
