//! The kernels: their text, and the facts about each on this side: names, variants, how many threads run them.
//!
//! A module is compiled in one go: the arguments, the primitives, some definitions and one file of kernels, one
//! after the other, without any header of CUDA. The text also asserts that the argument structures lie in memory as their
//! twins here do. Kernels are compiled with [`OPTIONS`] for the card at hand, or as C++ for the emulator.

pub mod attention;
pub mod copies;
pub mod gemm;
pub mod head;
pub mod partial;
pub mod rows;
#[cfg(test)]
pub(crate) mod trial;

use crate::{ceiling, gpu::Geometry, layouts::LAYOUTS};

/// Unit of compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// Name of the module, unique.
    pub name: &'static str,
    /// Definitions in front of the file.
    pub definitions: &'static str,
    /// Name of the file in `kernels/`.
    pub file: &'static str,
    /// The file.
    pub text: &'static str,
    /// The kernels in it.
    pub kernels: &'static [&'static str],
}

/// All modules, file by file.
pub const MODULES: &[&[Module]] = &[
    &gemm::MODULES,
    &[ceiling::MODULE],
    &[attention::MODULE],
    &[rows::MODULE, partial::MODULE, copies::MODULE, head::MODULE],
];

/// Options of the device's compiler beside the architecture. Sums are fused where a kernel says so and nowhere else: what
/// variants of a kernel compute must not depend on how the compiler combines operations.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false"];

const ARGUMENTS: &str = include_str!("../../kernels/arguments.cuh");
const PRELUDE: &str = include_str!("../../kernels/prelude.cuh");

/// A block of so many threads for each row.
fn rows_of(rows: usize, threads: u32) -> Geometry {
    Geometry { grid: [rows as u32, 1, 1], threads, shared: 0 }
}

impl Module {
    /// The whole text for the device's compiler.
    pub fn source(&self) -> String {
        self.source_with("")
    }

    /// The whole text, with other primitives in front of the prelude.
    pub fn source_with(&self, primitives: &str) -> String {
        let mut source = String::new();
        let mut add = |name: &str, text: &str| source.extend(["#line 1 \"", name, "\"\n", text, "\n"]);
        add("arguments.cuh", ARGUMENTS);
        add("primitives", primitives);
        add("prelude.cuh", PRELUDE);
        add("definitions", self.definitions);
        add(self.file, self.text);
        for layout in LAYOUTS {
            add(layout.name, &layout.assertions());
        }
        source
    }
}
