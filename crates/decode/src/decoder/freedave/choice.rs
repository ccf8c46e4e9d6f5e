//! Number of drafts of a forward: the choices, and the rules that choose.
//!
//! Tokens never depend on a choice: any number of drafts and any reach is verified alike. What it changes is how many
//! forwards are run, and what each of them costs.

use std::fmt;

/// Blocks that a forward with drafts predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Blocks behind the one that is decoded, at most.
    pub ahead: usize,
    /// Records whether every draft runs the rows of all of them; otherwise each ends with the first block that it
    /// leaves incomplete, which only a mask lets it whose rows do not see what comes later.
    pub whole: bool,
}

/// Drafts of a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Drafts, the canvas as it is included: 1 is a step of static decoding.
    pub drafts: usize,
    /// Blocks that it predicts.
    pub reach: Reach,
}

/// A choice and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priced {
    /// The choice.
    pub choice: Choice,
    /// Seconds of the forward on the cost curve.
    pub seconds: f64,
}

/// Choices before a forward.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// Choices: reach by reach with rising numbers of drafts, from 1. Never empty.
    pub choices: &'a [Priced],
    /// Chances of the drafts behind the first: of each, that it is accepted once those before it are.
    pub chances: &'a [f64],
    /// Tokens committed so far, and the seconds on the cost curve that they took.
    pub gained: usize,
    /// Seconds of all forwards so far on the cost curve.
    pub spent: f64,
}

/// Chooses how much each forward drafts.
pub trait Choose: fmt::Debug + Send {
    /// Returns the index of a choice.
    fn choose(&mut self, offer: &Offer<'_>) -> usize;
}

/// Rule that takes all drafts within reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsMany;

impl Choose for AsMany {
    fn choose(&mut self, offer: &Offer<'_>) -> usize {
        offer.choices.len().saturating_sub(1)
    }
}

/// The most tokens that are expected beyond what their seconds are worth.
///
/// What a draft saves is a later forward of static decoding, and those that it saves are the cheap ones: a cache computes
/// many rows when a block begins, whoever drafts. So a token is worth the cheapest forward with 1 draft so far, or less where
/// drafts have done better.
#[derive(Debug, Clone, Copy)]
pub(super) struct BestRate {
    /// Seconds of the cheapest forward with 1 draft that was offered.
    cheapest: f64,
}

impl Default for BestRate {
    fn default() -> Self {
        Self { cheapest: f64::INFINITY }
    }
}

impl Choose for BestRate {
    fn choose(&mut self, offer: &Offer<'_>) -> usize {
        let single = offer.choices.first().map_or(0.0, |first| first.seconds);
        self.cheapest = self.cheapest.min(single);
        // Static decoding commits a token in each.
        let of_static = 1.0 / self.cheapest.max(f64::MIN_POSITIVE);
        let so_far = if offer.spent > 0.0 { offer.gained as f64 / offer.spent } else { 0.0 };
        let rate = of_static.max(so_far);
        let (mut best, mut most) = (0, f64::NEG_INFINITY);
        for (index, priced) in offer.choices.iter().enumerate() {
            let behind = priced.choice.drafts.saturating_sub(1);
            let mut product = 1.0;
            let expected: f64 = offer.chances.iter().take(behind).fold(1.0, |sum, chance| {
                product *= chance;
                sum + product
            });
            let worth = expected - rate * priced.seconds;
            let fewer = priced.choice.drafts < offer.choices[best].choice.drafts;
            if worth > most + 1e-9 || worth > most - 1e-9 && fewer {
                (best, most) = (index, worth);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of drafts that the rule chooses for forwards with 1 draft, 2 drafts and so on, each of these
    /// seconds.
    fn chosen(rule: &mut BestRate, seconds: &[f64], chances: &[f64]) -> usize {
        let reach = Reach { ahead: 0, whole: true };
        let choice = |(index, &seconds)| Priced { choice: Choice { drafts: index + 1, reach }, seconds };
        let choices: Vec<Priced> = seconds.iter().enumerate().map(choice).collect();
        let offer = Offer { choices: &choices, chances, gained: 0, spent: 0.0 };
        choices[rule.choose(&offer)].choice.drafts
    }

    #[test]
    fn drafts_are_chosen_as_far_as_they_pay() {
        let rule = || BestRate::default();
        assert_eq!(chosen(&mut rule(), &[1.0, 1.5, 2.0, 3.0], &[0.9, 0.9, 0.1]), 3);
        assert_eq!(chosen(&mut rule(), &[1.0, 1.5, 2.0], &[0.4, 0.9]), 1);
        assert_eq!(chosen(&mut rule(), &[1.0, 1.0, 1.0], &[0.5, 0.0]), 2, "ties go to fewer drafts");
    }

    #[test]
    fn a_token_is_worth_the_cheap_forward_that_it_saves() {
        let mut rule = BestRate::default();
        assert_eq!(chosen(&mut rule, &[1.0, 2.3], &[0.9]), 1);
        assert_eq!(chosen(&mut rule, &[5.0, 6.0], &[0.9]), 1, "a block begins, and 1 more second saves less than 1");
        assert_eq!(chosen(&mut rule, &[5.0, 5.5], &[0.9]), 2);
    }
}
