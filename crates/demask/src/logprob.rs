//! Log-probabilities of tokens, of an answer at their commit or of a text that is judged, with alternatives.

use std::cmp::Ordering;

use demask_decode::{Logprob, Session};
use demask_step::{Position, TokenId};

/// Most alternatives of a token, as in OpenAI's interface.
pub(crate) const MOST: usize = 20;

/// Log-probability of a token of an answer when it was committed, or of a token of a text after those before it.
///
/// Of a text that an autoregressive model judges ([`Likelihood::logprobs`](crate::Likelihood::logprobs)), probabilities are
/// those of `softmax(logits)`, and their product is the probability of the text. Of an answer:
///
/// Probabilities are those of the distribution that confidence speaks of: `softmax(logits)` of the row that the token was
/// taken from, in the forward that predicted it. The mask, which is never predicted, keeps its share, so that the alternatives
/// sum to less than 1. Where the decoder reads the draw's distribution (`static` on Dream and SDAR, `confidence=tempered`),
/// tempered and filtered as the draw was. A decoder that commits in another order has other ones: these are not the
/// probability of the text.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The token.
    pub token: TokenId,
    /// Natural logarithm of its probability. None where no prediction of the model was committed: in a place that a stop
    /// rule filled, or where a guide's own token stands; and for a token that weighs nothing.
    pub logprob: Option<f32>,
    /// The most probable tokens of the same row with the natural logarithms of their probabilities, best first: as many as
    /// were asked for, fewer if no more are possible, and none where there is no `logprob` of a prediction.
    pub top: Vec<(TokenId, f32)>,
}

impl TokenLogprob {
    /// Returns the log-probability of the token at a position of a session, and the best tokens there.
    pub(crate) fn of(session: &Session, position: Position) -> Self {
        let token = session.canvas()[position as usize];
        let known = session.logprob(position);
        let finite = |known: Logprob<'_>| Some(known.log_probability).filter(|found| found.is_finite());
        Self { token, logprob: known.and_then(finite), top: known.map(|known| known.top.to_vec()).unwrap_or_default() }
    }

    /// Returns the log-probability of a token that was judged, with the best tokens of its row and their probabilities.
    pub(crate) fn judged(token: TokenId, own: f32, best: &[(TokenId, f32)]) -> Self {
        let place = best.iter().position(|&(other, _)| other == token).unwrap_or(best.len());
        let possible = best.iter().enumerate().filter(|(_, (_, probability))| *probability > 0.0);
        // The head rounds the two apart: a token that is among the best has one log-probability, and who compares it with
        // theirs finds the same order.
        let top = possible.map(|(index, &(other, probability))| {
            let logarithm = probability.ln();
            let ordered = match index.cmp(&place) {
                Ordering::Less => logarithm.max(own),
                Ordering::Equal => own,
                Ordering::Greater => logarithm.min(own),
            };
            (other, ordered)
        });
        Self { token, logprob: Some(own).filter(|own| own.is_finite()), top: top.collect() }
    }
}
