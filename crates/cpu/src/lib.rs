//! The CPU backend: instruction set probe, packed weights, kernels per instruction set, attention, head, threads.
//!
//! Rooms: [`isa`] knows the processor's instructions, [`cores`] its cores, [`pool`] runs work on threads, [`linear`] packs
//! and multiplies matrices; the other modules are the remaining operations of [`demask_tensor::Backend`], put together in
//! [`CpuBackend`].

pub mod cores;
pub mod isa;
pub mod linear;
pub mod pool;

mod attention;
mod backend;
mod elementwise;
mod fetch;
mod head;
#[cfg(target_arch = "aarch64")]
mod instructions;
mod kv;
#[cfg(target_os = "macos")]
mod macos;
mod routing;
mod select;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub use backend::{CpuBackend, CpuOptions};
pub use kv::memory::{available as available_memory, total as total_memory};
