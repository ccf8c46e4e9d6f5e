//! Compiled kernels on disk: one file for each source, kind of card and compiler.
//!
//! A file holds everything that its code was made from (text, options, target, compiler's version), and is used only
//! where all of it is the same: its name, which is a digest, only says where to look. A checksum finds damage by a disk
//! or a copy. Files appear whole or not at all, so that processes may share the folder.
//!
//! ```text
//! "demaskGK" | u32 format | u32 bytes of the identity | identity | u64 bytes of the image | u64 checksum | image
//! ```

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use crate::{
    nvrtc::{Source, Target},
    version::Version,
};

/// First bytes of every file.
const MAGIC: &[u8; 8] = b"demaskGK";
/// Number of the layout above; a file of another one is foreign.
const FORMAT: u32 = 1;
/// Suffix of the files' names.
const SUFFIX: &str = ".kernels";

/// Source text and options of compiled code, without its target and its compiler.
pub struct Text {
    stem: String,
    /// Every part with its length: no two texts have the same bytes.
    bytes: Vec<u8>,
}

impl Text {
    /// Returns the text of a source.
    pub fn new(source: &Source) -> Self {
        let parts = [&source.name, &source.text].into_iter().chain(&source.options);
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        Self { stem: source.name.clone(), bytes }
    }
}

/// Target and compiler of compiled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The kind of card.
    pub target: Target,
    /// The compiler.
    pub by: Version,
}

impl Made {
    /// Reports whether a driver of a version can run it on a card of a capability.
    fn serves(self, capability: u32, driver: Version) -> bool {
        self.target.serves(capability) && self.by.major <= driver.major
    }

    /// The better of two comes later: machine code, for the nearest card, by the newest compiler.
    fn rank(self) -> (bool, u32, Version) {
        match self.target {
            Target::Cubin(capability) => (true, capability, self.by),
            Target::Ptx(capability) => (false, capability, self.by),
        }
    }

    /// Writes it as a part of a file's name: `sm_90-12.8`.
    fn to_text(self) -> String {
        format!("{}-{}", self.target, self.by)
    }

    /// Parses a part of a file's name.
    fn read(text: &str) -> Option<Self> {
        let (target, by) = text.split_once('-')?;
        let (major, minor) = by.split_once('.')?;
        let target = match target.split_once('_')? {
            ("sm", capability) => Target::Cubin(capability.parse().ok()?),
            ("compute", capability) => Target::Ptx(capability.parse().ok()?),
            _ => return None,
        };
        Some(Self { target, by: Version { major: major.parse().ok()?, minor: minor.parse().ok()? } })
    }
}

/// Result of a search in a folder.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Code, ready to load.
    Found(Vec<u8>),
    /// No file of this text.
    Absent,
    /// A file that is not what its name says, and why.
    Broken(String),
}

/// A folder of compiled kernels, or none.
pub struct KernelCache {
    folder: Option<PathBuf>,
}

impl KernelCache {
    /// One in a folder, which is made when it is needed; none given: nothing is kept.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Code that was made from exactly this.
    pub fn load(&self, text: &Text, made: Made) -> Lookup {
        let Some(folder) = &self.folder else { return Lookup::Absent };
        let path = folder.join(file_name(text, made));
        match fs::read(&path) {
            Ok(file) => match image(&file, text, made) {
                Ok(image) => Lookup::Found(image.to_vec()),
                Err(why) => Lookup::Broken(format!("{} {why}", path.display())),
            },
            // That there can be no such folder is told by whoever writes to it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Lookup::Absent
            }
            Err(error) => Lookup::Broken(format!("{} cannot be read ({error})", path.display())),
        }
    }

    /// The best code made from this text that serves a card, from any maker: for machines without a compiler.
    pub fn load_any(&self, text: &Text, capability: u32, driver: Version) -> Lookup {
        let Some(entries) = self.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok()) else {
            return Lookup::Absent;
        };
        let prefix = prefix(text);
        let made = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            Made::read(name.to_str()?.strip_prefix(&prefix)?.strip_suffix(SUFFIX)?)
        });
        let mut made: Vec<Made> = made.filter(|made| made.serves(capability, driver)).collect();
        made.sort_by_key(|made| made.rank());
        let mut last = Lookup::Absent;
        for made in made.into_iter().rev() {
            last = self.load(text, made);
            if matches!(last, Lookup::Found(_)) {
                break;
            }
        }
        last
    }

    /// Keeps code. Nothing is left of a file that cannot be written whole.
    ///
    /// # Errors
    /// Why it cannot be kept.
    pub fn store(&self, text: &Text, made: Made, image: &[u8]) -> Result<(), String> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let failed = |error: io::Error| format!("{} cannot be written ({error})", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(folder).map_err(failed)?;
        for part in [&header(text, made, image)[..], image] {
            file.write_all(part).map_err(failed)?;
        }
        file.persist(folder.join(file_name(text, made))).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

fn prefix(text: &Text) -> String {
    format!("{}-{:016x}-", text.stem, digest(&text.bytes))
}

fn file_name(text: &Text, made: Made) -> String {
    format!("{}{}{SUFFIX}", prefix(text), made.to_text())
}

fn identity(text: &Text, made: Made) -> Vec<u8> {
    [made.to_text().as_bytes(), b"\n", &text.bytes].concat()
}

/// Header of a file: everything in front of the image.
fn header(text: &Text, made: Made, image: &[u8]) -> Vec<u8> {
    let identity = identity(text, made);
    let mut header = MAGIC.to_vec();
    header.extend(FORMAT.to_le_bytes());
    header.extend((identity.len() as u32).to_le_bytes());
    header.extend(identity);
    header.extend((image.len() as u64).to_le_bytes());
    header.extend(digest(image).to_le_bytes());
    header
}

/// The image of a file, if the file is whole: only its length and its checksum are not known beforehand.
fn image<'a>(file: &'a [u8], text: &Text, made: Made) -> Result<&'a [u8], &'static str> {
    let identity = identity(text, made);
    let rest = file.strip_prefix(MAGIC).ok_or("holds no kernels")?;
    let rest = rest.strip_prefix(&FORMAT.to_le_bytes()).ok_or("has another version's layout")?;
    let rest = rest.strip_prefix(&(identity.len() as u32).to_le_bytes()).ok_or("was made from something else")?;
    let rest = rest.strip_prefix(identity.as_slice()).ok_or("was made from something else")?;
    let (length, rest) = rest.split_first_chunk().ok_or("is cut off")?;
    let (checksum, image) = rest.split_first_chunk().ok_or("is cut off")?;
    if u64::from_le_bytes(*length) != image.len() as u64 {
        return Err("has another length than it tells");
    }
    if u64::from_le_bytes(*checksum) != digest(image) {
        return Err("has another checksum than it tells");
    }
    Ok(image)
}

/// A number that every byte changes: FNV-1a of 64 bits.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |state, &byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use demask_testkit::property;

    use proptest::prelude::*;

    use super::*;

    const DRIVER: Version = Version { major: 12, minor: 4 };

    fn text(name: &str, kernel: &str, option: &str) -> Text {
        Text::new(&Source { name: name.into(), text: kernel.into(), options: vec![option.into()] })
    }

    fn made(target: Target, minor: u32) -> Made {
        Made { target, by: Version { major: 12, minor } }
    }

    fn cache() -> (tempfile::TempDir, KernelCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::new(Some(folder.path().join("made/when/needed")));
        (folder, cache)
    }

    fn only_file(folder: &Path) -> PathBuf {
        let files: Vec<_> = fs::read_dir(folder.join("made/when/needed")).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing is left beside it");
        files.into_iter().next().unwrap().unwrap().path()
    }

    #[test]
    fn code_is_used_only_where_everything_is_the_same() {
        let (_folder, cache) = cache();
        let own = (text("gemm", "kernel", "option"), made(Target::Cubin(90), 8));
        assert_eq!(cache.load(&own.0, own.1), Lookup::Absent);
        cache.store(&own.0, own.1, b"image").unwrap();
        assert_eq!(cache.load(&own.0, own.1), Lookup::Found(b"image".to_vec()));
        for other in [
            (text("gemm", "kernel ", "option"), own.1),
            (text("gemm", "kernel", "optioned"), own.1),
            (text("gemm", "kernelo", "ption"), own.1),
            (text("rows", "kernel", "option"), own.1),
            (text("gemm", "kernel", "option"), made(Target::Cubin(86), 8)),
            (text("gemm", "kernel", "option"), made(Target::Ptx(90), 8)),
            (text("gemm", "kernel", "option"), made(Target::Cubin(90), 9)),
        ] {
            assert_eq!(cache.load(&other.0, other.1), Lookup::Absent);
        }
    }

    #[test]
    fn without_a_compiler_the_best_code_for_the_card_is_used() {
        let (_folder, cache) = cache();
        let text = text("gemm", "kernel", "option");
        let any = |capability| cache.load_any(&text, capability, DRIVER);
        assert_eq!(any(90), Lookup::Absent);
        for (target, minor) in
            [(Target::Cubin(80), 1), (Target::Cubin(86), 1), (Target::Cubin(86), 2), (Target::Ptx(90), 1)]
        {
            cache.store(&text, made(target, minor), format!("{target} {minor}").as_bytes()).unwrap();
        }
        cache.store(&text, Made { target: Target::Cubin(90), by: Version { major: 13, minor: 0 } }, b"13").unwrap();
        assert_eq!(any(80), Lookup::Found(b"sm_80 1".to_vec()));
        assert_eq!(any(89), Lookup::Found(b"sm_86 2".to_vec()));
        assert_eq!(any(87), Lookup::Absent, "machine code of cards does not run on boards");
        assert_eq!(any(90), Lookup::Found(b"compute_90 1".to_vec()), "machine code of CUDA 13 is not for this driver");
        assert_eq!(any(75), Lookup::Absent);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = KernelCache::new(Some(file.join("kernels")));
        let told = cache.store(&text("a", "", ""), made(Target::Cubin(80), 0), b"").unwrap_err();
        assert!(told.contains("file/kernels cannot be written ("), "{told}");
        let none = KernelCache::new(None);
        assert_eq!(none.store(&text("a", "", ""), made(Target::Cubin(80), 0), b""), Ok(()));
        assert_eq!(none.load(&text("a", "", ""), made(Target::Cubin(80), 0)), Lookup::Absent);
    }

    proptest! {
        #![proptest_config(property::cases(64))]

        #[test]
        fn what_is_spoiled_is_never_used(
            kernel in "\\PC{0,40}", option in "\\PC{0,40}", image in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(), flip in 1u8..=255, cut in any::<bool>(),
        ) {
            let (folder, cache) = cache();
            let (text, made) = (text("a", &kernel, &option), made(Target::Cubin(80), 3));
            cache.store(&text, made, &image).unwrap();
            prop_assert_eq!(cache.load(&text, made), Lookup::Found(image.clone()));
            let path = only_file(folder.path());
            let mut file = fs::read(&path).unwrap();
            let at = at.index(file.len());
            if cut { file.truncate(at) } else { file[at] ^= flip }
            fs::write(&path, file).unwrap();
            prop_assert!(matches!(cache.load(&text, made), Lookup::Broken(_)));
            prop_assert!(matches!(cache.load_any(&text, 80, DRIVER), Lookup::Broken(_)));
            cache.store(&text, made, &image).unwrap();
            prop_assert_eq!(cache.load(&text, made), Lookup::Found(image));
        }
    }
}
