//! Evaluation: the papers' tasks, one scorer per task for all methods, runs that resume, reports.
//!
//! A [`Task`] turns lines of a data file into [`Problem`]s and these into prompts; [`score`] judges what a model wrote;
//! a [`Record`] is one judged item, one line of `results.jsonl`; [`run`] makes them and keeps them.
#![forbid(unsafe_code)]

pub mod data;
mod problem;
mod record;
pub mod run;
pub mod score;
pub mod tasks;

pub use problem::{Gold, Problem};
pub use record::Record;
pub use score::{Rule, Verdict};
pub use tasks::{FieldError, Source, Style, Task};
