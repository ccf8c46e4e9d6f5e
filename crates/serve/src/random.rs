//! Names that nobody can foresee.

use std::{
    collections::hash_map::RandomState,
    fmt::Write,
    hash::{BuildHasher, Hasher},
};

/// Returns a number from the system's randomness.
fn number() -> u64 {
    // Each state has keys of its own, drawn from the system.
    RandomState::new().build_hasher().finish()
}

/// Returns a name with so many random letters and digits after its prefix.
pub fn name(prefix: &str) -> String {
    let mut name = prefix.to_owned();
    let _ = write!(name, "{:016x}{:08x}", number(), number() as u32);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<String> = (0..100).map(|_| name("chatcmpl-")).collect();
        assert_eq!(names.len(), 100);
        assert!(names.iter().all(|name| name.len() == 33 && name.starts_with("chatcmpl-")));
    }
}
