//! Naive reference operations in plain loops: the twins that every kernel is held to.

pub mod head;
pub mod linear;
pub mod network;
