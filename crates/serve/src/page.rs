//! The page that shows how an answer is unmasked, and its files.

use bytes::Bytes;
use http::{HeaderValue, Response, header};

use crate::Refusal;

/// What a browser may do with the page: nothing that is not its own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The files: name, kind, content.
const FILES: [(&str, &str, &[u8]); 1] = [("/", "text/html; charset=utf-8", include_bytes!("page/index.html"))];

/// Returns a file of the page.
///
/// # Errors
/// If there is none of that name.
pub fn file(path: &str) -> Result<Response<Bytes>, Refusal> {
    let found = FILES.iter().find(|(name, ..)| *name == path);
    let (_, kind, content) = found.ok_or_else(|| Refusal::missing("the page has no such file: open /"))?;
    let mut response = Response::new(Bytes::from_static(content));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    Ok(response)
}
