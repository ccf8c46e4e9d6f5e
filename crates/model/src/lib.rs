//! One transformer for all model families.
//!
//! What differs between families is data ([`ArchSpec`]); weights are named by their role ([`Role`]) and read through a
//! [`WeightSource`]; a step plan is lowered to rows and run on any [`Backend`](demask_tensor::Backend).
#![forbid(unsafe_code)]

mod arch;
mod roles;

pub use arch::{ArchSpec, Attention, Family, Rope, RopeScaling};
pub use roles::{ExpectedTensor, LayerRole, Role, WeightError, WeightSource, expected_tensors};
