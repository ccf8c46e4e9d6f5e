//! Records whether the guide agrees with a token (specs/flashdlm.md#2.2, table of agreements).

use demask_step::TokenScore;

use crate::choices;

choices! {
    /// Tokens that the guide agrees with.
    pub enum Agreement {
        /// Best token of the guide.
        Exact = "exact",
        /// Best `k` tokens of the guide.
        TopK = "topk",
        /// Tokens among its `k` best that have at least a share of the best one's probability.
        TopKRelative = "topk_relative",
        /// Any token of which the diffusion model is sure enough: its confidence is at least a share of the best one's
        /// probability.
        Confidence = "confidence",
    }
}

/// A matching policy with its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    pub agreement: Agreement,
    /// Largest number of tokens that it agrees with.
    pub k: u32,
    /// The share of the best token's probability.
    pub share: f32,
}

impl Rule {
    /// Reports whether the guide agrees with a token that the diffusion model drafted with this confidence.
    pub(crate) fn agrees(self, judged: &TokenScore, confidence: f32) -> bool {
        let (among, share) = match self.agreement {
            Agreement::Exact => (1, 0.0),
            Agreement::TopK => (self.k, 0.0),
            Agreement::TopKRelative => (self.k, self.share),
            Agreement::Confidence => return confidence >= self.share * judged.best,
        };
        judged.rank < among && judged.log_probability.exp() >= share * judged.best
    }

    /// Reports whether it matters which token was drafted, beside the confidence of it.
    pub(crate) fn reads_tokens(self) -> bool {
        self.agreement != Agreement::Confidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecoderSpec, methods::GuidedDecoding};

    fn rule(spec: &str) -> Rule {
        let GuidedDecoding { agreement, k, tau, .. } = spec.parse::<DecoderSpec>().unwrap().parameters().unwrap();
        Rule { agreement, k, share: tau }
    }

    /// Tokens of a distribution, the best first, that a rule agrees with.
    fn agreed(spec: &str, probabilities: &[f32]) -> usize {
        let best = probabilities[0];
        let judged = probabilities.iter().zip(0..).map(|(p, rank)| TokenScore { rank, log_probability: p.ln(), best });
        judged.filter(|judged| rule(spec).agrees(judged, 0.0)).count()
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

    /// Appendix C.4 of the paper, word for word: the model's largest value against the guide's, whatever the tokens.
    #[test]
    fn the_literal_rule_compares_the_two_models_and_no_tokens() {
        for (confidence, best, tau, stands) in
            [(0.3, 0.6, 0.5, true), (0.29, 0.6, 0.5, false), (0.9, 0.9, 1.0, true), (0.0, 0.9, 0.0, true)]
        {
            for rank in [0, 7] {
                let judged = TokenScore { rank, log_probability: -9.0, best };
                let rule = rule(&format!("guided:match=confidence,tau={tau}"));
                assert_eq!(rule.agrees(&judged, confidence), stands, "{confidence} {best} {tau}");
            }
        }
        let judged = TokenScore { rank: 0, log_probability: 0.0, best: 1.0 };
        assert!(!rule("guided:match=confidence").agrees(&judged, f32::NEG_INFINITY));
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
