//! The family that a user names: `NAME` or `NAME:shift=0|1,block=N|none,mask=ID`, for checkpoints whose files do not tell.

use std::{fmt, str::FromStr};

use demask_model::ArchSpec;
use demask_step::{Mask, Position};

use super::{FAMILIES, Family};

/// Family that a checkpoint is read as, whatever its files say, and what its weights were trained for where that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyChoice {
    family: &'static Family,
    shift: Option<usize>,
    /// Block length; 0 for a model without blocks.
    block: Option<Position>,
    mask: Option<u32>,
}

/// Largest block length that is read.
const LARGEST_BLOCK: Position = 1 << 16;

impl FamilyChoice {
    /// Returns a family as it is.
    pub fn of(family: &'static Family) -> Self {
        Self { family, shift: None, block: None, mask: None }
    }

    /// Returns the family.
    pub fn family(&self) -> &'static Family {
        self.family
    }

    /// Returns the mask token, if one is named.
    pub(crate) fn mask(&self) -> Option<u32> {
        self.mask
    }

    /// Changes the named facts of the family.
    pub(crate) fn apply(&self, spec: &mut ArchSpec) {
        if let Some(shift) = self.shift {
            spec.shift = shift;
        }
        spec.attention = match (self.block, spec.attention) {
            (None, attention) => attention,
            (Some(0), _) => Mask::Full,
            (Some(block), Mask::Context { context, .. }) => Mask::Context { context, block },
            (Some(block), _) => Mask::blocks(block),
        };
    }

    /// Returns what contradicts itself or the family, if anything does.
    fn contradiction(&self) -> Option<String> {
        let family = self.family;
        let blocks = self.block.map_or(family.attention.block().is_some(), |block| block > 0);
        let shifted = self.shift.unwrap_or(family.shift) == 1;
        if matches!(family.attention, Mask::Context { .. }) && (self.shift.is_some() || self.block == Some(0)) {
            return Some(format!(
                "{family} has blocks, and a shift of its own for each pass: omit shift, or give block=N"
            ));
        }
        if blocks && shifted && !family.blocks.seeds && family.is_diffusion() {
            return Some(
                "with shift=1 no row of a block predicts its first position: give shift=0, or Fast-dLLM-v2, whose stored \
                 blocks predict it"
                    .to_owned(),
            );
        }
        let causal = (self.shift.is_some() || self.block.is_some()) && !family.is_diffusion();
        causal.then(|| {
            format!("{family} is autoregressive and has neither: omit shift and block, or name another family")
        })
    }
}

/// A family that nobody can read so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("family {found:?}: {problem}")]
pub struct UnknownFamily {
    found: String,
    problem: String,
}

impl FromStr for FamilyChoice {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let refused = |problem: String| UnknownFamily { found: text.to_owned(), problem };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let known = || FAMILIES.iter().map(|family| family.name()).collect::<Vec<_>>().join(", ");
        let family = Family::named(name).ok_or_else(|| refused(format!("expected one of {}", known())))?;
        let mut choice = Self::of(family);
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("shift", "0")) => choice.shift = Some(0),
                Some(("shift", "1")) => choice.shift = Some(1),
                Some(("block", "none")) => choice.block = Some(0),
                Some(("block", number)) => {
                    let block = number.parse().ok().filter(|block| (1..=LARGEST_BLOCK).contains(block));
                    choice.block = Some(block.ok_or_else(|| {
                        refused(format!("block is {number:?}, expected none or 1 to {LARGEST_BLOCK}"))
                    })?);
                }
                Some(("mask", id)) => {
                    let refused = || refused(format!("mask is {id:?}, expected the id of a token that no text has"));
                    choice.mask = Some(id.parse().map_err(|_| refused())?);
                }
                _ => {
                    let expected = "expected shift=0, shift=1, block=N, block=none or mask=ID";
                    return Err(refused(format!("found {part:?}, {expected}")));
                }
            }
        }
        match choice.contradiction() {
            Some(problem) => Err(refused(problem)),
            None => Ok(choice),
        }
    }
}

impl fmt::Display for FamilyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.name())?;
        let shift = self.shift.map(|shift| format!("shift={shift}"));
        let block = self.block.map(|block| if block == 0 { "block=none".to_owned() } else { format!("block={block}") });
        let mask = self.mask.map(|mask| format!("mask={mask}"));
        let parts: Vec<String> = shift.into_iter().chain(block).chain(mask).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, ":{}", parts.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written() {
        for text in [
            "A2D-Qwen3",
            "A2D-Qwen3:shift=1",
            "A2D-Qwen3:shift=0,block=32",
            "A2D-Qwen3-bd3lm:block=none",
            "I-DLM",
            "Qwen3:mask=93",
        ] {
            assert_eq!(text.parse::<FamilyChoice>().unwrap().to_string(), text);
        }
        assert_eq!("stable-diffcoder".parse::<FamilyChoice>().unwrap().family().name(), "Stable-DiffCoder");
        assert!("fast-dllm-v2:block=64".parse::<FamilyChoice>().is_ok());
        assert!("nemotron-labs-diffusion:block=16".parse::<FamilyChoice>().is_ok());
    }

    #[test]
    fn wrong_choices_are_refused_in_one_line() {
        for (text, told) in [
            ("a2d", "expected one of LLaDA, Dream, "),
            ("a2d-qwen3:shift=2", "found \"shift=2\", expected shift=0, shift=1, block=N, block=none or mask=ID"),
            ("llama:mask=-1", "mask is \"-1\", expected the id of a token that no text has"),
            ("i-dlm:block=4", "is autoregressive"),
            ("a2d-qwen3:block=0", "block is \"0\", expected none or 1 to 65536"),
            ("a2d-qwen3:block=4,shift=1", "no row of a block predicts its first position"),
            ("qwen2:block=4", "is autoregressive"),
            ("nemotron-labs-diffusion:shift=0", "a shift of its own for each pass"),
        ] {
            let refused = text.parse::<FamilyChoice>().unwrap_err().to_string();
            assert!(refused.contains(told) && !refused.contains('\n'), "{refused}");
        }
    }
}
