//! Paths as clients encode them: segments with percent signs (RFC 3986, 2.1 and 6.2.2).

use crate::Refusal;

/// A path, decoded segment by segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    segments: Vec<String>,
}

impl Path {
    /// Decodes a path.
    ///
    /// # Errors
    /// If two hexadecimal digits are missing behind a percent sign, or what it spells is no UTF-8.
    pub fn read(encoded: &str) -> Result<Self, Refusal> {
        let segment = |segment: &str| {
            decoded(segment).ok_or_else(|| {
                let shown: String = segment.chars().take(80).collect();
                let message = format!(
                    "the path has the segment {shown:?}, expected UTF-8 with two hexadecimal digits behind each percent sign"
                );
                Refusal::bad(message)
            })
        };
        Ok(Self { segments: encoded.split('/').map(segment).collect::<Result<_, _>>()? })
    }

    /// Returns the whole path; none if a segment holds a slash, which separates nothing: no path of the server has one.
    pub fn whole(&self) -> Option<String> {
        self.segments.iter().all(|segment| !segment.contains('/')).then(|| self.segments.join("/"))
    }

    /// Returns what is behind a folder, whose name ends with a slash; none if it is elsewhere, or the folder itself.
    pub fn behind(&self, folder: &str) -> Option<String> {
        let depth = folder.matches('/').count();
        let (before, behind) = self.segments.split_at_checked(depth)?;
        let inside = before.iter().map(String::as_str).eq(folder.split('/').take(depth));
        Some(behind.join("/")).filter(|rest| inside && !rest.is_empty())
    }

    /// Returns its beginning, for messages.
    pub fn shown(&self) -> String {
        self.segments.join("/").chars().take(80).collect()
    }
}

/// A segment without its percent signs.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_each_for_itself() {
        let read = |path: &str| Path::read(path).unwrap();
        assert_eq!(read("/v1/%6dodels").whole().as_deref(), Some("/v1/models"));
        assert_eq!(read("/v1%2Fmodels").whole(), None);
        assert_eq!(read("/v1/models/gr%C3%B6%c3%9Fe").behind("/v1/models/").as_deref(), Some("gr\u{f6}\u{df}e"));
        assert_eq!(read("/v1/models/org/name").behind("/v1/models/").as_deref(), Some("org/name"));
        assert_eq!(read("/v1/models/org%2Fname").behind("/v1/models/").as_deref(), Some("org/name"));
        assert_eq!(read("/v1/models/a%252Fb+c").behind("/v1/models/").as_deref(), Some("a%2Fb+c"));
        for outside in ["/v1/models/", "/v1/models", "/v2/models/a", "/", ""] {
            assert_eq!(read(outside).behind("/v1/models/"), None, "{outside}");
        }
    }

    #[test]
    fn what_spells_no_text_is_refused() {
        for path in ["/v1/%", "/v1/%4", "/v1/%zz", "/v1/%+1", "/v1/models/%FF", "/v1/models/%C3"] {
            let refusal = Path::read(path).unwrap_err();
            assert_eq!(refusal.status.as_u16(), 400, "{path}");
            assert!(refusal.message.contains("two hexadecimal digits"), "{refusal:?}");
        }
    }
}
