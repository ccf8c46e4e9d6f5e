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
/// Pairs of panels of a task of few rows, or of few panels.
pub(super) const TASK_GROUPS: usize = 2;
/// Pairs of panels of the largest task: a block of the depth of the inputs stays in the second-level cache for all of these,
/// and a row's outputs are 16 lines side by side, which a processor fetches sooner than four.
const WIDE_TASK_GROUPS: usize = 8;
/// Rows from which on a task may be wide.
const WIDE_ROWS: usize = 16;
/// Rows of a block up to which the kernel's shorter blocks of the depth are taken.
const FEW_ROWS: usize = 64;
/// Distance in bytes by which a weight is fetched ahead where one tile of rows uses each once.
const AHEAD: usize = 2048;
/// Floats between the rows of a wide task's sums: rows of a tile then fall into different sets of the caches.
const APART: usize = PANEL;
/// Memory of a task's sums, on the stack of its thread.
#[repr(align(64))]
struct Scratch<const GROUPS: usize>([[MaybeUninit<f32>; GROUP_SUMS]; GROUPS]);
/// Sums of a pair of panels, with its share of what keeps rows apart.
const GROUP_SUMS: usize = ROW_BLOCK * (GROUP * PANEL + APART / WIDE_TASK_GROUPS);

/// Floats from row to row of sums of so many pairs of panels.
fn stride_of(groups: usize) -> usize {
    groups * Sums::COLUMNS + if groups > TASK_GROUPS { APART } else { 0 }
}

/// Complete sums of one block of rows and one task's panels.
pub(crate) struct Sums<'a> {
    /// `[rows][groups * COLUMNS]`, the pairs of panels side by side, rows as far apart as [`stride_of`] has it.
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
        &self.values[row * stride_of(self.groups)..][..self.groups * Self::COLUMNS]
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

/// Tasks of each thread, at least, before a task takes more panels. If one of 2 threads is half as fast as the other, 8 tasks
/// take 1.14 times as long as the best division, and 14 take 1.08 times.
const TASKS: usize = 6;
/// Rows of a thread from which on it takes all panels instead of a part of them: enough that panels, which each thread
/// then unpacks and reads for itself, cost little.
const OWN_ROWS: usize = 32;
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
    pub(super) fn new(
        rows: usize,
        (groups, bytes): (usize, usize),
        row_tile: usize,
        threads: usize,
        together: Together,
    ) -> Self {
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
        let plenty = |most: usize| groups.div_ceil(most) * shared >= TASKS * threads;
        let narrow = threads == 1 || plenty(TASK_GROUPS) || together == Together::Groups;
        // One tile of rows takes each pair of panels at once. Two wait for memory, and take it in pieces, from pair to pair.
        let waits = row_tile < rows && rows <= 2 * row_tile;
        let wide = rows >= WIDE_ROWS && !waits && plenty(WIDE_TASK_GROUPS);
        let task_groups = if wide { WIDE_TASK_GROUPS } else { 1 + usize::from(narrow) };
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

/// A weight that an input is multiplied with.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub(super) kernel: &'static Kernel,
    pub(super) panels: &'a Panels,
    pub(super) together: Together,
}

/// Multiplies the first `rows` rows of `input` with all panels of one weight.
pub(super) fn multiply(
    pool: &Pool,
    input: (&InputBuffer, usize),
    factor: Factor<'_>,
    finish: &(impl Fn(&Sums<'_>) + Sync),
) {
    multiply_with(pool, input, [factor], &|_, sums| finish(sums));
}

/// Multiplies the first `rows` rows of `input` with all panels of each weight, in one job of the pool, and hands complete
/// sums to `finish`, each once, with the number of the weight.
pub(super) fn multiply_with<const WEIGHTS: usize>(
    pool: &Pool,
    (input, rows): (&InputBuffer, usize),
    factors: [Factor<'_>; WEIGHTS],
    finish: &(impl Fn(usize, &Sums<'_>) + Sync),
) {
    assert!(rows <= input.capacity(), "{rows} rows of an input of {}", input.capacity());
    let products =
        factors.map(|Factor { kernel, panels, together }| (Product::new(kernel, (input, rows), panels), together));
    if rows == 0 {
        return;
    }
    let parts = products.map(|(product, together)| {
        let panels = product.panels;
        let counts = (panels.groups, panels.groups * GROUP * panels.panel_bytes());
        let partition = Partition::new(rows, counts, product.kernel.row_tile, pool.threads(), together);
        (product, partition)
    });
    let tasks: [usize; WEIGHTS] = std::array::from_fn(|index| parts[index].1.tasks());
    pool.run(tasks.iter().sum(), &|task| {
        let (index, task) = task_of(&tasks, pool.threads(), task);
        let (product, partition) = &parts[index];
        let (group_block, first, last) = partition.task(task);
        let first_group = group_block * partition.task_groups;
        let groups = partition.task_groups.min(product.panels.groups - first_group);
        for row_block in first..last {
            let first_row = row_block * partition.row_block;
            let block_rows = partition.row_block.min(rows - first_row);
            product.block((first_row, block_rows), (first_group, groups), &|sums: &Sums<'_>| finish(index, sums));
        }
    });
}

/// The weight and its task that a number stands for: the tasks that a thread would begin with of each weight follow each
/// other, so that a thread that keeps its rows keeps them from weight to weight.
fn task_of<const WEIGHTS: usize>(tasks: &[usize; WEIGHTS], threads: usize, number: usize) -> (usize, usize) {
    if WEIGHTS == 1 {
        return (0, number);
    }
    let mut rest = number;
    for thread in 0..threads {
        for (index, &tasks) in tasks.iter().enumerate() {
            let (first, end) = (thread * tasks / threads, (thread + 1) * tasks / threads);
            if rest < end - first {
                return (index, first + rest);
            }
            rest -= end - first;
        }
    }
    unreachable!("task {number} of {tasks:?}")
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

/// Rows that an input for jobs must have room for after the last one: kernels read whole tiles.
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
        assert_eq!(panels.groups, groups, "weights of different shapes");
        let product = Product::new(kernel_of(panels), (input, end as usize), panels);
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

impl<'a> Product<'a> {
    /// Refuses weights and inputs of other kernels.
    fn new(kernel: &'a Kernel, (input, rows): (&'a InputBuffer, usize), panels: &'a Panels) -> Self {
        assert_eq!(panels.format, kernel.weight, "the weight was packed for another kernel than {}", kernel.name);
        assert_eq!(input.format(), kernel.input, "the input was made for another kernel than {}", kernel.name);
        Self { kernel, input, rows, panels }
    }

    /// Sums of one block, over the whole depth.
    fn block(&self, rows: (usize, usize), groups: (usize, usize), finish: &impl Fn(&Sums<'_>)) {
        if groups.1 > TASK_GROUPS {
            self.block_of::<WIDE_TASK_GROUPS>(rows, groups, finish);
        } else {
            self.block_of::<TASK_GROUPS>(rows, groups, finish);
        }
    }

    /// Sums of a block of at most so many pairs of panels, and no more of the stack than they need.
    #[inline(never)]
    fn block_of<const GROUPS: usize>(
        &self,
        (first_row, rows): (usize, usize),
        (first_group, groups): (usize, usize),
        finish: &impl Fn(&Sums<'_>),
    ) {
        assert!(rows <= ROW_BLOCK && first_row + rows <= self.rows);
        assert!(groups <= GROUPS && first_group + groups <= self.panels.groups);
        #[expect(clippy::large_stack_arrays, reason = "of every thread's stack, where allocating is ruled out")]
        let mut scratch = Scratch::<GROUPS>([[MaybeUninit::uninit(); GROUP_SUMS]; GROUPS]);
        let sums = &mut scratch.0.as_flattened_mut()[..rows.next_multiple_of(ROW_PADDING) * stride_of(groups)];
        if !self.kernel.begins_at_zero() || self.panels.depth == 0 {
            sums.fill(MaybeUninit::new(0.0));
        }
        if groups > TASK_GROUPS {
            let behind = |row: &mut [MaybeUninit<f32>]| row[groups * Sums::COLUMNS..].fill(MaybeUninit::new(0.0));
            sums.chunks_exact_mut(stride_of(groups)).for_each(behind);
        }
        self.accumulate((first_row, rows), (first_group, groups), sums.as_mut_ptr().cast());
        // SAFETY: all of `sums` was filled with zeros, or a kernel that begins at 0 has written these rows; kernels write
        // nothing but floats.
        let values = unsafe { std::slice::from_raw_parts(sums.as_ptr().cast::<f32>(), rows * stride_of(groups)) };
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
            // that of the weight, and both are padded alike); the panels are the weight's; the sums are for whole tiles
            // of rows, filled or fresh, and are this thread's own.
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
                    sums_stride: stride_of(groups),
                    ahead: self.ahead((first_group, groups), rows, (start, start + depth)),
                    ahead_step: 0,
                    // Of the same rows: the next block, or the first one for the next task.
                    #[cfg(target_arch = "x86_64")]
                    input_ahead: if start + depth < self.panels.depth {
                        input.wrapping_add(self.kernel.input.offset(depth))
                    } else {
                        input.wrapping_sub(self.kernel.input.offset(start))
                    },
                    #[cfg(target_arch = "x86_64")]
                    fresh: start == 0 && self.kernel.begins_at_zero(),
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
    fn tasks_of_all_weights_are_numbered_once() {
        for (tasks, threads) in [([6, 6, 6], 2), ([12, 3, 3], 2), ([7, 0, 1], 3), ([1, 1, 1], 8)] {
            let mut found: Vec<_> = (0..tasks.iter().sum()).map(|number| task_of(&tasks, threads, number)).collect();
            found.sort_unstable();
            let all = tasks.iter().enumerate().flat_map(|(index, &tasks)| (0..tasks).map(move |task| (index, task)));
            assert!(all.eq(found), "{tasks:?} on {threads} threads");
        }
    }

    #[test]
    fn a_partition_covers_every_row_and_panel_once() {
        for rows in [1, 2, 15, 16, 17, 100, 192, 255, 256, 257, 1000] {
            for groups in [1, 2, 3, 7, 64] {
                for threads in [1, 2, 3, 64] {
                    for together in [Together::Nothing, Together::Rows, Together::Groups] {
                        for (bytes, row_tile) in [(1 << 10, 4), (1 << 30, 4), (1 << 30, 32)] {
                            let partition = Partition::new(rows, (groups, bytes), row_tile, threads, together);
                            assert!(together != Together::Groups || partition.task_groups.is_multiple_of(2));
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
