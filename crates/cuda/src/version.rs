//! Versions of CUDA: of the driver, and of the compiler.

use std::fmt;

/// A version, as `major.minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Code that a compiler makes runs on drivers of its own major version and later ones.
    pub major: u32,
    /// Within a major version, everything fits together.
    pub minor: u32,
}

impl Version {
    /// Parses the driver's number: 1000 times the major version plus 10 times the minor one.
    pub(crate) fn of_driver(number: i32) -> Self {
        let number = number.max(0) as u32;
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn the_drivers_numbers_are_read() {
        let told = [11_080, 12_040, 13_000, -1].map(|number| Version::of_driver(number).to_string());
        assert_eq!(told, ["11.8", "12.4", "13.0", "0.0"]);
        assert!(Version::of_driver(11_080) < Version::of_driver(12_000));
    }
}
