//! Products of adapters (LoRA): two thin products on some of the rows that a layer's product runs on, added before what follows
//! it.

use demask_step::OutOfMemory;
use demask_tensor::{AlignedBytes, Lora, NO_ROW, WorkspaceShape};

use super::{CpuBackend, Tools, clock::Part};
use crate::{
    kv::memory,
    linear::{Addend, InputBuffer, Job, Linear, Output},
};

/// Memory of adapters' products, for as many rows as go through a product together.
pub(crate) struct AdapterWork {
    /// `[chunk, rank]`: `scale * a x`, the input of the second product.
    input: InputBuffer,
    /// `[chunk, rank]`: `a x`, in the rows of the product's input.
    thin: AlignedBytes,
    /// `[chunk, 2, ffn]`: what gate and up get.
    gate_up: AlignedBytes,
    /// Runs of adapted rows of the product's input.
    runs: Vec<Job>,
    /// Adapted rows of the product's input, ascending.
    rows: Vec<u32>,
    /// Index in `rows` of each row of the input, or [`NO_ROW`].
    index_of: Vec<u32>,
    /// Rows that results are added to.
    targets: Vec<u32>,
}

/// Adapter of a product of this backend.
type Adapter<'a> = Lora<'a, CpuBackend>;

impl AdapterWork {
    pub(crate) fn new(shape: &WorkspaceShape, chunk: usize, linear: &Linear) -> Result<Self, OutOfMemory> {
        let rank = shape.adapter_rank;
        let floats = |count: usize| memory::zeroed(count * size_of::<f32>());
        let list = || Vec::with_capacity(chunk);
        Ok(Self {
            input: linear.try_new_input(chunk, rank).ok_or_else(|| memory::refused(chunk * rank * size_of::<f32>()))?,
            thin: floats(chunk * rank)?,
            gate_up: floats(chunk * 2 * shape.ffn)?,
            runs: Vec::with_capacity(chunk),
            rows: list(),
            index_of: list(),
            targets: list(),
        })
    }

    /// Numbers that the memory of a shape holds, roughly.
    pub(crate) fn floats(shape: &WorkspaceShape, chunk: usize) -> usize {
        if shape.adapter_rank > 0 { chunk * 2 * (shape.adapter_rank + shape.ffn) } else { 0 }
    }

    /// Finds the adapted rows of a list, which is the input of the products that follow. Returns nothing if there are none.
    pub(super) fn find(&mut self, adapted: &[bool], list: &[u32]) -> Option<&mut Self> {
        let Self { runs, rows, index_of, .. } = self;
        runs.clear();
        rows.clear();
        index_of.clear();
        for (place, &row) in list.iter().enumerate() {
            if !adapted.get(row as usize).is_some_and(|&adapted| adapted) {
                index_of.push(NO_ROW);
                continue;
            }
            match runs.last_mut() {
                Some(run) if (run.first_row + run.rows) as usize == place => run.rows += 1,
                _ => runs.push(Job { weight: 0, first_row: place as u32, rows: 1 }),
            }
            index_of.push(rows.len() as u32);
            rows.push(place as u32);
        }
        if self.rows.is_empty() { None } else { Some(self) }
    }

    /// Adds an adapter's product to the rows with the places of the found ones.
    pub(super) fn add(&mut self, tools: &Tools, input: &InputBuffer, adapter: Adapter<'_>, out: &mut [f32]) {
        self.targets.clone_from(&self.rows);
        self.add_to_targets(tools, input, adapter, out);
    }

    /// Adds an adapter's product to the rows of `out` that the list names.
    pub(super) fn add_to(
        &mut self,
        tools: &Tools,
        input: &InputBuffer,
        adapter: Adapter<'_>,
        (out, list): (&mut [f32], &[u32]),
    ) {
        self.targets.clear();
        self.targets.extend(self.rows.iter().map(|&place| list[place as usize]));
        self.add_to_targets(tools, input, adapter, out);
    }

    fn add_to_targets(&mut self, tools: &Tools, input: &InputBuffer, adapter: Adapter<'_>, out: &mut [f32]) {
        self.narrow(tools, input, adapter);
        let output = Output::Add { residual: out, stride: adapter.b.rows(), rows: Some(&self.targets) };
        tools.clock.time(Part::Linear, || {
            tools.linear.matmul(&tools.pool, &self.input, self.rows.len(), adapter.b, None, output);
        });
    }

    /// Computes what gate and up of the found rows get, by row of the input.
    pub(super) fn gate_up(
        &mut self,
        tools: &Tools,
        input: &InputBuffer,
        adapters: [Option<Adapter<'_>>; 2],
        ffn: usize,
    ) -> Addend<'_> {
        for (half, adapter) in adapters.into_iter().enumerate() {
            if let Some(adapter) = adapter {
                self.narrow(tools, input, adapter);
                let out = &mut self.gate_up.as_mut_slice::<f32>()[half * ffn..];
                let output = Output::Store { out, stride: 2 * ffn };
                tools.clock.time(Part::Linear, || {
                    tools.linear.matmul(&tools.pool, &self.input, self.rows.len(), adapter.b, None, output);
                });
            } else {
                let rows = self.gate_up.as_mut_slice::<f32>().chunks_exact_mut(2 * ffn).take(self.rows.len());
                rows.for_each(|row| row[half * ffn..][..ffn].fill(0.0));
            }
        }
        Addend { values: self.gate_up.as_slice(), index_of: &self.index_of }
    }

    /// Fills the input of the second product with the output of the first.
    fn narrow(&mut self, tools: &Tools, input: &InputBuffer, adapter: Adapter<'_>) {
        let rank = adapter.a.rows();
        let thin = self.thin.as_mut_slice::<f32>();
        tools.clock.time(Part::Linear, || {
            tools.linear.store_each(&tools.pool, input, &self.runs, adapter.a, thin);
        });
        self.input.set_width(rank);
        for (index, &place) in self.rows.iter().enumerate() {
            let row = &mut thin[place as usize * rank..][..rank];
            for value in &mut *row {
                *value *= adapter.scale;
            }
            self.input.set_row(index, row);
        }
    }
}
