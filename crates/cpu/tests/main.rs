//! All integration tests of this crate in one binary, but those whose allocator counts.

mod backend;
mod backend_model;
mod experts;
mod linear;
mod linear_blocks;
