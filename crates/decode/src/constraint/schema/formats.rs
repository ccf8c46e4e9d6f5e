//! Narrow forms of formats, as patterns of the whole text.

/// A name in the domain name system: labels of letters and digits with single dashes inside, short enough for any number
/// of them that is allowed here, of which the last begins with a letter.
macro_rules! host {
    () => {
        r"(?:[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20})?\.){0,4}[A-Za-z][A-Za-z0-9]{0,20}"
    };
}

macro_rules! date {
    () => {
        r"[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    };
}

macro_rules! time {
    () => {
        r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

/// The pattern of a format's narrow form, if it has one here.
pub(super) fn pattern(format: &str) -> Option<&'static str> {
    Some(match format {
        "date" => date!(),
        "time" => time!(),
        "date-time" => concat!(date!(), "T", time!()),
        "uuid" => "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
        "ipv4" => {
            r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
        }
        "ipv6" => {
            "(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|::(?:(?:[0-9A-Fa-f]{1,4}:){0,5}[0-9A-Fa-f]{1,4})?\
             |(?:[0-9A-Fa-f]{1,4}:){1,3}(?::[0-9A-Fa-f]{1,4}){1,4}|(?:[0-9A-Fa-f]{1,4}:){1,7}:"
        }
        "hostname" => host!(),
        "email" => concat!(
            r"[A-Za-z0-9_+-]{1,20}(?:\.[A-Za-z0-9_+-]{1,20}){0,2}@",
            r"(?:[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20})?\.){1,4}[A-Za-z][A-Za-z0-9]{0,20}"
        ),
        "uri" => {
            r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,4})?(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?|(?:urn|mailto):[A-Za-z0-9][A-Za-z0-9._~!$&'()*+,;=:@/-]*"
        }
        _ => return None,
    })
}
