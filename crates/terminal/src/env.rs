//! Every environment variable that both programs read: declared once, with its documentation. `docs/env.md` is written
//! from this list and the one of `serve`.

use std::fmt::Write;

#[cfg(feature = "cuda")]
use demask::layers::cuda::Places;
use demask::{
    UnusableDevice,
    layers::{checkpoint::HubOptions, cpu::isa::Tier},
};

/// An environment variable.
pub struct Knob {
    /// Name of the variable.
    pub name: &'static str,
    /// Kind of its values.
    pub kind: &'static str,
    /// Default without it.
    pub default: &'static str,
    /// Description of its effect.
    pub doc: &'static str,
}

const ISA: &str = "DEMASK_ISA";
const NO_COLOR: &str = "NO_COLOR";
/// Tiers of every architecture, for the page; a program knows those of its own.
const TIERS: &str = "amx, avx512bf16, avx512, avxvnni, avx2, portable; on ARM bf16i8mm, dotprod, neon, portable";

/// Variables that both programs read. A build without the GPU's backend reads none of its.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: ISA,
        kind: TIERS,
        default: "the highest that the processor has",
        doc: "Instructions that matrix products use. A tier that the processor lacks is refused.",
    },
    Knob {
        name: "HF_ENDPOINT",
        kind: "address",
        default: "https://huggingface.co",
        doc: "Hub that `--model org/name` is fetched from.",
    },
    Knob {
        name: "HF_HOME",
        kind: "directory",
        default: "`$XDG_CACHE_HOME/huggingface`",
        doc: "Where the hub's tools keep their files. This and the hub's other paths may begin with `~` and have `$NAME` in them.",
    },
    Knob { name: "HF_HUB_CACHE", kind: "directory", default: "`$HF_HOME/hub`", doc: "Where fetched models are kept." },
    Knob {
        name: "HUGGINGFACE_HUB_CACHE",
        kind: "directory",
        default: "unset",
        doc: "The same, an older name: read if `HF_HUB_CACHE` is not set.",
    },
    Knob {
        name: "HF_HUB_OFFLINE",
        kind: "1, on, yes, true",
        default: "unset",
        doc: "Never ask the hub: only models that were fetched before can be used.",
    },
    Knob {
        name: "TRANSFORMERS_OFFLINE",
        kind: "1, on, yes, true",
        default: "unset",
        doc: "The same, an older name: read if `HF_HUB_OFFLINE` is not set.",
    },
    Knob { name: "HF_TOKEN", kind: "text", default: "unset", doc: "Token for private and gated models." },
    Knob {
        name: "HUGGING_FACE_HUB_TOKEN",
        kind: "text",
        default: "unset",
        doc: "The same, an older name: read if `HF_TOKEN` is not set.",
    },
    Knob {
        name: "HF_TOKEN_PATH",
        kind: "file",
        default: "`$HF_HOME/token`",
        doc: "File with the token, read if `HF_TOKEN` is not set.",
    },
    Knob { name: "HF_HUB_DISABLE_IMPLICIT_TOKEN", kind: "1, on, yes, true", default: "unset", doc: "Send no token." },
    Knob {
        name: "XDG_CACHE_HOME",
        kind: "directory",
        default: "`$HOME/.cache`",
        doc: "Where caches are kept: fetched models, if `HF_HOME` does not say it, and the GPU's compiled kernels in `demask/kernels`.",
    },
    Knob { name: "HOME", kind: "directory", default: "the current one", doc: "The user's directory." },
    Knob {
        name: "DEMASK_CUDA_DRIVER",
        kind: "file",
        default: "`libcuda.so.1`, where the system finds it",
        doc: "The driver of NVIDIA GPUs.",
    },
    Knob {
        name: "DEMASK_NVRTC",
        kind: "file",
        default: "the newest that the driver goes with, where the system finds it and in the folders below",
        doc: "The compiler of the GPU's kernels, `libnvrtc.so`. If it is set, no other is tried.",
    },
    Knob {
        name: "CUDA_HOME",
        kind: "directory",
        default: "unset",
        doc: "A CUDA toolkit, which may have the compiler.",
    },
    Knob { name: "CUDA_PATH", kind: "directory", default: "unset", doc: "The same." },
    Knob {
        name: "VIRTUAL_ENV",
        kind: "directory",
        default: "unset",
        doc: "A Python environment, which may have the compiler (package `nvidia-cuda-nvrtc-cu12` or `nvidia-cuda-nvrtc`).",
    },
    Knob { name: "CONDA_PREFIX", kind: "directory", default: "unset", doc: "The same." },
    Knob { name: NO_COLOR, kind: "anything", default: "unset", doc: "Draw without colours." },
];

/// Text about all variables, for `--help`: those of both programs, and a program's own.
pub fn help(own: &[Knob]) -> String {
    let mut text = String::from("Environment:\n");
    for Knob { name, kind, default, doc } in KNOBS.iter().chain(own) {
        let _ = writeln!(text, "  {name:<16} {} ({kind}; default: {default})", doc.trim_end_matches('.'));
    }
    text
}

/// The value of a declared variable; empty counts as unset.
fn value(name: &str) -> Option<String> {
    debug_assert!(KNOBS.iter().any(|knob| knob.name == name), "{name} is not declared");
    std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

/// The value of a variable that the user has named, on the command line or in another one; empty counts as unset.
pub fn named(name: &str) -> Option<String> {
    // The system knows no such names, and the standard library panics at some of them.
    let possible = !name.is_empty() && !name.contains(['=', '\0']);
    let value = if possible { std::env::var_os(name) } else { None };
    value.filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

/// The tier that is forced, if one is.
pub fn tier() -> Result<Option<Tier>, UnusableDevice> {
    let Some(found) = value(ISA) else { return Ok(None) };
    match Tier::from_name(&found) {
        Some(tier) => Ok(Some(tier)),
        None => Err(UnusableDevice::Unknown { what: ISA, found, known: Tier::names() }),
    }
}

/// Sources and cache of models, from the environment.
pub fn hub() -> HubOptions {
    HubOptions::from_lookup(&named)
}

/// Places of CUDA's parts, from the environment.
#[cfg(feature = "cuda")]
pub fn cuda() -> Places {
    Places::from_lookup(&value)
}

/// Reports whether colours are wanted at all.
pub fn wants_colour() -> bool {
    value(NO_COLOR).is_none()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_hub_reads_nothing_that_is_not_declared() {
        let asked = RefCell::new(Vec::new());
        HubOptions::from_lookup(&|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        for name in asked.into_inner() {
            assert!(KNOBS.iter().any(|knob| knob.name == name), "{name}");
        }
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn the_gpus_parts_read_nothing_that_is_not_declared() {
        let asked = RefCell::new(Vec::new());
        Places::from_lookup(&|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        for name in asked.into_inner() {
            assert!(KNOBS.iter().any(|knob| knob.name == name), "{name}");
        }
    }

    #[test]
    fn tiers_are_all_listed() {
        let lists: Vec<_> = TIERS.split("; on ARM ").collect();
        assert!(lists.len() == 2 && lists[usize::from(cfg!(target_arch = "aarch64"))] == Tier::names());
    }
}
