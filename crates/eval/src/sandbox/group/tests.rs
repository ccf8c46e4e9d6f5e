//! Groups in invented trees of files, and in the kernel's where it lets this process make one.

use std::{
    collections::BTreeMap,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::Command,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::*;
use crate::sandbox::{Confinement, Interpreter, Outcome, Permission, Program, Role, SandboxError, parent};

/// Programs that take memory and processes run one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// A supervisor that confines nothing: it runs the program itself, and tells how that ended.
const SUPERVISOR: &str = r#"
import json, sys
print("ready", flush=True)
word = "passed"
try:
    exec(json.load(sys.stdin)["program"]["code"], {})
except BaseException as error:
    word = "exception " + type(error).__name__
print(json.dumps({"Ended": {"word": word, "judge": None, "program": None, "spent": False}}), flush=True)
"#;

/// Programs under such a supervisor, while no other test has one.
struct Unconfined {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Unconfined {
    /// Returns nothing, and says so, where there is no Python or this process may make no group.
    fn new() -> Option<Self> {
        let skipped = |reason: String| drop(writeln!(io::stderr(), "skipped: {reason}"));
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let interpreter = Interpreter::find().map_err(|error| skipped(error.to_string())).ok()?;
        Group::make(&order(Limits::default())).map_err(|(_, reason)| skipped(reason)).ok()?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supervisor");
        fs::write(&file, format!("#!{}\n{SUPERVISOR}", interpreter.executable.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { folder, _turn: turn })
    }

    fn binary(&self) -> PathBuf {
        self.folder.path().join("supervisor")
    }

    fn run(&self, limits: Limits, code: &str) -> Outcome {
        parent::run(&self.binary(), &order(limits), &program(code)).unwrap().unwrap()
    }

    fn permission(&self, limits: Limits, confinement: Confinement) -> Permission {
        let Order { interpreter, held, .. } = order(limits);
        let (binary, denied, lost) = (self.binary(), Vec::new(), OnceLock::new());
        Permission { binary, interpreter, limits, held, denied, confinement, lost }
    }

    /// Nothing is left of the programs: no process, and no group.
    fn assert_clean(&self) {
        let name = self.binary().display().to_string();
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        let left = processes.filter(|line| String::from_utf8_lossy(line).contains(&name)).count();
        assert_eq!(left, 0);
        let group = Group::make(&order(Limits::default())).unwrap();
        for Folder { path, .. } in &group.folders {
            let own = Maker::this().unwrap();
            let names = fs::read_dir(path.parent().unwrap()).unwrap().filter_map(Result::ok).map(|entry| entry.path());
            let left: Vec<_> = names
                .filter(|other| {
                    other != path && Maker::of(other.file_name().unwrap().to_str().unwrap()) == Some(own.clone())
                })
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

fn program(code: &str) -> Program {
    Program { code: code.to_owned(), ..Program::default() }
}

fn order(limits: Limits) -> Order {
    Order {
        limits,
        interpreter: Interpreter { executable: PathBuf::new(), readable: Vec::new() },
        held: Protection::OF_GROUP.to_vec(),
        parent: std::process::id(),
        nobody: false,
        role: Role::Supervisor,
    }
}

/// A program that the filter of system calls would refuse, in a session of its own so that no signal to a group finds it.
const MANY: &str =
    "import os, time\nfor _ in range(1000):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)";

#[test]
fn a_thousand_children_are_bounded_and_none_is_left() {
    let Some(unconfined) = Unconfined::new() else { return };
    let outcome = unconfined.run(Limits::default(), MANY);
    assert_eq!(outcome, Outcome::Exception("BlockingIOError".to_owned()));
    unconfined.assert_clean();
}

#[test]
fn children_that_outlive_their_program_do_not_outlive_its_run() {
    let Some(unconfined) = Unconfined::new() else { return };
    // They hold the pipe of the answer open, too.
    let outcome = unconfined.run(Limits::default(), &MANY.replace("1000", "10"));
    assert_eq!(outcome, Outcome::Passed);
    unconfined.assert_clean();
}

#[test]
fn memory_of_several_processes_is_bounded_together() {
    let Some(unconfined) = Unconfined::new() else { return };
    let limits = Limits { together: 128 << 20, ..Limits::default() };
    let code = "import os\nfor _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * (512 << 20)\n        os._exit(0)\n\
                for _ in range(8): os.wait()";
    assert_eq!(unconfined.run(limits, code), Outcome::Memory);
    unconfined.assert_clean();
    assert_eq!(unconfined.run(limits, "x = b'x' * (32 << 20)"), Outcome::Passed);
}

#[test]
fn a_group_that_can_no_longer_be_made_fails_no_program_unless_it_was_demanded() {
    let Some(unconfined) = Unconfined::new() else { return };
    // The kernel takes no such number.
    let limits = Limits { threads: u64::MAX, ..Limits::default() };
    let taken = unconfined.permission(limits, Confinement::Whole);
    assert_eq!(taken.late_warning(), None);
    assert_eq!(taken.run(&program("")).unwrap(), Outcome::Passed);
    let warning = taken.late_warning().unwrap();
    let start = "some programs ran with less protection: no cgroup for processes (";
    assert!(warning.starts_with(start) && warning.contains("pids.max: "), "{warning}");
    let demanded = unconfined.permission(limits, Confinement::Complete).run(&program(""));
    assert!(matches!(&demanded, Err(SandboxError::Refused { reason }) if reason.contains("pids.max")), "{demanded:?}");
    unconfined.assert_clean();
}

#[test]
fn the_kernel_ends_a_group_of_version_two() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let Some(folder) = mount.map(|mount| unescaped(mount).join(format!("demask-test-{}", std::process::id()))) else {
        return;
    };
    if fs::create_dir(&folder).is_err() {
        return;
    }
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let moved = write(&folder.join(MEMBERS), &child.id().to_string());
    let ended = end(&folder);
    if moved.is_err() {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    ended.unwrap();
    assert!(!folder.exists());
    assert_eq!(status.signal(), Some(9));
}

/// A tree of files: paths and their texts.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn texts(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())).collect()
}

/// Limits of a part, written to a group that has these files, and what they say then.
fn written(place: &Place, part: Protection, files: &[&str]) -> Vec<(String, String)> {
    let group = tree(&files.iter().map(|name| (*name, "")).collect::<Vec<_>>());
    let limits = Limits { together: 3 << 20, threads: 64, ..Limits::default() };
    place.limit(part, group.path(), &limits).unwrap();
    texts(group.path()).into_iter().collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
}

#[test]
fn version_two_is_written_below_the_nearest_group_that_hands_its_controllers_down() {
    let root = tree(&[
        ("a b/cgroup.subtree_control", "cpu memory pids\n"),
        ("a b/user/cgroup.subtree_control", "memory pids\n"),
        ("a b/user/x.scope/cgroup.subtree_control", "\n"),
        ("a b/user/x.scope/memory.max", "1048576\n"),
        ("a b/user/x.scope/pids.max", "max\n"),
    ]);
    let mount = root.path().join("a b");
    let mounts = format!(
        "30 1 0:26 / /tmp rw - tmpfs tmpfs rw\n31 30 0:27 / {}/a\\040b rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
        root.path().display()
    );
    let find = |part| Place::find(part, "0::/user/x.scope\n", &mounts).unwrap();
    let memory = find(Protection::Memory);
    // Nothing that the left group forbids is won by leaving it.
    assert_eq!(memory, Place { folder: mount.join("user"), version: Version::Two, most: Some(1 << 20) });
    let all = ["memory.max", "memory.oom.group", "memory.swap.max"];
    let limits = pairs(&[("memory.max", "1048576"), ("memory.oom.group", "1"), ("memory.swap.max", "0")]);
    assert_eq!(written(&memory, Protection::Memory, &all), limits);
    assert_eq!(written(&memory, Protection::Memory, &all[..1]), limits[..1]);
    let processes = find(Protection::Processes);
    assert_eq!(processes, Place { folder: mount.join("user"), version: Version::Two, most: None });
    assert_eq!(written(&processes, Protection::Processes, &["pids.max"]), pairs(&[("pids.max", "64")]));
}

#[test]
fn version_one_is_written_below_the_own_group_of_each_hierarchy() {
    let root = tree(&[]);
    let mount = root.path().display();
    // The tree of memory is seen from the container's own group on.
    let mounts = format!(
        "32 31 0:29 / {mount}/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 /docker/1 {mount}/memory rw - cgroup cgroup rw,memory\n\
         39 31 0:36 / {mount}/pids rw - cgroup cgroup rw,pids\n41 31 0:38 / {mount}/unified rw - cgroup2 cgroup2 rw\n"
    );
    let groups = "9:name=systemd:/\n8:cpu,pids:/own:1\n4:memory:/docker/1/job\n0::/\n";
    let find = |part| Place::find(part, groups, &mounts).unwrap();
    let memory = find(Protection::Memory);
    assert_eq!(memory, Place { folder: root.path().join("memory/job"), version: Version::One, most: None });
    let all = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness"];
    let limits = pairs(&[(all[0], "3145728"), (all[1], "3145728"), (all[2], "0")]);
    assert_eq!(written(&memory, Protection::Memory, &all), limits);
    assert_eq!(written(&memory, Protection::Memory, &all[..1]), limits[..1]);
    let processes = find(Protection::Processes);
    assert_eq!(processes.folder, root.path().join("pids/own:1"));
    assert_eq!(written(&processes, Protection::Processes, &["pids.max"]), pairs(&[("pids.max", "64")]));
}

#[test]
fn without_a_place_for_groups_the_reason_is_told() {
    let root = tree(&[("own/cgroup.subtree_control", "cpu\n"), ("cgroup.subtree_control", "cpu io\n")]);
    let mounts = format!("31 30 0:27 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
    let told = |groups, mounts| Place::find(Protection::Memory, groups, mounts).unwrap_err().to_string();
    let own = root.path().join("own").display().to_string();
    let none_above = format!("{own}: neither this group nor one above it hands the controller memory down");
    assert_eq!(told("0::/own\n", &mounts), none_above);
    let none = "no hierarchy with the controller memory is mounted";
    assert_eq!(told("0::/own\n", ""), none);
    assert_eq!(told("", &mounts), none);
    assert_eq!(told("4:memory:/own\n0::/own\n", &mounts), none);
    // A group outside of what is mounted.
    assert_eq!(told("0::/own\n", &mounts.replace(" / /", " /other /")), none);
    let place = Place { folder: root.path().to_owned(), version: Version::Two, most: None };
    let error = place.limit(Protection::Memory, root.path(), &Limits::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("memory.max: No such file"), "{error}");
}

#[test]
fn exhaustion_is_read_in_both_versions() {
    for (file, text, expected) in [
        ("memory.events", "low 0\noom 1\noom_kill 1\noom_group_kill 1\n", true),
        ("memory.events", "low 0\noom 1\noom_kill 0\noom_group_kill 0\n", false),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", true),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 1\n", false),
        ("other", "oom_kill 1\n", false),
    ] {
        let root = tree(&[(file, text)]);
        let path = root.path().to_owned();
        let group = Group { folders: vec![Folder { part: Protection::Memory, version: Version::One, path }] };
        assert_eq!(group.is_exhausted(), expected, "{file}: {text}");
    }
}

#[test]
fn only_groups_whose_maker_is_gone_are_swept() {
    let root = tempfile::tempdir().unwrap();
    let this = Maker::this().unwrap();
    assert_eq!(Maker::of(&this.name(7)), Some(this.clone()));
    let other = |process, start| Maker { process, start, ..this.clone() }.name(0);
    // A number that went to another process since, and one that no process has.
    let gone = [other(this.process, this.start + 1), other(u32::MAX, 1)];
    let space = Maker { space: format!("{}0", this.space), process: u32::MAX, start: 1 }.name(0);
    let kept = [this.name(0), space, "demask-".to_owned(), "demask-1-x-2-3".to_owned(), "other".to_owned()];
    for name in gone.iter().chain(&kept) {
        fs::create_dir(root.path().join(name)).unwrap();
    }
    sweep(root.path(), &this);
    assert!(gone.iter().all(|name| !root.path().join(name).exists()));
    assert!(kept.iter().all(|name| root.path().join(name).exists()));
}
