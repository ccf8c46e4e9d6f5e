//! Names of hosts and origins in settings, as browsers and clients send them: one that no request can have never takes effect.

/// Returns an origin that a setting names.
///
/// # Errors
/// If no browser sends it so: what to write instead.
pub fn origin(text: &str) -> Result<&str, String> {
    let example = "such as http://localhost:3000";
    if text == "null" {
        return Ok(text);
    }
    if text.contains('*') {
        return Err(format!("{text:?} is no origin, and all of them are never allowed: name each one, {example}"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("{text:?} is no origin: expected scheme, host and port, {example}"));
    };
    let address = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let address = address.rsplit('@').next().unwrap_or_default();
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let short = address.strip_suffix(usual).unwrap_or(address);
    let sent = format!("{scheme}://{short}").to_ascii_lowercase();
    if short.is_empty() || !is_host_and_port(short) {
        return Err(format!("{text:?} is no origin: expected scheme, host and port, {example}"));
    }
    if sent != text {
        return Err(format!("no browser sends {text:?}: write {sent:?}"));
    }
    Ok(text)
}

/// Returns a host that a setting names, without a port.
///
/// # Errors
/// If no request names it so: what to write instead.
pub fn host(text: &str) -> Result<&str, String> {
    let example = "such as demask.example.org";
    if text.contains('*') {
        return Err(format!("{text:?} is no name of a host: list each one, {example}, or omit the setting for all"));
    }
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    let bare = bare.split(['/', '?', '#']).next().unwrap_or_default();
    let bare = match bare.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host_of(bare).to_owned(),
    };
    if bare.is_empty() || !is_host_and_port(&bare) {
        return Err(format!("{text:?} is no name of a host, {example}"));
    }
    if bare == text { Ok(text) } else { Err(format!("{text:?} is no bare host: write {bare:?}")) }
}

/// A host without its port; an address of version 6 is in brackets.
fn host_of(address: &str) -> &str {
    let end = if address.starts_with('[') { address.find(']').map(|end| end + 1) } else { address.find(':') };
    &address[..end.unwrap_or(address.len())]
}

/// Reports whether this is a host as requests name it, with a port or without.
fn is_host_and_port(address: &str) -> bool {
    let host = host_of(address);
    let port = &address[host.len()..];
    let letters = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let named = match host.strip_prefix('[').and_then(|inside| inside.strip_suffix(']')) {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(letters),
    };
    named && (port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_that_no_browser_sends_are_refused_with_what_to_write() {
        for known in ["http://localhost:3000", "https://a.example", "app://obsidian.md", "null", "http://[::1]:8080"] {
            assert_eq!(origin(known), Ok(known));
        }
        for (text, told) in [
            ("*", "name each one"),
            ("https://*.example.org", "name each one"),
            ("http://localhost:3000/", "write \"http://localhost:3000\""),
            ("http://localhost:3000/app", "write \"http://localhost:3000\""),
            ("https://a.example:443", "write \"https://a.example\""),
            ("HTTP://Localhost:80", "write \"http://localhost\""),
            ("http://user@a.example", "write \"http://a.example\""),
            ("localhost:3000", "expected scheme, host and port"),
            ("http://", "expected scheme, host and port"),
            ("http://gr\u{f6}\u{df}e.example", "expected scheme, host and port"),
            ("http://a:x", "expected scheme, host and port"),
            ("", "expected scheme, host and port"),
        ] {
            let refused = origin(text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }

    #[test]
    fn hosts_that_no_request_names_are_refused_with_what_to_write() {
        for known in ["localhost", "127.0.0.1", "[::1]", "demask.example.org", "a_b"] {
            assert_eq!(host(known), Ok(known));
        }
        for (text, told) in [
            ("*", "list each one"),
            ("localhost:8080", "write \"localhost\""),
            ("http://localhost/", "write \"localhost\""),
            ("[::1]:80", "write \"[::1]\""),
            ("::1", "write \"[::1]\""),
            ("a b", "is no name"),
            ("", "is no name"),
        ] {
            let refused = host(text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }
}
