//! dKV-Cache: decoded tokens are kept one step after they were written, so that each is computed once as the token that
//! it became (dKV-Cache, arXiv 2505.15781; specs/caches.md#4).
//!
//! The released code gathers kept and fresh keys anew in each step; with slots by position that is the same as leaving
//! kept rows out of the live set.

use demask_step::{MaskKind, Position, Positions, StepPlan};

use crate::{
    canvas::Canvas,
    choices,
    error::{self, OptionsError},
    method::{CacheKind, DecoderMethod, Setup},
    parameters,
    policy::{CachePolicy, Memory},
    spec::{Kind, alternatives},
    step::{Progress, Query, View},
    transfer::Ranking,
};

choices! {
    /// Variants of dKV-Cache, by what each keeps.
    pub enum Variant {
        /// Decoded tokens.
        Decode = "decode",
        /// All but a window around the next tokens.
        Greedy = "greedy",
        /// The prompt.
        Prefill = "prefill",
        /// Prompt and decoded tokens.
        PrefillAndDecode = "pd",
    }
}

choices! {
    /// Moment when a row is kept, for models whose rows predict the next token.
    pub enum Shift {
        /// Once the token that it predicts is decoded.
        Predicted = "un",
        /// Once its own token is decoded too.
        Both = "un_right",
    }
}

parameters! {
    /// Decoded tokens, kept one step late.
    pub struct Dkv {
        /// kept rows: decoded tokens; all but a window around the next ones; the prompt; prompt and decoded tokens
        pub variant: Variant = Variant::Decode;
        /// steps of a block from one refresh to the next; fitted: 8, greedy 2
        pub refresh: Option<usize> = None, Kind::count(1, usize::MAX);
        /// greedy: masks computed beside each token that is decoded; fitted: 4
        pub window: Option<usize> = None;
        /// models whose rows predict the next token: a row is kept once the token that it predicts is decoded, or once
        /// its own is too
        pub shift: Shift = Shift::Predicted;
    }
}

impl CacheKind for Dkv {
    const NAME: &'static str = "dkv";
    const SUMMARY: &'static str = "decoded tokens are kept one step late; now and then everything is computed again";
    const SOURCE: &'static str = "dKV-Cache (dKV-Decode, -Greedy, -Prefill, -PD); specs/caches.md#4";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

    fn check(&self, setup: &Setup<'_>) -> Result<(), OptionsError> {
        let options = setup.options;
        let cache = options.cache.to_string();
        let (greedy, prefill) = (self.variant == Variant::Greedy, self.variant == Variant::Prefill);
        let useless = [
            ("window", self.window.is_some() && !greedy, "variant=greedy"),
            ("refresh", self.refresh.is_some() && prefill, "the variants that refresh"),
            ("shift", self.shift != Shift::Predicted && (prefill || greedy), "variant=decode and pd"),
        ];
        if let Some((parameter, _, of)) = useless.into_iter().find(|&(_, useless, _)| useless) {
            return Err(error::useless_parameter(cache, parameter, of));
        }
        // It computes the rows that a step will decode, so it must know them before the forward.
        let foreseen = options.traits().foresees && Ranking::foresees(options.remasking);
        if greedy && !foreseen {
            let (decoder, remasking) = (options.decoder.name(), options.remasking.name());
            return Err(error::unfit(format_args!(
                "cache {cache} computes the rows that a step will decode, and decoder {decoder} with remasking \
                     {remasking} finds them by their predictions: use decoder {} with remasking random or \
                     left_to_right",
                alternatives::<DecoderMethod>(|decoder| decoder.traits().foresees)
            )));
        }
        Ok(())
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        let usual = if self.variant == Variant::Greedy { 2 } else { 8 };
        Box::new(DkvCache {
            variant: self.variant,
            window: self.window.unwrap_or(4),
            refresh: self.refresh.unwrap_or(usual),
            both: self.shift == Shift::Both,
            forwards: 0,
            block: 0,
            step: 0,
            masks: Positions::with_capacity(setup.layout.len()),
            decoded: Positions::with_capacity(setup.layout.len()),
        })
    }
}

#[derive(Debug)]
struct DkvCache {
    variant: Variant,
    /// Greedy: masks computed beside each token that is decoded.
    window: usize,
    refresh: usize,
    /// `un_right`: a row is kept only once its own token is decoded as well.
    both: bool,
    /// Forwards so far, and those of the block that runs.
    forwards: usize,
    block: usize,
    step: usize,
    /// Masks of the canvas that ran last. A token that was decoded then is live once more.
    masks: Positions,
    /// Committed after the last forward.
    decoded: Positions,
}

impl DkvCache {
    /// Reports whether a row's K and V stay as they are: the token that it predicts was decoded before the last
    /// forward.
    fn is_kept(&self, row: Position, last: Position, shift: Position) -> bool {
        let open = |position| self.masks.contains(position);
        if shift == 0 {
            return !open(row);
        }
        // Row 0 predicts position 0 too.
        if row == 0 && open(0) {
            return false;
        }
        if row < last {
            return !(open(row + 1) || self.both && open(row));
        }
        // The last row predicts nothing. As released it is kept from the second step on, or with its neighbour.
        if self.both { !(open(row) || row > 0 && open(row - 1)) } else { self.forwards > 1 }
    }

    /// All rows but those that are kept, from `first` on.
    fn fill_open(&self, view: &View<'_>, first: Position, plan: &mut StepPlan) {
        let last = view.canvas.len().saturating_sub(1) as Position;
        for row in first..plan.kv_len {
            if !self.is_kept(row, last, view.shift) {
                plan.query.push(row);
            }
        }
    }

    /// Makes live: positions about to be decoded, those just decoded, and the nearest masks around the former.
    fn fill_window(&self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        for &position in &query.foreseen {
            plan.query.insert(position);
        }
        for position in self.decoded.iter() {
            plan.query.insert(position);
        }
        for &position in &query.foreseen {
            insert_nearest_masks(view.canvas, position, self.window, &mut plan.query);
        }
        for &position in &query.foreseen {
            plan.query.insert(position.saturating_sub(view.shift));
        }
        if plan.query.is_empty() {
            // A step of the schedule that decodes nothing after another one.
            plan.query.clone_from(&query.predict);
        }
    }
}

/// Adds the `count` masks nearest to `position` that are not in the set yet, of two equally near ones the left first.
fn insert_nearest_masks(canvas: &Canvas, position: Position, count: usize, set: &mut Positions) {
    let mut left = count;
    for distance in 1..canvas.len().max(1) as Position {
        for neighbour in [position.checked_sub(distance), position.checked_add(distance)].into_iter().flatten() {
            if left > 0 && canvas.is_masked(neighbour) && !set.contains(neighbour) {
                set.insert(neighbour);
                left -= 1;
            }
        }
        if left == 0 {
            return;
        }
    }
}

impl CachePolicy for DkvCache {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        if self.block != view.block {
            (self.block, self.step) = (view.block, 0);
        }
        plan.mask = view.layout.attention();
        plan.kv_len = query.end(view.canvas);
        plan.predict.clone_from(&query.predict);
        let first = self.forwards == 0;
        let due = self.step.is_multiple_of(self.refresh);
        // Rows before it predict nothing that is ever decoded.
        let prompt = (view.layout.response() as Position).saturating_sub(view.shift);
        match self.variant {
            // Released for models without shift: nothing is kept of the first forward of a block.
            Variant::Decode if due || (self.step == 1 && view.shift == 0) => plan.query.set_range(0..plan.kv_len),
            Variant::Decode => self.fill_open(view, 0, plan),
            Variant::Greedy => {
                if due {
                    plan.query.set_range(0..plan.kv_len);
                } else {
                    self.fill_window(view, query, plan);
                }
                plan.predict.clear();
                for &position in &query.foreseen {
                    plan.predict.insert(position);
                }
            }
            Variant::Prefill | Variant::PrefillAndDecode if first => plan.query.set_range(0..plan.kv_len),
            Variant::PrefillAndDecode if !due => self.fill_open(view, prompt, plan),
            Variant::Prefill | Variant::PrefillAndDecode => plan.query.set_range(prompt..plan.kv_len),
        }
    }

    fn observe(&mut self, view: &View<'_>, _plan: &StepPlan, progress: &Progress) {
        self.forwards += 1;
        self.step += 1;
        let held = progress.held();
        self.masks.clear();
        let open = |&position: &Position| view.canvas.is_open_after(position, held);
        for position in (0..view.canvas.len() as Position).filter(open) {
            self.masks.push(position);
        }
        self.decoded.clear();
        for commit in &progress.commits[held.len()..] {
            self.decoded.insert(commit.position);
        }
    }

    fn memory(&self) -> Memory {
        Memory::OfHistory
    }
}
