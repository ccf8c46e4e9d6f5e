//! Files that appear whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use tempfile::NamedTempFile;

use crate::{exit::usage, interrupt::Watched};

/// A file that is written beside its place and moved there at the end; dropped before, it leaves nothing behind.
pub struct OutFile {
    path: PathBuf,
    sink: Sink,
    /// Ctrl-C must not end the process before the temporary file is gone.
    _watched: Watched,
}

enum Sink {
    /// The usual way.
    Beside(BufWriter<NamedTempFile>),
    /// Devices and pipes cannot be replaced.
    Through(BufWriter<File>),
}

impl OutFile {
    /// Opens a place for writing, so that one that cannot be written is known before the work begins.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot write {}", path.display());
        if path.is_dir() {
            let place = path.display();
            return Err(usage(format!("cannot write {place}: it is a directory, expected the name of a file")));
        }
        let watched = Watched::begin();
        let existing = fs::metadata(path).ok();
        let sink = if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(path).with_context(context)?;
            Sink::Through(BufWriter::new(file))
        } else {
            if existing.is_some() {
                // Refused like a plain write would be, although a file could be replaced without being writable.
                OpenOptions::new().append(true).open(path).with_context(context)?;
            }
            Sink::Beside(BufWriter::new(beside(path).with_context(context)?))
        };
        Ok(Self { path: path.to_path_buf(), sink, _watched: watched })
    }

    /// Moves the file to its place.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { path, sink, _watched } = self;
        let context = || format!("cannot write {}", path.display());
        match sink {
            Sink::Through(mut file) => file.flush().with_context(context),
            Sink::Beside(file) => {
                let written = file.into_inner().map_err(|error| without_path(error.error()));
                let file = written.with_context(context)?;
                file.persist(&path).map_err(|error| error.error).with_context(context)?;
                Ok(())
            }
        }
    }
}

/// A new file in the directory of `path`, with the rights that a plain new file would have.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".demask-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(directory).map_err(|error| without_path(&error))?;
    // An evaluation that writes here removes unfinished files that nothing holds.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// The system's own error, without the made-up name that was tried, which says nothing to anybody.
fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default().to_owned())
}

impl Write for OutFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Beside(file) => file.write(buffer).map_err(|error| without_path(&error)),
            Sink::Through(file) => file.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside(file) => file.flush().map_err(|error| without_path(&error)),
            Sink::Through(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let mut dropped = OutFile::create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert!(names(directory.path()).is_empty());
        let mut whole = OutFile::create(&path).unwrap();
        whole.write_all(b"whole").unwrap();
        assert!(!path.exists());
        whole.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(directory.path()), ["x"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refusal = |path: &Path| OutFile::create(path).err().map(|error| format!("{error:#}")).unwrap();
        assert!(refusal(directory.path()).ends_with("it is a directory, expected the name of a file"));
        assert!(refusal(&directory.path().join("no/x")).contains("no/x: No such file"));
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_written_through() {
        let mut out = OutFile::create(Path::new("/dev/null")).unwrap();
        out.write_all(b"gone").unwrap();
        out.finish().unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }
}
