//! Reader of data files: it recognizes the format of a file and returns its entries.

use std::{
    fmt::Display,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use demask_checkpoint::guarded;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use zip::ZipArchive;

use super::{DataError, table};

/// Most that is read of a file once it is unpacked, MiB; the largest file of a task has a tenth of it.
const LIMIT: u64 = 1024;

/// Entries of a file, or of a file inside an archive.
pub(super) fn of_file(path: &Path, member: Option<&str>) -> Result<Vec<Value>, DataError> {
    let name = path.display().to_string();
    let unreadable = |cause| DataError::Read { path: name.clone(), cause };
    let mut file = File::open(path).map_err(unreadable)?;
    let start = first_bytes(&mut file).map_err(unreadable)?;
    let (bytes, inner) = match (start, member) {
        (_, Some(member)) => (member_of(file, member, &name)?, member.to_owned()),
        ([0x1f, 0x8b, ..], None) => (limited(MultiGzDecoder::new(BufReader::new(file)), "gzip", &name)?, stem(&name)),
        (_, None) => (limited(file, "plain", &name)?, name.clone()),
    };
    let entries = if bytes.starts_with(b"PAR1") || has_extension(&inner, "parquet") {
        table::parquet(bytes, &name)?
    } else if has_extension(&inner, "csv") {
        table::csv(&bytes, &name)?
    } else {
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.split(|byte| *byte == b'\n').count();
            DataError::Line { path: name.clone(), line, detail: "not UTF-8".to_owned() }
        })?;
        return of_text(&text, &name);
    };
    some(entries, &name)
}

/// Entries of text: a JSON list, or a JSON object a line.
pub(super) fn of_text(text: &str, path: &str) -> Result<Vec<Value>, DataError> {
    let broken = |line: usize, error: &serde_json::Error| {
        let detail = error.to_string();
        // The parser counts lines of what it was given.
        let detail = detail.split(" at line ").next().unwrap_or_default().to_owned();
        DataError::Line { path: path.to_owned(), line, detail }
    };
    let text = &*demask::plain::clean(text);
    if text.trim_start().starts_with('[') {
        return some(serde_json::from_str(text).map_err(|error| broken(error.line(), &error))?, path);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let entry = |(index, line): (usize, &str)| match serde_json::from_str(line) {
        Ok(entry @ Value::Object(_)) => Ok(entry),
        Ok(_) => Err(DataError::Line { path: path.to_owned(), line: index + 1, detail: "not an object".to_owned() }),
        Err(error) => Err(broken(index + 1, &error)),
    };
    some(lines.map(entry).collect::<Result<_, _>>()?, path)
}

fn some(entries: Vec<Value>, path: &str) -> Result<Vec<Value>, DataError> {
    if entries.is_empty() { Err(DataError::Empty { path: path.to_owned() }) } else { Ok(entries) }
}

/// The first two bytes; zeros where there are none.
fn first_bytes(file: &mut File) -> io::Result<[u8; 2]> {
    let mut start = Vec::new();
    file.by_ref().take(2).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    start.resize(2, 0);
    Ok([start[0], start[1]])
}

/// All bytes of a reader, if they are not too many.
fn limited(reader: impl Read, kind: &'static str, path: &str) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let read = reader.take((LIMIT << 20) + 1).read_to_end(&mut bytes);
    read.map_err(|cause| match kind {
        "plain" => DataError::Read { path: path.to_owned(), cause },
        _ => broken(path, kind, &cause),
    })?;
    if bytes.len() as u64 > LIMIT << 20 {
        return Err(DataError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    Ok(bytes)
}

/// The bytes of a file inside a zip archive.
fn member_of(file: File, member: &str, path: &str) -> Result<Vec<u8>, DataError> {
    let opened = guarded(|| {
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| broken(path, "zip", &error))?;
        let inside = archive.by_name(member).map_err(|error| broken(path, "zip", &format!("{member}: {error}")))?;
        limited(inside, "zip", path)
    });
    opened.unwrap_or_else(|| Err(broken(path, "zip", &"its reader gave up")))
}

/// Error about a broken file, in one line.
pub(super) fn broken(path: &str, kind: &'static str, detail: &dyn Display) -> DataError {
    let detail = detail.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    DataError::Broken { path: path.to_owned(), kind, detail }
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// A file's name without the last extension: `test.csv` of `test.csv.gz`.
fn stem(name: &str) -> String {
    Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
