//! Tokens that the guide has read: the token after each of its slots. Its K/V are a function of its tokens, so feeding
//! starts at the first difference; cutting back is never stored and hence never wrong (specs/flashdlm.md#2.3 and
//! specs/flashdlm.md#5).

use std::ops::Range;

use demask_step::{ForwardInput, Mask, Position, TokenId};

/// The guide's slots.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The tokens after slots `[0, read.len())`.
    read: Vec<TokenId>,
}

impl Reader {
    /// Makes room for so many tokens.
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self { read: Vec::with_capacity(tokens) }
    }

    /// Fills a request that reads `tokens` as far as judging the tokens at `judged` needs: row `p - 1` judges index
    /// `p`. `judged` is not empty, starts after index 0, and may end one after the last token.
    pub(crate) fn ask(&self, tokens: &[TokenId], judged: Range<usize>, request: &mut ForwardInput) {
        let same = self.read.iter().zip(tokens).take_while(|(read, token)| read == token).count();
        let end = judged.end - 1;
        let start = same.min(judged.start - 1);
        let plan = &mut request.plan;
        plan.clear();
        plan.mask = Mask::Causal;
        plan.kv_len = end as Position;
        plan.query.set_range(start as Position..end as Position);
        plan.predict.set_range(judged.start as Position..judged.end as Position);
        request.tokens.clear();
        request.tokens.extend_from_slice(&tokens[start..end]);
        request.ask.states.clear();
        request.ask.states.push(end as u32);
    }

    /// Begins with tokens that are after its slots already.
    pub(crate) fn begin(&mut self, tokens: &[TokenId]) {
        self.read.clear();
        self.read.extend_from_slice(tokens);
    }

    /// Returns the tokens after its first slots, up to so many.
    pub(crate) fn first(&self, most: usize) -> &[TokenId] {
        &self.read[..most.min(self.read.len())]
    }

    /// Learns that a request was run.
    pub(crate) fn note(&mut self, request: &ForwardInput) {
        self.read.truncate(request.plan.query.first().unwrap_or(0) as usize);
        self.read.extend_from_slice(&request.tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(reader: &mut Reader, tokens: &[TokenId], judged: Range<usize>) -> String {
        let mut request = ForwardInput::default();
        reader.ask(tokens, judged, &mut request);
        reader.note(&request);
        format!("{} feeds {:?}", request.plan, request.tokens)
    }

    #[test]
    fn what_was_read_is_not_read_again() {
        let mut reader = Reader::default();
        for (tokens, judged, plan) in [
            (&[7, 8, 1, 2, 3, 4][..], 2..4, "live 0..3 visible 3 causal canvas predict 2..4 feeds [7, 8, 1]"),
            (&[7, 8, 1, 2, 3, 4], 4..6, "live 3..5 visible 5 causal canvas predict 4..6 feeds [2, 3]"),
            // Draft 3 became 5: slots 0 to 3 stand.
            (&[7, 8, 1, 2, 5, 6], 5..6, "live 4 visible 5 causal canvas predict 5 feeds [5]"),
            // Nothing differs, but the row before what is judged must be live.
            (&[7, 8, 1, 2, 5, 6], 5..6, "live 4 visible 5 causal canvas predict 5 feeds [5]"),
            (&[7, 9, 1, 2], 3..4, "live 1..3 visible 3 causal canvas predict 3 feeds [9, 1]"),
        ] {
            assert_eq!(asked(&mut reader, tokens, judged), plan);
        }
        assert_eq!(reader.read, [7, 9, 1]);
    }
}
