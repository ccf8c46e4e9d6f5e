//! Names of contents as hashes of them: hubs call a file by a hash, of one of two kinds.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A hash that an etag is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// SHA-256 of the contents: files in a hub's store for large files.
    Sha256,
    /// SHA-1 as git has it, of a head with the length and the contents: files in a hub's revisions. Mirrors that call
    /// files by the SHA-1 of the contents alone are believed too.
    Sha1,
}

impl Sum {
    /// The kind of hash that an etag looks like; others say nothing about the contents.
    pub(super) fn of(etag: &str) -> Option<Self> {
        let digits = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match etag.len() {
            64 if digits => Some(Self::Sha256),
            40 if digits => Some(Self::Sha1),
            _ => None,
        }
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Sha1 => "SHA-1",
        }
    }

    /// Compares a file with an etag: returns the hash that it has where that is another one, or nothing if `goes_on` ends
    /// the comparison.
    pub(super) fn differs(
        self,
        path: &Path,
        etag: &str,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> io::Result<Option<Result<(), String>>> {
        let found = match self {
            Self::Sha256 => hash(path, [Sha256::new()], goes_on)?.map(Vec::from),
            Self::Sha1 => {
                let head = format!("blob {}\0", fs::metadata(path)?.len());
                hash(path, [Sha1::new_with_prefix(head), Sha1::new()], goes_on)?.map(Vec::from)
            }
        };
        Ok(found.map(|mut found| {
            if found.iter().any(|found| found.eq_ignore_ascii_case(etag)) { Ok(()) } else { Err(found.swap_remove(0)) }
        }))
    }
}

/// Digits of hashes of a file's contents, read once; nothing if `goes_on` says so in between.
fn hash<D: Digest, const N: usize>(
    path: &Path,
    mut hashers: [D; N],
    goes_on: &mut dyn FnMut() -> bool,
) -> io::Result<Option<[String; N]>> {
    const PIECE: usize = 1 << 20;
    const PIECES_BETWEEN: usize = 64;
    let (mut opened, mut piece) = (fs::File::open(path)?, vec![0; PIECE]);
    for round in 0_usize.. {
        if round % PIECES_BETWEEN == PIECES_BETWEEN - 1 && !goes_on() {
            return Ok(None);
        }
        match opened.read(&mut piece)? {
            0 => break,
            count => hashers.iter_mut().for_each(|hasher| hasher.update(&piece[..count])),
        }
    }
    Ok(Some(hashers.map(|hasher| digits(&hasher.finalize()))))
}

fn digits(bytes: &[u8]) -> String {
    let half = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [half(byte >> 4), half(byte & 15)]).collect()
}
