//! Server-sent events: a reader that takes bytes as they come, torn anywhere, and returns whole messages.
//!
//! It reads what the HTML standard calls an event stream: lines that end in LF, CR or both; fields `data` and `event`;
//! comments, which start with a colon; a message ends with a blank line. Ids and retry times mean nothing to a client
//! that never reconnects. It depends on nothing, so that any test can include it.

/// Bytes that one message may have: far beyond any answer, far below what memory holds.
pub const LONGEST: usize = 16 << 20;

/// One message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The name that the server gave it, if any.
    pub event: Option<String>,
    /// Data of the message, lines joined by LF.
    pub data: String,
}

/// Reason why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A message is longer than [`LONGEST`].
    TooLong,
    /// A message is not UTF-8.
    NotText,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong => write!(f, "a message of the stream is longer than {LONGEST} bytes"),
            Self::NotText => f.write_str("a message of the stream is not UTF-8"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Reads messages.
#[derive(Debug, Default)]
pub struct Parser {
    /// The line so far.
    line: Vec<u8>,
    /// Data of the message so far, each line with an LF behind it.
    data: Vec<u8>,
    event: Option<Vec<u8>>,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// A line has been read: no byte order mark can come any more.
    begun: bool,
}

impl Parser {
    /// Takes bytes and hands over the messages that they complete.
    pub fn push(&mut self, bytes: &[u8], messages: &mut Vec<Message>) -> Result<(), Malformed> {
        for &byte in bytes {
            let behind_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if behind_cr => {}
                b'\n' | b'\r' => self.end_line(messages)?,
                _ if self.line.len() + self.data.len() >= LONGEST => return Err(Malformed::TooLong),
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    /// Returns whether a message has begun that no blank line has ended.
    pub fn is_inside_message(&self) -> bool {
        !self.line.is_empty() || !self.data.is_empty() || self.event.is_some()
    }

    fn end_line(&mut self, messages: &mut Vec<Message>) -> Result<(), Malformed> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_message(messages);
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.event = Some(value.to_vec()),
            // A comment has an empty name: servers send them to show that they are alive.
            _ => {}
        }
        // The memory of the line serves the next one.
        line.clear();
        self.line = line;
        Ok(())
    }

    fn end_message(&mut self, messages: &mut Vec<Message>) -> Result<(), Malformed> {
        let (mut data, event) = (std::mem::take(&mut self.data), self.event.take());
        // By the standard a message without data is none, whatever its name.
        if data.pop().is_none() {
            return Ok(());
        }
        let text = |bytes| String::from_utf8(bytes).map_err(|_| Malformed::NotText);
        messages.push(Message { event: event.map(text).transpose()?, data: text(data)? });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<Message>, Malformed> {
        let (mut parser, mut messages) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.push(piece, &mut messages)?;
        }
        Ok(messages)
    }

    fn data(text: &str) -> Vec<String> {
        read(&[text.as_bytes()]).unwrap().into_iter().map(|message| message.data).collect()
    }

    #[test]
    fn messages_end_with_a_blank_line() {
        assert_eq!(data("data: a\n\ndata:b\n\n"), ["a", "b"]);
        assert_eq!(data("data: a\r\n\r\ndata: b\r\rdata: c\n\n"), ["a", "b", "c"]);
        assert_eq!(data("data: first\ndata: second\n\n"), ["first\nsecond"]);
        assert_eq!(data("data\n\ndata: \n\n"), ["", ""]);
        assert_eq!(data("\n\n\ndata: a\n\n\n\n"), ["a"]);
        assert_eq!(data("data: unfinished\n"), [""; 0]);
        assert_eq!(data("\u{feff}data: behind a mark\n\n"), ["behind a mark"]);
    }

    #[test]
    fn comments_and_other_fields_are_no_data() {
        assert_eq!(data(":\n\n: ping\n\ndata: a\n:glued\n\nid: 7\nretry: 9\n\nevent: only a name\n\n"), ["a"]);
        let mut parser = Parser::default();
        parser.push(b": one\n\n:\n\n", &mut Vec::new()).unwrap();
        assert!(!parser.is_inside_message());
        parser.push(b"data: x\n", &mut Vec::new()).unwrap();
        assert!(parser.is_inside_message());
    }

    #[test]
    fn names_are_kept() {
        let found = read(&[b"event: error\ndata: x\n\ndata: y\n\n"]).unwrap();
        assert_eq!(found[0], Message { event: Some("error".into()), data: "x".into() });
        assert_eq!(found[1].event, None);
    }

    #[test]
    fn what_is_no_text_or_too_long_is_refused() {
        assert_eq!(read(&[b"data: \xff\n\n"]), Err(Malformed::NotText));
        let piece = vec![b'x'; 1 << 20];
        let endless: Vec<&[u8]> = std::iter::once(&b"data: "[..]).chain(std::iter::repeat_n(&piece[..], 17)).collect();
        assert_eq!(read(&endless), Err(Malformed::TooLong));
        let line = [&b"data: "[..], &piece[..], b"\n"].concat();
        assert_eq!(read(&vec![&line[..]; 17]), Err(Malformed::TooLong));
    }

    proptest! {
        #[test]
        fn tears_change_nothing(
            texts in prop::collection::vec("[a-zß▒\\\\\"{}: ]{0,12}", 0..8),
            ends in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(0usize..200, 0..20),
        ) {
            let messages = texts.iter().map(|text| [":", ends, ends, "data: ", text, ends, ends].concat());
            let stream = messages.collect::<Vec<_>>().concat();
            let whole = read(&[stream.as_bytes()]).unwrap();
            prop_assert_eq!(whole.iter().map(|message| &message.data).collect::<Vec<_>>(), texts.iter().collect::<Vec<_>>());
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).chain([0, stream.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces).unwrap(), whole);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let single: Vec<_> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single), read(&[&bytes]));
        }
    }
}
