//! Read-only bytes of a file, on the heap or in the binary itself. Those of a file are copied when they are wanted: a file
//! that another program cuts meanwhile, or a disk that fails, is an error. A mapping would end the process.

use std::{borrow::Cow, fs::File, io, ops::Range, sync::Arc, time::SystemTime};

/// Bytes that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {file}: {detail}")]
pub struct ReadError {
    /// The file as messages call it.
    pub file: String,
    /// The problem.
    pub detail: String,
}

/// Read-only bytes, cheap to clone, wherever they are.
#[derive(Clone)]
pub struct Bytes(Source);

#[derive(Clone)]
enum Source {
    File(Arc<Opened>),
    Owned(Arc<Vec<u8>>),
    Static(&'static [u8]),
    Excerpt(Arc<Excerpt>),
}

/// Pieces of something longer, each with the place of its first byte.
struct Excerpt {
    pieces: Vec<(usize, Vec<u8>)>,
    label: String,
    length: usize,
}

impl Excerpt {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<(), ReadError> {
        for (first, bytes) in &self.pieces {
            let part = start.checked_sub(*first).and_then(|start| bytes.get(start..start + out.len()));
            if let Some(part) = part {
                out.copy_from_slice(part);
                return Ok(());
            }
        }
        let (count, length) = (out.len(), self.length);
        let detail = format!("{count} of its {length} bytes, from {start} on, were not fetched");
        Err(ReadError { file: self.label.clone(), detail })
    }
}

/// A file of a length.
struct Opened {
    file: File,
    label: String,
    length: usize,
    /// Time when it was last written, where the system knows it.
    written: Option<SystemTime>,
}

impl Opened {
    fn failed(&self, detail: &dyn ToString) -> ReadError {
        ReadError { file: self.label.clone(), detail: detail.to_string() }
    }

    fn read(&self, start: usize, out: &mut [u8]) -> Result<(), ReadError> {
        read_exact_at(&self.file, start as u64, out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.failed(&format!(
                "it has lost some of its {} bytes since it was opened: another program has cut it; fetch it again",
                self.length
            )),
            _ => self.failed(&error),
        })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, start: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut start: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, start)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                start += count as u64;
                out = &mut out[count..];
            }
        }
    }
    Ok(())
}

impl Bytes {
    /// A whole file; `label` is what messages call it.
    pub fn file(file: File, label: impl Into<String>) -> io::Result<Self> {
        let about = file.metadata()?;
        let length = usize::try_from(about.len()).map_err(io::Error::other)?;
        let written = about.modified().ok();
        Ok(Self(Source::File(Arc::new(Opened { file, label: label.into(), length, written }))))
    }

    /// Bytes on the heap.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self(Source::Owned(Arc::new(bytes)))
    }

    /// Bytes in the binary.
    pub const fn fixed(bytes: &'static [u8]) -> Self {
        Self(Source::Static(bytes))
    }

    /// Pieces of `length` bytes, each with the place of its first byte. No others can be read. `label` is what messages call
    /// all of them.
    pub fn excerpt(pieces: Vec<(usize, Vec<u8>)>, length: usize, label: impl Into<String>) -> Self {
        Self(Source::Excerpt(Arc::new(Excerpt { pieces, label: label.into(), length })))
    }

    /// Number of bytes; of a file, when it was opened.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::File(opened) => opened.length,
            Source::Owned(bytes) => bytes.len(),
            Source::Static(bytes) => bytes.len(),
            Source::Excerpt(excerpt) => excerpt.length,
        }
    }

    /// Number of the first bytes that can be read: all, but of an excerpt.
    pub fn readable(&self) -> usize {
        match &self.0 {
            Source::Excerpt(excerpt) => {
                excerpt.pieces.iter().find(|(first, _)| *first == 0).map_or(0, |(_, bytes)| bytes.len())
            }
            _ => self.len(),
        }
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the bytes: those of a file are copied.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn get(&self, part: Range<usize>) -> Result<Cow<'_, [u8]>, ReadError> {
        if let Some(bytes) = self.in_memory() {
            return Ok(Cow::Borrowed(&bytes[part]));
        }
        let mut bytes = Vec::new();
        self.take(part, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// A part of the bytes: those of a file are copied to `scratch`.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn take<'a>(&'a self, part: Range<usize>, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], ReadError> {
        if let Some(bytes) = self.in_memory() {
            return Ok(&bytes[part]);
        }
        assert!(part.start <= part.end && part.end <= self.len(), "{part:?} is not inside");
        scratch.resize(part.len(), 0);
        self.read(part.start, scratch)?;
        Ok(scratch)
    }

    /// Copies the bytes from `start` on, as many as `out` has room for. Allocates nothing.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn read(&self, start: usize, out: &mut [u8]) -> Result<(), ReadError> {
        assert!(start.checked_add(out.len()).is_some_and(|end| end <= self.len()), "bytes from {start} are not inside");
        match &self.0 {
            Source::File(opened) => opened.read(start, out)?,
            Source::Owned(bytes) => out.copy_from_slice(&bytes[start..start + out.len()]),
            Source::Static(bytes) => out.copy_from_slice(&bytes[start..start + out.len()]),
            Source::Excerpt(excerpt) => excerpt.read(start, out)?,
        }
        Ok(())
    }

    /// Refuses a file that was written since it was opened: earlier and later reads are not of one model.
    /// A file that another one has taken the place of is as it was. Allocates nothing.
    pub fn check_unwritten(&self) -> Result<(), ReadError> {
        let Source::File(opened) = &self.0 else { return Ok(()) };
        let written = opened.file.metadata().map_err(|error| opened.failed(&error))?.modified().ok();
        if written == opened.written {
            return Ok(());
        }
        Err(opened.failed(&"another program has written it since it was opened: load the model again"))
    }

    fn in_memory(&self) -> Option<&[u8]> {
        match &self.0 {
            Source::File(_) | Source::Excerpt(_) => None,
            Source::Owned(bytes) => Some(bytes),
            Source::Static(bytes) => Some(bytes),
        }
    }

    /// Asks the operating system to read a part of a file ahead, while something else is at work.
    pub fn prefetch(&self, start: usize, length: usize) {
        #[cfg(target_os = "linux")]
        if let Source::File(opened) = &self.0 {
            use std::os::fd::AsRawFd;
            // SAFETY: the call takes numbers alone, and the descriptor is open. A system that does not read ahead reads
            // when it must.
            let _ = unsafe {
                libc::posix_fadvise(opened.file.as_raw_fd(), start as i64, length as i64, libc::POSIX_FADV_WILLNEED)
            };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("demask-bytes-{name}-{}", std::process::id()))
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no reading at a place")]
    fn bytes_are_the_same_wherever_they_are() {
        let path = place("same");
        let numbers: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        std::fs::write(&path, &numbers).unwrap();
        let file = Bytes::file(File::open(&path).unwrap(), "m").unwrap();
        let fixed = Bytes::fixed(numbers.clone().leak());
        for bytes in [file, Bytes::owned(numbers.clone()), fixed] {
            assert_eq!((bytes.len(), bytes.is_empty()), (100_000, false));
            let mut scratch = vec![1; 7];
            for part in [0..100_000, 5_000..15_000, 99_999..100_000, 50..50] {
                bytes.prefetch(part.start, part.len());
                assert_eq!(bytes.get(part.clone()).unwrap(), &numbers[part.clone()]);
                assert_eq!(bytes.take(part.clone(), &mut scratch).unwrap(), &numbers[part.clone()]);
                let mut copy = vec![1; part.len()];
                bytes.read(part.start, &mut copy).unwrap();
                assert_eq!(copy, &numbers[part]);
            }
            bytes.check_unwritten().unwrap();
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn of_an_excerpt_no_more_is_read_than_is_there() {
        let bytes = Bytes::excerpt(vec![(0, vec![7; 10]), (50, vec![8; 4])], 100, "m.gguf");
        assert_eq!((bytes.len(), bytes.readable()), (100, 10));
        assert_eq!(bytes.get(2..10).unwrap().into_owned(), [7; 8]);
        assert_eq!(bytes.get(51..54).unwrap().into_owned(), [8; 3]);
        let refused = bytes.get(5..11).unwrap_err().to_string();
        assert_eq!(refused, "cannot read m.gguf: 6 of its 100 bytes, from 5 on, were not fetched");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no reading at a place")]
    fn a_file_that_is_cut_while_it_is_read_is_an_error() {
        let path = place("cut");
        std::fs::write(&path, [7; 1000]).unwrap();
        let bytes = Bytes::file(File::open(&path).unwrap(), "model.safetensors").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(600).unwrap();
        assert_eq!(bytes.get(0..600).unwrap(), vec![7; 600]);
        assert_eq!(
            bytes.get(500..700).unwrap_err().to_string(),
            "cannot read model.safetensors: it has lost some of its 1000 bytes since it was opened: another program has \
             cut it; fetch it again"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no reading at a place")]
    fn a_file_that_is_written_in_place_is_refused_and_one_that_is_replaced_stays_as_it_was() {
        let (path, other) = (place("written"), place("other"));
        std::fs::write(&path, [7; 1000]).unwrap();
        std::fs::write(&other, [8; 1000]).unwrap();
        let bytes = Bytes::file(File::open(&path).unwrap(), "model.safetensors").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let mut row = [0; 10];
        bytes.read(500, &mut row).unwrap();
        assert_eq!((row, bytes.check_unwritten()), ([7; 10], Ok(())));
        let bytes = Bytes::file(File::open(&path).unwrap(), "model.safetensors").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(
            bytes.check_unwritten().unwrap_err().to_string(),
            "cannot read model.safetensors: another program has written it since it was opened: load the model again"
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_part_outside_is_a_mistake() {
        let path = place("outside");
        std::fs::write(&path, [7; 10]).unwrap();
        for bytes in [Bytes::owned(vec![7; 10]), Bytes::file(File::open(&path).unwrap(), "m").unwrap()] {
            assert!(std::panic::catch_unwind(|| bytes.get(5..11)).is_err());
            assert!(std::panic::catch_unwind(|| bytes.read(5, &mut [0; 6])).is_err());
        }
        std::fs::remove_file(path).unwrap();
    }
}
