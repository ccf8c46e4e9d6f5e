//! An answer, and how it is made of a request that is done.

use std::{fmt, ops::Range, time::Duration};

use demask_decode::{Finish, GuideCounts, Session};
use demask_engine::{FirstTokens, Request};
use demask_step::{DeviceMemory, Mask, MemoryMeter, Position, TokenId};

use crate::{
    Chosen, ModelInfo, TokenLogprob,
    receipt::{DeviceUse, Guided, MemoryUse, Receipt, Seconds, VERSION, forget_peak_memory, peak_memory},
};

/// An answer.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Generation {
    /// The text without special tokens; none if the model has no tokenizer.
    pub text: Option<String>,
    /// The text of each hole that was filled, in their order; empty if the answer follows a prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<String>,
    /// Positions of these holes in the canvas. Everything else in it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hole_positions: Vec<Range<usize>>,
    /// All tokens after the prompt, up to and including the end token; of a text with holes all from the first hole on, those
    /// between and after the holes included.
    pub tokens: Vec<TokenId>,
    /// Log-probability of each of these tokens when it was committed, in their order; none if
    /// [`top_logprobs`](crate::Options::top_logprobs) is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Reason why it ends where it ends.
    pub finish: Finish,
    /// The end token that ended it; none if it ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_token: Option<TokenId>,
    /// The stop text that ended it; none if it ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_text: Option<String>,
    /// Tokens of the prompt; of a text with holes those before the first hole.
    pub prompt_tokens: usize,
    /// Tokens that were decoded: those of the answer, or those in the holes.
    pub generated_tokens: usize,
    /// Receipt of the answer.
    pub receipt: Receipt,
    /// The whole canvas, for infilling and for those who want to see it.
    #[serde(skip)]
    pub canvas: Vec<TokenId>,
}

/// Writes the text; without a tokenizer, the ids of the tokens.
impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

impl ModelInfo {
    /// Makes the answer of a request that is done; none if it is no answer.
    pub(crate) fn generation(&self, mut request: Box<Request>) -> Option<Generation> {
        let (prepared, spent, bytes, guide) =
            (request.prepared(), request.spent().clone(), request.bytes(), request.guide());
        let chosen = Chosen::of(&request);
        let (more, settings) = chosen.map(|chosen| (chosen.when_cut(), chosen.beside_receipt())).unwrap_or_default();
        let (session, text) = request.answer()?;
        let (holes, hole_positions) = (text.hole_texts(session), text.holes().to_vec());
        let (text, stop_text) = text.take(session);
        let output = session.output();
        let start = session.layout().response();
        let answer = start..start + session.settled();
        let logprobs = session
            .keeps_logprobs()
            .then(|| answer.map(|position| TokenLogprob::of(session, position as Position)).collect());
        let decoding = session.receipt();
        let more = match (decoding.out_of_memory, decoding.given_up) {
            (true, _) => {
                Some("the memory for more K/V has run out: free memory, or let fewer requests run at a time".to_owned())
            }
            (false, Some(_)) => Some("the deadline ended the answer: raise `deadline_ms`, or omit it".to_owned()),
            (false, None) => more.filter(|_| output.finish == Finish::Length),
        };
        let seconds = |network: usize| spent.networks.get(network).map_or(0.0, Duration::as_secs_f64);
        let machine = self.machine.get();
        let wall = prepared + spent.wall;
        let first = spent.first.map(|first| FirstTokens { wall: prepared + first.wall, ..first });
        let generated = session.generated();
        // A text with holes is as long as it was given.
        let canvas = if hole_positions.is_empty() { session.layout().gen_length() } else { 0 };
        Some(Generation {
            text,
            holes,
            hole_positions,
            logprobs,
            finish: output.finish,
            end_token: (output.finish == Finish::Eos).then(|| output.tokens.last().copied()).flatten(),
            stop_text,
            prompt_tokens: session.layout().response(),
            generated_tokens: generated,
            receipt: Receipt {
                version: VERSION.to_owned(),
                model: self.name().to_owned(),
                device: machine.map(|machine| machine.device.clone()).unwrap_or_default(),
                note: self.untrained_masks(&decoding.decoder).or_else(|| self.long_canvas(canvas)),
                decoding,
                settings,
                more,
                guide_nfe: session.counts().guide.nfe,
                guide: self.guided(session, guide),
                seconds: Seconds {
                    load: self.load_time().as_secs_f64(),
                    model: seconds(0),
                    guide: seconds(1),
                    first_token: first.map_or(wall, |first| first.wall).as_secs_f64(),
                    total: (prepared + spent.total).as_secs_f64(),
                    wall: wall.as_secs_f64(),
                    tokens_per_second: tokens_per_second(
                        generated,
                        wall,
                        first.filter(|_| self.facts().mask == Mask::Causal),
                    ),
                },
                memory: MemoryUse {
                    weights: self.weight_bytes(),
                    guide: self.guides.iter().map(|guide| guide.info.weight_bytes()).sum(),
                    cache: bytes as usize,
                    peak: peak_memory(),
                    device: self.device_memory(),
                },
            },
            canvas: output.canvas,
            tokens: output.tokens,
        })
    }

    fn meters(&self) -> impl Iterator<Item = &(dyn MemoryMeter + 'static)> {
        let guides = self.guides.iter().map(|guide| &*guide.info);
        let machines = std::iter::once(self).chain(guides).filter_map(|info| info.machine.get());
        machines.filter_map(|machine| machine.meter.as_deref())
    }

    /// Device memory of the model and its guides now; none where the processor computes.
    pub(crate) fn device_memory(&self) -> Option<DeviceUse> {
        self.meters().map(MemoryMeter::read).reduce(DeviceMemory::and).map(DeviceUse::from)
    }

    /// Lets the peaks of this process and of its devices begin again with the memory that is taken now.
    pub(crate) fn forget_peak_memory(&self) {
        forget_peak_memory();
        self.meters().for_each(MemoryMeter::forget_peak);
    }

    /// Counts of the guide of a session that had one.
    fn guided(&self, session: &Session, guide: Option<usize>) -> Option<Guided> {
        let guide = self.guides.get(guide?)?;
        let GuideCounts { cached, rows, accepted, rejected, cost, .. } = session.counts().guide;
        let decided = accepted + rejected;
        Some(Guided {
            model: guide.info.name().to_owned(),
            rows,
            cached_tokens: cached,
            flops: cost.flops(),
            accepted,
            rejected,
            acceptance: if decided == 0 { 0.0 } else { accepted as f64 / decided as f64 },
        })
    }
}

/// Returns the tokens a second of an answer that took `wall`: those after the first ones where these are given.
fn tokens_per_second(tokens: usize, wall: Duration, first: Option<FirstTokens>) -> f64 {
    let (tokens, time) = match first {
        Some(first) if tokens > first.tokens => (tokens - first.tokens, wall.saturating_sub(first.wall)),
        _ => (tokens, wall),
    };
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_prompt_is_no_part_of_a_causal_model_s_speed() {
        let seconds = Duration::from_secs;
        let first = |tokens, wall| Some(FirstTokens { tokens, wall: seconds(wall) });
        assert_eq!(tokens_per_second(9, seconds(6), first(1, 2)), 2.0);
        assert_eq!(tokens_per_second(9, seconds(3), None), 3.0);
        // All tokens are the first ones: nothing but the whole time is known.
        assert_eq!(tokens_per_second(8, seconds(4), first(8, 4)), 2.0);
        assert_eq!(tokens_per_second(0, seconds(0), None), 0.0);
    }
}
