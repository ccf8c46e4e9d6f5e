//! The tree of files that a program sees: the interpreter's files, read-only, and one folder in memory.

use std::{
    collections::BTreeSet,
    error::Error,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::pivot_root,
};

use super::{Interpreter, Limits};

/// The folder that may be written.
pub const FOLDER: &str = "/tmp";

/// Devices that every program may have.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// A folder that every system has, to make the new tree on. It is covered in this process's view alone.
const BASE: &str = "/proc";

/// The old tree in the new one, until it is taken away.
const OLD: &str = "/old";

/// More links than this lead nowhere.
const MOST_LINKS: usize = 40;

const NONE: Option<&str> = None;

/// Replaces this process's tree of files, network and shared memory by its own.
pub fn enter(interpreter: &Interpreter, limits: &Limits) -> Result<(), Box<dyn Error>> {
    let places = places(interpreter);
    let apart =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(apart)?;
    // Nothing that is mounted here shows elsewhere.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), BASE, Some("tmpfs"), plain, Some("size=1m,mode=755"))?;
    let old = format!("{BASE}{OLD}");
    fs::create_dir(&old)?;
    pivot_root(BASE, old.as_str())?;
    std::env::set_current_dir("/")?;
    for (place, source) in &places {
        bind(place, source)?;
    }
    fs::create_dir_all(FOLDER)?;
    seal()?;
    umount2(OLD, MntFlags::MNT_DETACH)?;
    fs::remove_dir(OLD)?;
    let size = format!("size={},nr_inodes={},mode=1777", limits.files, limits.entries);
    mount(Some("tmpfs"), FOLDER, Some("tmpfs"), plain | MsFlags::MS_NOEXEC, Some(size.as_str()))?;
    mount(NONE, "/", NONE, plain | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY, NONE)?;
    std::env::set_current_dir(FOLDER)?;
    Ok(())
}

/// Returns the paths of the new tree, each with its source in the old one, outer folders first.
fn places(interpreter: &Interpreter) -> Vec<(PathBuf, PathBuf)> {
    let folders: BTreeSet<_> = interpreter
        .readable
        .iter()
        .cloned()
        .chain(DEVICES.map(PathBuf::from))
        .filter(|path| path.is_absolute())
        .collect();
    let links = links(&interpreter.executable);
    let real = |path: PathBuf| fs::canonicalize(&path).ok().map(|source| (path, source));
    folders.into_iter().chain(links).filter_map(real).filter(|(_, source)| source != Path::new("/")).collect()
}

/// A program and, if it is a link, each path that it leads to.
fn links(program: &Path) -> Vec<PathBuf> {
    let mut links = vec![program.to_owned()];
    while let Some(last) = links.last()
        && let (Some(parent), Ok(target)) = (last.parent(), fs::read_link(last))
        && links.len() < MOST_LINKS
    {
        let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
        let next = parent.join(target);
        links.push(flattened(&next));
    }
    links
}

/// A path without `..`, of which the parts before are no links.
fn flattened(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => _ = flat.pop(),
            std::path::Component::CurDir => {}
            part => flat.push(part),
        }
    }
    flat
}

/// Shows a folder or a file of the old tree, unless a folder that holds it is there already.
fn bind(place: &Path, source: &Path) -> Result<(), Box<dyn Error>> {
    let source = Path::new(OLD).join(source.strip_prefix("/")?);
    if place.symlink_metadata().is_ok() {
        return Ok(());
    }
    if source.is_dir() {
        fs::create_dir_all(place)?;
    } else {
        fs::create_dir_all(place.parent().unwrap_or(place))?;
        fs::File::create(place)?;
    }
    mount(Some(&source), place, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    Ok(())
}

/// Makes everything that is mounted in the new tree read-only, whatever is mounted below it too. Flags that the old tree
/// has for it stay: the kernel lets none of them go.
fn seal() -> Result<(), Box<dyn Error>> {
    for line in fs::read_to_string(format!("{OLD}/proc/self/mountinfo"))?.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(place), Some(options)) = (fields.next(), fields.next()) else { continue };
        let place = unescaped(place);
        if place == Path::new("/") || place.starts_with(OLD) {
            continue;
        }
        let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
        for option in options.split(',') {
            flags |= match option {
                "nodev" => MsFlags::MS_NODEV,
                "noexec" => MsFlags::MS_NOEXEC,
                "noatime" => MsFlags::MS_NOATIME,
                "nodiratime" => MsFlags::MS_NODIRATIME,
                "relatime" => MsFlags::MS_RELATIME,
                _ => MsFlags::empty(),
            };
        }
        mount(NONE, &place, NONE, flags, NONE)
            .map_err(|error| io::Error::other(format!("{}: {error}", place.display())))?;
    }
    Ok(())
}

/// A path as the kernel writes it in lists: spaces and the like by their octal numbers.
pub fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let number = others.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = number.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\');
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &others[3..] } else { others };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}
