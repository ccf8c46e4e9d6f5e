//! Whether the guide agrees with a token (specification flashdlm, section 2.2, table of agreements).

use demask_step::Judged;

use crate::decoder::DecoderSpec;

/// Names of the rules, for the decoder's parameter.
pub(crate) const RULES: &[&str] = &["exact", "topk", "topk_relative"];

/// A matching policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// The token is among this many best ones.
    pub among: u32,
    /// Its probability is at least this share of the best one's.
    pub share: f32,
}

impl Rule {
    /// That of a decoder.
    pub(crate) fn of(spec: &DecoderSpec) -> Self {
        let k = spec.count("k").and_then(|k| u32::try_from(k).ok()).unwrap_or(u32::MAX);
        match spec.choice("match") {
            "topk" => Self { among: k, share: 0.0 },
            "topk_relative" => Self { among: k, share: spec.number("tau") },
            _ => Self { among: 1, share: 0.0 },
        }
    }

    /// Whether the guide agrees.
    pub(crate) fn agrees(self, judged: &Judged) -> bool {
        judged.rank < self.among && judged.log_probability.exp() >= self.share * judged.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(spec: &str) -> Rule {
        Rule::of(&spec.parse().unwrap())
    }

    /// Tokens of a distribution, the best first, that a rule agrees with.
    fn agreed(spec: &str, probabilities: &[f32]) -> usize {
        let best = probabilities[0];
        let judged = probabilities.iter().zip(0..).map(|(p, rank)| Judged { rank, log_probability: p.ln(), best });
        judged.filter(|judged| rule(spec).agrees(judged)).count()
    }

    #[test]
    fn rules_are_those_of_the_table() {
        let distribution = [0.5, 0.3, 0.15, 0.05];
        for (spec, count) in [
            ("guided", 1),
            ("guided:match=exact,k=3", 1),
            ("guided:match=topk", 2),
            ("guided:match=topk,k=3", 3),
            ("guided:match=topk_relative,k=3,tau=0.5", 2),
            ("guided:match=topk_relative,k=2,tau=0.7", 1),
        ] {
            assert_eq!(agreed(spec, &distribution), count, "{spec}");
        }
    }

    /// Policies are nested, and meet at their ends.
    #[test]
    fn flashdlm_g4_rules_are_nested() {
        let distribution = [0.4, 0.3, 0.2, 0.1];
        for k in 1..=4 {
            let topk = agreed(&format!("guided:match=topk,k={k}"), &distribution);
            for tau in [0.0, 0.25, 0.5, 0.75, 1.0] {
                let relative = agreed(&format!("guided:match=topk_relative,k={k},tau={tau}"), &distribution);
                assert!((1..=topk).contains(&relative));
                assert!(tau > 0.0 || relative == topk);
                assert!(tau < 1.0 || relative == 1);
                assert!(k > 1 || relative == 1);
            }
        }
        assert_eq!(agreed("guided:match=topk_relative,k=4,tau=0", &distribution), 4);
    }
}
