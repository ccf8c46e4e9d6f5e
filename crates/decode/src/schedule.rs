//! Schedules: the number of tokens that each step of a block takes.

use std::{fmt, str::FromStr};

use demask_settings::names::{UnknownName, same};

/// The rule that spreads the masks of a block over its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Equal shares, the remainder to the first steps (LLaDA `get_num_transfer_tokens`, SDAR; specs/caches.md#1.1 and
    /// specs/models.md#4.5).
    #[default]
    Even,
    /// `int(masks * (1 - t[i + 1] / t[i]))` over `t = linspace(1, eps, steps + 1)`, the last step takes all (Dream
    /// `diffusion_generate`; specs/caches.md#1.3 and specs/models.md#trap-14).
    Dream,
    /// Dream's rule over all blocks at once: time runs from the first block to the last, and the masks of later blocks
    /// count; the last step of each block takes all of it (FlashDLM's block sampler; specs/flashdlm.md#1.3).
    DreamTotal,
    /// Shares of the masks that are left, `round(masks * (1 - r))` for the share `r` of time that stays, in the
    /// arithmetic of the original. Steps of no token vanish (dllm's samplers of A2D; specs/families.md#3).
    Linear,
    /// As many masks stay after a step as the share of the steps that are left, `int(masks * (left / steps))` of those at
    /// the start; steps may take none (RND1's sampler; specs/families.md#6.7).
    Rnd1,
}

impl Schedule {
    /// All schedules, the default first.
    pub const ALL: [Self; 5] = [Self::Even, Self::Dream, Self::DreamTotal, Self::Linear, Self::Rnd1];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Dream => "dream",
            Self::DreamTotal => "dream_total",
            Self::Linear => "linear",
            Self::Rnd1 => "rnd1",
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Schedule {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|schedule| same(schedule.name(), text)).ok_or_else(|| UnknownName {
            what: "schedule",
            found: text.to_owned(),
            known: Self::ALL.map(Self::name).to_vec(),
        })
    }
}

/// The schedule of one canvas, resolved: the same for each of its blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// Rule of the schedule.
    pub schedule: Schedule,
    /// Steps of a block, at least 1.
    pub steps: usize,
    /// End of Dream's time.
    pub eps: f32,
    /// Number that [`Schedule::Even`] divides: the whole block (SDAR, whatever part of its first block is prompt), or,
    /// if `None`, the masks that the block started with (LLaDA).
    pub share_of: Option<usize>,
}

/// Content of the clock for one step of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    /// Tokens to take, at most the masks left; may be 0.
    pub quota: usize,
    /// Probability that a masked position is transferred by Dream's `origin`: `1 - t[i + 1] / t[i]`, 1 in the last
    /// step.
    pub rate: f32,
}

/// Masks around a block, for schedules that run over all of them. Only blocks that started with masks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Around {
    /// Blocks that were decoded before.
    pub blocks_before: usize,
    /// Blocks to decode after this one.
    pub blocks_after: usize,
    /// Masks in those.
    pub masks_after: usize,
}

impl Clock {
    /// Step `step` (from 0) of a block that started with `at_start` masks and has `masks` left.
    pub fn tick(&self, step: usize, at_start: usize, masks: usize, around: Around) -> Tick {
        let last = step + 1 >= self.steps;
        let (before, steps, counted) = match self.schedule {
            Schedule::DreamTotal => {
                let blocks = around.blocks_before + 1 + around.blocks_after;
                (around.blocks_before * self.steps, blocks.saturating_mul(self.steps), masks + around.masks_after)
            }
            Schedule::Even | Schedule::Dream | Schedule::Linear | Schedule::Rnd1 => (0, self.steps, masks),
        };
        let index = before + step;
        let rate = if last { 1.0 } else { 1.0 - self.time(index + 1, steps) / self.time(index, steps) };
        let quota = match self.schedule {
            Schedule::Even => self.even(step, at_start, masks),
            // What an earlier step left is taken with the last share.
            Schedule::Linear => linear(at_start, self.steps, step).unwrap_or(masks),
            Schedule::Rnd1 => masks.saturating_sub(self.staying(step, at_start)),
            Schedule::Dream | Schedule::DreamTotal if last => masks,
            // Truncation as Python's `int` does it on the f32 product.
            Schedule::Dream | Schedule::DreamTotal => (counted as f32 * rate) as usize,
        };
        Tick { quota: quota.min(masks), rate }
    }

    /// Returns the even share of all steps up to `step`, less the tokens taken: the count of a step that also takes the
    /// tokens which earlier steps left over. `None` for schedules that share the remaining masks anyway.
    pub fn carried(&self, step: usize, at_start: usize, masks: usize) -> Option<usize> {
        if self.schedule != Schedule::Even {
            return None;
        }
        let (steps, total) = ((step + 1).min(self.steps), self.share_of.unwrap_or(at_start));
        let due = total / self.steps * steps + (total % self.steps).min(steps);
        Some(due.saturating_sub(at_start - masks).min(masks))
    }

    /// Masks that stay after a step of RND1's schedule: its share is divided in f64, the product is one of f32.
    fn staying(&self, step: usize, at_start: usize) -> usize {
        let left = self.steps.saturating_sub(step + 1);
        (at_start as f32 * (left as f64 / self.steps as f64) as f32) as usize
    }

    fn even(&self, step: usize, at_start: usize, masks: usize) -> usize {
        if step + 1 >= self.steps {
            // More than the share only if an earlier step took less than its own: predictions were refused (the
            // reference indexes out of range then; specs/models.md#4.5), or a forward had to take a single one
            // (Fast-dLLM on Dream, whose schedule ends the same way).
            return masks;
        }
        let share_of = self.share_of.unwrap_or(at_start);
        share_of / self.steps + usize::from(step < share_of % self.steps)
    }

    /// `torch.linspace(1, eps, steps + 1)[index]` in f32: counted from the nearer end, with an f32 increment.
    fn time(&self, index: usize, steps: usize) -> f32 {
        let increment = (self.eps - 1.0) / steps as f32;
        if index < steps.div_ceil(2) {
            1.0 + increment * index as f32
        } else {
            self.eps - increment * (steps - index) as f32
        }
    }
}

/// The share of step `index` among those that take anything, of so many masks in so many steps; none after the last
/// but one, which leaves nothing.
fn linear(masks: usize, steps: usize, index: usize) -> Option<usize> {
    let (mut left, mut taken) = (masks, 0);
    for step in (1..=steps).rev() {
        let [from, to] = [step, step - 1].map(|step| (step as f64 / steps as f64) as f32);
        let stays = (1.0 - (1.0 - to)) / (1.0 - (1.0 - from));
        // Python rounds halves to even, in double precision.
        let share = (left as f64 * (1.0 - f64::from(stays))).round_ties_even() as usize;
        let share = share.min(left);
        left -= share;
        if share > 0 {
            if taken == index {
                return (left > 0).then_some(share);
            }
            taken += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(schedule: Schedule, masks: usize, steps: usize) -> Vec<usize> {
        let clock = Clock { schedule, steps, eps: 1e-3, share_of: None };
        let mut left = masks;
        let taken: Vec<usize> = (0..steps)
            .map(|step| {
                let quota = clock.tick(step, masks, left, Around::default()).quota;
                left -= quota;
                quota
            })
            .collect();
        assert_eq!(left, 0, "{schedule} {masks} masks in {steps} steps");
        taken
    }

    fn framed(first: usize, middle: usize, last: usize, steps: usize) -> Vec<usize> {
        let mut counts = vec![middle; steps];
        counts[0] = first;
        counts[steps - 1] = last;
        counts
    }

    // specs/caches.md#1.3.
    #[test]
    fn dream_takes_none_first_and_two_last_if_steps_equal_length() {
        let stride = if cfg!(miri) { 101 } else { 1 };
        for length in (8..=512).step_by(stride) {
            assert_eq!(counts(Schedule::Dream, length, length), framed(0, 1, 2, length), "length {length}");
        }
    }

    #[test]
    fn dream_counts_quoted_in_the_specification() {
        assert_eq!(counts(Schedule::Dream, 256, 128), framed(1, 2, 3, 128));
        assert_eq!(counts(Schedule::Dream, 256, 64), framed(3, 4, 5, 64));
        assert_eq!(counts(Schedule::Dream, 256, 8), framed(31, 32, 33, 8));
        assert_eq!(counts(Schedule::Dream, 16, 1), [16]);
    }

    #[test]
    fn dream_may_idle_first_if_there_are_more_steps_than_masks() {
        let taken = counts(Schedule::Dream, 16, 32);
        assert_eq!(taken[..17], [0; 17]);
        assert_eq!(taken[17..31], [1; 14]);
        assert_eq!(taken[31], 2);
    }

    #[test]
    fn even_gives_the_remainder_to_the_first_steps() {
        assert_eq!(counts(Schedule::Even, 10, 6), [2, 2, 2, 2, 1, 1]);
        assert_eq!(counts(Schedule::Even, 10, 3), [4, 3, 3]);
        assert_eq!(counts(Schedule::Even, 12, 4), [3; 4]);
        assert_eq!(counts(Schedule::Even, 2, 4), [1, 1, 0, 0]);
    }

    #[test]
    fn a_share_of_the_whole_block_is_clamped_to_the_masks() {
        let clock = Clock { schedule: Schedule::Even, steps: 3, eps: 1e-3, share_of: Some(8) };
        assert_eq!(clock.tick(0, 2, 2, Around::default()).quota, 2);
        assert_eq!(clock.tick(1, 8, 5, Around::default()).quota, 3);
        assert_eq!(clock.tick(2, 8, 5, Around::default()).quota, 5, "the last step leaves nothing");
        assert_eq!(clock.tick(7, 8, 5, Around::default()).quota, 5);
    }

    #[test]
    fn what_was_left_over_is_carried_to_the_next_step() {
        let clock = Clock { schedule: Schedule::Even, steps: 3, eps: 1e-3, share_of: None };
        // Seven masks: shares of 3, 2 and 2; nothing was left over, then one, then everything that is left.
        assert_eq!((clock.carried(0, 7, 7), clock.carried(1, 7, 4)), (Some(3), Some(2)));
        assert_eq!(
            (clock.carried(1, 7, 5), clock.carried(2, 7, 5), clock.carried(9, 7, 1)),
            (Some(3), Some(5), Some(1))
        );
        assert_eq!(Clock { schedule: Schedule::Dream, ..clock }.carried(0, 7, 7), None);
    }

    // specs/families.md#3.
    #[test]
    fn linear_shares_round_halves_to_even() {
        let clock = |masks: usize, steps: usize| {
            let clock = Clock { schedule: Schedule::Linear, steps, eps: 1e-3, share_of: None };
            let (mut left, mut taken) = (masks, Vec::new());
            while left > 0 {
                taken.push(clock.tick(taken.len(), masks, left, Around::default()).quota);
                left -= taken[taken.len() - 1];
            }
            taken
        };
        assert_eq!(clock(16, 5), [3, 3, 3, 4, 3]);
        assert_eq!(clock(8, 3), [3, 2, 3]);
        assert_eq!(clock(32, 5), [6, 6, 7, 6, 7]);
        for (masks, steps) in [(3, 8), (1, 1), (7, 7), (31, 4)] {
            let taken = clock(masks, steps);
            assert!(taken.len() <= masks.min(steps) && taken.iter().all(|&share| share > 0), "{taken:?}");
        }
    }

    // specs/families.md#6.7.
    #[test]
    fn rnd1_keeps_the_share_of_the_steps_that_are_left() {
        assert_eq!(counts(Schedule::Rnd1, 24, 24), [1; 24]);
        assert_eq!(counts(Schedule::Rnd1, 24, 7), [4, 3, 4, 3, 4, 3, 3]);
        assert_eq!(counts(Schedule::Rnd1, 11, 1), [11]);
        // More steps than masks: every other one takes nothing, and the last but one everything.
        assert_eq!(counts(Schedule::Rnd1, 4, 8), [1, 0, 1, 0, 1, 0, 1, 0]);
        // In f64, 100 * 0.29 is below 29; its product in f32 is 29.
        let clock = Clock { schedule: Schedule::Rnd1, steps: 100, eps: 1e-3, share_of: None };
        assert_eq!((clock.staying(70, 100), (100.0 * (29.0 / 100.0)) as usize), (29, 28));
        assert_eq!(clock.tick(99, 100, 3, Around::default()).quota, 3, "the last step leaves nothing");
        assert_eq!(clock.tick(10, 100, 20, Around::default()).quota, 0, "fewer are left than stay");
    }

    #[test]
    fn dream_total_counts_the_masks_of_later_blocks() {
        let clock = Clock { schedule: Schedule::DreamTotal, steps: 7, eps: 1e-3, share_of: None };
        let counts = |blocks_before: usize, blocks_after: usize| {
            let around = Around { blocks_before, blocks_after, masks_after: 12 * blocks_after };
            let mut left = 12;
            (0..7)
                .map(|step| {
                    let quota = clock.tick(step, 12, left, around).quota;
                    left -= quota;
                    quota
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(0, 1), [1, 1, 1, 1, 1, 2, 5]);
        assert_eq!(counts(1, 0), [1, 1, 1, 2, 2, 2, 3]);
        assert_eq!(counts(0, 0), [1, 1, 1, 2, 2, 2, 3], "alone it is Dream's");
    }

    #[test]
    fn names_round_trip() {
        for schedule in Schedule::ALL {
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        let message = "dreem".parse::<Schedule>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown schedule \"dreem\", did you mean \"dream\"? (known: even, dream, dream_total, linear, rnd1)"
        );
    }
}
