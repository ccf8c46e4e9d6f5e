//! End of an HTTP/1.1 body: by its length, by chunks, or with the connection.

use super::http::Failure;

/// Bytes that the line of a chunk's size, or the lines behind the last chunk, may have.
const LONGEST_LINE: usize = 16 << 10;

/// A body that is read as its bytes come, torn anywhere.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    /// The line so far, of a size or behind the last chunk.
    line: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Framing {
    /// Number of bytes that are to come.
    Length(u64),
    Chunked(Chunk),
    /// The end of the connection is the end of the body.
    Close,
}

#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    Size,
    Data(u64),
    /// The line end behind the data.
    End,
    Trailers,
    Done,
}

impl Body {
    /// The body of an answer with this status and these headers, `(name, value)`.
    pub fn of(status: u16, headers: &[(String, String)]) -> Result<Self, Failure> {
        let values = |wanted: &'static str| {
            headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
        };
        let codings: Vec<_> = values("transfer-encoding").collect();
        let framing = if matches!(status, 204 | 304) {
            Framing::Length(0)
        } else if !codings.is_empty() {
            // Anything beside chunks would have to be asked for, and is not.
            match codings[..] {
                [coding] if coding.eq_ignore_ascii_case("chunked") => Framing::Chunked(Chunk::Size),
                _ => return Err(Failure::protocol(format!("transfer coding {codings:?}, expected chunked"))),
            }
        } else {
            let mut lengths: Vec<_> = values("content-length").collect();
            lengths.dedup();
            match lengths[..] {
                [] => Framing::Close,
                [length] => Framing::Length(length.parse().map_err(|_| {
                    Failure::protocol(format!("Content-Length is {length:?}, expected a number of bytes"))
                })?),
                _ => return Err(Failure::protocol("several values of Content-Length, expected one")),
            }
        };
        Ok(Self { framing, line: Vec::new() })
    }

    /// Returns whether all of it has been read, without the end of the connection.
    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::Length(0) | Framing::Chunked(Chunk::Done))
    }

    /// Returns whether the end of the connection is a right end here.
    pub fn may_end(&self) -> bool {
        self.is_complete() || self.framing == Framing::Close
    }

    /// Takes bytes, hands content on to `take`, and returns how many bytes belonged to this body.
    pub fn push(&mut self, bytes: &[u8], take: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<usize, Failure> {
        let mut at = 0;
        while at < bytes.len() && !self.is_complete() {
            let rest = &bytes[at..];
            match &mut self.framing {
                Framing::Close => {
                    take(rest)?;
                    at = bytes.len();
                }
                Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    take(&rest[..count])?;
                    *left -= count as u64;
                    at += count;
                    if self.framing == Framing::Chunked(Chunk::Data(0)) {
                        self.framing = Framing::Chunked(Chunk::End);
                    }
                }
                Framing::Chunked(_) => {
                    at += 1;
                    self.line_byte(rest[0])?;
                }
            }
        }
        Ok(at)
    }

    /// Takes a byte that belongs to a line between chunks.
    fn line_byte(&mut self, byte: u8) -> Result<(), Failure> {
        if byte != b'\n' {
            if self.line.len() == LONGEST_LINE {
                return Err(Failure::protocol(format!("a line between chunks is longer than {LONGEST_LINE} bytes")));
            }
            self.line.push(byte);
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.line);
        if line.pop_if(|last| *last == b'\r').is_none() {
            return Err(Failure::protocol("a line between chunks ends without CR"));
        }
        let Framing::Chunked(chunk) = &mut self.framing else { return Ok(()) };
        *chunk = match chunk {
            Chunk::Size => match size(&line)? {
                0 => Chunk::Trailers,
                size => Chunk::Data(size),
            },
            Chunk::End if line.is_empty() => Chunk::Size,
            Chunk::End => return Err(Failure::protocol("a chunk is longer than its size")),
            Chunk::Trailers if line.is_empty() => Chunk::Done,
            Chunk::Trailers => Chunk::Trailers,
            Chunk::Data(_) | Chunk::Done => return Ok(()),
        };
        Ok(())
    }
}

/// The size of a chunk; what may stand behind a semicolon means nothing here.
fn size(line: &[u8]) -> Result<u64, Failure> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = if valid { u64::from_str_radix(text, 16).ok() } else { None };
    let shown = || String::from_utf8_lossy(&digits[..digits.len().min(40)]).into_owned();
    size.ok_or_else(|| {
        Failure::protocol(format!("the size of a chunk is {:?}, expected a hexadecimal number", shown()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Content, whether it is complete, and bytes behind it.
    fn read(pairs: &[(&str, &str)], pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), Failure> {
        let mut body = Body::of(200, &headers(pairs))?;
        let (mut content, mut behind) = (Vec::new(), 0);
        for piece in pieces {
            let taken = body.push(piece, &mut |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
            behind += piece.len() - taken;
        }
        Ok((content, body.is_complete(), behind))
    }

    const CHUNKED: (&str, &str) = ("Transfer-Encoding", "Chunked");
    const STREAM: &[u8] = b"3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nServer-Timing: x\r\n\r\nbehind";

    #[test]
    fn bodies_end_where_they_say() {
        assert_eq!(read(&[("content-length", "3")], &[b"ab", b"cde"]).unwrap(), (b"abc".to_vec(), true, 2));
        assert_eq!(read(&[CHUNKED], &[STREAM]).unwrap(), (b"abc0123456789".to_vec(), true, 6));
        assert_eq!(read(&[], &[b"all ", b"of it"]).unwrap(), (b"all of it".to_vec(), false, 0));
        assert!(Body::of(204, &[]).unwrap().is_complete());
        assert!(Body::of(200, &[]).unwrap().may_end());
        assert!(!Body::of(200, &headers(&[("Content-Length", "1")])).unwrap().may_end());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |pairs: &[(&str, &str)], bytes: &[u8]| read(pairs, &[bytes]).unwrap_err().to_string();
        assert!(refused(&[("Content-Length", "-1")], b"").contains("expected a number of bytes"));
        assert!(refused(&[("Content-Length", "1"), ("content-length", "2")], b"").contains("several values"));
        assert!(refused(&[("Transfer-Encoding", "gzip, chunked")], b"").contains("expected chunked"));
        assert!(refused(&[CHUNKED], b"xyz\r\n").contains("hexadecimal"));
        assert!(refused(&[CHUNKED], b"+3\r\nabc\r\n").contains("hexadecimal"));
        assert!(refused(&[CHUNKED], b"ffffffffffffffffff\r\n").contains("hexadecimal"));
        assert!(refused(&[CHUNKED], b"3\r\nabcd\r\n").contains("longer than its size"));
        assert!(refused(&[CHUNKED], b"3\nabc\r\n").contains("without CR"));
        assert!(refused(&[CHUNKED], "1".repeat(LONGEST_LINE + 1).as_bytes()).contains("longer than 16384 bytes"));
    }

    proptest! {
        #[test]
        fn tears_change_nothing(cuts in prop::collection::vec(0..STREAM.len(), 0..20)) {
            let mut cuts: Vec<_> = cuts.into_iter().chain([0, STREAM.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &STREAM[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&[CHUNKED], &pieces).unwrap(), (b"abc0123456789".to_vec(), true, 6));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let single: Vec<_> = bytes.chunks(1).collect();
            let (torn, whole) = (read(&[CHUNKED], &single), read(&[CHUNKED], &[&bytes]));
            prop_assert_eq!(torn.map_err(|error| error.to_string()), whole.map_err(|error| error.to_string()));
        }
    }
}
