//! The loops around the kernels: tasks for the pool, blocks for the caches, epilogues.
//!
//! A task multiplies a block of rows with a few pairs of panels: for each block of the depth, the kernel adds to the
//! task's sums; when the depth is through, the epilogue takes the sums away. No blocking changes a result: each sum
//! starts at 0 and takes its products in ascending order of the inputs, wherever it rests in between.

use std::mem::MaybeUninit;

use super::{
    input::{InputBuffer, ROW_PADDING},
    kernel::{Block, Kernel},
    packed::{GROUP, PANEL, Panels},
};
use crate::pool::Pool;

/// Rows of the largest block: with a kernel's deepest block, its inputs fill half of a 1 MiB second-level cache at most.
/// Weights are unpacked once for all of them.
const ROW_BLOCK: usize = 256;
/// Pairs of panels of the largest task: these reuse a block of inputs while it is in the cache.
pub(super) const TASK_GROUPS: usize = 2;
/// Rows of a block up to which the kernel's shorter blocks of the depth are taken.
const FEW_ROWS: usize = 64;
/// Distance in bytes by which a weight is fetched ahead where one tile of rows uses each once.
const AHEAD: usize = 2048;
/// Memory of a task's sums, on the stack of its thread.
#[repr(align(64))]
struct Scratch([MaybeUninit<f32>; ROW_BLOCK * TASK_GROUPS * GROUP * PANEL]);

/// Complete sums of one block of rows and one task's panels.
pub(crate) struct Sums<'a> {
    /// `[rows][groups * COLUMNS]`, the pairs of panels side by side.
    pub(super) values: &'a [f32],
    /// The block's first input row.
    pub(crate) first_row: usize,
    /// The block's rows.
    pub(crate) rows: usize,
    /// The first pair of panels.
    pub(super) first_group: usize,
    /// Pairs of panels.
    pub(super) groups: usize,
}

impl Sums<'_> {
    /// Columns of a pair of panels: blocks begin and end at multiples of this.
    pub(crate) const COLUMNS: usize = GROUP * PANEL;

    /// Column of the first sum of each row.
    pub(crate) fn first_column(&self) -> usize {
        self.first_group * Self::COLUMNS
    }

    /// The sums of one of the block's rows; those beyond the weight's outputs are 0.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let stride = self.groups * Self::COLUMNS;
        &self.values[row * stride..][..stride]
    }
}

/// Parts that must not be dealt out to different tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Together {
    /// No such parts.
    Nothing,
    /// Columns of different rows.
    Rows,
    /// The first pair of panels and the second, the third and the fourth, and so on, of the same rows.
    Groups,
}

/// Rows of a thread from which on it takes all panels instead of a part of them: enough that panels, which each thread
/// then unpacks and reads for itself, cost little.
const OWN_ROWS: usize = 16;
/// Bytes of all panels up to which a thread takes all of them: they fit into its second-level cache, beside its rows.
const OWN_PANELS: usize = 1 << 20;

/// Partition of rows and panels among tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    row_block: usize,
    row_blocks: usize,
    task_groups: usize,
    group_blocks: usize,
    /// Records whether a task takes all blocks of rows, one after the other, instead of one.
    all_rows: bool,
    /// Records whether neighbouring tasks share rows instead of panels.
    rows_first: bool,
}

impl Partition {
    /// Enough tasks for all threads, and not more blocks than that takes.
    pub(super) fn new(rows: usize, (groups, bytes): (usize, usize), threads: usize, together: Together) -> Self {
        let all_rows = together == Together::Rows;
        let mut row_blocks = rows.div_ceil(ROW_BLOCK);
        // A thread that keeps its rows finds them in its own cache, product after product.
        let rows_first = !all_rows && rows >= OWN_ROWS * threads && bytes <= OWN_PANELS;
        if rows_first {
            row_blocks = row_blocks.next_multiple_of(threads);
        }
        while !all_rows && row_blocks * groups < 2 * threads && rows > 2 * ROW_PADDING * row_blocks {
            row_blocks *= 2;
        }
        let row_block = rows.div_ceil(row_blocks).next_multiple_of(ROW_PADDING);
        let row_blocks = rows.div_ceil(row_block);
        let shared = if all_rows { 1 } else { row_blocks };
        let plenty = groups.div_ceil(TASK_GROUPS) * shared >= 4 * threads;
        let task_groups = if threads == 1 || plenty || together == Together::Groups { TASK_GROUPS } else { 1 };
        Self { row_block, row_blocks, task_groups, group_blocks: groups.div_ceil(task_groups), all_rows, rows_first }
    }

    fn tasks(&self) -> usize {
        if self.all_rows { self.group_blocks } else { self.group_blocks * self.row_blocks }
    }

    /// A task's block of panels, and its first and last (exclusive) block of rows.
    fn task(&self, task: usize) -> (usize, usize, usize) {
        if self.all_rows {
            (task, 0, self.row_blocks)
        } else if self.rows_first {
            let row_block = task / self.group_blocks;
            (task % self.group_blocks, row_block, row_block + 1)
        } else {
            // Neighbours share panels: a thread that takes both reads them from memory once.
            let row_block = task % self.row_blocks;
            (task / self.row_blocks, row_block, row_block + 1)
        }
    }
}

/// Multiplies the first `rows` rows of `input` with all panels and hands complete sums to `finish`, each once.
pub(super) fn multiply(
    kernel: &Kernel,
    pool: &Pool,
    (input, rows): (&InputBuffer, usize),
    panels: &Panels,
    together: Together,
    finish: &(impl Fn(&Sums<'_>) + Sync),
) {
    assert_eq!(panels.format, kernel.weight, "the weight was packed for another kernel than {}", kernel.name);
    assert_eq!(input.format(), kernel.input, "the input was made for another kernel than {}", kernel.name);
    assert!(rows <= input.capacity(), "{rows} rows of an input of {}", input.capacity());
    if rows == 0 || panels.groups == 0 {
        return;
    }
    let product = Product { kernel, input, rows, panels };
    let bytes = panels.groups * GROUP * panels.panel_bytes();
    let partition = Partition::new(rows, (panels.groups, bytes), pool.threads(), together);
    pool.run(partition.tasks(), &|task| {
        let (group_block, first, last) = partition.task(task);
        let first_group = group_block * partition.task_groups;
        let groups = partition.task_groups.min(panels.groups - first_group);
        for row_block in first..last {
            let first_row = row_block * partition.row_block;
            let block_rows = partition.row_block.min(rows - first_row);
            product.block((first_row, block_rows), (first_group, groups), finish);
        }
    });
}

/// Rows of an input that one of several weights multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Job {
    /// Number of the weight.
    pub(crate) weight: u32,
    /// First row of the input.
    pub(crate) first_row: u32,
    /// Rows, at least 1 and at most [`Job::MOST_ROWS`].
    pub(crate) rows: u32,
}

impl Job {
    /// Most rows of a job.
    pub(crate) const MOST_ROWS: usize = ROW_BLOCK;
}

/// Rows that an input for jobs must have room for behind the last one: kernels read whole tiles.
pub(crate) const ROWS_BEHIND: usize = ROW_PADDING;

/// Multiplies the rows of each job with the panels of its weight, of which all have as many, and hands complete sums to
/// `finish`, each once. Jobs follow each other in the input.
pub(super) fn multiply_each<'p>(
    kernel_of: impl Fn(&Panels) -> &'static Kernel + Sync,
    pool: &Pool,
    input: &InputBuffer,
    jobs: &[Job],
    panels_of: impl Fn(usize) -> &'p Panels + Sync,
    finish: &(impl Fn(&Sums<'_>) + Sync),
) {
    let Some(first) = jobs.first() else { return };
    let groups = panels_of(first.weight as usize).groups;
    let mut end = 0;
    for job in jobs {
        assert!(end <= job.first_row && job.rows as usize <= ROW_BLOCK, "jobs follow each other");
        end = job.first_row + job.rows;
    }
    let room = input.capacity().next_multiple_of(ROW_PADDING);
    assert!(end as usize + ROWS_BEHIND <= room, "{end} rows and {ROWS_BEHIND} behind them in an input of {room}");
    // A job is a few rows: what it costs is to read panels, and whoever reads some takes all rows to them.
    let blocks = groups.div_ceil(TASK_GROUPS);
    pool.run(jobs.len() * blocks, &|task| {
        let (job, first_group) = (jobs[task / blocks], task % blocks * TASK_GROUPS);
        let panels = panels_of(job.weight as usize);
        let kernel = kernel_of(panels);
        assert_eq!(panels.format, kernel.weight, "the weight was packed for another kernel than {}", kernel.name);
        assert_eq!(input.format(), kernel.input, "the input was made for another kernel than {}", kernel.name);
        assert_eq!(panels.groups, groups, "weights of different shapes");
        let product = Product { kernel, input, rows: end as usize, panels };
        let counts = (first_group, TASK_GROUPS.min(groups - first_group));
        product.block((job.first_row as usize, job.rows as usize), counts, finish);
    });
}

/// A checked product.
struct Product<'a> {
    kernel: &'a Kernel,
    input: &'a InputBuffer,
    rows: usize,
    panels: &'a Panels,
}

impl Product<'_> {
    /// Sums of one block, over the whole depth.
    fn block(
        &self,
        (first_row, rows): (usize, usize),
        (first_group, groups): (usize, usize),
        finish: &impl Fn(&Sums<'_>),
    ) {
        assert!(rows <= ROW_BLOCK && first_row + rows <= self.rows);
        assert!(groups <= TASK_GROUPS && first_group + groups <= self.panels.groups);
        #[expect(clippy::large_stack_arrays, reason = "64 KiB of every thread's stack, where allocating is ruled out")]
        let mut scratch = Scratch([MaybeUninit::uninit(); ROW_BLOCK * TASK_GROUPS * GROUP * PANEL]);
        let sums = &mut scratch.0[..rows.next_multiple_of(ROW_PADDING) * groups * Sums::COLUMNS];
        sums.fill(MaybeUninit::new(0.0));
        self.accumulate((first_row, rows), (first_group, groups), sums.as_mut_ptr().cast());
        // SAFETY: all of `sums` was filled with zeros above, and kernels write nothing but floats.
        let values = unsafe { std::slice::from_raw_parts(sums.as_ptr().cast::<f32>(), sums.len()) };
        finish(&Sums { values, first_row, rows, first_group, groups });
    }

    /// Runs the kernel over the depth. `sums` is the filled scratch of a checked block.
    fn accumulate(&self, (first_row, rows): (usize, usize), (first_group, groups): (usize, usize), sums: *mut f32) {
        // A single tile of rows reads each weight once: then nothing is gained by leaving a panel half-way.
        // Nor by a block that is half as deep.
        let most = if rows > FEW_ROWS { self.kernel.deep_block } else { self.kernel.depth_block };
        let whole = rows <= self.kernel.row_tile || 2 * self.panels.depth <= 3 * most;
        let step = if whole { self.panels.depth } else { most };
        for start in (0..self.panels.depth).step_by(step.max(1)) {
            let depth = step.min(self.panels.depth - start);
            // SAFETY: the kernel was chosen by an `Isa` that has its instructions. The rows are the input's, which is
            // padded to whole tiles of rows and at least as wide as the panels are deep (its width was checked to be
            // that of the weight, and both are padded alike); the panels are the weight's; the sums were filled for
            // whole tiles of rows and are this thread's own.
            unsafe {
                let input = self.input.as_ptr().add(first_row * self.input.stride() + self.kernel.input.offset(start));
                let weight = self.panels.group(first_group).add(self.kernel.weight.offset(start));
                (self.kernel.accumulate)(&Block {
                    input,
                    input_stride: self.input.stride(),
                    rows,
                    weight,
                    panel_stride: self.panels.panel_bytes(),
                    groups,
                    depth,
                    sums,
                    sums_stride: groups * Sums::COLUMNS,
                    ahead: self.ahead((first_group, groups), rows, (start, start + depth)),
                    ahead_step: 0,
                });
            }
        }
    }

    /// Address that a task reads next after a block of the depth, as [`Block::ahead`] expects it.
    fn ahead(
        &self,
        (first_group, groups): (usize, usize),
        rows: usize,
        (start, end): (usize, usize),
    ) -> [*const u8; GROUP] {
        let from = |group: usize, depth| {
            let start = self.panels.group(group).wrapping_add(self.kernel.weight.offset(depth));
            [start, start.wrapping_add(self.panels.panel_bytes())]
        };
        if rows <= self.kernel.row_tile {
            from(first_group, start).map(|weight| weight.wrapping_add(AHEAD))
        } else if end < self.panels.depth {
            from(first_group, end)
        } else {
            // Most often this thread's next task; if not, it is another's.
            from((first_group + groups).min(self.panels.groups - 1), 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_covers_every_row_and_panel_once() {
        for rows in [1, 2, 15, 16, 17, 100, 192, 255, 256, 257, 1000] {
            for groups in [1, 2, 3, 7, 64] {
                for threads in [1, 2, 3, 64] {
                    for together in [Together::Nothing, Together::Rows, Together::Groups] {
                        for bytes in [1 << 10, 1 << 30] {
                            let partition = Partition::new(rows, (groups, bytes), threads, together);
                            assert!(together != Together::Groups || partition.task_groups == 2);
                            let mut seen = vec![0; partition.row_blocks * partition.group_blocks];
                            for task in 0..partition.tasks() {
                                let (group_block, first, last) = partition.task(task);
                                (first..last).for_each(|block| seen[group_block * partition.row_blocks + block] += 1);
                            }
                            assert!(seen.iter().all(|&count| count == 1));
                            assert!((partition.row_blocks - 1) * partition.row_block < rows);
                            assert!(partition.row_blocks * partition.row_block >= rows);
                            assert!(
                                partition.row_block <= ROW_BLOCK && partition.row_block.is_multiple_of(ROW_PADDING)
                            );
                            assert!((partition.group_blocks - 1) * partition.task_groups < groups);
                            assert!(partition.group_blocks * partition.task_groups >= groups);
                        }
                    }
                }
            }
        }
    }
}
