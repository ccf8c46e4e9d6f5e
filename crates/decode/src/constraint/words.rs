//! Choices about a constraint that are words.

use std::{fmt, str::FromStr};

/// Declares an enum whose variants are words.
macro_rules! words {
    ($(#[$about:meta])+ pub enum $name:ident of $what:literal { $($(#[$doc:meta])+ $variant:ident = $word:literal,)+ }) => {
        $(#[$about])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])+ $variant,)+
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(match self { $(Self::$variant => $word,)+ })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("{} is {text:?}, expected {}", $what, [$($word),+].join(" or "))),
                }
            }
        }
    };
}

words! {
    /// Where JSON may have space.
    pub enum Space of "space in JSON" {
        /// Nowhere.
        Compact = "compact",
        /// At most one space after each comma and each colon.
        #[default]
        Spaced = "spaced",
        /// There and around what brackets hold: at most one space, or one new line with up to 32 spaces.
        Pretty = "pretty",
    }
}

words! {
    /// Distribution that confidences under a constraint speak of.
    pub enum Measured of "confidence under a constraint" {
        /// The one that the model's family measures, over all tokens: form that leaves little choice makes no token surer.
        #[default]
        Raw = "raw",
        /// The same, renormalised over admissible tokens.
        Allowed = "allowed",
    }
}

words! {
    /// Commits that a constraint forces without a forward.
    pub enum Forced of "the forced part of a constraint" {
        /// Tokens that every answer has.
        #[default]
        Tokens = "tokens",
        /// Text that every answer has, too, in the tokenizer's own tokens.
        Text = "text",
    }
}

words! {
    /// Answer under a constraint whose time is over.
    pub enum AtDeadline of "the answer at its deadline" {
        /// The part that is settled.
        #[default]
        Settled = "settled",
        /// A whole one: open positions hold the tokens that fit best of the last predictions.
        Complete = "complete",
    }
}
