//! The emulated device's memory: allocations between zones that nobody may write to.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    collections::BTreeMap,
    slice,
};

use demask_cuda::gpu::{Address, GpuError};

/// Fill of memory that nobody has written: no number in any type, and an index that leads nowhere.
const POISON: u8 = 0xff;
/// Bytes before and after an allocation.
const ZONE: usize = 1024;
/// Alignment of an allocation.
const ALIGNMENT: usize = 256;

/// All allocations, by address.
#[derive(Default)]
pub(super) struct Memory {
    blocks: BTreeMap<u64, Block>,
    used: u64,
}

/// One allocation; begins and ends with a zone.
struct Block {
    start: *mut u8,
    layout: Layout,
    bytes: usize,
}

// SAFETY: a block owns its memory.
unsafe impl Send for Block {}

impl Memory {
    /// Bytes allocated.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Address {
        let block = Block::new(bytes);
        // SAFETY: a block is longer than a zone.
        let address = unsafe { block.start.add(ZONE) } as u64;
        self.used += bytes as u64;
        self.blocks.insert(address, block);
        Address(address)
    }

    pub(super) fn free(&mut self, address: Address) -> Result<(), GpuError> {
        let Some(block) = self.blocks.remove(&address.0) else {
            return Err(GpuError::Call { call: "free", message: format!("{:#x} was never allocated", address.0) });
        };
        self.used -= block.bytes as u64;
        block.check()
    }

    pub(super) fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.place(to, bytes.len(), "upload")?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn read(&mut self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        bytes.copy_from_slice(self.place(from, bytes.len(), "download")?);
        Ok(())
    }

    pub(super) fn zero(&mut self, at: Address, bytes: usize) -> Result<(), GpuError> {
        self.place(at, bytes, "zero")?.fill(0);
        Ok(())
    }

    /// Reports whether all zones are as they were made.
    pub(super) fn check_zones(&self) -> Result<(), GpuError> {
        self.blocks.values().try_for_each(Block::check)
    }

    /// The bytes at an address, if they are of one allocation.
    fn place(&mut self, at: Address, bytes: usize, call: &'static str) -> Result<&mut [u8], GpuError> {
        let found = self.blocks.range_mut(..=at.0).next_back();
        let inside = found.filter(|(start, block)| at.0 + bytes as u64 <= **start + block.bytes as u64);
        let Some((&start, block)) = inside else {
            let message = format!("{bytes} bytes at {:#x} are not of one allocation", at.0);
            return Err(GpuError::Call { call, message });
        };
        // SAFETY: checked to be inside the block, which is borrowed for as long as the slice.
        Ok(unsafe { slice::from_raw_parts_mut(block.start.add(ZONE + (at.0 - start) as usize), bytes) })
    }
}

impl Block {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes + 2 * ZONE, ALIGNMENT).expect("less than the address space");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: freshly allocated with this size.
        unsafe { start.write_bytes(POISON, layout.size()) }
        Self { start, layout, bytes }
    }

    fn check(&self) -> Result<(), GpuError> {
        // SAFETY: the zones are within the block, and kernels are not running.
        let zones = unsafe {
            [slice::from_raw_parts(self.start, ZONE), slice::from_raw_parts(self.start.add(ZONE + self.bytes), ZONE)]
        };
        if zones.iter().all(|zone| zone.iter().all(|&byte| byte == POISON)) {
            return Ok(());
        }
        let message = format!("something wrote beyond an allocation of {} bytes", self.bytes);
        Err(GpuError::Call { call: "launch", message })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and dropped once.
        unsafe { dealloc(self.start, self.layout) }
    }
}
