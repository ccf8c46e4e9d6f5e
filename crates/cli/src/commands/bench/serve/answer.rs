//! Answers of an OpenAI server, whole or as a stream: text, tokens, usage, and when they came.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::{
    http::{Failure, Head, Receiver},
    sse::{Message, Parser},
};

/// Bytes that one answer may have, all its messages together.
const LONGEST: usize = 256 << 20;
/// Bytes of a refusal's body that are read.
const LONGEST_REFUSAL: usize = 64 << 10;
/// Choices that an answer may have.
const MOST_CHOICES: usize = 1024;
/// Letters of a server's message that are shown.
const SHOWN: usize = 300;

/// A finished answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Choices of the answer, by index.
    pub choices: Vec<Choice>,
    /// Tokens as the server counts them.
    pub usage: Option<Usage>,
    /// Receipt of the answer, if the server reports it.
    pub receipt: Option<Receipt>,
}

/// One choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Text of the choice.
    pub text: String,
    /// Token ids, where they were requested.
    pub tokens: Vec<u32>,
    /// Reason why it ended.
    pub finish: Option<String>,
}

/// Tokens as the server counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of all choices.
    pub completion_tokens: u64,
}

/// Forwards of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Receipt {
    /// Forwards that ran.
    pub forwards: u64,
    /// Rows of all of them.
    pub rows: u64,
}

/// Arrival times of the parts of an answer, from its request on.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// The first text that is not empty.
    pub first_text: Option<Duration>,
    /// Gaps between a text and the one before it.
    pub gaps: Vec<Duration>,
    /// Time to the end.
    pub total: Duration,
    /// Waiting in the server's queue, as its `Server-Timing` header says.
    pub queue: Option<Duration>,
}

/// Reads an answer.
pub struct Reader {
    asked: Instant,
    /// A text replaces all before it (`"diffusing": true`).
    replaces: bool,
    form: Form,
    answer: Answer,
    times: Times,
    last_text: Option<Instant>,
    bytes: usize,
    /// `[DONE]` has come.
    done: bool,
    messages: Vec<Message>,
    /// The server's wish to be left alone for so long, with a refusal.
    retry_after: Option<String>,
}

/// Form of the answer that is being read.
enum Form {
    /// Start: no byte has been read.
    Head,
    Stream(Parser),
    Whole(Vec<u8>),
    Refusal(u16, Vec<u8>),
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Part>>,
    usage: Option<Usage>,
    error: Option<Value>,
    diffusion: Option<Diffusion>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    index: usize,
    delta: Option<Words>,
    message: Option<Words>,
    text: Option<String>,
    finish_reason: Option<String>,
    token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Words {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Diffusion {
    receipt: Option<Receipt>,
}

impl Receiver for Reader {
    fn head(&mut self, head: &Head) -> Result<(), Failure> {
        self.times.queue = head.header("server-timing").and_then(queue);
        self.retry_after = head.header("retry-after").map(str::to_owned);
        let kind = head.header("content-type").unwrap_or_default();
        self.form = match kind.split(';').next().unwrap_or_default().trim() {
            _ if !(200..300).contains(&head.status) => Form::Refusal(head.status, Vec::new()),
            kind if kind.eq_ignore_ascii_case("text/event-stream") => Form::Stream(Parser::default()),
            kind if kind.eq_ignore_ascii_case("application/json") => Form::Whole(Vec::new()),
            kind => return Err(Failure::protocol(format!("its type is {kind:?}, expected text/event-stream"))),
        };
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes += bytes.len();
        if self.bytes > LONGEST {
            return Err(Failure::protocol(format!("it is longer than {LONGEST} bytes")));
        }
        match &mut self.form {
            Form::Head => {}
            Form::Whole(body) => body.extend_from_slice(bytes),
            Form::Refusal(_, body) => {
                let room = LONGEST_REFUSAL.saturating_sub(body.len());
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Form::Stream(parser) => {
                let mut messages = std::mem::take(&mut self.messages);
                let read = parser.push(bytes, &mut messages);
                let now = Instant::now();
                messages.drain(..).try_for_each(|message| self.message(&message, now))?;
                self.messages = messages;
                read.map_err(|malformed| Failure::protocol(malformed.to_string()))?;
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Creates the reader of an answer that is requested now, or was to be requested at that time.
    pub fn new(asked: Instant, replaces: bool) -> Self {
        Self {
            asked,
            replaces,
            form: Form::Head,
            answer: Answer::default(),
            times: Times::default(),
            last_text: None,
            bytes: 0,
            done: false,
            messages: Vec::new(),
            retry_after: None,
        }
    }

    /// Delay that a refusal asks for, in the server's words.
    pub fn retry_after(&self) -> Option<&str> {
        self.retry_after.as_deref()
    }

    /// The answer, once all of it has been received.
    pub fn finish(mut self) -> Result<(Answer, Times), Failure> {
        match std::mem::replace(&mut self.form, Form::Head) {
            Form::Head => return Err(Failure::protocol("it has no head")),
            Form::Refusal(status, body) => return Err(Failure::Status { status, message: told(&body) }),
            Form::Whole(body) => {
                let text = std::str::from_utf8(&body).map_err(|_| Failure::protocol("it is not UTF-8"))?;
                let now = Instant::now();
                self.chunk(text, now)?;
                self.times.total = now - self.asked;
                if self.answer.choices.is_empty() {
                    return Err(Failure::protocol("it has no choices"));
                }
            }
            Form::Stream(parser) if parser.is_inside_message() => {
                return Err(Failure::protocol("the stream ended in the middle of a message"));
            }
            Form::Stream(_) if !self.done => return Err(Failure::protocol("the stream ended without [DONE]")),
            Form::Stream(_) => {}
        }
        Ok((self.answer, self.times))
    }

    fn message(&mut self, message: &Message, now: Instant) -> Result<(), Failure> {
        if self.done {
            return Err(Failure::protocol(format!("a message behind [DONE]: {}", shown(&message.data))));
        }
        if message.data == "[DONE]" {
            self.done = true;
            self.times.total = now - self.asked;
            return Ok(());
        }
        self.chunk(&message.data, now)
    }

    /// Takes a chunk of a stream, or a whole body.
    fn chunk(&mut self, text: &str, now: Instant) -> Result<(), Failure> {
        let chunk: Chunk = serde_json::from_str(text)
            .map_err(|error| Failure::protocol(format!("{error} in {}, expected a completion", shown(text))))?;
        if let Some(error) = chunk.error {
            return Err(Failure::Reported(error_message(&error)));
        }
        for part in chunk.choices.unwrap_or_default() {
            self.part(part, now)?;
        }
        // Servers that report usage with every chunk count on: the last one holds.
        self.answer.usage = chunk.usage.or(self.answer.usage);
        self.answer.receipt = chunk.diffusion.and_then(|diffusion| diffusion.receipt).or(self.answer.receipt);
        Ok(())
    }

    fn part(&mut self, part: Part, now: Instant) -> Result<(), Failure> {
        if part.index >= MOST_CHOICES {
            return Err(Failure::protocol(format!("a choice has index {}, expected less than 1024", part.index)));
        }
        if self.answer.choices.len() <= part.index {
            self.answer.choices.resize_with(part.index + 1, Choice::default);
        }
        let choice = &mut self.answer.choices[part.index];
        let text = part.delta.or(part.message).and_then(|words| words.content).or(part.text).unwrap_or_default();
        if !text.is_empty() {
            if self.replaces {
                choice.text.clear();
            }
            choice.text.push_str(&text);
            match self.last_text.replace(now) {
                Some(before) => self.times.gaps.push(now - before),
                None => self.times.first_text = Some(now - self.asked),
            }
        }
        choice.tokens.extend(part.token_ids.unwrap_or_default());
        choice.finish = part.finish_reason.or(choice.finish.take());
        Ok(())
    }
}

/// The queue's part of a `Server-Timing` header: `queue;dur=1.5, model;dur=20`, in milliseconds.
fn queue(header: &str) -> Option<Duration> {
    let mut metrics = header.split(',').map(|metric| metric.split(';').map(str::trim));
    let mut of_queue = metrics.find_map(|mut fields| (fields.next() == Some("queue")).then_some(fields))?;
    let milliseconds: f64 = of_queue.find_map(|field| field.strip_prefix("dur="))?.trim_matches('"').parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

/// Message in the body of a refusal.
fn told(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if value.get("error").is_some() => error_message(&value["error"]),
        _ if text.trim().is_empty() => "no reason given".to_owned(),
        _ => shown(text.trim()),
    }
}

/// The message of an error, or all of it where it has none.
fn error_message(error: &Value) -> String {
    match (error.get("message"), error) {
        (Some(Value::String(message)), _) | (_, Value::String(message)) => shown(message),
        _ => shown(&error.to_string()),
    }
}

/// The beginning of a long text.
fn shown(text: &str) -> String {
    let mut letters = text.chars();
    let begin: String = letters.by_ref().take(SHOWN).collect();
    if letters.next().is_some() { format!("{begin}...") } else { begin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, kind: &str) -> Head {
        Head { status, headers: vec![("Content-Type".into(), kind.into())] }
    }

    fn streamed(text: &str) -> Result<(Answer, Times), Failure> {
        let mut reader = Reader::new(Instant::now(), false);
        reader.head(&head(200, "text/event-stream; charset=utf-8"))?;
        // Every byte for itself: what tears apart letters and messages is the usual case, not the rare one.
        text.as_bytes().chunks(1).try_for_each(|byte| reader.content(byte))?;
        reader.finish()
    }

    fn refusal(text: &str) -> String {
        streamed(text).unwrap_err().to_string()
    }

    #[test]
    fn a_stream_of_chat_is_read() {
        let (answer, times) = streamed(concat!(
            ":\n\n",
            "data: {\"choices\":[],\"diffusion\":{\"v\":1,\"step\":0}}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Grü\"}}],\"usage\":null}\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"},\"token_ids\":[7]}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ße\"},\"token_ids\":[1,2]}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],",
            "\"diffusion\":{\"seed\":1,\"receipt\":{\"forwards\":4,\"rows\":64,\"nfe\":4}}}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8}}\n\n",
            "data: [DONE]\n\n",
        ))
        .unwrap();
        assert_eq!(answer.choices[0], Choice { text: "Grüße".into(), tokens: vec![1, 2], finish: Some("stop".into()) });
        assert_eq!((answer.choices[1].text.as_str(), &answer.choices[1].tokens[..]), ("other", &[7][..]));
        assert_eq!(answer.usage, Some(Usage { prompt_tokens: 3, completion_tokens: 5 }));
        assert_eq!(answer.receipt, Some(Receipt { forwards: 4, rows: 64 }));
        assert_eq!(times.gaps.len(), 2);
        assert!(times.first_text.is_some_and(|first| first <= times.total));
    }

    #[test]
    fn completions_and_whole_bodies_are_read() {
        let (answer, _) = streamed("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n").unwrap();
        assert_eq!(answer.choices[0].text, "a");
        let mut reader = Reader::new(Instant::now(), false);
        reader.head(&head(200, "application/json")).unwrap();
        reader.content(b"{\"choices\":[{\"message\":{\"content\":\"whole\"},\"finish_reason\":\"length\"}]}").unwrap();
        let (answer, times) = reader.finish().unwrap();
        assert_eq!(answer.choices[0].text, "whole");
        assert_eq!(times.first_text, Some(times.total));
    }

    #[test]
    fn replacing_streams_keep_the_last_text() {
        let mut reader = Reader::new(Instant::now(), true);
        reader.head(&head(200, "text/event-stream")).unwrap();
        for text in ["x y", "a y", "a b"] {
            let chunk = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
            reader.content(chunk.as_bytes()).unwrap();
        }
        reader.content(b"data: [DONE]\n\n").unwrap();
        assert_eq!(reader.finish().unwrap().0.choices[0].text, "a b");
    }

    #[test]
    fn bad_streams_are_failures() {
        assert_eq!(
            refusal("data: {\"error\":{\"message\":\"the device failed\"}}\n\ndata: [DONE]\n\n"),
            "the server reports an error: the device failed"
        );
        assert!(refusal("data: {\"choices\":[]}\n\n").ends_with("the stream ended without [DONE]"));
        assert!(refusal("data: nonsense\n\n").contains("in nonsense, expected a completion"));
        assert!(refusal("data: {\"choices\":7}\n\n").contains("expected a completion"));
        assert!(refusal("data: {\"choices\":[{\"index\":99999}]}\n\n").contains("index 99999"));
        assert!(refusal("data: [DONE]\n\ndata: {}\n\n").contains("a message behind [DONE]"));
        assert!(refusal("data: \u{7f}\n\n").len() < 400);
    }

    #[test]
    fn refusals_tell_their_reason() {
        let refused = |status, kind: &str, body: &[u8]| {
            let mut reader = Reader::new(Instant::now(), false);
            reader.head(&head(status, kind)).and_then(|()| reader.content(body)).map_or_else(Err, |()| reader.finish())
        };
        let told = |status, kind: &str, body: &[u8]| refused(status, kind, body).unwrap_err().to_string();
        assert_eq!(told(503, "application/json", b"{\"error\":{\"message\":\"full\"}}"), "HTTP 503: full");
        assert_eq!(told(401, "application/json", b"{\"error\":\"Unauthorized\"}"), "HTTP 401: Unauthorized");
        assert_eq!(told(502, "text/html", b""), "HTTP 502: no reason given");
        assert_eq!(told(500, "text/plain", "x".repeat(100_000).as_bytes()).len(), "HTTP 500: ".len() + SHOWN + 3);
        assert!(told(200, "text/html", b"<p>").contains("its type is \"text/html\", expected text/event-stream"));
        assert!(told(200, "application/json", b"{}").contains("no choices"));
    }

    #[test]
    fn the_queue_is_found_in_its_header() {
        assert_eq!(queue("total;dur=9, queue;desc=\"x\";dur=1.5"), Some(Duration::from_micros(1500)));
        assert_eq!(queue("queue"), None);
        assert_eq!(queue("queue;dur=-1"), None);
        assert_eq!(queue("queues;dur=1"), None);
    }
}
