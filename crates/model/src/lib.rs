//! One transformer for all model families.
//!
//! What differs between families is data ([`ArchSpec`]); weights are named by their role ([`Role`]) and read through a
//! [`WeightSource`]; a step plan is lowered to rows and run on any [`Backend`](demask_tensor::Backend) by a [`Runner`].
#![forbid(unsafe_code)]

mod adapter;
mod arch;
mod cost;
mod forward;
mod lora;
mod lower;
mod memory;
mod prefixes;
mod roles;
mod runner;
mod sequence;
mod watch;
mod weights;

pub use adapter::{AdapterUse, StoredLora};
pub use arch::{ArchSpec, Experts, Mlp, QueryScale, Rope, RopeScaling};
pub use cost::{Convention, StepInput, keys_read, step_cost};
pub use memory::{attention_shape, sequence_pages, workspace_shape};
pub use roles::{ExpectedTensor, LayerRole, Packing, Role, WeightError, WeightSource, expected_tensors};
pub use runner::{Inspect, InspectError, Inspection, Runner};
pub use watch::{Hidden, Intermediate, Watcher};
pub use weights::{LoadError, Weights};

use sequence::Sequence;
