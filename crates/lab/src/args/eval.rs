//! Arguments of `eval`, as they are typed.

use clap::{Args, Subcommand, ValueEnum};
use demask_eval::run::{AskOptions, RunOptions};

use demask_terminal::args::flags::{All, Flags, OfAsking};

use super::{DecodeArgs, Path};

/// Ways to run the programs that a model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CodeExecution {
    /// Confined or not at all.
    Confined,
    /// Confined by every part that there is, Landlock and cgroups included, or not at all.
    Complete,
    /// With the confinement that the kernel grants.
    Unconfined,
}

/// `demask-lab eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Tasks, by name
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// A file of runs, rows with models and options of their own, or recipe:NAME (see `recipe list`)
    #[arg(long, value_name = "FILE|recipe:NAME")]
    pub runs: Option<Path>,
    /// The first N problems of each task [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// How tasks are asked.
    #[command(flatten)]
    pub ask: Flags<AskOptions, OfAsking>,
    /// Let tasks whose answers are programs run them, confined; `=complete` refuses to where any part is missing, Landlock
    /// and cgroups included; `=unconfined` runs them even where the kernel lacks a part of the confinement
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "confined")]
    pub allow_code_execution: Option<CodeExecution>,
    /// A task's problems, in the form of its file, with the task's name before it where there are several; may be repeated
    /// [default: built in, or fetched from the hub]
    #[arg(long, value_name = "[TASK=]FILE")]
    pub data: Vec<String>,
    /// A model in the place of one that rows of --runs name: org/name=DIR; may be repeated
    #[arg(long, value_name = "NAME=MODEL")]
    pub map: Vec<String>,
    /// A task of --runs, by its name there: others are left out; may be repeated
    #[arg(long, value_name = "TASK")]
    pub only_task: Vec<String>,
    /// A row of --runs, by its name in the table: others are left out; may be repeated
    #[arg(long, value_name = "ROW")]
    pub only_row: Vec<String>,
    /// Subject that problems must have, of tasks that have subjects [default: all]
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// Leave out the items that `tune --out DIR` chose a method by
    #[arg(long, value_name = "DIR")]
    pub skip_dev: Option<Path>,
    /// Directory for results and reports; results in it are not made again
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
    /// Problems that are answered at the same time [default: 1]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Settings of the run.
    #[command(flatten)]
    pub run: Flags<RunOptions, All>,
    /// Values of decoding flags whose product is run: "decoder=static|freedave:d=4;cache=none|dual"
    #[arg(long, value_name = "SPEC")]
    pub sweep: Option<String>,
    /// Options of the decoding.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// `demask-lab eval` as it is typed.
#[derive(Debug, Args)]
pub struct EvalCommandArgs {
    /// Tasks, rows and their options.
    #[command(flatten)]
    pub eval: EvalArgs,
    /// Answer the longest items of each row in a process of its own as well, and report the largest memory of that process
    #[arg(long)]
    pub peak_memory: bool,
    /// In such a process: places of the row and the task.
    #[arg(long, hide = true, value_name = "ROW,TASK", value_delimiter = ',', num_args = 1)]
    pub peak_of: Vec<usize>,
}

/// `demask-lab tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Task, candidates, and the settings that all of them share.
    #[command(flatten)]
    pub eval: EvalArgs,
    /// Accuracy in percent that must be reached
    #[arg(long, value_name = "PERCENT")]
    pub floor: Option<f64>,
    /// Points of accuracy below the reference that are borne [default: 1.5]
    #[arg(long, value_name = "POINTS")]
    pub loss: Option<f64>,
    /// Cost to make small: seconds, forwards, operations [default: seconds]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Items to choose by: the first ones of the task's own dev file, else its last ones, which the test set lacks [default: 64, at
    /// most half]
    #[arg(long, value_name = "N")]
    pub dev: Option<usize>,
    /// Items to choose by, in the form of the task's file, instead of the task's own
    #[arg(long, value_name = "FILE")]
    pub dev_data: Option<Path>,
}

/// `demask-lab report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Results directories of eval
    #[arg(value_name = "DIR")]
    pub directories: Vec<Path>,
    /// Directory for the report [default: none, the table is printed alone]
    #[arg(long, value_name = "DIR")]
    pub out: Option<Path>,
    /// The row that all others are compared with [default: each directory's own]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Write each task's table into tables/ as well, in these forms: csv, latex. Without --out, print it in one of them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub format: Vec<String>,
    /// Columns of those tables, by their names in the report [default: the usual ones]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Compare every row with every other: accuracy with Holm's correction, NFE, operations and seconds with intervals
    #[arg(long)]
    pub pairs: bool,
}

/// `demask-lab recipe`.
#[derive(Debug, Args)]
pub struct RecipeArgs {
    /// Command to run.
    #[command(subcommand)]
    pub command: RecipeCommand,
}

/// Commands about recipes.
#[derive(Debug, Subcommand)]
pub enum RecipeCommand {
    /// List the recipes: names for `eval --runs recipe:NAME`, titles, and the models that they load
    List,
    /// Print a recipe, a file of runs to change
    Show {
        /// Name of the recipe
        #[arg(value_name = "NAME")]
        name: String,
    },
}
