//! Rules for ending before everything is decoded, by name, as they are typed.

use std::{fmt, str::FromStr};

use demask_settings::names::{UnknownName, same};

/// Rule by which decoding stops before everything is decoded. Those that fill masks do it with
/// [`SessionOptions::fill`](crate::SessionOptions::fill), the model's end-of-text token; the fills are commits of the last
/// forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopRule {
    /// Stop as soon as an end id stands in the response with no mask before it.
    #[default]
    Prefix,
    /// Stop as for [`Self::Prefix`]; the remaining masks are filled (FlashDLM as released; specs/flashdlm.md#2.4).
    PrefixFill,
    /// Once a block is finished (and stored, if the cache stores blocks) and any end id stands after the prompt (SDAR
    /// as released; specs/models.md#4.5).
    Block,
    /// Once a finished (and stored) block consists of nothing but the fill: everything after it is filled with it
    /// (FreeDave's `early_exit`; specs/freedave.md#1.8).
    WholeBlock,
    /// Never, but as soon as the fill was decoded anywhere, all masks after it are filled with it, so that only what
    /// precedes it is decoded (FlashDLM on LLaDA; specs/flashdlm.md#1.6). The reference also overwrites tokens after
    /// it that were decoded before; here they stay, and the answer ends before them.
    FillBehind,
    /// Stop as soon as the response is free of masks up to its last decoded token, and the last of its tokens, this many,
    /// at least 1, are the fill: everything after them is filled with it (FlashDLM on Dream; specs/flashdlm.md#1.6).
    EndRun(usize),
    /// Never: everything is decoded. The answer still ends at the first end id: to keep all of it, name no end ids.
    Never,
}

/// The run of end tokens that FlashDLM's evaluation waits for (`early_stop_consecutive`).
const USUAL_RUN: usize = 5;

/// Rules by name. The run of end tokens has its usual length.
const RULES: [(&str, StopRule); 7] = [
    ("prefix", StopRule::Prefix),
    ("prefix-fill", StopRule::PrefixFill),
    ("block", StopRule::Block),
    ("whole-block", StopRule::WholeBlock),
    ("fill", StopRule::FillBehind),
    ("end-run", StopRule::EndRun(USUAL_RUN)),
    ("never", StopRule::Never),
];

/// Reason why a text is no stop rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// No rule has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The rule takes no parameter.
    #[error("stop rule {rule} takes no parameter, found \"{found}\": only end-run takes one, run=N")]
    Parameter {
        /// The rule.
        rule: &'static str,
        /// Text after the name.
        found: String,
    },
    /// The length of the run cannot be read.
    #[error("stop rule end-run has \"{found}\", expected run=N with a whole number from 1 on")]
    Run {
        /// Text after the name.
        found: String,
    },
}

impl StopRule {
    /// Returns whether it fills masks, for which the model must have an end-of-text token.
    pub fn fills(self) -> bool {
        matches!(self, Self::PrefixFill | Self::WholeBlock | Self::FillBehind | Self::EndRun(_))
    }

    fn name(self) -> &'static str {
        let same = |rule: Self| std::mem::discriminant(&rule) == std::mem::discriminant(&self);
        RULES.into_iter().find(|&(_, rule)| same(rule)).map_or("never", |(name, _)| name)
    }
}

impl FromStr for StopRule {
    type Err = StopError;

    fn from_str(text: &str) -> Result<Self, StopError> {
        let (found, behind) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let Some((rule, stop)) = RULES.into_iter().find(|(name, _)| same(name, found)) else {
            let known = RULES.iter().map(|(name, _)| *name).collect();
            return Err(UnknownName { what: "stop rule", found: found.to_owned(), known }.into());
        };
        match (stop, behind) {
            (stop, "") if !text.contains(':') => Ok(stop),
            (Self::EndRun(_), behind) => {
                let run = behind.strip_prefix("run=").and_then(|run| run.parse().ok()).filter(|&run| run > 0);
                run.map(Self::EndRun).ok_or_else(|| StopError::Run { found: behind.to_owned() })
            }
            (_, behind) => Err(StopError::Parameter { rule, found: behind.to_owned() }),
        }
    }
}

impl fmt::Display for StopRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::EndRun(run) => write!(f, ":run={run}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_back_as_they_are_written() {
        for (name, rule) in RULES {
            assert_eq!(name.parse(), Ok(rule));
            assert_eq!(name.replace('-', "_").to_uppercase().parse(), Ok(rule));
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert_eq!("end-run:run=2".parse(), Ok(StopRule::EndRun(2)));
        assert_eq!(StopRule::EndRun(2).to_string(), "end-run:run=2");
    }

    #[test]
    fn what_is_no_rule_is_refused_in_one_line() {
        for (text, told) in [
            ("prefx", "unknown stop rule \"prefx\", did you mean \"prefix\"? (known: prefix, prefix-fill, block, "),
            ("", "unknown stop rule \"\" (known: prefix, "),
            ("block:run=2", "stop rule block takes no parameter, found \"run=2\": only end-run takes one, run=N"),
            ("never:", "stop rule never takes no parameter, found \"\""),
            ("end-run:5", "stop rule end-run has \"5\", expected run=N with a whole number from 1 on"),
            ("end-run:run=0", "stop rule end-run has \"run=0\", expected run=N"),
            ("end-run:", "stop rule end-run has \"\", expected run=N"),
            ("end-run:run=99999999999999999999999", "stop rule end-run has \"run=99999999999999999999999\", expected"),
        ] {
            let refused = text.parse::<StopRule>().unwrap_err().to_string();
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{refused}");
        }
    }
}
