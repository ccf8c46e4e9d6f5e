//! Measurements of the processor: its peak rates, and the times of single operations of the CPU backend take.
//!
//! [`ceiling`] has the peak rates of multiply instructions, [`reading`] the bandwidth of memory, and [`trial`] runs single
//! operations to compare with them.

pub mod ceiling;
pub mod reading;
pub mod trial;

use demask_cpu::available_memory;
use demask_step::OutOfMemory;

/// Refuses to take more bytes than the system, control groups and limits of the process leave.
fn check_memory(needed: u64) -> Result<(), OutOfMemory> {
    let available = available_memory();
    if needed <= available { Ok(()) } else { Err(OutOfMemory { needed, available }) }
}
