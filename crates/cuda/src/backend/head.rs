//! Head of the network, from the residual stream to answers: some head rows at a time, logits in scratch; then one
//! download.

use std::{ops::Range, sync::Arc};

use demask_step::TokenScore;
use demask_tensor::{HeadOutput, HeadWeights};

use super::{
    CudaBackend,
    commands::Part,
    launch::{Answers, Count, bucket},
    layer::{Chunk, Step},
    memory::Failure,
    pages::Pages,
    products::Product,
    weights::Matrix,
    workspace::{HEAD_CHUNK, padded},
};
use crate::{
    arguments::{HeadAnswerArgs, HeadInputArgs, List},
    gpu::{Address, Gpu},
    kernels::{
        gemm::End,
        head::{head_answer, head_input},
    },
};

impl<G: Gpu> Step<'_, G> {
    /// See [`demask_tensor::Backend::head`].
    pub(super) fn head(
        &mut self,
        gpu: &Arc<G>,
        weights: &HeadWeights<'_, CudaBackend<G>>,
        kv: &Pages<G>,
        out: &mut HeadOutput,
    ) -> Result<(), Failure> {
        let asked = &self.work.packed.row_requests;
        let rows = asked.len();
        let (top, judged) = (asked.iter().map(|row| row.top).sum(), asked.iter().map(|row| row.judged).sum());
        let logits = asked.iter().any(|row| row.logits);
        let answers = Answers::of(rows, top, judged);
        self.work.reserve_answers(gpu, &answers)?;
        for first in (0..bucket(rows)).step_by(HEAD_CHUNK) {
            let count = HEAD_CHUNK.min(bucket(rows) - first);
            self.timed(Part::Head, |step| step.compute_logits(weights, kv, first, count));
            if logits {
                self.read_logits(first..rows.min(first + count), out)?;
            }
            self.timed(Part::Head, |step| step.answer(&answers, first, count));
        }
        self.queue.end();
        self.read_answers(&answers, out)
    }

    /// Logits of head rows.
    fn compute_logits(&mut self, weights: &HeadWeights<'_, CudaBackend<G>>, kv: &Pages<G>, first: usize, count: usize) {
        let args = HeadInputArgs {
            rows: self.array(self.work.packed.head_rows),
            count: self.count_at(Count::Head),
            stream: self.work.stream.address(),
            weight: weights.norm.address(),
            out: self.work.input.address(),
            store: kv.store(),
            first: first as u32,
            stride: padded(self.work.shape.hidden) as u32,
            epsilon: weights.epsilon,
            unused: 0,
        };
        let (input, logits) = (self.work.input.address(), self.work.logits.address());
        // Rows of the product's inputs are in order: no list is read.
        let list = List { rows: Address::NULL, count: self.count_at(Count::Head) };
        let head: &Matrix<G> = weights.head;
        let mut product = Product::new(End::Store, head, input, Chunk { list, first, rows: count });
        product.begin_at(first);
        product.add(head.part(None, logits, head.rows()));
        self.queue.push(head_input(self.dtype, count), &args);
        self.multiply(&product);
    }

    /// Answers head rows from their logits.
    fn answer(&mut self, answers: &Answers, first: usize, count: usize) {
        let out = |at: usize| self.work.answers.address().offset(at);
        let args = HeadAnswerArgs {
            rows: self.array(self.work.packed.head_rows),
            count: self.count_at(Count::Head),
            requests: self.array(self.work.packed.requests),
            lists: self.array(self.work.packed.lists),
            logits: self.work.logits.address(),
            scratch: self.work.scratch.address(),
            tokens: out(answers.tokens),
            confidence: out(answers.confidence),
            margin: out(answers.margin),
            entropy: out(answers.entropy),
            top: out(answers.top),
            judged: out(answers.judged),
            first: first as u32,
            vocabulary: self.work.shape.vocabulary as u32,
        };
        self.queue.push(head_answer(count, self.work.shape.vocabulary), &args);
    }

    /// Appends the logits of those of some rows that ask for them, before anything is struck out of them.
    fn read_logits(&mut self, rows: Range<usize>, out: &mut HeadOutput) -> Result<(), Failure> {
        self.queue.flush();
        let row_bytes = self.work.shape.vocabulary * size_of::<f32>();
        let mut bytes = vec![0; row_bytes];
        for row in rows.clone().filter(|&row| self.work.packed.row_requests[row].logits) {
            self.work.logits.download((row - rows.start) * row_bytes, &mut bytes)?;
            out.logits.extend(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)));
        }
        Ok(())
    }

    /// Reads the answers.
    fn read_answers(&mut self, answers: &Answers, out: &mut HeadOutput) -> Result<(), Failure> {
        let work = &mut *self.work;
        work.answered.resize(answers.end, 0);
        work.answers.download(0, &mut work.answered)?;
        let word = |at: usize| {
            let bytes = &work.answered[at..];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let float = |at: usize| f32::from_bits(word(at));
        let asked = &work.packed.row_requests;
        let (margins, entropies) = (asked.iter().any(|row| row.margin), asked.iter().any(|row| row.entropy));
        let (mut top, mut judged) = (answers.top, answers.judged);
        for (index, row) in asked.iter().enumerate() {
            let number = |array: usize| array + index * size_of::<u32>();
            out.tokens.push(word(number(answers.tokens)));
            out.confidence.push(float(number(answers.confidence)));
            let of = |wanted: bool, array: usize| if wanted { float(number(array)) } else { 0.0 };
            out.margin.extend(margins.then(|| of(row.margin, answers.margin)));
            out.entropy.extend(entropies.then(|| of(row.entropy, answers.entropy)));
            out.top.extend((0..row.top).map(|rank| (word(top + 8 * rank), float(top + 8 * rank + 4))));
            out.scores.extend((0..row.judged).map(|place| {
                let at = judged + 12 * place;
                TokenScore { rank: word(at), log_probability: float(at + 4), best: float(at + 8) }
            }));
            top += 8 * row.top;
            judged += 12 * row.judged;
        }
        Ok(())
    }
}
