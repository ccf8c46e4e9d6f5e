//! Files that appear whole or not at all.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file or directory that cannot be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {}", path.display(), told(error))]
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
fn told(error: &io::Error) -> String {
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
    let mut builder = tempfile::Builder::new();
    builder.prefix(".demask-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory).map_err(&failed)?;
    fill(file.as_file_mut(), bytes).map_err(&failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
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
