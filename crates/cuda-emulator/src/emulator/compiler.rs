//! The machine's C++ compiler, and the libraries that it has made.

use std::{
    env,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{Mutex, PoisonError},
};

use demask_cuda::{gpu::GpuError, kernels::Module};

const EMULATED: &str = include_str!("../../kernels/emulated.h");

/// A C++ compiler.
pub(crate) struct Compiler {
    program: String,
    /// First line of its own description.
    version: String,
    /// Definitions in front of the primitives.
    pub(crate) definitions: &'static str,
}

impl Compiler {
    /// Finds the compiler: the one that `CXX` names, else the usual ones.
    pub(crate) fn find() -> Result<Self, GpuError> {
        Self::find_named(env::var("CXX").ok().filter(|name| !name.is_empty()))
    }

    /// The named compiler and no other, or the first of the usual ones.
    pub(crate) fn find_named(named: Option<String>) -> Result<Self, GpuError> {
        let programs = named.map_or_else(|| ["c++", "g++", "clang++"].map(str::to_owned).to_vec(), |name| vec![name]);
        for program in &programs {
            if let Some(version) = version(program) {
                return Ok(Self { program: program.clone(), version, definitions: "" });
            }
        }
        let message = format!("no C++ compiler runs as {}: install one, or name it in CXX", programs.join(", "));
        Err(GpuError::Call { call: "emulator", message })
    }

    pub(super) fn describe(&self) -> &str {
        &self.version
    }

    /// The library of a module; made once for the same text, options and compiler.
    pub(super) fn compile(&self, module: &Module) -> Result<PathBuf, GpuError> {
        /// One compilation after the other: threads that want the same module then find it.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let source = module.source_with(&[self.definitions, EMULATED].join("\n"));
        let mut hasher = DefaultHasher::new();
        (&source, options(), &self.program, &self.version).hash(&mut hasher);
        let folder = folder()?;
        let library = folder.join(format!("{}-{:016x}.so", module.name, hasher.finish()));
        if !library.exists() {
            self.make(&source, &library)?;
        }
        Ok(library)
    }

    /// Compiles under another name, so that the library appears whole or not at all.
    fn make(&self, source: &str, library: &Path) -> Result<(), GpuError> {
        let unfinished = library.with_extension(format!("{}.so", process::id()));
        let text = library.with_extension("cpp");
        let failed = |message: String| GpuError::Call { call: "emulator", message };
        fs::write(&text, source).map_err(|error| failed(format!("{}: {error}", text.display())))?;
        let object = unfinished.with_extension("o");
        self.run(options().into_iter().map(OsStr::new).chain(["-c", "-o"].map(OsStr::new)), &object, &text)?;
        // A step of its own, without the options that would ask for the sanitizer's library.
        let linked = self.run(["-shared", "-o"].map(OsStr::new), &unfinished, &object);
        fs::remove_file(&object).map_err(|error| failed(format!("{}: {error}", object.display())))?;
        linked?;
        fs::rename(&unfinished, library).map_err(|error| failed(format!("{}: {error}", library.display())))
    }

    /// Runs the compiler with some options, followed by the path of its output and the path of its source.
    fn run<'a>(&self, options: impl IntoIterator<Item = &'a OsStr>, made: &Path, from: &Path) -> Result<(), GpuError> {
        let failed = |message: String| GpuError::Call { call: "emulator", message };
        let output = Command::new(&self.program).args(options).arg(made).arg(from).output();
        let output = output.map_err(|error| failed(format!("{}: {error}", self.program)))?;
        if output.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        let first = told.lines().find(|line| line.contains("error")).unwrap_or("no word of an error");
        Err(failed(format!("{} refuses {}: {first}", self.program, from.display())))
    }
}

/// Options of the compiler. Fused sums are library calls, and slow, unless the processor may be used for them. Checks
/// of alignment call functions of the emulated header.
fn options() -> Vec<&'static str> {
    let mut options = vec!["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fsanitize=alignment"];
    options.extend(["-ffp-contract=off", "-fno-strict-aliasing"]);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        options.push("-mfma");
    }
    options
}

/// Version line of a compiler, if it is installed.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Folder of compiled libraries: beside the program, which is in the build's own folder when tests run.
fn folder() -> Result<PathBuf, GpuError> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("emulated-kernels")));
    let candidates = beside.into_iter().chain([env::temp_dir().join(format!("emulated-kernels-{}", process::id()))]);
    for folder in candidates {
        if fs::create_dir_all(&folder).is_ok() {
            return Ok(folder);
        }
    }
    let message = "no folder for compiled kernels can be made beside the program or among temporary files".to_owned();
    Err(GpuError::Call { call: "emulator", message })
}
