//! Answers as a stream of server-sent events: each message is one line of JSON after `data: `, and the end is `[DONE]`.
//!
//! Clients stumble over named events, identifiers and comments inside of a message, so there are none. A reader that is
//! slow gets fewer and larger messages: unread text is merged where it is kept, never queued.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use demask::{
    Event, Generation,
    parts::{AnswerPart, AnswerReader},
};
use serde_json::{Map, Value, json};

use crate::{
    Refusal,
    answer::Counts,
    ask::{Frames, StreamWishes},
    canvas::Picture,
    form::{Block, Dialect, Message},
    inner::Inner,
    logprobs,
    response::held,
    run::{Happened, MUCH, Run, written_length},
    shape::{Shape, answered, is_call, sorted},
};

/// Bytes of a message that a slow reader does not take at once.
const LONG: usize = 64 << 10;

/// The body of a streamed response.
pub struct EventStream {
    service: Arc<Inner>,
    shape: Shape,
    wishes: StreamWishes,
    run: Run,
    /// Parts of each answer that were sent.
    sent_parts: Vec<SentParts>,
    /// Messages in a dialect that were sent.
    sent: u64,
    /// Phase of the stream.
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Answers,
    Done,
    Over,
}

/// Something to tell in a stream.
pub enum Coming {
    /// Something has happened to an answer.
    Happened(Happened),
    /// All answers are over: the counts of tokens follow, where they are wanted.
    Usage,
    /// The end.
    End,
    /// An error in the place of the rest.
    Broken(Refusal),
}

/// Parts of an answer that were sent.
#[derive(Default)]
struct SentParts {
    text: bool,
    picture: Picture,
    /// Texts of holes that wait for those before them.
    holes: BTreeMap<usize, String>,
    /// Holes whose text was sent.
    filled: usize,
    /// Reader of the answer's parts.
    reader: Option<AnswerReader>,
    /// Calls that were sent.
    calls: usize,
    /// Blocks that a dialect has opened, of which the last is not closed.
    blocks: Vec<Block>,
}

impl SentParts {
    /// Writes a part as a dialect has it: into the last block, or as the next one.
    fn block(&mut self, dialect: &dyn Dialect, part: &AnswerPart, messages: &mut Vec<Message>) {
        let last = self.blocks.last_mut();
        match part {
            AnswerPart::Content(text) | AnswerPart::Reasoning(text) if text.is_empty() => {}
            part => match last.and_then(|last| last.grows(part).map(|(text, more)| text.push_str(more))) {
                Some(()) => messages.extend(self.blocks.last().map(|block| dialect.grown(block, content_of(part)))),
                None => self.open(dialect, part.clone(), messages),
            },
        }
    }

    /// Closes the last block, and opens the next.
    fn open(&mut self, dialect: &dyn Dialect, part: AnswerPart, messages: &mut Vec<Message>) {
        messages.extend(self.blocks.last().into_iter().flat_map(|block| dialect.closed(block)));
        let block = Block::new(self.blocks.len(), part);
        messages.extend(dialect.opened(&block));
        let content = content_of(&block.part);
        messages.extend((!content.is_empty()).then(|| dialect.grown(&block, content)));
        self.blocks.push(block);
    }

    /// The text that follows: holes are sent in their order, whichever is filled first.
    fn text(&mut self, events: &[Event]) -> String {
        let mut text = String::new();
        for event in events {
            match event {
                Event::Text(more) => text.push_str(more),
                Event::Hole { index, text } => drop(self.holes.insert(*index, text.clone())),
                _ => {}
            }
        }
        while let Some(hole) = self.holes.remove(&self.filled) {
            text.push_str(&hole);
            self.filled += 1;
        }
        text
    }
}

impl EventStream {
    pub(crate) fn new(service: &Arc<Inner>, shape: Shape, wishes: StreamWishes, run: Run) -> Self {
        let reader = shape.reader.as_ref().filter(|_| !wishes.diffusing);
        let told = (0..run.len()).map(|_| SentParts { reader: reader.cloned(), ..SentParts::default() }).collect();
        Self { service: Arc::clone(service), shape, wishes, run, sent_parts: told, sent: 0, phase: Phase::Answers }
    }

    /// Waits for something to tell, and writes nothing; none after the end.
    pub(crate) fn poll_coming(&mut self, context: &mut Context<'_>) -> Poll<Option<Coming>> {
        Poll::Ready(match self.phase {
            Phase::Answers => match ready!(self.run.poll(context)) {
                Ok(Some(happened)) => Some(Coming::Happened(happened)),
                Ok(None) => {
                    self.phase = Phase::Done;
                    Some(Coming::Usage)
                }
                Err(refusal) => {
                    self.phase = Phase::Over;
                    Some(Coming::Broken(refusal))
                }
            },
            Phase::Done => {
                self.phase = Phase::Over;
                Some(Coming::End)
            }
            Phase::Over => None,
        })
    }

    /// Reports whether writing what comes takes a while.
    pub(crate) fn is_long(&self, coming: &Coming) -> bool {
        let wishes = &self.shape.wishes;
        let length = match coming {
            Coming::Happened(Happened::Over(index)) => {
                self.run.answer(*index).map_or(0, |(answer, _)| written_length(answer, wishes))
            }
            Coming::Happened(Happened::Went(index, events)) => {
                let (mut listed, mut canvas) = (0, 0);
                for event in events {
                    match event {
                        Event::Commit { .. } | Event::Replace { to: Some(_), .. } => listed += 1,
                        Event::Logprob { top, .. } => listed += top.len(),
                        Event::Started(started) => canvas = started.canvas.len(),
                        _ => {}
                    }
                }
                let shown = self.wishes.diffusing || self.wishes.frames != Frames::None;
                listed + if wishes.logprobs || shown { self.sent_parts[*index].picture.length() + canvas } else { 0 }
            }
            Coming::Usage | Coming::End | Coming::Broken(_) => 0,
        };
        length > MUCH
    }

    /// Writes the messages for what has come; none if there is nothing to tell of it.
    pub(crate) fn written(&mut self, coming: Coming) -> Option<Bytes> {
        if let Some(dialect) = self.shape.form.dialect() {
            return self.translated(dialect, coming);
        }
        Some(match coming {
            Coming::Happened(Happened::Went(index, events)) => {
                let chunks = self.went(index, &events);
                self.messages(chunks)?
            }
            Coming::Happened(Happened::Over(index)) => {
                let mut chunks = self.ended(index);
                chunks.push(self.last(index));
                self.messages(chunks)?
            }
            Coming::Usage if !self.wishes.usage => return None,
            Coming::Usage => self.messages(vec![self.shape.usage_chunk(&self.usage())])?,
            Coming::End => Bytes::from_static(b"data: [DONE]\n\n"),
            Coming::Broken(refusal) => self.broken(&refusal),
        })
    }

    /// Writes the messages for what has come, as a dialect has them.
    fn translated(&mut self, dialect: &dyn Dialect, coming: Coming) -> Option<Bytes> {
        let mut messages = Vec::new();
        match coming {
            Coming::Happened(Happened::Went(index, events)) => {
                let told = &mut self.sent_parts[index];
                let started = told.picture.went(&events, false).started.is_some();
                let text = told.text(&events);
                if started {
                    let (prompt, _) = told.picture.counts();
                    messages.extend(dialect.begun(&self.shape.head, Counts { prompt, ..Counts::default() }));
                }
                let parts = match &mut told.reader {
                    Some(reader) => reader.feed(&text),
                    None => vec![AnswerPart::Content(text)],
                };
                for part in &parts {
                    told.block(dialect, part, &mut messages);
                }
            }
            Coming::Happened(Happened::Over(index)) => {
                let (answer, _) = self.run.answer(index)?;
                // A model without a tokenizer has no text before its end.
                let tokenizer = self.service.tokenizer();
                let ids = if tokenizer.is_none() { self.shape.text_of(answer) } else { String::new() };
                let told = &mut self.sent_parts[index];
                let rest = told.reader.as_mut().map(AnswerReader::end).unwrap_or_default();
                let rest = rest.into_iter().chain([AnswerPart::Content(ids)]);
                rest.for_each(|part| told.block(dialect, &part, &mut messages));
                if told.blocks.is_empty() {
                    told.open(dialect, AnswerPart::Content(String::new()), &mut messages);
                }
                messages.extend(told.blocks.last().into_iter().flat_map(|block| dialect.closed(block)));
                messages.extend(dialect.over(&self.shape.head, &answered(answer, &told.blocks, tokenizer)));
            }
            Coming::Usage | Coming::End => {}
            Coming::Broken(refusal) => return Some(self.broken(&refusal)),
        }
        let bytes = self.events(dialect, messages);
        (!bytes.is_empty()).then(|| if bytes.len() > LONG { held(bytes, self.run.places()) } else { bytes })
    }

    /// Messages of a dialect as server-sent events.
    fn events(&mut self, dialect: &dyn Dialect, messages: Vec<Message>) -> Bytes {
        let mut events = String::new();
        for (name, mut content) in messages {
            if dialect.numbers() {
                content["sequence_number"] = json!(self.sent);
            }
            self.sent += 1;
            let _ = write!(events, "event: {name}\ndata: {content}\n\n");
        }
        events.into()
    }

    /// Messages, one for each chunk; none of none. Long ones hold the request's places until their last byte is sent.
    fn messages(&self, chunks: Vec<Map<String, Value>>) -> Option<Bytes> {
        let mut text = String::new();
        for chunk in chunks {
            let _ = write!(text, "data: {}\n\n", Value::Object(chunk));
        }
        let bytes = Bytes::from(text);
        (!bytes.is_empty()).then(|| if bytes.len() > LONG { held(bytes, self.run.places()) } else { bytes })
    }

    /// Waits for the end of an answer alone: text before it wakes nobody, and is merged until [`poll_coming`](Self::poll_coming) takes it.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.phase {
            Phase::Answers => self.run.poll_over(context),
            Phase::Done | Phase::Over => Poll::Ready(()),
        }
    }

    /// Ends the stream with an error, and returns its last messages; none if it was over.
    pub fn end_with(&mut self, refusal: &Refusal) -> Option<Bytes> {
        if self.phase != Phase::Answers {
            return None;
        }
        self.run.fail(refusal.clone());
        Some(self.broken(refusal))
    }

    /// The error as clients read it after the first byte, and the end.
    fn broken(&mut self, refusal: &Refusal) -> Bytes {
        self.phase = Phase::Over;
        match self.shape.form.dialect() {
            Some(dialect) => {
                let message = dialect.broken(&self.shape.head, refusal);
                self.events(dialect, vec![message])
            }
            None => last_messages(refusal),
        }
    }

    /// The chunks for what has gone on; none if there is nothing to tell of it.
    fn went(&mut self, index: usize, events: &[Event]) -> Vec<Map<String, Value>> {
        let service = Arc::clone(&self.service);
        let tokenizer = service.tokenizer();
        let told = &mut self.sent_parts[index];
        let changes = told.picture.went(events, self.shape.wishes.logprobs);
        let changed = !changes.commits.is_empty() || changes.started.is_some();
        // Of a text with holes, what fills them is the answer.
        let mut text = match (self.wishes.diffusing, changed) {
            (true, true) => told.picture.text(tokenizer, &[]),
            (true, false) => String::new(),
            (false, _) => told.text(events),
        };
        let mut asides = Vec::new();
        if let Some(reader) = &mut told.reader {
            (text, asides) = sorted(reader.feed(&text));
        }
        if !text.is_empty() && (self.wishes.diffusing || !told.text) {
            text.insert_str(0, self.shape.echo_of(index));
        }
        let frame = match self.wishes.frames {
            Frames::None => None,
            Frames::Commits => told.picture.frame(&changes, tokenizer, self.shape.wishes.token_ids),
            Frames::Canvas => told.picture.to_json(&changes, tokenizer, &self.shape.head.end_ids),
        };
        // A thought comes before the text, and text before the calls.
        let calls = asides.iter().position(is_call).unwrap_or(asides.len());
        let mut chunks: Vec<_> = asides[..calls].iter().map(|part| self.aside(index, part)).collect();
        if text.is_empty() && frame.is_none() {
            chunks.extend(asides[calls..].iter().map(|part| self.aside(index, part)));
            return chunks;
        }
        let told = &mut self.sent_parts[index];
        let wanted = self.shape.wishes.logprobs && !self.wishes.diffusing && !text.is_empty();
        let logprobs = if wanted { told.picture.logprobs(self.shape.form, tokenizer) } else { None };
        let first = !told.text;
        told.text |= !text.is_empty();
        let mut chunk = self.shape.chunk(self.shape.form.part(index, &text, first, logprobs.as_ref()));
        if let Some(frame) = frame {
            chunk.insert("diffusion".to_owned(), frame);
        }
        if self.wishes.diffusing && self.shape.form.says_diffusing() {
            chunk.insert("diffusing".to_owned(), Value::Bool(true));
        }
        if self.wishes.continuous_usage {
            chunk.insert("usage".to_owned(), self.usage());
        }
        chunks.push(chunk);
        chunks.extend(asides[calls..].iter().map(|part| self.aside(index, part)));
        chunks
    }

    /// The chunk of a thought or a call.
    fn aside(&mut self, index: usize, part: &AnswerPart) -> Map<String, Value> {
        let told = &mut self.sent_parts[index];
        let value = self.shape.form.aside(index, part, told.calls);
        told.calls += usize::from(is_call(part));
        self.shape.chunk(value)
    }

    /// Returns the chunks of the text and parts that the reader held back to the end.
    fn ended(&mut self, index: usize) -> Vec<Map<String, Value>> {
        let Some(reader) = &mut self.sent_parts[index].reader else { return Vec::new() };
        let parts = reader.end();
        let mut chunks = Vec::new();
        for part in parts {
            chunks.push(match part {
                AnswerPart::Content(text) => {
                    let first = !std::mem::replace(&mut self.sent_parts[index].text, true);
                    self.shape.chunk(self.shape.form.part(index, &text, first, None))
                }
                part => self.aside(index, &part),
            });
        }
        chunks
    }

    /// The chunk that ends an answer.
    fn last(&mut self, index: usize) -> Map<String, Value> {
        let Some((generation, seed)) = self.run.answer(index) else { return Map::new() };
        let mut choice = self.shape.last(index, generation, self.sent_parts[index].calls > 0);
        if self.shape.wishes.logprobs {
            let told = self.sent_parts[index].picture.sent_logprobs();
            choice["logprobs"] = json!(logprobs::from(self.shape.form, generation, told, self.service.tokenizer()));
        }
        if let Some(text) = self.rest(index, generation) {
            let place = self.shape.form.text(&mut choice, !self.sent_parts[index].text);
            *place = Value::from(text);
        }
        let mut chunk = self.shape.chunk(choice);
        chunk.insert("diffusion".to_owned(), self.shape.diffusion(generation, seed));
        if self.wishes.continuous_usage {
            chunk.insert("usage".to_owned(), self.usage());
        }
        chunk
    }

    /// The text that is sent with the end: an echo that no text has followed, ids of a model without a tokenizer, or the
    /// answer itself where texts replace each other: the last one may have shown more of the canvas.
    fn rest(&self, index: usize, generation: &Generation) -> Option<String> {
        let (told, echo) = (&self.sent_parts[index], self.shape.echo_of(index));
        if self.wishes.diffusing {
            return Some(format!("{echo}{}", self.shape.text_of(generation)));
        }
        let ids = if self.service.tokenizer().is_none() { self.shape.text_of(generation) } else { String::new() };
        Some(format!("{echo}{ids}")).filter(|text| !told.text && !text.is_empty())
    }

    /// The counts of tokens so far: of an answer under way those that can no longer change.
    fn usage(&self) -> Value {
        let counts = |(index, told): (usize, &SentParts)| {
            let (prompt, generated) = told.picture.counts();
            let over = self.run.answer(index).map(|(answer, _)| Counts::of(answer));
            over.unwrap_or(Counts { prompt, generated, ..Counts::default() })
        };
        self.shape.usage(self.sent_parts.iter().enumerate().map(counts))
    }
}

/// The text of a part: of a call its arguments.
fn content_of(part: &AnswerPart) -> &str {
    match part {
        AnswerPart::Content(text) | AnswerPart::Reasoning(text) => text,
        AnswerPart::Call(call) => &call.arguments,
    }
}

/// The messages that end a stream with an error.
pub(crate) fn last_messages(refusal: &Refusal) -> Bytes {
    Bytes::from(format!("data: {}\n\ndata: [DONE]\n\n", refusal.body()))
}
