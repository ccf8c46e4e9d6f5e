//! Common code of the programs `demask` and `demask-lab` on a terminal: parse, resolve settings, load, print.
//!
//! [`args`] is the typed command line, [`settings`] its meaning. Everything that reaches standard output goes through
//! [`output`], every error through [`exit`], every environment variable through [`mod@env`]. [`Program`] has the parts
//! in which a program differs.
#![forbid(unsafe_code)]

pub mod args;
pub mod assumed;
pub mod canvas;
pub mod cost_table;
pub mod env;
pub mod exit;
pub mod files;
pub mod help;
pub mod interrupt;
pub mod load;
pub mod output;
pub mod packaging;
pub mod program;
pub mod progress;
pub mod room;
pub mod settings;
pub mod texts;
pub mod words;

pub use program::Program;
