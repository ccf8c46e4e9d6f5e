//! Traces: one JSON line per commit, so that a run can be replayed and compared.

use std::io::{self, BufRead, Write};

use demask_decode::Event;
use serde::{Deserialize, Serialize};

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TraceLine {
    /// The first line.
    Header {
        /// Always `header`.
        event: HeaderTag,
        /// Name of the model.
        model: String,
        /// Prompt tokens.
        prompt: Vec<u32>,
        /// Positions behind the prompt.
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
    /// A forward is over.
    Step {
        /// Always `step`.
        event: StepTag,
        /// Which forward, from 0.
        step: usize,
        /// NFE so far.
        nfe: usize,
        /// Live rows.
        rows: usize,
        /// Drafts run.
        drafts: usize,
        /// Draft tokens accepted.
        accepted: usize,
        /// Draft tokens rejected; older traces do not tell.
        #[serde(default)]
        rejected: usize,
    },
    /// A commit.
    Commit {
        /// Which forward, from 0.
        step: usize,
        /// Position in the canvas.
        position: u32,
        /// Token id.
        token: u32,
        /// The token's probability.
        confidence: f32,
        /// The token's text where it is known and whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

/// A token that was given, behind the first mask.
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

/// The word `header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderTag {
    /// The word.
    #[serde(rename = "header")]
    Header,
}

/// The word `step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepTag {
    /// The word.
    #[serde(rename = "step")]
    Step,
}

impl TraceLine {
    /// The line of an event; `text` finds a token's text.
    pub fn of(event: Event, text: impl Fn(u32) -> Option<String>) -> Self {
        match event {
            Event::Commit { step, position, token, confidence } => {
                Self::Commit { step, position, token, confidence, text: text(token) }
            }
            Event::Step { step, nfe, rows, drafts, accepted, rejected } => {
                Self::Step { event: StepTag::Step, step, nfe, rows, drafts, accepted, rejected }
            }
        }
    }

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
    #[error("line {line} of the trace is not a header, step or commit: expected what --trace writes")]
    Line {
        /// Which, from 1.
        line: usize,
    },
    /// The first line is not a header.
    #[error("the trace does not start with a header line: expected what --trace writes")]
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
                event: HeaderTag::Header,
                model: "demo".into(),
                prompt: vec![1, 2],
                length: 4,
                given: vec![Given { position: 4, token: 7, text: None }],
                decoder: "static".into(),
                cache: "none".into(),
                seed: 0,
            },
            TraceLine::of(Event::Commit { step: 0, position: 3, token: 9, confidence: 0.5 }, |_| Some("x".into())),
            TraceLine::of(Event::Step { step: 0, nfe: 1, rows: 6, drafts: 3, accepted: 2, rejected: 1 }, |_| None),
        ];
        let mut bytes = Vec::new();
        for line in &lines {
            line.write(&mut bytes).unwrap();
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(r#"{"step":0,"position":3,"token":9,"confidence":0.5,"text":"x"}"#), "{text}");
        assert_eq!(read_trace(&bytes[..]).unwrap(), lines);
        let older = text.replace(r#","rejected":1"#, "");
        assert_ne!(older, text);
        let TraceLine::Step { accepted, rejected, .. } = read_trace(older.as_bytes()).unwrap()[2] else {
            panic!("a step is a step")
        };
        assert_eq!((accepted, rejected), (2, 0));
    }

    #[test]
    fn a_foreign_file_is_refused_with_its_line() {
        assert_eq!(
            read_trace(&b"hello\n"[..]).unwrap_err().to_string(),
            "line 1 of the trace is not a header, step or commit: expected what --trace writes"
        );
        assert!(matches!(read_trace(&b""[..]), Err(TraceError::NoHeader)));
    }
}
