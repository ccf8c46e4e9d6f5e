//! Rules for ending before everything is decoded: the engine's stop rules by name, as they are typed.

use std::{fmt, str::FromStr};

use demask_decode::{
    StopRule,
    names::{UnknownName, same},
};
use demask_step::TokenId;

/// A stop rule of the engine, without the token that it fills with: that is the model's end-of-text token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStop {
    /// Stop as soon as an end token stands in the response with no mask before it.
    Prefix,
    /// Stop as for [`Self::Prefix`]; remaining masks become end-of-text tokens (FlashDLM's guided decoding).
    PrefixFill,
    /// Once a block with an end token in or before it is finished (SDAR).
    Block,
    /// Once a finished block consists of end-of-text tokens, which also fill what follows (FreeDave's `early_exit`).
    WholeBlock,
    /// Never, but what lies behind a decoded end-of-text token is filled with it at once (FlashDLM on LLaDA).
    Fill,
    /// Stop as soon as the last tokens before the first mask are this many end-of-text tokens, which fill the rest
    /// (FlashDLM on Dream).
    EndRun(usize),
    /// Never: everything is decoded.
    Never,
}

/// The run of end tokens that FlashDLM's evaluation waits for (`early_stop_consecutive`).
const USUAL_RUN: usize = 5;

/// Rules by name; that of a run with its usual length.
const RULES: [(&str, EarlyStop); 7] = [
    ("prefix", EarlyStop::Prefix),
    ("prefix-fill", EarlyStop::PrefixFill),
    ("block", EarlyStop::Block),
    ("whole-block", EarlyStop::WholeBlock),
    ("fill", EarlyStop::Fill),
    ("end-run", EarlyStop::EndRun(USUAL_RUN)),
    ("never", EarlyStop::Never),
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
        /// Text behind the name.
        found: String,
    },
    /// The length of the run cannot be read.
    #[error("stop rule end-run has \"{found}\", expected run=N with a whole number from 1 on")]
    Run {
        /// Text behind the name.
        found: String,
    },
}

impl EarlyStop {
    /// Returns the engine's rule, which fills with this token.
    pub(crate) fn rule(self, fill: TokenId) -> StopRule {
        match self {
            Self::Prefix => StopRule::Prefix,
            Self::PrefixFill => StopRule::PrefixFill { fill },
            Self::Block => StopRule::Block,
            Self::WholeBlock => StopRule::WholeBlock { fill },
            Self::Fill => StopRule::FillBehind { fill },
            Self::EndRun(run) => StopRule::EndRun { fill, run },
            Self::Never => StopRule::Never,
        }
    }

    /// Returns whether it fills masks with the end-of-text token, which the model must then have.
    pub(crate) fn fills(self) -> bool {
        matches!(self, Self::PrefixFill | Self::WholeBlock | Self::Fill | Self::EndRun(_))
    }

    fn name(self) -> &'static str {
        let same = |rule: Self| std::mem::discriminant(&rule) == std::mem::discriminant(&self);
        RULES.into_iter().find(|&(_, rule)| same(rule)).map_or("never", |(name, _)| name)
    }
}

impl FromStr for EarlyStop {
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

impl fmt::Display for EarlyStop {
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
            assert_eq!(rule.fills(), rule.rule(7) != rule.rule(8), "{name}");
        }
        assert_eq!("end-run:run=2".parse(), Ok(EarlyStop::EndRun(2)));
        assert_eq!(EarlyStop::EndRun(2).to_string(), "end-run:run=2");
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
            let refused = text.parse::<EarlyStop>().unwrap_err().to_string();
            assert!(refused.starts_with(told) && !refused.contains('\n'), "{refused}");
        }
    }
}
