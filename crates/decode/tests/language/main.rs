//! Languages of constraints against independent readings of the same patterns and schemas.

mod patterns;
mod real;
mod schemas;
mod suite;
mod texts;
mod validator;
