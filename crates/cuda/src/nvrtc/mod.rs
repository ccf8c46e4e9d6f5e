//! NVIDIA's compiler as a library: from the text of a kernel to code for one kind of card.
//!
//! A machine whose kernels are in the cache does without. No header of CUDA's is read: a text includes nothing.

mod library;
mod search;

use std::{
    ffi::{CString, OsStr, OsString, c_char},
    fmt,
};

use library::{Library, Program};
pub use search::{DEFAULT_FOLDERS, candidates};

use crate::version::Version;

/// The compiler of CUDA 11.8: the first that knows cards of capability 9.0.
const OLDEST: Version = Version { major: 11, minor: 8 };

/// Unit of compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the source, for messages and for files.
    pub name: String,
    /// Text of the source.
    pub text: String,
    /// Options of the compiler beside the architecture.
    pub options: Vec<String>,
}

/// Code for one kind of card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code of a capability. It runs on cards of the same major number, and of the same minor one or a later; that
    /// of boards (Tegra) on those of the same capability alone.
    Cubin(u32),
    /// Text that the driver makes machine code of, for a capability or any later.
    Ptx(u32),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubin(capability) => write!(f, "sm_{capability}"),
            Self::Ptx(capability) => write!(f, "compute_{capability}"),
        }
    }
}

/// Capabilities of boards (Tegra), whose machine code is for them alone: the code of cards does not run on them, and
/// theirs not on cards.
const BOARDS: [u32; 4] = [72, 87, 101, 110];

impl Target {
    /// Reports whether code for this target runs on a card of a capability.
    pub(crate) fn serves(self, capability: u32) -> bool {
        match self {
            Self::Cubin(made) => {
                let own = BOARDS.contains(&made) || BOARDS.contains(&capability);
                made == capability || (!own && made / 10 == capability / 10 && made < capability)
            }
            Self::Ptx(made) => made <= capability,
        }
    }

    /// The best that a compiler which knows these capabilities can do for a card: machine code rather than text, for the
    /// nearest capability.
    fn of(known: &[u32], capability: u32) -> Option<Self> {
        let best = |target: fn(u32) -> Self| {
            known.iter().copied().filter(|&known| target(known).serves(capability)).max().map(target)
        };
        best(Self::Cubin).or_else(|| best(Self::Ptx))
    }
}

/// Output of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Image for the driver: a cubin, or PTX that ends with a zero.
    pub image: Vec<u8>,
    /// Messages of the compiler.
    pub log: String,
}

/// The compiler cannot be used, or refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvrtcError {
    /// No such library.
    #[error("NVRTC cannot be loaded: {reason}")]
    Missing {
        /// Reason in the system's words.
        reason: String,
    },
    /// Error: the file is not the library, or not all of it.
    #[error("{library} lacks {symbol}: expected NVRTC {OLDEST} or later")]
    Incomplete {
        /// File of the library.
        library: String,
        /// Function that is missing.
        symbol: &'static str,
    },
    /// A version that knows too few cards.
    #[error("{library} is NVRTC {found}, expected {OLDEST} or later")]
    Old {
        /// File of the library.
        library: String,
        /// Version that was found.
        found: Version,
    },
    /// A version whose code the driver cannot read.
    #[error("{library} is NVRTC {found}, and the driver is for CUDA {driver}: expected NVRTC {} or earlier", driver.major)]
    TooNew {
        /// File of the library.
        library: String,
        /// Version that was found.
        found: Version,
        /// Version that the driver supports.
        driver: Version,
    },
    /// A card that is older than everything the compiler makes code for.
    #[error("{library} makes no code for cards of capability {}.{}", capability / 10, capability % 10)]
    NoTarget {
        /// File of the library.
        library: String,
        /// The card's.
        capability: u32,
    },
    /// A call fails.
    #[error("{call}: {message}")]
    Call {
        /// The function.
        call: &'static str,
        /// Message of the compiler.
        message: String,
    },
    /// A kernel that is not understood.
    #[error("NVRTC {version} cannot compile {name} for {target}: {first}")]
    Compile {
        /// The compiler's.
        version: Version,
        /// The kernel's file.
        name: String,
        /// Target of the compilation.
        target: Target,
        /// The first error of its log, and how many there are.
        first: String,
    },
}

/// The compiler, loaded.
pub struct Nvrtc {
    library: Library,
    file: String,
    version: Version,
    /// Capabilities that it makes machine code for.
    known: Vec<u32>,
}

impl Nvrtc {
    /// Loads a library by a path, or by a name that the system finds.
    pub fn load(file: &OsStr) -> Result<Self, NvrtcError> {
        let name = file.to_string_lossy().into_owned();
        let library = Library::load(file)?;
        let version = library.version()?;
        if version < OLDEST {
            return Err(NvrtcError::Old { library: name, found: version });
        }
        let known = library.capabilities()?;
        Ok(Self { library, file: name, version, known })
    }

    /// Loads the first library whose code a driver of this version reads.
    ///
    /// # Errors
    /// Why the last one that is there cannot be used; if none is there, why the first cannot be loaded.
    pub fn find(candidates: &[OsString], driver: Version) -> Result<Self, NvrtcError> {
        let mut error = None;
        for candidate in candidates {
            let found = Self::load(candidate).and_then(|nvrtc| nvrtc.for_driver(driver));
            match found {
                Err(missing @ NvrtcError::Missing { .. }) => error = error.or(Some(missing)),
                Err(other) => error = Some(other),
                found => return found,
            }
        }
        Err(error.unwrap_or_else(|| NvrtcError::Missing { reason: "there is no place to look for it".to_owned() }))
    }

    /// Itself, if a driver reads its code: its own major version's and all earlier ones'.
    fn for_driver(self, driver: Version) -> Result<Self, NvrtcError> {
        if self.version.major <= driver.major {
            return Ok(self);
        }
        Err(NvrtcError::TooNew { library: self.file, found: self.version, driver })
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the name or path by which it was loaded.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the target for a card of a capability (10 * major + minor).
    pub fn target(&self, capability: u32) -> Result<Target, NvrtcError> {
        let none = || NvrtcError::NoTarget { library: self.file.clone(), capability };
        Target::of(&self.known, capability).ok_or_else(none)
    }

    /// Compiles a text. Warnings of the compiler do not hinder it.
    pub fn compile(&self, source: &Source, target: Target) -> Result<Compiled, NvrtcError> {
        let program = self.library.program(source)?;
        let architecture = format!("--gpu-architecture={target}");
        let options = source.options.iter().map(String::as_str).chain([architecture.as_str()]);
        let options: Vec<CString> = options.map(|option| text("an option", option)).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let compiled = program.compile(&pointers);
        let log = program.log()?;
        if let Err(error) = compiled {
            let NvrtcError::Call { message, .. } = &error else { return Err(error) };
            let first = first_error(&log).unwrap_or_else(|| message.clone());
            return Err(NvrtcError::Compile { version: self.version, name: source.name.clone(), target, first });
        }
        Ok(Compiled { image: image(&program, target)?, log })
    }
}

fn image(program: &Program<'_>, target: Target) -> Result<Vec<u8>, NvrtcError> {
    match target {
        Target::Cubin(_) => program.cubin(),
        Target::Ptx(_) => program.ptx(),
    }
}

/// A text as the library wants it.
fn text(what: &'static str, text: &str) -> Result<CString, NvrtcError> {
    let zero = |_| NvrtcError::Call { call: "nvrtcCreateProgram", message: format!("{what} holds a zero") };
    CString::new(text).map_err(zero)
}

/// The first line of a log that tells an error, with how many there are.
fn first_error(log: &str) -> Option<String> {
    let errors: Vec<&str> = log.lines().map(str::trim).filter(|line| line.contains("error")).collect();
    let first = errors.first().copied().or_else(|| log.lines().map(str::trim).find(|line| !line.is_empty()))?;
    let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
    // The compiler counts them itself in its last line, which is not one of them.
    let count = errors.iter().filter(|line| line.contains("error:")).count();
    Some(if count > 1 { format!("{first} (the first of {count} errors)") } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_gets_the_best_that_the_compiler_knows() {
        let known = [52, 70, 80, 86, 89, 90];
        let of = |capability| Target::of(&known, capability);
        assert_eq!(of(86), Some(Target::Cubin(86)));
        assert_eq!(of(90), Some(Target::Cubin(90)));
        assert_eq!(Target::of(&[80], 89), Some(Target::Cubin(80)), "of the same major number");
        assert_eq!(of(87), Some(Target::Ptx(86)), "machine code of cards does not run on boards");
        assert_eq!(Target::of(&[80, 86, 87], 87), Some(Target::Cubin(87)));
        assert_eq!(Target::of(&[80, 87], 89), Some(Target::Cubin(80)), "nor that of boards on cards");
        assert_eq!(of(100), Some(Target::Ptx(90)), "the driver compiles for a card that the compiler does not know");
        assert_eq!(of(50), None);
        assert_eq!(Target::of(&[90, 100, 120], 121), Some(Target::Cubin(120)));
        assert_eq!(Target::of(&[90, 100, 120], 103), Some(Target::Cubin(100)));
    }

    #[test]
    fn a_log_becomes_one_line() {
        let log = "a.cu(3): warning: unused\n\na.cu(7): error: identifier \"x\"\n  is undefined\n\n\
                   a.cu(9): error: expected a \";\"\n\n2 errors detected in the compilation of \"a.cu\".\n";
        let told = first_error(log).unwrap();
        assert_eq!(told, "a.cu(7): error: identifier \"x\" (the first of 2 errors)");
        assert_eq!(first_error("  \nnvrtc: bad option\n").unwrap(), "nvrtc: bad option");
        assert_eq!(first_error(""), None);
    }
}
