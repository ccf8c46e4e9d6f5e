//! The input by which a model decides: the prompt, then each question's instructions with its slot.
//!
//! * **Models that see everything** have all questions on one canvas, a line each: instructions, slot, line feed; the end of
//!   the turn is after the last slot. All slots are masks, so that a question sees the others' instructions, and of their slots
//!   that they are empty.
//! * **Causal models and those that decode block by block** have each question alone after the prompt. Its slot ends the text,
//!   where a block-causal model has masks up to the block's end.
//! * **A slot** begins where the tokens of the choices differ: what all of them begin with, a space mostly, is given. It has as
//!   many positions as the longest choice has tokens left. A choice that is shorter counts with the end after it: the line
//!   feed, or the end of the turn. No choice is then the beginning of another one.

use std::ops::Range;

use demask_checkpoint::Rendered;
use demask_step::{Mask, Position, TokenId};

use super::{MOST_QUESTIONS, Question, Questions, wrong};
use crate::{
    Error, ModelInfo, Options, Prompt,
    likelihood::{LikelihoodTask, Slot, Text, common, whole_blocks},
};

/// Tokens of all texts of a request, and of all of its forwards, at most.
const MOST_TOKENS: usize = 1 << 22;
/// Characters before a slot that choices are put into tokens with.
const TAIL: usize = 16;

/// Questions in tokens.
#[derive(Debug)]
pub(crate) struct Form {
    /// A text for each choice, question after question.
    texts: Vec<Text>,
    slots: Vec<Slot>,
    pub questions: Questions,
}

/// A question in tokens.
struct Line {
    instructions: Vec<TokenId>,
    choices: Vec<Vec<TokenId>>,
}

impl Line {
    /// Positions of the slot.
    fn slot(&self) -> usize {
        self.choices.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Appends a text for each choice: a canvas with that in the slot, and the end after it if it is shorter.
    fn add(&self, canvas: &[TokenId], places: Range<usize>, end: TokenId, texts: &mut Vec<Text>) -> Slot {
        let first = texts.len();
        for choice in &self.choices {
            let ends = choice.len() < self.slot();
            let written = choice.iter().copied().chain(ends.then_some(end));
            let judged = places.start..places.start + choice.len() + usize::from(ends);
            let mut tokens = canvas.to_vec();
            tokens[judged.clone()].iter_mut().zip(written).for_each(|(place, token)| *place = token);
            texts.push(Text { tokens, judged });
        }
        Slot { texts: first..texts.len(), places }
    }
}

impl ModelInfo {
    /// Puts questions about a prompt into tokens.
    ///
    /// # Errors
    /// If there is no question, one is malformed, the prompt has holes, or all of it is too long.
    pub(crate) fn form(&self, prompt: &Prompt, questions: &[Question]) -> Result<Form, Error> {
        if prompt.infills() {
            let why = "with questions: their slots are what is filled";
            return Err(Error::Meaningless { option: "infill", why });
        }
        if !(1..=MOST_QUESTIONS).contains(&questions.len()) {
            let text = format!("there are {}, expected 1 to {MOST_QUESTIONS}", questions.len());
            return Err(wrong("questions".to_owned(), text));
        }
        self.check_length(questions.iter().map(|question| question.instructions.len()).sum())?;
        let context = self.tokenize(prompt, &Options::default())?.ids;
        let (mut asked, mut lines) = (Vec::new(), Vec::new());
        for (index, question) in questions.iter().enumerate() {
            let at = format!("questions[{index}]");
            let texts = question.texts(&at)?;
            lines.push(self.line(question, &texts, &at)?);
            asked.push((question.clone(), texts));
        }
        let line_feed = self.said("\n")?.last().copied().ok_or(Error::NoTokens)?;
        let special = &self.text.special;
        let of_turn = special.turn_end.or(special.eos).filter(|_| matches!(prompt, Prompt::Chat(_)));
        let ends = [line_feed, of_turn.unwrap_or(line_feed)];
        let (texts, slots, given) = if self.facts().mask == Mask::Full {
            self.together(&context, &lines, ends)?
        } else {
            self.apart_from_each_other(&context, &lines, ends[1])?
        };
        Ok(Form { texts, slots, questions: Questions { questions: asked, input_tokens: given } })
    }

    /// Gets questions ready to be answered.
    ///
    /// # Errors
    /// If the choices take too many forwards.
    pub(crate) fn deciding(&self, form: &Form, rows: usize) -> Result<LikelihoodTask, Error> {
        let task = self.chained(form.texts.clone(), &form.slots, rows);
        too_many("the forwards of all choices", task.tokens())?;
        Ok(task)
    }

    /// Tokens of people's words, which spell no control token.
    fn said(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let mut words = Rendered::default();
        words.quote(text);
        let (ids, vocabulary) = (self.apart(&words, &Options::default())?, self.facts().vocab);
        match ids.iter().find(|&&token| token as usize >= vocabulary || Some(token) == self.facts().mask_id) {
            Some(&token) if Some(token) == self.facts().mask_id => Err(Error::MaskInPrompt),
            Some(&token) => Err(Error::TokenOutOfRange { token, vocabulary }),
            None => Ok(ids),
        }
    }

    /// Puts a question into tokens.
    fn line(&self, question: &Question, texts: &[String], at: &str) -> Result<Line, Error> {
        let before = question.instructions.trim_end_matches(' ');
        if before.trim().is_empty() {
            return Err(wrong(format!("{at}.instructions"), "it is empty, expected the question in words"));
        }
        let gap = if before.ends_with(char::is_whitespace) { "" } else { " " };
        // White space begins a token with what follows it, whatever is further to the left.
        let start = before.char_indices().rev().nth(TAIL - 1).map_or(0, |(start, _)| start);
        let tail = self.said(&before[start..])?;
        let choices = texts.iter().map(|text| {
            let text = text.trim();
            let unwritten =
                || wrong(at.to_owned(), format!("the tokenizer cannot write the choice {:?}", excerpt(text)));
            let all = self.said(&format!("{}{gap}{text}", &before[start..]))?;
            let own = all.strip_prefix(&tail[..]).filter(|own| !own.is_empty()).ok_or_else(unwritten)?;
            let is_written = self.tokenizer()?.decode(&all, false).ends_with(text);
            if is_written { Ok(own.to_vec()) } else { Err(unwritten()) }
        });
        let mut choices: Vec<Vec<TokenId>> = choices.collect::<Result<_, _>>()?;
        let same = common(choices.iter().map(|choice| &choice[..]));
        let mut instructions = self.said(before)?;
        instructions.extend(&choices[0][..same]);
        for choice in &mut choices {
            choice.drain(..same);
        }
        Ok(Line { instructions, choices })
    }

    /// All questions on one canvas; also the number of tokens that are given.
    fn together(&self, context: &[TokenId], lines: &[Line], ends: [TokenId; 2]) -> Result<Parts, Error> {
        let mask = self.mask()?;
        let (mut canvas, mut places) = (context.to_vec(), Vec::new());
        for (index, line) in lines.iter().enumerate() {
            canvas.extend((index > 0).then_some(ends[0]));
            canvas.extend(&line.instructions);
            let start = canvas.len();
            canvas.resize(start + line.slot(), mask);
            places.push(start..canvas.len());
        }
        canvas.push(ends[1]);
        self.fits(context, canvas.len())?;
        too_many(
            "the canvases of all choices",
            canvas.len() * lines.iter().map(|line| line.choices.len()).sum::<usize>(),
        )?;
        let (mut texts, mut slots) = (Vec::new(), Vec::new());
        for (index, (line, places)) in lines.iter().zip(places).enumerate() {
            let end = ends[usize::from(index + 1 == lines.len())];
            slots.push(line.add(&canvas, places, end, &mut texts));
        }
        let given = canvas.len() - lines.iter().map(Line::slot).sum::<usize>();
        Ok((texts, slots, given))
    }

    /// Each question alone after the prompt.
    fn apart_from_each_other(&self, context: &[TokenId], lines: &[Line], end: TokenId) -> Result<Parts, Error> {
        let facts = self.facts();
        let (fill, mut texts, mut slots) = (facts.mask_id.unwrap_or(end), Vec::new(), Vec::new());
        let (mut given, mut all) = (context.len(), 0);
        for line in lines {
            let mut canvas = [context, &line.instructions].concat();
            let start = canvas.len();
            let length = match facts.mask {
                Mask::Full | Mask::Causal => start + line.slot(),
                Mask::BlockCausal { .. } | Mask::Context { .. } => {
                    self.mask()?;
                    whole_blocks(facts, start, line.slot()).len()
                }
            };
            self.fits(context, length)?;
            all += length * line.choices.len();
            too_many("the texts of all choices", all)?;
            canvas.resize(length, fill);
            let slot = line.add(&canvas, start..length, end, &mut texts);
            // A model that reads from left to right reads nothing behind a choice.
            if facts.mask == Mask::Causal {
                texts[slot.texts.clone()].iter_mut().for_each(|text| text.tokens.truncate(text.judged.end));
            }
            slots.push(slot);
            given += line.instructions.len();
        }
        Ok((texts, slots, given))
    }

    /// The token of an empty place.
    fn mask(&self) -> Result<TokenId, Error> {
        let none = || Error::NoLikelihood { family: self.spec().family.to_owned() };
        self.facts().mask_id.ok_or_else(none)
    }

    /// Refuses lengths that the context has no room for.
    fn fits(&self, prompt: &[TokenId], length: usize) -> Result<(), Error> {
        let (prompt, context) = (prompt.len(), self.facts().context);
        if length > context || length > Position::MAX as usize {
            let gen_length = length - prompt;
            return Err(Error::TooLong { prompt, gen_length, context, option: Some("questions") });
        }
        Ok(())
    }
}

/// Texts, slots, and tokens that are given.
type Parts = (Vec<Text>, Vec<Slot>, usize);

/// Refuses more tokens than a request may take.
fn too_many(what: &str, tokens: usize) -> Result<(), Error> {
    if tokens <= MOST_TOKENS {
        return Ok(());
    }
    let text =
        format!("{what} have {tokens} tokens, expected at most {MOST_TOKENS}: ask less, or ask it in several requests");
    Err(wrong("questions".to_owned(), text))
}

/// The beginning of a text for a message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}
