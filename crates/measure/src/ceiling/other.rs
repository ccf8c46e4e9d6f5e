//! Architectures without instructions of their own: the portable loops measure them.

use demask_cpu::isa::Isa;

use super::Unit;

/// No instruction for products of bf16 or of f32.
pub(super) fn unit(_: Isa, _: bool) -> Option<Unit> {
    None
}

/// No instruction for products of bytes.
pub(super) fn byte_unit(_: Isa) -> Option<Unit> {
    None
}
