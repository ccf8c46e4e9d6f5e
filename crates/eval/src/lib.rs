//! Evaluation: the papers' tasks, one scorer per task for all methods, runs that resume, reports.
//!
//! A [`Task`] turns lines of a data file into [`Problem`]s and these into prompts; [`score`] judges what a model wrote;
//! a [`Record`] is one judged item, one line of `results.jsonl`. A [`report`] turns records into tables and pictures;
//! [`stability`] looks at how a network's features change from step to step.
#![forbid(unsafe_code)]

pub mod files;
pub mod plot;
mod problem;
mod record;
pub mod report;
pub mod score;
pub mod stability;
pub mod tasks;

pub use problem::{Gold, Problem};
pub use record::Record;
pub use score::{Rule, Verdict};
pub use tasks::{FieldError, Source, Style, Task};
