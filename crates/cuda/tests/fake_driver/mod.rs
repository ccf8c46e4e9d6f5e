//! A driver and a compiler that pretend, built by the machine's C compiler for each test with the faults that it wants.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A folder with both libraries in it.
pub struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    /// Builds them; see the C files for what `driver` and `compiler` may define.
    pub fn new(driver: &[&str], compiler: &[&str]) -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        build("cuda.c", &fake.driver(), driver);
        build("nvrtc.c", &fake.compiler(), compiler);
        fake
    }

    /// Builds them so that kernels are emulated: they do what they do, on the processor.
    #[allow(dead_code, reason = "not every test has one")]
    pub fn emulated() -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda-emulator/kernels/emulated.h");
        #[cfg(target_arch = "x86_64")]
        let fused = if std::arch::is_x86_feature_detected!("fma") { "-mfma" } else { "" };
        // Other processors fuse without being asked.
        #[cfg(not(target_arch = "x86_64"))]
        let fused = "";
        fake.emulate_with(&[]);
        let defines = [
            format!("EMULATED=\"{}\"", header.display()),
            format!("FOLDER=\"{}\"", fake.folder.path().display()),
            format!("FUSED=\"{fused}\""),
        ];
        build("nvrtc.c", &fake.compiler(), &defines.each_ref().map(String::as_str));
        fake
    }

    /// Builds the driver of emulated kernels anew; see the C file for what it may define.
    #[allow(dead_code, reason = "not every test has one")]
    pub fn emulate_with(&self, faults: &[&str]) {
        let memory = faults.iter().find(|fault| fault.starts_with("MEMORY="));
        let usual: &[_] = if memory.is_some() { &[] } else { &["MEMORY=(8ul<<30)"] };
        build("cuda.c", &self.driver(), &[&["EMULATED", "CAPABILITY=80"], usual, faults].concat());
    }

    /// The driver's library.
    pub fn driver(&self) -> PathBuf {
        self.folder.path().join("libcuda.so.1")
    }

    /// The compiler's.
    pub fn compiler(&self) -> PathBuf {
        self.folder.path().join("libnvrtc.so.12")
    }

    /// A folder for compiled kernels.
    #[allow(dead_code, reason = "not every test has one")]
    pub fn kernels(&self) -> PathBuf {
        self.folder.path().join("kernels")
    }
}

fn build(source: &str, library: &Path, defines: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/tests/fake_driver").join(source);
    let defines = defines.iter().map(|define| format!("-D{define}"));
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .args([library, &source])
        .args(defines)
        .output();
    let built = built.expect("a C compiler, cc, is needed to build the driver that pretends");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
