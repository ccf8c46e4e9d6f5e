//! Prompts, and the way from their words to tokens.

use std::{fmt, ops::Range};

use demask_checkpoint::{Message, RenderOptions, Rendered};
use demask_step::{Mask, TokenId};
use serde_json::{Map, Value};

use crate::{Error, ModelInfo, Options};

/// The prompt in one of its forms.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, put into words by the checkpoint's chat template. Messages are text: control tokens are the
    /// template's, unless [`split_special`](crate::Options::split_special) is off.
    Chat(Conversation),
    /// Text without a template. Control tokens that it spells are those tokens.
    Raw(String),
    /// Token ids as they are.
    Tokens(Vec<TokenId>),
    /// Text without a template, with `<mask:N>` holes to fill; where there is none, those are `[[N]]`. Where part of the text is somebody else's, take
    /// [`Segments`](Self::Segments): nothing that is written there becomes a hole.
    Infill(String),
    /// Text without a template and holes to fill, in their order.
    Segments(Vec<Segment>),
}

/// A conversation, and what its template sees beside the messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The messages, from the first to the one that is answered.
    pub messages: Vec<Message>,
    /// Functions that the model may call, each as an object of JSON in OpenAI's form, for templates that read them.
    pub tools: Vec<Value>,
    /// Other variables of the template, such as `enable_thinking`.
    pub template_kwargs: Map<String, Value>,
    /// Sets whether the last message, an assistant's, is the beginning of the answer.
    pub continue_final_message: bool,
}

impl Conversation {
    /// Returns the messages that the template writes, and the beginning of the answer.
    ///
    /// # Errors
    /// If the answer is to begin with a message that no assistant said.
    fn parts(&self) -> Result<(&[Message], Option<&str>), Error> {
        if !self.continue_final_message {
            return Ok((&self.messages, None));
        }
        match self.messages.split_last() {
            Some((last, rest)) if last.role == "assistant" => Ok((rest, Some(&last.content))),
            _ => Err(Error::NothingToContinue),
        }
    }

    fn render_options(&self) -> RenderOptions {
        RenderOptions {
            enable_thinking: self.template_kwargs.get("enable_thinking").and_then(Value::as_bool),
            tools: self.tools.clone(),
            variables: self.template_kwargs.clone(),
            ..RenderOptions::default()
        }
    }
}

impl From<Vec<Message>> for Conversation {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// A piece of a text to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text as it stands: `<mask:5>` is text here, and the mask token's own text is refused.
    Text(String),
    /// Hole of this many tokens.
    Hole(usize),
}

/// Writes text as it is, and a hole as `<mask:N>`.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Hole(count) => write!(f, "<mask:{count}>"),
        }
    }
}

impl Segment {
    /// Reads a text with `<mask:N>` holes, or with `[[N]]` ones: a list in a list of the code around `<mask:N>` is text.
    ///
    /// # Errors
    /// If a hole is not closed, or its size is no number from 1 on.
    fn parse(text: &str) -> Result<Vec<Self>, Error> {
        if !text.contains("<mask:") {
            return Ok(Self::parse_brackets(text));
        }
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some((before, hole)) = rest.split_once("<mask:") {
            let (count, after) = hole.split_once('>').ok_or_else(|| bad_hole(hole))?;
            let size = count.trim().parse().ok().filter(|&size| size > 0).ok_or_else(|| bad_hole(count))?;
            segments.extend([Self::Text(before.to_owned()), Self::Hole(size)]);
            rest = after;
        }
        segments.push(Self::Text(rest.to_owned()));
        Ok(segments)
    }

    /// Reads a text with `[[N]]` holes. Brackets around no number are text.
    fn parse_brackets(text: &str) -> Vec<Self> {
        let mut segments = Vec::new();
        let mut pieces = text.split("[[");
        let mut before = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let hole = piece.split_once("]]").and_then(|(count, after)| Some((count.trim().parse().ok()?, after)));
            if let Some((count, after)) = hole {
                segments.extend([Self::Text(std::mem::take(&mut before)), Self::Hole(count)]);
                before.push_str(after);
            } else {
                before.push_str("[[");
                before.push_str(piece);
            }
        }
        segments.push(Self::Text(before));
        segments
    }
}

/// The error about what stands in the place of a hole's size.
fn bad_hole(found: &str) -> Error {
    Error::BadHole { found: shorten(found) }
}

impl Prompt {
    /// One user message, after a system message if there is one.
    pub fn user(text: impl Into<String>, system: Option<&str>) -> Self {
        let system = system.map(|text| Message::new("system", text));
        let user = Message::new("user", text);
        Self::from(system.into_iter().chain([user]).collect::<Vec<_>>())
    }

    /// Roughly how long it is: its tokens, or the bytes of its texts. For comparing prompts of one form.
    pub fn length(&self) -> usize {
        match self {
            Self::Chat(chat) => chat.messages.iter().map(|message| message.content.len()).sum(),
            Self::Raw(text) | Self::Infill(text) => text.len(),
            Self::Tokens(ids) => ids.len(),
            Self::Segments(segments) => segments.iter().map(|segment| segment.to_string().len()).sum(),
        }
    }

    /// Returns whether it has holes to fill in place of an answer after it.
    pub(crate) fn infills(&self) -> bool {
        matches!(self, Self::Infill(_) | Self::Segments(_))
    }

    /// Returns the pieces of a text to fill; none of another prompt.
    ///
    /// # Errors
    /// If a hole cannot be read.
    pub(crate) fn segments(&self) -> Result<Vec<Segment>, Error> {
        match self {
            Self::Infill(text) => Segment::parse(text),
            Self::Segments(segments) => Ok(segments.clone()),
            Self::Chat(_) | Self::Raw(_) | Self::Tokens(_) => Ok(Vec::new()),
        }
    }
}

/// A user's message.
impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::user(text, None)
    }
}

/// A user's message.
impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::user(text, None)
    }
}

/// A conversation.
impl From<Vec<Message>> for Prompt {
    fn from(messages: Vec<Message>) -> Self {
        Self::Chat(messages.into())
    }
}

/// A copy.
impl From<&Prompt> for Prompt {
    fn from(prompt: &Prompt) -> Self {
        prompt.clone()
    }
}

/// A prompt as tokens, and where its holes are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<TokenId>,
    /// Positions of the holes; none if the answer follows the prompt.
    pub(crate) holes: Vec<Range<usize>>,
}

impl Tokens {
    /// Returns whether masks stand inside already.
    pub(crate) fn infill(&self) -> bool {
        !self.holes.is_empty()
    }
}

impl ModelInfo {
    /// A prompt in words, as the model's template puts it; ids, separated by commas, where it has none.
    pub fn in_words(&self, prompt: &Prompt) -> Result<String, Error> {
        Ok(match prompt {
            Prompt::Tokens(ids) => ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Prompt::Raw(text) | Prompt::Infill(text) => text.clone(),
            Prompt::Segments(segments) => segments.iter().map(ToString::to_string).collect(),
            Prompt::Chat(chat) => self.words_of(chat)?,
        })
    }

    /// Returns a prompt's tokens.
    ///
    /// # Errors
    /// If there is no tokenizer for its words, or they hold what no prompt may.
    pub fn ids(&self, prompt: &Prompt) -> Result<Vec<TokenId>, Error> {
        self.ids_as(prompt, &Options::default())
    }

    /// Returns a prompt's tokens as they are with these options.
    ///
    /// # Errors
    /// As [`ids`](Self::ids).
    pub fn ids_as(&self, prompt: &Prompt, options: &Options) -> Result<Vec<TokenId>, Error> {
        Ok(self.tokenize(prompt, options)?.ids)
    }

    /// A conversation in words, in which people's own can be told from the template's.
    pub(crate) fn rendered(&self, chat: &Conversation, options: &Options) -> Result<Rendered, Error> {
        self.rendered_with(chat, if options.splits_special() { self.controls() } else { &[] })
    }

    /// A conversation in words.
    pub(crate) fn words_of(&self, chat: &Conversation) -> Result<String, Error> {
        Ok(self.rendered_with(chat, &[])?.text)
    }

    fn rendered_with(&self, chat: &Conversation, controls: &[String]) -> Result<Rendered, Error> {
        let (messages, beginning) = chat.parts()?;
        let mut words = self.template().render_apart(messages, &chat.render_options(), controls)?;
        // Where a template opens the assistant's turn, the beginning of the answer follows.
        words.quote(beginning.unwrap_or_default());
        Ok(words)
    }

    /// Tokens of a conversation.
    pub(crate) fn chat_ids(&self, chat: &Conversation, options: &Options) -> Result<Vec<TokenId>, Error> {
        let words = self.rendered(chat, options)?;
        self.apart(&words, options)
    }

    /// Tokens of words of which people's own are known.
    pub(crate) fn apart(&self, words: &Rendered, options: &Options) -> Result<Vec<TokenId>, Error> {
        self.check_length(words.text.len())?;
        let controls = if options.splits_special() { self.controls() } else { &[] };
        Ok(self.tokenizer()?.encode_apart(words, controls)?)
    }

    /// Turns a prompt into tokens.
    pub(crate) fn tokenize(&self, prompt: &Prompt, options: &Options) -> Result<Tokens, Error> {
        let tokens = if prompt.infills() {
            self.tokenize_segments(&prompt.segments()?)?
        } else {
            let ids = self.tokenize_text(prompt, options)?;
            self.check_text(&ids)?;
            Tokens { ids, holes: Vec::new() }
        };
        let vocabulary = self.facts().vocab;
        match tokens.ids.iter().find(|&&token| token as usize >= vocabulary) {
            Some(&token) => Err(Error::TokenOutOfRange { token, vocabulary }),
            None => Ok(tokens),
        }
    }

    /// The tokens of a prompt without holes.
    fn tokenize_text(&self, prompt: &Prompt, options: &Options) -> Result<Vec<TokenId>, Error> {
        Ok(match prompt {
            Prompt::Tokens(ids) => ids.clone(),
            Prompt::Raw(text) => {
                self.check_length(text.len())?;
                self.tokenizer()?.encode(text, true)?
            }
            Prompt::Chat(chat) => self.chat_ids(chat, options)?,
            Prompt::Infill(_) | Prompt::Segments(_) => {
                let text = self.in_words(prompt)?;
                self.check_length(text.len())?;
                self.tokenizer()?.encode(&text, false)?
            }
        })
    }

    /// Refuses text of more bytes than the context's tokens can stand for, before it is put into tokens: that takes a hundred
    /// times its memory.
    pub(crate) fn check_length(&self, bytes: usize) -> Result<(), Error> {
        let context = self.facts().context;
        let most = self.tokenizer()?.most_bytes(context);
        if bytes > most { Err(Error::TextTooLong { bytes, context, most }) } else { Ok(()) }
    }

    /// Refuses text that contains the mask: its writer asks for no hole.
    fn check_text(&self, ids: &[TokenId]) -> Result<(), Error> {
        match self.facts().mask_id {
            Some(mask) if ids.contains(&mask) => Err(Error::MaskInPrompt),
            _ => Ok(()),
        }
    }

    fn tokenize_segments(&self, segments: &[Segment]) -> Result<Tokens, Error> {
        let (Mask::Full, Some(mask)) = (self.facts().mask, self.facts().mask_id) else {
            return Err(Error::InfillUnsupported { family: self.spec().family.to_string() });
        };
        let context = self.facts().context;
        self.check_holes(segments)?;
        let bytes = segments.iter().map(|segment| if let Segment::Text(text) = segment { text.len() } else { 0 });
        self.check_length(bytes.sum())?;
        let mut tokens = Tokens { ids: Vec::new(), holes: Vec::new() };
        let mut text = String::new();
        for segment in segments {
            match segment {
                // Pieces of text in a row are one text: what its tokens are must not depend on where it was cut.
                Segment::Text(piece) => text.push_str(piece),
                Segment::Hole(count) => {
                    self.add_text(&std::mem::take(&mut text), &mut tokens.ids)?;
                    let start = tokens.ids.len();
                    if start + count > context {
                        return Err(Error::TooLong { prompt: start, gen_length: *count, context, option: None });
                    }
                    tokens.ids.extend(std::iter::repeat_n(mask, *count));
                    tokens.holes.push(start..start + count);
                }
            }
        }
        self.add_text(&text, &mut tokens.ids)?;
        Ok(tokens)
    }

    /// Refuses a text to fill without a hole, and holes of no size that there is.
    fn check_holes(&self, segments: &[Segment]) -> Result<(), Error> {
        let sizes = segments.iter().filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Hole(count) => Some(*count),
        });
        let wrong = |count: &usize| !(1..=self.facts().context).contains(count);
        match (sizes.clone().find(wrong), sizes.count()) {
            (Some(size), _) => Err(bad_hole(&size.to_string())),
            (None, 0) => Err(Error::NoHole),
            (None, _) => Ok(()),
        }
    }

    /// Appends the tokens of a text, with those that the tokenizer puts in front of the first.
    fn add_text(&self, text: &str, ids: &mut Vec<TokenId>) -> Result<(), Error> {
        let own = self.tokenizer()?.encode(text, ids.is_empty())?;
        self.check_text(&own)?;
        ids.extend(own);
        Ok(())
    }
}

/// The beginning of a text for a message.
fn shorten(text: &str) -> String {
    text.chars().take(20).collect()
}
