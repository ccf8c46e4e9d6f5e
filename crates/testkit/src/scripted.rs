//! Networks that follow a script instead of weights: deterministic, instant, and strict about plans.
//!
//! [`Scripted`] is a [`Network`] made of hashes. It has the data flow of a transformer of two layers: each live row
//! writes a slot per layer, reads every slot that its mask lets it see, and its row becomes the logits of a small
//! vocabulary. So its answers change with every token that may matter and with nothing else: a cache that is exact
//! gives the tokens of no cache, a slot that is stale or was never written shows, and two runs of the same plans are
//! equal to the bit.

mod prefixes;
mod slots;

use demask_step::{
    Blend, BlendWith, ConfidenceOf, Cost, DeviceError, DeviceId, HeadRequest, LayerRows, MemoryCost, NO_TOKEN, Network,
    OpenError, OpenedSequence, Operations, OutOfMemory, Pages, PlanError, PlanLimits, Position, Predictions, Prefix,
    PrefixCacheStats, RowBudget, SequenceId, SequenceLimits, SequenceStep, StepPlan, TokenId, TokenScore, random,
};

use prefixes::Prefixes;
use slots::Slots;

/// Layers of the data flow: with two, a row's output depends on the slots that it saw.
const LAYERS: usize = 2;

/// The content of one slot, or of one row, in one layer.
type Content = u64;

/// A network made of hashes. See the module's description.
#[derive(Debug, Clone)]
pub struct Scripted {
    seed: u64,
    vocab: usize,
    shift: u32,
    spread: f64,
    layers: usize,
    easy: f64,
    sequences: Vec<Option<Slots>>,
    steps: usize,
    budget: RowBudget,
    memory: u64,
    fails_after: usize,
    prefixes: Prefixes,
}

impl Scripted {
    /// Makes a network over `vocab` tokens whose row `p - shift` predicts position `p`.
    pub fn new(seed: u64, vocab: usize, shift: u32) -> Self {
        Self {
            seed,
            vocab,
            shift,
            spread: 3.0,
            easy: 0.0,
            layers: LAYERS,
            sequences: Vec::new(),
            steps: 0,
            budget: RowBudget { capacity: usize::MAX, free: usize::MAX, piece: usize::MAX },
            memory: u64::MAX,
            fails_after: usize::MAX,
            prefixes: Prefixes::default(),
        }
    }

    /// Sets the standard width of the logits: large values make predictions sure. The default is 3.
    #[must_use]
    pub fn with_spread(mut self, spread: f64) -> Self {
        self.spread = spread;
        self
    }

    /// Leaves one layer of the data flow: a row's output then depends on its own token and position alone.
    #[must_use]
    pub fn with_one_layer(mut self) -> Self {
        self.layers = 1;
        self
    }

    /// Sets the share of positions whose prediction depends on the position alone: drafts of them come true. The default
    /// is 0.
    #[must_use]
    pub fn with_easy(mut self, easy: f64) -> Self {
        self.easy = easy;
        self
    }

    /// Sets how many rows a forward may have, how many are nearly free, and how many make a piece. The default is no bound.
    #[must_use]
    pub fn with_rows(mut self, budget: RowBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets how many positions may be open at the same time. The default is no bound.
    #[must_use]
    pub fn with_memory(mut self, positions: u64) -> Self {
        self.memory = positions;
        self
    }

    /// Lets the device fail after so many forwards. By default it never does.
    #[must_use]
    pub fn failing_after(mut self, forwards: usize) -> Self {
        self.fails_after = forwards;
        self
    }

    /// Keeps cached prefixes, in pages of this number of positions. By default it keeps none.
    #[must_use]
    pub fn with_pages(mut self, page: usize) -> Self {
        self.prefixes.page = page;
        self
    }

    /// Returns the fault of a prefix that was cached, if there was one.
    pub fn complaint(&self) -> Option<&'static str> {
        self.prefixes.wrong
    }

    /// Number of batches that were run.
    pub fn steps(&self) -> usize {
        self.steps
    }

    fn open_slots(&self) -> impl Iterator<Item = &Slots> {
        self.sequences.iter().flatten()
    }

    /// The rows after the last layer, `[lanes, live]`, writing slots on the way.
    fn forward(&mut self, step: &SequenceStep<'_>) -> Vec<Vec<Content>> {
        let (seed, layers) = (self.seed, self.layers);
        let Some(slots) = self.sequences[step.sequence.0 as usize].as_mut() else { return Vec::new() };
        slots.forward(step, layers, |position, token| {
            random::mix(seed ^ random::mix((u64::from(position) << 32) | u64::from(token)))
        })
    }

    /// The content that a lane's row at `position` hands to the head: with guidance, drawn away from the unconditional
    /// one, `other`, or from where that one last was.
    fn content(
        &mut self,
        step: &SequenceStep<'_>,
        lane: usize,
        row: (Position, Content),
        other: Option<Content>,
    ) -> Content {
        let (position, content) = row;
        let Some(Blend { scale, .. }) = step.blend else { return content };
        let fresh = other.map(|other| content.wrapping_sub(other));
        let Some(slots) = self.sequences[step.sequence.0 as usize].as_mut() else { return content };
        let difference =
            if slots.state.needs().residual { slots.lane(lane).difference(position, fresh) } else { fresh };
        random::mix(content ^ random::mix(difference.unwrap_or(0) ^ u64::from(scale.to_bits())))
    }

    fn answer(
        &mut self,
        step: &SequenceStep<'_>,
        rows: &[Vec<Content>],
        other: Option<(&StepPlan, &[Vec<Content>])>,
        out: &mut Predictions,
    ) {
        let (plan, ask, wanted) = (step.plan, step.ask, &step.ask.wanted);
        out.clear();
        out.lanes = plan.lanes.count();
        out.positions.set_union(&[&plan.predict, &plan.must, &plan.hint]);
        out.cost = self.cost(plan, out.positions.len());
        for lane in 0..out.lanes {
            for (at, position) in out.positions.clone().iter().enumerate() {
                let token = plan.row(lane, position).map(|row| step.tokens[row]);
                let row = plan.predictor(position, self.shift);
                if plan.row(lane, row).is_none() {
                    self.refuse(wanted, out);
                    continue;
                }
                if ask.only_where.is_some() && token.is_some() && token != ask.only_where {
                    self.refuse(wanted, out);
                    continue;
                }
                let Some(rank) = plan.query.rank(row) else { continue };
                let alone = random::mix(self.seed ^ random::mix(u64::from(position)));
                let unconditional = other.and_then(|(plan, rows)| Some(rows[lane][plan.query.rank(row)?]));
                let content = self.content(step, lane, (row, rows[lane][rank]), unconditional);
                let content = if random::uniform(alone) < self.easy { random::mix(alone) } else { content };
                let judged = (lane * out.positions.len() + at) * wanted.score_width;
                let judge = &ask.score[judged..judged + wanted.score_width];
                self.head(wanted, content, ask.key(lane, position), judge, out);
            }
        }
    }

    /// Every row and layer costs the same.
    fn cost(&self, plan: &StepPlan, predicted: usize) -> Cost {
        let (lanes, layers) = (plan.lanes.count(), self.layers);
        let computed = match &plan.layers {
            LayerRows::All => layers * plan.query.len(),
            LayerRows::Partial { compute, probe, first_whole } => {
                let whole = layers.min(usize::from(*first_whole));
                let chosen = compute.len() + probe.as_ref().map_or(0, |probe| probe.keep);
                whole * plan.query.len() + (layers - whole) * chosen
            }
        };
        Cost {
            rows: plan.rows() as u64,
            computed_rows: (lanes * computed) as f64 / layers as f64,
            head_rows: (lanes * predicted) as u64,
            operations: Operations { mlp: (lanes * computed) as f64 / layers as f64, ..Operations::default() },
        }
    }

    fn refuse(&self, wanted: &HeadRequest, out: &mut Predictions) {
        out.tokens.push(NO_TOKEN);
        out.confidence.push(f32::NEG_INFINITY);
        if wanted.margin {
            out.margin.push(f32::NEG_INFINITY);
        }
        if wanted.entropy {
            out.entropy.push(f32::INFINITY);
        }
        if wanted.logits {
            out.logits.extend(std::iter::repeat_n(f32::NEG_INFINITY, self.vocab));
        }
        out.top.extend(std::iter::repeat_n((NO_TOKEN, 0.0), wanted.top));
        out.scores.extend(std::iter::repeat_n(TokenScore::NONE, wanted.score_width));
    }

    /// Draws a token from a row, and judges given ones.
    fn head(&self, wanted: &HeadRequest, row: Content, key: u64, judge: &[TokenId], out: &mut Predictions) {
        let mut logits: Vec<f64> = (0..self.vocab as u64)
            .map(|token| self.spread * random::gumbel(random::mix(row ^ random::mix(token))))
            .collect();
        if wanted.logits {
            out.logits.extend(logits.iter().map(|&logit| logit as f32));
        }
        wanted.struck().for_each(|token| logits[token as usize] = f64::NEG_INFINITY);
        let temperature = f64::from(wanted.sampling.temperature);
        let allowed = |(token, &logit): (usize, &f64)| {
            if wanted.allows(token as TokenId) { logit } else { f64::NEG_INFINITY }
        };
        let noisy = |(token, logit): (usize, &f64)| {
            let logit = allowed((token, logit));
            if temperature > 0.0 {
                logit / temperature + random::gumbel(random::mix(key ^ token as u64))
            } else {
                logit
            }
        };
        let token = argmax(logits.iter().enumerate().map(noisy));
        let choice: Vec<f64> = logits.iter().enumerate().map(allowed).collect();
        out.scores.extend(judge.iter().map(|&token| judged(&logits, &choice, token)));
        for &token in wanted.zero_confidence.iter() {
            logits[token as usize] = f64::NEG_INFINITY;
        }
        if wanted.sampling.confidence == ConfidenceOf::Drawn && temperature > 0.0 {
            for logit in &mut logits {
                *logit /= temperature;
            }
        }
        let best = logits[argmax(logits.iter().copied())];
        let sum: f64 = logits.iter().map(|logit| (logit - best).exp()).sum();
        let probability = |logit: &f64| (logit - best).exp() / sum;
        // What may be predicted, by the shares that it has among all.
        let shares = logits
            .iter()
            .enumerate()
            .map(|(token, logit)| if wanted.allows(token as TokenId) { probability(logit) } else { 0.0 });
        let mut best: Vec<(TokenId, f32)> = (0..).zip(shares.map(|share| share as f32)).collect();
        out.tokens.push(token as TokenId);
        out.confidence.push(best[token].1);
        if wanted.entropy {
            let entropy: f64 = logits.iter().map(probability).filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum();
            out.entropy.push(entropy as f32);
        }
        best.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        if wanted.margin {
            out.margin.push(best[0].1 - best[1].1);
        }
        out.top.extend(best.into_iter().take(wanted.top));
    }
}

/// Rank of a token among those that may be predicted, and its probability under `softmax(logits)`.
fn judged(logits: &[f64], choice: &[f64], token: TokenId) -> TokenScore {
    let most = logits[argmax(logits.iter().copied())];
    let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
    let value = choice[token as usize];
    let before = |&(other, &logit): &(usize, &f64)| logit > value || logit == value && other < token as usize;
    TokenScore {
        rank: choice.iter().enumerate().filter(before).count() as u32,
        log_probability: (logits[token as usize] - most - sum.ln()) as f32,
        best: ((choice[argmax(choice.iter().copied())] - most).exp() / sum) as f32,
    }
}

/// The first of the largest.
fn argmax(values: impl Iterator<Item = f64>) -> usize {
    let best = values
        .enumerate()
        .fold((0, f64::NEG_INFINITY), |best, (i, value)| if value > best.1 { (i, value) } else { best });
    best.0
}

impl Scripted {
    /// Opens a sequence with memory for the positions that it opens with.
    fn begin(&mut self, needs: &SequenceLimits) -> Result<SequenceId, OpenError> {
        self.check_memory(needs.opening() as u64)?;
        self.sequences.push(Some(Slots::new(needs)));
        Ok(SequenceId(self.sequences.len() as u32 - 1))
    }

    fn check_memory(&self, needed: u64) -> Result<(), OutOfMemory> {
        let open: u64 = self.open_slots().map(|slots| slots.state.room() as u64).sum();
        let available = self.memory.saturating_sub(open);
        if needed > available { Err(OutOfMemory { needed, available }) } else { Ok(()) }
    }
}

impl Network for Scripted {
    fn open(&mut self, needs: &SequenceLimits) -> Result<SequenceId, OpenError> {
        self.begin(&SequenceLimits { opens_with: None, ..needs.clone() })
    }

    fn open_with_prefix(&mut self, needs: &SequenceLimits, prefix: Prefix<'_>) -> Result<OpenedSequence, OpenError> {
        let sequence = self.begin(needs)?;
        let Some(Some(slots)) = self.sequences.get_mut(sequence.0 as usize) else {
            return Ok(OpenedSequence { sequence, filled: 0 });
        };
        // Nobody leaves increments or differences.
        if !needs.increments
            && !needs.residual
            && let (filled, Some(left)) = self.prefixes.find(prefix, needs.positions)
        {
            slots.stored.begin(left, filled as usize);
            slots.state.fill(filled);
            slots.state.share(filled);
        }
        Ok(OpenedSequence { sequence, filled: slots.state.shared() })
    }

    fn growth(&self, sequence: SequenceId, positions: usize) -> u64 {
        let slots = self.sequences.get(sequence.0 as usize).and_then(Option::as_ref);
        slots.map_or(0, |slots| positions.saturating_sub(slots.state.room()) as u64)
    }

    fn grow(&mut self, sequence: SequenceId, positions: usize) -> Result<usize, OutOfMemory> {
        let needed = self.growth(sequence, positions);
        self.check_memory(needed)?;
        let Some(Some(slots)) = self.sequences.get_mut(sequence.0 as usize) else { return Ok(0) };
        slots.state.grow(positions);
        Ok(slots.state.room())
    }

    /// Shares whole units alone.
    fn cache_prefix(&mut self, sequence: SequenceId, prefix: Prefix<'_>, _ends: bool) {
        if let Some(Some(slots)) = self.sequences.get_mut(sequence.0 as usize)
            && !slots.state.needs().increments
            && !slots.state.needs().residual
        {
            let cached = self.prefixes.cache(prefix, &slots.stored);
            slots.state.share(slots.state.shared().max(cached));
        }
    }

    fn prefix_cache_stats(&self) -> Option<PrefixCacheStats> {
        (self.prefixes.page > 0).then_some(self.prefixes.counters)
    }

    fn close(&mut self, sequence: SequenceId) {
        if let Some(slots) = self.sequences.get_mut(sequence.0 as usize) {
            *slots = None;
        }
    }

    /// A position is a byte.
    fn memory_cost(&self, needs: &SequenceLimits) -> Result<MemoryCost, OpenError> {
        Ok(MemoryCost { own: needs.opening() as u64, growth: 0, device: DeviceId(0) })
    }

    fn check(&self, group: &[SequenceStep<'_>]) -> Result<(), PlanError> {
        // As in a real network, an open sequence that needs more rows raises the limit.
        let needed = self.open_slots().map(|slots| slots.state.needs().rows.max(slots.state.needs().group_rows)).max();
        let rows = self.budget.capacity.max(needed.unwrap_or(0));
        let limits = PlanLimits { vocabulary: self.vocab, shift: self.shift, rows };
        limits.check(group, |id| Some(&self.sequences.get(id.0 as usize)?.as_ref()?.state))?;
        let filters = |step: &SequenceStep<'_>| {
            let sampling = &step.ask.wanted.sampling;
            sampling.filters(self.vocab)
        };
        if group.iter().any(filters) {
            return Err(PlanError::Contradiction("the script draws without filters"));
        }
        Ok(())
    }

    fn step(&mut self, batch: &[SequenceStep<'_>], out: &mut [Predictions]) -> Result<(), DeviceError> {
        if self.steps == self.fails_after {
            return Err(DeviceError("the script ends here".to_owned()));
        }
        // What was not checked must not run.
        self.check(batch).unwrap_or_else(|error| panic!("{error}"));
        self.steps += 1;
        let rows: Vec<_> = batch.iter().map(|step| self.forward(step)).collect();
        for (index, ((step, own), out)) in batch.iter().zip(&rows).zip(out).enumerate() {
            let other = match step.blend {
                Some(Blend { with: BlendWith::Behind(places), .. }) => {
                    let other = index + places;
                    batch.get(other).map(|step| step.plan).zip(rows.get(other).map(Vec::as_slice))
                }
                _ => None,
            };
            self.answer(step, own, other, out);
        }
        Ok(())
    }

    fn rows(&self) -> RowBudget {
        self.budget
    }

    fn shift(&self) -> Position {
        self.shift
    }

    fn pages(&self) -> Pages {
        Pages { used: self.open_slots().count(), ..Pages::default() }
    }
}

#[cfg(test)]
mod tests {
    use demask_step::{Drift, HeadAsk, Lanes, Mask, Positions, Probe, Retain, Sampling};

    use super::*;

    fn run(
        script: &mut Scripted,
        id: SequenceId,
        tokens: &[TokenId],
        live: std::ops::Range<u32>,
        mask: Mask,
    ) -> Predictions {
        let plan = StepPlan {
            query: live.clone().into(),
            kv_len: live.end,
            mask,
            predict: (live.end - 2..live.end).into(),
            ..StepPlan::default()
        };
        let ask = HeadRequest { banned: vec![9].into(), ..HeadRequest::default() }.into();
        let mut out = [Predictions::default()];
        let step = SequenceStep { sequence: id, tokens, plan: &plan, ask: &ask, blend: None };
        script.step(&[step], &mut out).unwrap();
        let [out] = out;
        out
    }

    fn open(script: &mut Scripted) -> SequenceId {
        script.open(&SequenceLimits { positions: 8, rows: 8, predictions: 4, ..SequenceLimits::default() }).unwrap()
    }

    #[test]
    fn what_is_stored_is_what_would_be_computed() {
        let mask = Mask::blocks(4);
        let mut script = Scripted::new(1, 12, 0);
        let (whole, stored) = (open(&mut script), open(&mut script));
        let at_once = run(&mut script, whole, &[1, 2, 3, 4, 9, 9, 9, 9], 0..8, mask);
        run(&mut script, stored, &[1, 2, 3, 4], 0..4, mask);
        let operations = Operations { mlp: 4.0, ..Operations::default() };
        assert_eq!(
            run(&mut script, stored, &[9, 9, 9, 9], 4..8, mask),
            Predictions { cost: Cost { rows: 4, computed_rows: 4.0, head_rows: 2, operations }, ..at_once.clone() }
        );
        run(&mut script, stored, &[1, 2, 9, 4], 0..4, mask);
        let stale = run(&mut script, stored, &[9, 9, 9, 9], 4..8, mask);
        assert_ne!(stale.confidence, at_once.confidence, "a stale slot shows");
    }

    /// Slots that a step wrote count for the plans after it. Filters are the one thing that only the script refuses.
    #[test]
    fn plans_are_checked_against_what_ran() {
        let mut script = Scripted::new(1, 12, 1);
        let id = open(&mut script);
        let check = |script: &Scripted, sampling| {
            let plan = StepPlan { query: (4..6).into(), kv_len: 6, ..StepPlan::default() };
            let ask = HeadRequest { sampling, ..HeadRequest::default() }.into();
            script.check(&[SequenceStep { sequence: id, tokens: &[1, 1], plan: &plan, ask: &ask, blend: None }])
        };
        assert_eq!(check(&script, Sampling::default()), Err(PlanError::SlotNeverWritten(0)));
        run(&mut script, id, &[1; 4], 0..4, Mask::Full);
        assert_eq!(check(&script, Sampling::default()), Ok(()));
        let filters = [Sampling { top_k: 1, ..Sampling::default() }, Sampling { top_p: 0.5, ..Sampling::default() }];
        for sampling in filters {
            let refused = Err(PlanError::Contradiction("the script draws without filters"));
            assert_eq!(check(&script, sampling), refused);
        }
        script.close(id);
        assert_eq!(check(&script, Sampling::default()), Err(PlanError::UnknownSequence(id)));
    }

    /// One step of all eight positions, whose last four are predicted.
    fn whole(layers: LayerRows, lanes: Lanes, keep: Option<Retain>) -> StepPlan {
        let (live, predict) = ((0..8).into(), (4..8).into());
        StepPlan { query: live, kv_len: 8, layers, lanes, retain: keep, predict, ..StepPlan::default() }
    }

    fn chosen(keep: usize, by: Drift) -> LayerRows {
        let probe = Some(Probe { rows: (0..6).into(), keep, by });
        LayerRows::Partial { compute: (6..8).into(), probe, first_whole: true }
    }

    /// A prefill, then the plan with its tokens, then a step of the canvas that computes nothing anew after layer 0.
    fn answers(plan: &StepPlan, tokens: &[TokenId], keep: Option<Retain>) -> [Predictions; 2] {
        let mut script = Scripted::new(4, 12, 0);
        let drafts = plan.lanes.count();
        let needs = SequenceLimits {
            positions: 8,
            rows: 8 * drafts,
            drafts,
            draft_span: 8,
            predictions: 4 * drafts,
            increments: true,
            ..SequenceLimits::default()
        };
        let id = script.open(&needs).unwrap();
        let reuse = LayerRows::Partial { compute: Positions::new(), probe: None, first_whole: true };
        let plans = [whole(LayerRows::All, Lanes::Canvas, None), plan.clone(), whole(reuse, Lanes::Canvas, keep)];
        let all = [&[1, 2, 3, 4, 9, 9, 9, 9], tokens, &[1, 2, 3, 4, 5, 6, 7, 9]];
        let ask = HeadRequest { banned: vec![9].into(), ..HeadRequest::default() }.into();
        let mut out = Vec::new();
        for (plan, tokens) in plans.iter().zip(all) {
            let mut answer = [Predictions::default()];
            script.step(&[SequenceStep { sequence: id, tokens, plan, ask: &ask, blend: None }], &mut answer).unwrap();
            out.extend(answer);
        }
        [out.remove(1), out.remove(1)]
    }

    #[test]
    fn partly_computed_rows_are_those_that_are_named_and_those_that_drift() {
        let tokens = [1, 2, 3, 4, 5, 9, 9, 9];
        let answer = |layers| answers(&whole(layers, Lanes::Canvas, None), &tokens, None)[0].confidence.clone();
        let computed = answer(LayerRows::All);
        for by in [Drift::Value, Drift::Key, Drift::Random { seed: 3 }] {
            assert_eq!(answer(chosen(6, by)), computed, "all of them");
            assert_ne!(answer(chosen(2, by)), computed, "{by:?}");
        }
        assert_ne!(answer(chosen(0, Drift::Value)), answer(chosen(0, Drift::Key)), "one of the two is replaced");
    }

    #[test]
    fn drafts_are_partly_computed_each_by_itself() {
        let lanes: [[TokenId; 8]; 2] = [[1, 2, 3, 4, 5, 9, 9, 9], [1, 2, 3, 4, 5, 6, 9, 9]];
        let keep = |lane| Some(Retain { lane, positions: (0..8).into() });
        for by in [Drift::Value, Drift::Key, Drift::Random { seed: 3 }] {
            let both = whole(chosen(2, by), Lanes::Drafts(2), None);
            for (lane, tokens) in (0..).zip(&lanes) {
                let [packed, after] = answers(&both, lanes.as_flattened(), keep(lane));
                let [alone, expected] = answers(&whole(chosen(2, by), Lanes::Canvas, None), tokens, None);
                let width = 4 * lane as usize;
                assert_eq!(packed.confidence[width..width + 4], alone.confidence, "lane {lane}");
                assert_eq!(after, expected, "what is kept of lane {lane}");
            }
            let [_, untouched] = answers(&both, lanes.as_flattened(), None);
            assert_ne!(untouched, answers(&both, lanes.as_flattened(), keep(0))[1]);
        }
    }

    #[test]
    fn given_tokens_are_judged() {
        let mut script = Scripted::new(2, 12, 1);
        let needs = SequenceLimits {
            positions: 3,
            rows: 3,
            predictions: 1,
            score_width: 12,
            top: 3,
            ..SequenceLimits::default()
        };
        let id = script.open(&needs).unwrap();
        let (live, predict) = ((0..3).into(), (3..4).into());
        let plan = StepPlan { query: live, kv_len: 3, mask: Mask::Causal, predict, ..StepPlan::default() };
        let wanted = HeadRequest { banned: vec![5].into(), top: 3, score_width: 12, ..HeadRequest::default() };
        let ask = HeadAsk { wanted, score: (0..12).collect(), ..HeadAsk::default() };
        let mut out = [Predictions::default()];
        let step = SequenceStep { sequence: id, tokens: &[1, 2, 3], plan: &plan, ask: &ask, blend: None };
        script.step(&[step], &mut out).unwrap();
        let [answer] = out;
        let mut ranks: Vec<u32> = answer.scores.iter().map(|judged| judged.rank).collect();
        assert_eq!(ranks[answer.tokens[0] as usize], 0);
        assert_eq!(ranks[5], 11, "what is forbidden comes last");
        assert!(answer.scores[5].log_probability > f32::NEG_INFINITY, "and keeps its share");
        for (rank, &(token, probability)) in answer.top.iter().enumerate() {
            let judged = answer.scores[token as usize];
            assert!(judged.rank == rank as u32 && (judged.log_probability.exp() - probability).abs() < 1e-6);
            assert_eq!(judged.best, answer.top[0].1);
        }
        ranks.sort_unstable();
        assert_eq!(ranks, (0..12).collect::<Vec<_>>());
        let sum: f32 = answer.scores.iter().map(|judged| judged.log_probability.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5);
    }
}
