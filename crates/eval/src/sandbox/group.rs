//! A cgroup of its own for each run: the kernel counts the memory and the processes of all that a program starts.
//!
//! The group is made where this process's own groups allow it: in version 1 of the kernel's interface below the own group
//! of each hierarchy, in version 2 below the nearest group that hands the controller down, which a process without
//! privileges may do where the user's session is delegated (systemd). It ends with the run, and all that is in it. Groups
//! of a process that was killed are removed by the next one.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{Limits, Order, Protection, view::unescaped};

/// Time for killed processes to be gone; longer waits leave the group to the next run's sweep.
const LONGEST_END: Duration = Duration::from_secs(5);

/// Pause between two tries to remove a group.
const PAUSE: Duration = Duration::from_millis(1);

/// Members of a group; writing a number moves that process.
const MEMBERS: &str = "cgroup.procs";

/// Groups that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The group of a run. Dropping it ends whatever is in it.
#[derive(Debug)]
pub struct Group {
    folders: Vec<Folder>,
}

/// A folder of the group: one for both parts in version 2, usually one for each in version 1.
#[derive(Debug)]
struct Folder {
    /// The first part that it holds.
    part: Protection,
    version: Version,
    path: PathBuf,
}

impl Group {
    /// Makes the group for the parts that an order holds; none of them: an empty one. The part that cannot be made is
    /// returned with the reason.
    pub fn make(order: &Order) -> Result<Self, (Protection, String)> {
        let mut group = Self { folders: Vec::new() };
        for part in Protection::OF_GROUP.into_iter().filter(|&part| order.holds(part)) {
            group.hold(part, &order.limits).map_err(|error| (part, error.to_string()))?;
        }
        Ok(group)
    }

    fn hold(&mut self, part: Protection, limits: &Limits) -> io::Result<()> {
        let read = |file: &Path| file_error(file, fs::read_to_string(file));
        let place = Place::find(part, &read("/proc/self/cgroup".as_ref())?, &read("/proc/self/mountinfo".as_ref())?)?;
        let maker = Maker::this()?;
        sweep(&place.folder, &maker);
        let shared = |made: &&Folder| {
            // A process is in one group of version 2, whichever other would hand the part down.
            made.version == Version::Two && place.version == Version::Two || made.path.parent() == Some(&place.folder)
        };
        let made = self.folders.iter().find(shared).map(|made| made.path.clone());
        let path = if let Some(path) = made {
            path
        } else {
            let path = place.folder.join(maker.name(MADE.fetch_add(1, Ordering::Relaxed)));
            file_error(&path, fs::create_dir(&path))?;
            self.folders.push(Folder { part, version: place.version, path: path.clone() });
            path
        };
        place.limit(part, &path, limits)
    }

    /// Takes a process in, and all that it starts from now on.
    pub fn add(&self, process: u32) -> Result<(), (Protection, String)> {
        self.folders.iter().try_for_each(|Folder { part, path, .. }| {
            write(&path.join(MEMBERS), &process.to_string()).map_err(|error| (*part, error.to_string()))
        })
    }

    /// Reports whether the kernel has ended a process of the group because all together took too much memory.
    pub fn is_exhausted(&self) -> bool {
        let events = ["memory.events", "memory.oom_control"];
        let files = self.folders.iter().flat_map(|folder| events.map(|name| folder.path.join(name)));
        files.filter_map(|file| fs::read_to_string(file).ok()).any(|text| {
            let mut ended = text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
            ended.any(|count: u64| count > 0)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group that counts processes is the last: it can forbid new ones while the old ones end.
        for folder in self.folders.iter().rev() {
            let _ = end(&folder.path);
        }
    }
}

/// The group in which groups for a part can be made.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    version: Version,
    /// The lowest limit of the groups that a process leaves by moving there. It holds there too.
    most: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

impl Place {
    /// Looks for it in the kernel's lists of this process's groups and of the mounts.
    fn find(part: Protection, groups: &str, mounts: &str) -> io::Result<Self> {
        let controller = controller(part);
        let none = || io::Error::other(format!("no hierarchy with the controller {controller} is mounted"));
        let listed = |names: &str| names.split(',').any(|name| name == controller);
        let of = |test: &dyn Fn(&str) -> bool| {
            let fields = |line: &'_ str| -> Option<(String, PathBuf)> {
                let mut fields = line.splitn(3, ':').skip(1);
                Some((fields.next()?.to_owned(), fields.next()?.into()))
            };
            groups.lines().filter_map(fields).find(|(names, _)| test(names)).map(|(_, path)| path)
        };
        let (version, path) = match of(&listed) {
            Some(path) => (Version::One, path),
            None => (Version::Two, of(&str::is_empty).ok_or_else(none)?),
        };
        let mount = |line: &str| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let right = match (kind.next()?, version) {
                ("cgroup", Version::One) => listed(kind.nth(1)?),
                ("cgroup2", Version::Two) => true,
                _ => false,
            };
            let mut fields = place.split(' ').skip(3).map(unescaped);
            let (root, mount) = (fields.next()?, fields.next()?);
            let own = path.strip_prefix(root).ok().filter(|_| right)?;
            Some((mount.join(own), mount))
        };
        let (own, mount) = mounts.lines().find_map(mount).ok_or_else(none)?;
        match version {
            Version::One => Ok(Self { folder: own, version, most: None }),
            Version::Two => Self::above(part, &own, &mount),
        }
    }

    /// The nearest group that hands the part's controller down. A group with processes cannot do so for itself.
    fn above(part: Protection, own: &Path, mount: &Path) -> io::Result<Self> {
        let controller = controller(part);
        let hands_down = |folder: &&Path| {
            let names = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            names.split_whitespace().any(|name| name == controller)
        };
        let above = || own.ancestors().take_while(|folder| folder.starts_with(mount));
        let folder = above().find(hands_down).ok_or_else(|| {
            let own = own.display();
            io::Error::other(format!(
                "{own}: neither this group nor one above it hands the controller {controller} down"
            ))
        })?;
        let left = above().take_while(|&other| other != folder);
        let limit = |left: &Path| fs::read_to_string(left.join(file_of(part, Version::Two))).ok()?.trim().parse().ok();
        Ok(Self { folder: folder.to_owned(), version: Version::Two, most: left.filter_map(limit).min() })
    }

    /// Writes a part's limits.
    fn limit(&self, part: Protection, folder: &Path, limits: &Limits) -> io::Result<()> {
        let wanted = if part == Protection::Memory { limits.together } else { limits.threads };
        let most = self.most.map_or(wanted, |most| most.min(wanted)).to_string();
        write(&folder.join(file_of(part, self.version)), &most)?;
        let others: &[(&str, &str)] = match (part, self.version) {
            // What is swapped is counted with what is not, and nothing is swapped.
            (Protection::Memory, Version::One) => &[("memory.memsw.limit_in_bytes", &most), ("memory.swappiness", "0")],
            (Protection::Memory, Version::Two) => &[("memory.swap.max", "0"), ("memory.oom.group", "1")],
            _ => &[],
        };
        let there = others.iter().map(|(name, value)| (folder.join(name), value)).filter(|(file, _)| file.exists());
        there.into_iter().try_for_each(|(file, value)| write(&file, value))
    }
}

fn controller(part: Protection) -> &'static str {
    if part == Protection::Memory { "memory" } else { "pids" }
}

/// The file of a part's limit.
fn file_of(part: Protection, version: Version) -> &'static str {
    match (part, version) {
        (Protection::Memory, Version::One) => "memory.limit_in_bytes",
        (Protection::Memory, Version::Two) => "memory.max",
        _ => "pids.max",
    }
}

/// A process that makes groups. Its number alone would be another's after a while, and in another container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Maker {
    /// Number of the namespace of processes.
    space: String,
    process: u32,
    /// Time of its start, in ticks from the machine's.
    start: u64,
}

impl Maker {
    fn this() -> io::Result<Self> {
        let process = std::process::id();
        let start = start(process).ok_or_else(|| io::Error::other("/proc does not say when this process started"))?;
        let space = fs::read_link("/proc/self/ns/pid")?.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        Ok(Self { space, process, start })
    }

    fn name(&self, number: u64) -> String {
        format!("demask-{}-{}-{}-{number}", self.space, self.process, self.start)
    }

    /// The maker by a group's name.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("demask-")?.split('-');
        let (space, process) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(Self { space, process, start: parts.next()?.parse().ok()? })
    }

    fn is_gone(&self) -> bool {
        start(self.process) != Some(self.start)
    }
}

/// Time of a process's start, the 22nd field of its state; the 2nd, its name, can have any characters.
fn start(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Ends the groups of makers that are gone, as far as `this` can know them.
fn sweep(folder: &Path, this: &Maker) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let maker = entry.file_name().to_str().and_then(Maker::of);
        if maker.is_some_and(|maker| maker.space == this.space && maker.is_gone()) {
            let _ = end(&entry.path());
        }
    }
}

/// Ends all processes of a group, and removes it.
fn end(folder: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        kill(folder);
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && start.elapsed() < LONGEST_END => {
                thread::sleep(PAUSE);
            }
            ended => return ended,
        }
    }
}

/// Ends the processes that a group has now, at once where the kernel does that.
fn kill(folder: &Path) {
    if write(&folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let _ = write(&folder.join("pids.max"), "0");
    let members = || -> Vec<Pid> {
        let text = fs::read_to_string(folder.join(MEMBERS)).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
    };
    // Handles, then a second look: a number alone may be another process's by the time of the signal.
    let open = |one: Pid| Some((one, pidfd_open(one, PidfdFlags::empty()).ok()?));
    let held: Vec<_> = members().into_iter().filter_map(open).collect();
    let members = members();
    for (_, handle) in held.iter().filter(|(one, _)| members.contains(one)) {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

/// Writes to a file that is there.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let written = OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(text.as_bytes()));
    file_error(file, written)
}

/// A result whose error names the file, and keeps its kind.
fn file_error<T>(file: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests;
