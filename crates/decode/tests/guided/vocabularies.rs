//! Guides with another vocabulary: drafts are aligned with its tokens by their text.

use std::{collections::HashMap, sync::Arc};

use demask_decode::{Finish, GuideOptions, GuideText, SessionOptions, StopRule, Translator};
use demask_step::{Mask, TokenId};
use demask_testkit::property;
use proptest::prelude::*;

use super::{guided, hashed, shared, trace};
use crate::common::{EOS, VOCAB, facts};

/// Two toy vocabularies of bytes: the model's tokens are the letters a to r, `ab`, and the two halves of é; the guide's
/// are `abc`, `ab`, `b` and so on, the longest first, or any single byte.
#[derive(Debug)]
struct Toy {
    model: Vec<&'static [u8]>,
    guide: HashMap<&'static [u8], TokenId>,
}

pub const MODEL: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"ab", b"\xc3", b"\xa9", b"cd", b"", b"e"];
pub const GUIDE: &[&[u8]] = &[b"abc", b"ab", b"bc", b"a", b"b", b"c", b"d", b"\xc3\xa9", b"\xc3", b"\xa9", b"e"];

impl Translator for Toy {
    fn bytes(&self, token: TokenId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.model.get(token as usize).copied().unwrap_or(b""));
    }

    fn encode(&self, bytes: &[u8], out: &mut Vec<(TokenId, usize)>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let found = (1..=3).rev().find_map(|length| Some((*self.guide.get(rest.get(..length)?)?, length)));
            let Some((token, length)) = found else { return };
            out.push((token, length));
            rest = &rest[length..];
        }
    }
}

/// A guide with its own prompt (token 15) and the toy vocabulary.
pub fn foreign(vocab: usize) -> GuideOptions {
    let guide = GUIDE.iter().zip(0..).map(|(&bytes, id)| (bytes, id)).collect();
    let translator = Arc::new(Toy { model: MODEL.to_vec(), guide });
    let mut facts = facts(Mask::Causal, 1);
    facts.vocab = vocab;
    let text = Some(GuideText { prompt: vec![15], translator, automaton: None });
    GuideOptions { facts, end_ids: vec![14], shared_vocabulary: false, text }
}

fn foreign_options(decoder: &str, gen_length: usize) -> SessionOptions {
    let mut options = guided(decoder, 0, 2, gen_length);
    options.end_ids = vec![EOS];
    options.guide = Some(foreign(VOCAB));
    options
}

/// A guide that goes through a text of its tokens, its prompt first.
fn follows(text: &'static [TokenId]) -> impl Fn(&[TokenId]) -> Vec<TokenId> {
    move |before| vec![if text.starts_with(before) { text.get(before.len()).copied().unwrap_or(14) } else { 13 }]
}

/// Worked out by hand. The model drafts a b c d and an end; their text `abcd` is `abc` `d` to the guide.
#[test]
fn flashdlm_g10_bytes_align_drafts_with_tokens_of_another_vocabulary() {
    let text = [0, 0, 0, 1, 2, 3, EOS, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    // The guide writes abc d and ends: all of it, the end as one of its own, in one step.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 0, 6]));
    assert_eq!(run.steps, [vec![(2, 0), (3, 1), (4, 2), (5, 3), (6, EOS)]]);
    assert_eq!((run.accepted, run.guide_nfe, run.output.finish), (vec![5], 1, Finish::Eos));
    // It writes abc and then something else: a b c stand; d is taken alone, and judged as what stands the end falls,
    // and is taken alone.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 0, 5]));
    assert_eq!(run.steps, [vec![(2, 0), (3, 1), (4, 2)], vec![(5, 3)], vec![(6, EOS)]]);
    assert_eq!(run.accepted, [3, 0, 0]);
    // It begins with ab: abc is another token, so nothing stands. With a alone taken, the text is still abc d.
    let run = trace(foreign_options("guided", 6), model, follows(&[15, 1, 5, 6]));
    assert_eq!(run.steps.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1, 1]);
}

#[test]
fn flashdlm_g10_halves_of_characters_and_tokens_without_text() {
    // é in two halves, then e: one guide token overlaps both drafts.
    let text = [0, 0, 5, 6, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 4), model, follows(&[15, 7, 10]));
    assert_eq!((run.steps.len(), run.accepted), (1, vec![4]));
    // A lone half stays a byte: e follows it, é is never completed.
    let text = [0, 0, 5, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 3), model, follows(&[15, 8, 10]));
    assert_eq!((run.steps.len(), run.accepted), (1, vec![3]));
    // Token 8 has no text: nothing behind it is judged until it is taken, and then it is not there.
    let text = [0, 0, 0, 8, 9, EOS];
    let model = |_: &[TokenId], position: u32| text[position as usize];
    let run = trace(foreign_options("guided", 4), model, follows(&[15, 3, 10]));
    assert_eq!(run.steps, [vec![(2, 0)], vec![(3, 8)], vec![(4, 9), (5, EOS)]]);
    assert_eq!((run.accepted, run.guide_nfe), (vec![1, 0, 2], 2));
}

proptest! {
    #![proptest_config(property::cases(200))]

    /// G10: text of any tokens: offsets never part, every step commits, nothing is committed out of order.
    #[test]
    fn flashdlm_g10_texts_of_any_tokens_stay_aligned(
        text in proptest::collection::vec(0u32..10, 1..30),
        seed in any::<u64>(),
    ) {
        let mut options = foreign_options("guided:align=bytes,match=topk,k=4,verify=5", text.len());
        options.stop = StopRule::Never;
        let model = |_: &[TokenId], position: u32| text[position as usize - 2];
        let guide = |before: &[TokenId]| {
            let best = hashed(seed, 11, before);
            (0..11).map(|offset| (best + offset) % 11).collect()
        };
        let run = trace(options, model, guide);
        prop_assert_eq!(&run.output.tokens, &text);
        prop_assert!(run.steps.iter().all(|commits| !commits.is_empty()));
        let positions: Vec<u32> = run.steps.iter().flatten().map(|commit| commit.0).collect();
        prop_assert!(positions.is_sorted());
    }

    /// G10: where both have the same tokens and each byte is one, bytes are ids.
    #[test]
    fn flashdlm_g10_one_vocabulary_makes_all_alignments_one(seed in any::<u64>(), gen_length in 1usize..30) {
        let letters: Vec<&'static [u8]> = b"abcdefgh".chunks(1).collect();
        let model = |canvas: &[TokenId], position: u32| hashed(seed ^ u64::from(position), 8, &canvas[..2]);
        let guide = |before: &[TokenId]| {
            let best = hashed(seed ^ 2, 3, &before[2..]);
            (0..8).map(|offset| (best + offset) % 8).collect()
        };
        let run = |align: &str| {
            let mut options = guided(&format!("guided:match=topk,k=4,align={align}"), 0, 2, gen_length);
            let guide_words = letters.iter().zip(0..).map(|(&bytes, id)| (bytes, id)).collect();
            let translator = Arc::new(Toy { model: letters.clone(), guide: guide_words });
            options.guide = Some(GuideOptions { text: Some(GuideText { prompt: vec![0, 1], translator, automaton: None }), ..shared() });
            trace(options, model, guide)
        };
        prop_assert_eq!(&run("bytes"), &run("ids"));
    }
}
