//! Traces: one JSON line per commit, so that a run can be replayed and compared.
//!
//! Lines with `position` are commits, all others say with `event` what they are. Traces of older versions are read; a newer
//! one is refused.

use std::io::{self, BufRead, Write};

use demask_decode::Event;
use demask_step::{NO_TOKEN, TokenId};
use serde::{Deserialize, Serialize};

use crate::{ModelInfo, record::Record};

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum TraceLine {
    /// The first line.
    Header {
        /// The version of the form, [`TRACE_VERSION`]; the first had no number.
        #[serde(default = "first_version")]
        version: u32,
        /// Name of the model.
        model: String,
        /// Prompt tokens.
        prompt: Vec<u32>,
        /// Positions after the prompt.
        length: usize,
        /// Tokens that stand among them from the start: what infilling fills around.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        given: Vec<Given>,
        /// Decoder with its parameters.
        decoder: String,
        /// Cache policy with its parameters.
        cache: String,
        /// Seed.
        seed: u64,
    },
    /// Predictions of a network for one sequence in one forward, if they are recorded: the line comes before the step.
    Predictions {
        /// The predictions.
        #[serde(flatten)]
        record: Record,
    },
    /// A token of the drafts that a forward verified; before its commits, in traces with drafts.
    Draft {
        /// Index of the forward, from 0.
        step: usize,
        /// The first draft that holds it; 0 is known to be good.
        draft: usize,
        /// Position in the canvas.
        at: u32,
        /// Token id.
        token: u32,
        /// The token's probability when it was drafted.
        confidence: f32,
        /// Records whether it stands.
        accepted: bool,
        /// The token's text where it is known and whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Prediction in a draft that decides about the next one.
    Target {
        /// Index of the forward, from 0.
        step: usize,
        /// The draft in which it was predicted.
        draft: usize,
        /// Position in the canvas.
        at: u32,
        /// Token id; of a guide, in its own vocabulary.
        token: u32,
        /// The token's probability.
        confidence: f32,
        /// Records whether a guide predicted it, where it disagreed.
        #[serde(default, skip_serializing_if = "is_false")]
        guide: bool,
        /// The token's text where it is known and whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A token that took the place of another one, or was taken back.
    Replace {
        /// Index of the forward, from 0.
        step: usize,
        /// Position in the canvas.
        at: u32,
        /// Token id that stood there.
        from: u32,
        /// Token id that stands there now; null if it was taken back and is a mask.
        to: Option<u32>,
        /// The token's probability.
        confidence: f32,
        /// Records whether a constraint changed the new token. Absent if it did not.
        #[serde(default, skip_serializing_if = "is_false")]
        changed: bool,
        /// The token's text where it is known and whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A forward is over.
    Step {
        /// Index of the forward, from 0.
        step: usize,
        /// NFE so far.
        nfe: usize,
        /// Live rows.
        rows: usize,
        /// Drafts run.
        drafts: usize,
        /// Draft tokens accepted.
        accepted: usize,
        /// Draft tokens rejected; older traces lack it.
        #[serde(default)]
        rejected: usize,
    },
    /// A commit, the one line without `event`.
    #[serde(untagged)]
    Commit {
        /// Index of the forward, from 0.
        step: usize,
        /// Position in the canvas.
        position: u32,
        /// Token id.
        token: u32,
        /// The token's probability.
        confidence: f32,
        /// Records whether no forward decided it: a constraint leaves no choice there. Absent if one did.
        #[serde(default, skip_serializing_if = "is_false")]
        forced: bool,
        /// Records whether a constraint changed it: the network predicted another token there. Absent if it did not.
        #[serde(default, skip_serializing_if = "is_false")]
        changed: bool,
        /// The token's text where it is known and whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

/// A token that was given, after the first mask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Position in the canvas.
    pub position: u32,
    /// Token id.
    pub token: u32,
    /// The token's text where it is known and whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The version that is written.
pub const TRACE_VERSION: u32 = 3;

fn first_version() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The texts of a vocabulary, looked up beforehand: a model is busy while it decodes.
#[derive(Default)]
pub struct TokenTexts {
    own: Vec<Option<String>>,
    /// Texts of the guide's vocabulary.
    guide: Vec<Option<String>>,
}

impl TokenTexts {
    /// Returns all texts of a model with a tokenizer; none without.
    pub fn of(model: &ModelInfo) -> Self {
        // Of several, a trace does not say which one speaks.
        let guide = if let [guide] = &model.guides[..] { Some(&*guide.info) } else { None };
        Self { own: all_texts(model), guide: guide.map(all_texts).unwrap_or_default() }
    }

    /// Returns no texts, where none is looked up.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the text of a token, where it is known and whole characters.
    pub fn text(&self, token: TokenId) -> Option<&str> {
        self.own.get(token as usize)?.as_deref()
    }

    /// Returns the text of a token of the guide.
    fn text_of_guide(&self, token: TokenId) -> Option<&str> {
        self.guide.get(token as usize)?.as_deref()
    }
}

/// The texts of a whole vocabulary; none without a tokenizer.
fn all_texts(info: &ModelInfo) -> Vec<Option<String>> {
    let Ok(tokenizer) = info.tokenizer() else { return Vec::new() };
    let text = |id| String::from_utf8(tokenizer.token_bytes(id)?).ok();
    (0..info.facts().vocab as u32).map(text).collect()
}

/// Writes what happens to a request down as the lines of a trace.
pub struct Tracer {
    model: String,
    mask: Option<TokenId>,
    seed: u64,
}

impl Tracer {
    /// Makes one for requests to a model with this seed.
    pub fn new(model: &ModelInfo, seed: u64) -> Self {
        Self { model: model.name().to_owned(), mask: model.facts().mask_id, seed }
    }

    /// Returns the line of an event, if it has one.
    pub fn line(&self, event: &Event, texts: &TokenTexts) -> Option<TraceLine> {
        let text = |token| texts.text(token).map(str::to_owned);
        Some(match *event {
            Event::Started(ref started) => TraceLine::Header {
                version: TRACE_VERSION,
                model: self.model.clone(),
                prompt: started.canvas[..started.prompt_tokens].to_vec(),
                length: started.positions,
                given: self.given(&started.canvas[started.prompt_tokens..], started.prompt_tokens, texts),
                decoder: started.decoder.clone(),
                cache: started.cache.clone(),
                seed: self.seed,
            },
            Event::Commit { step, position, token, confidence, forced, changed } => {
                TraceLine::Commit { step, position, token, confidence, forced, changed, text: text(token) }
            }
            Event::Replace { step, position: at, from, to, confidence, changed } => {
                TraceLine::Replace { step, at, from, to, confidence, changed, text: to.and_then(text) }
            }
            Event::Predicted { step, network, ref predictions } => {
                TraceLine::Predictions { record: Record::of(step, network, predictions) }
            }
            Event::Draft { step, draft, position: at, token, confidence, accepted } => {
                TraceLine::Draft { step, draft, at, token, confidence, accepted, text: text(token) }
            }
            Event::Target { step, draft, position: at, token, confidence, by_guide: guide } => {
                let text = if guide { texts.text_of_guide(token).map(str::to_owned) } else { text(token) };
                TraceLine::Target { step, draft, at, token, confidence, guide, text }
            }
            Event::Step { step, nfe, rows, drafts, accepted, rejected, .. } => {
                TraceLine::Step { step, nfe, rows, drafts, accepted, rejected }
            }
            _ => return None,
        })
    }

    /// Tokens that stand in a response from the start.
    fn given(&self, response: &[TokenId], first: usize, texts: &TokenTexts) -> Vec<Given> {
        let known = |&(_, &token): &(usize, &TokenId)| token != NO_TOKEN && Some(token) != self.mask;
        let give = |(index, &token): (usize, &TokenId)| Given {
            position: (first + index) as u32,
            token,
            text: texts.text(token).map(str::to_owned),
        };
        response.iter().enumerate().filter(known).map(give).collect()
    }
}

impl TraceLine {
    /// Writes the line.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Reading failed.
    #[error("the trace cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is not one of a trace.
    #[error("line {line} of the trace is not a header, step, commit or prediction: expected what `trace` writes")]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The trace is newer than the program.
    #[error("the trace is of version {found}, this program reads up to {TRACE_VERSION}: update demask")]
    Version {
        /// Version of the trace.
        found: u32,
    },
    /// The first line is not a header.
    #[error("the trace does not start with a header line: expected what `trace` writes")]
    NoHeader,
}

/// Reads a whole trace; its first line is the header.
pub fn read_trace(input: impl BufRead) -> Result<Vec<TraceLine>, TraceError> {
    let mut lines = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        lines.push(serde_json::from_str(&line).map_err(|_| TraceError::Line { line: index + 1 })?);
    }
    match lines.first() {
        Some(TraceLine::Header { version, .. }) if *version > TRACE_VERSION => {
            Err(TraceError::Version { found: *version })
        }
        Some(TraceLine::Header { .. }) => Ok(lines),
        _ => Err(TraceError::NoHeader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_survives_a_round_trip() {
        let lines = [
            TraceLine::Header {
                version: TRACE_VERSION,
                model: "demo".into(),
                prompt: vec![1, 2],
                length: 4,
                given: vec![Given { position: 4, token: 7, text: None }],
                decoder: "static".into(),
                cache: "none".into(),
                seed: 0,
            },
            TraceLine::Draft { step: 0, draft: 1, at: 3, token: 9, confidence: 0.5, accepted: true, text: None },
            TraceLine::Target {
                step: 0,
                draft: 0,
                at: 3,
                token: 9,
                confidence: 0.5,
                guide: true,
                text: Some("x".into()),
            },
            TraceLine::Commit {
                step: 0,
                position: 3,
                token: 9,
                confidence: 0.5,
                forced: false,
                changed: false,
                text: Some("x".into()),
            },
            TraceLine::Replace {
                step: 1,
                at: 3,
                from: 9,
                to: Some(8),
                confidence: 0.75,
                changed: true,
                text: Some("y".into()),
            },
            TraceLine::Replace { step: 2, at: 3, from: 8, to: None, confidence: 0.25, changed: false, text: None },
            TraceLine::Predictions {
                record: Record {
                    lanes: 1,
                    positions: vec![3, 4],
                    tokens: vec![Some(9), None],
                    confidence: vec![0.1f32.into(), f32::NEG_INFINITY.into()],
                    judged: vec![(0, f32::NEG_INFINITY.into(), 0.5.into())],
                    ..Record::default()
                },
            },
            TraceLine::Step { step: 0, nfe: 1, rows: 6, drafts: 3, accepted: 2, rejected: 1 },
        ];
        let mut bytes = Vec::new();
        for line in &lines {
            line.write(&mut bytes).unwrap();
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(r#"{"step":0,"position":3,"token":9,"confidence":0.5,"text":"x"}"#), "{text}");
        assert_eq!(read_trace(&bytes[..]).unwrap(), lines);
        // Whoever takes lines with a position for commits takes commits alone.
        assert_eq!(text.matches("\"position\":").count(), 2, "a commit, and a token that was given: {text}");
        let older = text.replace(r#","rejected":1"#, "").replace(r#""version":3,"#, "");
        let lines = read_trace(older.as_bytes()).unwrap();
        assert!(matches!(lines[0], TraceLine::Header { version: 1, .. }), "{older}");
        let TraceLine::Step { accepted, rejected, .. } = lines[7] else { panic!("a step is a step") };
        assert_eq!((accepted, rejected), (2, 0));
        let newer = text.replace(r#""version":3"#, r#""version":4"#);
        assert_eq!(
            read_trace(newer.as_bytes()).unwrap_err().to_string(),
            "the trace is of version 4, this program reads up to 3: update demask"
        );
    }

    #[test]
    fn a_foreign_file_is_refused_with_its_line() {
        assert_eq!(
            read_trace(&b"hello\n"[..]).unwrap_err().to_string(),
            "line 1 of the trace is not a header, step, commit or prediction: expected what `trace` writes"
        );
        assert!(matches!(read_trace(&b""[..]), Err(TraceError::NoHeader)));
    }
}
