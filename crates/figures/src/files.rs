//! Files that appear whole or not at all.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use thiserror::Error;

/// How the name of a file begins while it is written, and how it ends.
const UNFINISHED: [&str; 2] = [".demask-", ".part"];

/// A file or directory that cannot be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {}", path.display(), message(error))]
pub struct WriteError {
    /// File that could not be written.
    pub path: PathBuf,
    /// Error of the operating system.
    #[source]
    pub error: io::Error,
}

impl WriteError {
    fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self { path: path.clone(), error }
    }
}

/// The system's words, and what to try where they do not say it.
fn message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}: free some space, or choose a directory on another disk")
        }
        _ => error.to_string(),
    }
}

/// Writes a file beside its place and moves it there; what stood there stays until then. Directories on the way are
/// made.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let failed = WriteError::at(path);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(&failed)?;
    let mut file = unfinished_in(directory).map_err(&failed)?;
    fill(file.as_file_mut(), bytes).map_err(&failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Makes a file that is to be moved to its place in a directory, with the rights that a plain new file would have.
/// Files that a killed program left there are removed.
fn unfinished_in(directory: &Path) -> io::Result<NamedTempFile> {
    remove_abandoned(directory);
    let [prefix, suffix] = UNFINISHED;
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(suffix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(directory)?;
    // Where a disk has no locks, nothing that is unfinished is removed either.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// Removes unfinished files that no program holds any more: the system lets go of a lock when its program ends.
fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let [prefix, suffix] = UNFINISHED;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix));
        if is_ours
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && fs::File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes, and waits until it is on the disk: a full one is known before the old file goes.
fn fill(file: &mut fs::File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plots/x.svg");
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_program_left_goes_and_what_another_one_writes_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in [".demask-a1.part", ".demask-b2.part", ".demask-notes", "x.part"] {
            fs::write(path(name), "half").unwrap();
        }
        let held = unfinished_in(directory.path()).unwrap();
        write_whole(&path("x.svg"), b"new").unwrap();
        assert!(held.path().exists());
        let own = held.path().file_name().unwrap().to_str().unwrap().to_owned();
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let mut expected = vec![own, ".demask-notes".to_owned(), "x.part".to_owned(), "x.svg".to_owned()];
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let error = write_whole(&directory.path().join("file/x"), b"").unwrap_err().to_string();
        assert!(error.starts_with("cannot write ") && error.contains("file/x: "), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told() {
        let mut full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = WriteError::at(Path::new("report.md"))(fill(&mut full, b"x").unwrap_err());
        let text = error.to_string();
        assert!(text.starts_with("cannot write report.md: No space left on device"), "{text}");
        assert!(text.ends_with("free some space, or choose a directory on another disk"), "{text}");
    }
}
