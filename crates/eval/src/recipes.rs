//! Recipes: the files of runs for the papers' tables and figures, built into the program.

use std::path::{Path, PathBuf};

use demask_settings::names::UnknownName;

use crate::run::{FileError, Spec};

/// Start of a recipe's name where a file of runs is expected.
pub const PREFIX: &str = "recipe:";

/// A recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Name: its file below `recipes/` without the ending.
    pub name: &'static str,
    /// The file of runs.
    pub text: &'static str,
}

macro_rules! recipes {
    ($($name:literal),* $(,)?) => {
        &[$(Recipe { name: $name, text: include_str!(concat!("../recipes/", $name, ".toml")) }),*]
    };
}

/// All recipes, by name.
pub const RECIPES: &[Recipe] = recipes![
    "demo/dllm-cache-ablation-prompt-interval",
    "demo/dllm-cache-ablation-response-interval",
    "demo/dllm-cache-ablation-rho",
    "demo/dllm-cache-fewer-steps",
    "demo/dllm-cache-main-dream",
    "demo/dllm-cache-main-llada",
    "demo/dllm-cache-slowfast",
    "demo/flashdlm-figure-1a",
    "demo/flashdlm-figure-1b",
    "demo/flashdlm-table-2",
    "demo/flashdlm-table-3",
    "demo/flashdlm-table-4",
    "demo/flashdlm-table-7",
    "demo/flashdlm-table-7-dream",
    "demo/flashdlm-tables-5-6-9-10",
    "demo/freedave-figure-2",
    "demo/freedave-tables-1-2",
    "demo/guided-rules",
    "dkv-cache/main-llada-instruct",
    "dllm-cache/ablation-prompt-interval",
    "dllm-cache/ablation-response-interval",
    "dllm-cache/ablation-rho",
    "dllm-cache/fewer-steps",
    "dllm-cache/llama",
    "dllm-cache/main-dream-base",
    "dllm-cache/main-dream-instruct",
    "dllm-cache/main-llada-base",
    "dllm-cache/main-llada-instruct",
    "dllm-cache/slowfast",
    "dllm-cache/versus-dream-base",
    "dllm-cache/versus-llada-instruct",
    "dream/report",
    "fast-dllm/main-dream-base",
    "fast-dllm/main-llada-instruct",
    "flashdlm/figure-1a",
    "flashdlm/figure-1b",
    "flashdlm/table-2",
    "flashdlm/table-3",
    "flashdlm/table-4",
    "flashdlm/table-7",
    "flashdlm/table-8",
    "flashdlm/tables-5-6-9-10",
    "freedave/figure-2",
    "freedave/scripts-2026-dream",
    "freedave/scripts-2026-llada",
    "freedave/scripts-2026-trado",
    "freedave/table-1",
    "freedave/table-2",
    "i-dlm/strides",
    "slowfast/main-llada-base",
];

impl Recipe {
    /// Finds a recipe by its name.
    ///
    /// # Errors
    /// If none has this name: with the nearest one, or all.
    pub fn find(name: &str) -> Result<Self, UnknownName> {
        let known = || RECIPES.iter().map(|recipe| recipe.name).collect();
        let found = RECIPES.iter().find(|recipe| recipe.name == name).copied();
        found.ok_or_else(|| UnknownName { what: "recipe", found: name.to_owned(), known: known() })
    }

    /// Returns its name in the place of a file's path.
    pub fn path(&self) -> PathBuf {
        format!("{PREFIX}{}", self.name).into()
    }

    /// Reads its rows; rows that name no model use `model`.
    ///
    /// # Errors
    /// If the text is no file of runs.
    pub fn spec(&self, model: Option<&str>) -> Result<Spec, FileError> {
        Spec::parse(&self.path(), self.text, model)
    }
}

/// Returns the name of a recipe that a path is meant as, if it is.
pub fn named(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(PREFIX)
}
