//! Evaluation: the papers' tasks, one scorer per task for all methods, runs that resume, reports.
//!
//! A [`Task`] says where problems are and what they look like, [`data`] brings and reads their files, a [`Style`] turns
//! [`Problem`]s into prompts; [`score`] judges a model's output, and runs it in a [`sandbox`] if it is a program. A
//! [`Record`] is one judged item, one line of `results.jsonl`. [`run`] makes records and keeps them. A [`report`] turns
//! records into tables and pictures.
#![forbid(unsafe_code)]

pub mod data;
mod problem;
pub mod recipes;
mod record;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod score;
pub mod tasks;

pub use problem::{Gold, Problem};
pub use record::{Counts, Record};
pub use score::{Rule, Verdict};
pub use tasks::{FieldError, Source, Style, Task, WordsError};
