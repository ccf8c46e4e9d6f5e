use crate::{
    foreign::Foreign,
    names::{UnknownName, in_a_line},
};

/// A setting that cannot be set. Its name is in backticks, for programs that spell it otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no setting of this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// There is no setting of this name, which other programs have.
    #[error("unknown {what} \"{}\", {foreign}", in_a_line(found))]
    Foreign {
        /// Noun for a setting.
        what: &'static str,
        /// Name that was found.
        found: String,
        /// Programs that have it, and what to do here.
        foreign: Foreign,
    },
    /// The setting does not take this value.
    #[error("`{name}` is {found}, expected {expected}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Value that was found, as it was written.
        found: String,
        /// Values that the setting takes.
        expected: String,
    },
    /// The setting was removed.
    #[error("`{name}` was removed, version {version} had it: {instead}")]
    Removed {
        /// The setting.
        name: &'static str,
        /// Last version that had it.
        version: &'static str,
        /// Advice.
        instead: &'static str,
    },
    /// The value has the right type and a wrong content.
    #[error("{0}")]
    Content(String),
}
