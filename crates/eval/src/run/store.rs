//! The records of a run, and the directory that keeps them: `results.jsonl` with one record a line, written whole or not
//! at all, and `run.json`, which says what they are of. A run that was ended at any moment goes on where it was.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use demask_figures::files::{WriteError, write_whole};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Call, MadeBy};
use crate::Record;

/// Name of the file with the records.
pub const RESULTS: &str = "results.jsonl";
/// Name of the file that says what they are of.
pub const CONFIGURATION: &str = "run.json";

/// Version of [`CONFIGURATION`]: of its fields, and of how models and data are identified in it.
const VERSION: u64 = 5;
/// Key of the version.
const VERSION_KEY: &str = "version";
/// Key of what made the results.
const MADE_KEY: &str = "made";
/// Key of the memory of rows.
const PEAKS_KEY: &str = "peak_memory";

/// Largest resident memory of a process that answered a row alone, in bytes: by the row's first name in records, and by task.
pub type Peaks = BTreeMap<String, BTreeMap<String, u64>>;

/// A results directory that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or the directory cannot be read or made.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// Name of the operation.
        what: &'static str,
        /// File of the operation.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A file where the directory should be.
    #[error("{} is a file: expected a directory, new or of an earlier run; name another `out`", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A record cannot be written.
    #[error(
        "cannot write {}: {error}: {kept} results are safe there; make room and run the same command again",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
        /// Records in it, all of them whole.
        kept: usize,
    },
    /// The file of the records is not the one that they were written to, or has lost some of them.
    #[error(
        "{} was removed, replaced or cut by another program while the run wrote to it: of {kept} results some are lost; \
         run the same command again, and leave `out` alone meanwhile",
        path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// Records that were made.
        kept: usize,
    },
    /// The directory belongs to another run.
    #[error(
        "{} holds results of another run: {field} was {was} and is {is}: repeat that call, or name another `out`",
        directory.display()
    )]
    Another {
        /// The directory.
        directory: PathBuf,
        /// Field that differs.
        field: String,
        /// Earlier value.
        was: String,
        /// Present value.
        is: String,
    },
    /// The file of a task, or its problems, changed since.
    #[error(
        "{} holds results of another run: {what} changed since they were made: take the change back, or name another `out`",
        directory.display()
    )]
    Changed {
        /// The directory.
        directory: PathBuf,
        /// The change, in words.
        what: String,
    },
    /// The directory was written by a version of the program that identified models and data in another way.
    #[error(
        "{} holds results of another version of demask ({CONFIGURATION} has version {found}, expected {VERSION}): \
         name another `out`",
        directory.display()
    )]
    Version {
        /// The directory.
        directory: PathBuf,
        /// The version of its configuration.
        found: Value,
    },
    /// Records, but nothing that says of what.
    #[error("{} holds {RESULTS} without {CONFIGURATION}: name another `out`", directory.display())]
    Unknown {
        /// The directory.
        directory: PathBuf,
    },
    /// A whole line that is no record.
    #[error("{}, line {line}, is no result ({error}): remove that line, or name another `out`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The problem.
        error: String,
    },
    /// Error: a record of another process does not belong to this run.
    #[error("what a worker returned is no result ({error}): its version of demask has to be this one")]
    Foreign {
        /// The problem.
        error: String,
    },
    /// Somebody else writes there.
    #[error("another run writes to {}: wait for it, or name another `out`", directory.display())]
    Busy {
        /// The directory.
        directory: PathBuf,
    },
}

impl StoreError {
    /// Reports whether the call itself was wrong (exit code 2), not its execution (exit code 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Another { .. } | Self::Changed { .. } | Self::Version { .. } | Self::Unknown { .. })
    }
}

/// The records of a run.
#[derive(Debug, Default)]
pub struct Store {
    file: Option<RecordFile>,
    records: Vec<Record>,
    /// Run, task and index of each record.
    known: HashSet<(String, String, usize)>,
    /// What describes them, as their file has it.
    description: Map<String, Value>,
    /// What made them, if all that did is known.
    made: Option<MadeBy>,
    /// Memory of the rows that were measured.
    peaks: Peaks,
    /// Records whether this call is the last one of those.
    called: bool,
}

/// The file with the records.
#[derive(Debug)]
struct RecordFile {
    path: PathBuf,
    file: File,
    /// Bytes of the whole lines in it.
    length: u64,
}

impl Store {
    /// Records that are kept nowhere.
    pub fn nowhere() -> Self {
        Self::default()
    }

    /// Opens a results directory, or makes it, for the run that `configuration` describes, and reads its records. A
    /// last line without an end is the rest of a record whose process was killed: it is dropped. `made` describes the
    /// program and machine that are going to make records. Without it the directory names no maker of any record.
    pub fn open(
        directory: &Path,
        configuration: &Map<String, Value>,
        made: Option<&MadeBy>,
    ) -> Result<Self, StoreError> {
        if directory.is_file() {
            return Err(StoreError::NotADirectory { path: directory.to_owned() });
        }
        fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let path = directory.join(RESULTS);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(&path).map_err(failed("open", &path))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Busy { directory: directory.to_owned() },
            TryLockError::Error(error) => failed("lock", &path)(error),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read", &path))?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let (earlier, peaks) = settle(directory, configuration, made, whole == 0)?;
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed("write", &path))?;
        }
        bytes.truncate(whole);
        let made = made.filter(|_| whole == 0 || earlier.is_some());
        let made = made.map(|made| made.after(earlier.unwrap_or_default()));
        let mut store = Self { description: versioned(configuration), made, peaks, ..Self::default() };
        for (index, record) in records_of(&path, bytes)?.into_iter().enumerate() {
            if !store.remember(record) {
                let error = "it repeats an earlier one".to_owned();
                return Err(StoreError::Line { path, line: index + 1, error });
            }
        }
        store.file = Some(RecordFile { path, file, length: whole as u64 });
        store.describe()?;
        Ok(store)
    }

    /// Remembers that a call begins to make records; of a call that has begun nothing changes.
    pub fn begin(&mut self, command: impl FnOnce() -> String) -> Result<(), StoreError> {
        if !self.called
            && let Some(made) = &mut self.made
        {
            made.calls.push(Call::begin(command()));
            self.called = true;
            return self.describe();
        }
        Ok(())
    }

    /// Remembers that the call has made its records, if it made any.
    pub fn end(&mut self) -> Result<(), StoreError> {
        if self.called
            && let Some(call) = self.made.as_mut().and_then(|made| made.calls.last_mut())
        {
            call.end();
            return self.describe();
        }
        Ok(())
    }

    /// Returns what made the records, if all that did is known.
    pub fn made(&self) -> Option<&MadeBy> {
        self.made.as_ref()
    }

    /// Remembers the largest resident memory, in bytes, of a process that answered a row's task alone.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn measured(&mut self, run: &str, task: &str, peak: u64) -> Result<(), StoreError> {
        self.peaks.entry(run.to_owned()).or_default().insert(task.to_owned(), peak);
        self.describe()
    }

    /// Returns the memory of the rows that were measured.
    pub fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// Writes the description of the records if the directory has another one or none.
    fn describe(&self) -> Result<(), StoreError> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let mut description = self.description.clone();
        if let Some(made) = &self.made {
            let made = serde_json::to_value(made).map_err(io::Error::from);
            description.insert(MADE_KEY.to_owned(), made.map_err(failed("write", directory))?);
        }
        if !self.peaks.is_empty() {
            let peaks = serde_json::to_value(&self.peaks).map_err(io::Error::from);
            description.insert(PEAKS_KEY.to_owned(), peaks.map_err(failed("write", directory))?);
        }
        let path = directory.join(CONFIGURATION);
        let text = serde_json::to_string_pretty(&description).map_err(io::Error::from);
        let text = text.map_err(failed("write", &path))? + "\n";
        if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        // Whole or not at all: half a configuration would lock the directory up.
        write_whole(&path, text.as_bytes()).map_err(|WriteError { path, error }| StoreError::Io {
            what: "write",
            path,
            error,
        })
    }

    /// Reports whether an item is there.
    pub fn has(&self, run: &str, task: &str, index: usize) -> bool {
        self.known.contains(&(run.to_owned(), task.to_owned(), index))
    }

    /// Returns the directory, if the records are kept in one.
    pub fn directory(&self) -> Option<&Path> {
        self.file.as_ref().and_then(|kept| kept.path.parent())
    }

    /// All records, in the order in which they were made.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a record, and writes its line if there is a directory: the whole line, or nothing of it.
    pub fn add(&mut self, record: Record) -> Result<(), StoreError> {
        let line = serde_json::to_vec(&record);
        self.write(line.map_err(io::Error::from))?;
        self.remember(record);
        Ok(())
    }

    /// Adds a record as the line that another process made of it, to the letter.
    ///
    /// # Errors
    /// If it is no record, or repeats one that is there.
    pub fn add_line(&mut self, line: &str) -> Result<(), StoreError> {
        let refused = |error: String| StoreError::Foreign { error };
        let record: Record = serde_json::from_str(line).map_err(|error| refused(error.to_string()))?;
        if line.contains('\n') {
            return Err(refused("it is more than one line".to_owned()));
        }
        if self.has(&record.run, &record.task, record.index) {
            return Err(refused("it repeats an earlier one".to_owned()));
        }
        self.write(Ok(line.as_bytes().to_vec()))?;
        self.remember(record);
        Ok(())
    }

    fn write(&mut self, line: io::Result<Vec<u8>>) -> Result<(), StoreError> {
        self.check()?;
        let kept = self.records.len();
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = line.and_then(|line| file.append(line));
        written.map_err(|error| StoreError::Write { path: file.path.clone(), error, kept })
    }

    /// Checks that all records are where a later run will look for them.
    ///
    /// # Errors
    /// If the directory or its file was removed, replaced or cut.
    pub fn check(&self) -> Result<(), StoreError> {
        match &self.file {
            Some(file) if !file.is_in_place() => {
                Err(StoreError::Gone { path: file.path.clone(), kept: self.records.len() })
            }
            _ => Ok(()),
        }
    }

    fn remember(&mut self, record: Record) -> bool {
        let fresh = self.known.insert((record.run.clone(), record.task.clone(), record.index));
        if fresh {
            self.records.push(record);
        }
        fresh
    }
}

/// Reads the whole lines of a file of records. Nothing is locked, and a record that a run is writing now may be left
/// out.
pub fn read_records(path: &Path) -> Result<Vec<Record>, StoreError> {
    let mut bytes = fs::read(path).map_err(failed("read", path))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    bytes.truncate(whole);
    records_of(path, bytes)
}

fn records_of(path: &Path, bytes: Vec<u8>) -> Result<Vec<Record>, StoreError> {
    let text = String::from_utf8(bytes)
        .map_err(|error| failed("read", path)(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    let record = |(index, line): (usize, &str)| {
        let refused = |error: serde_json::Error| StoreError::Line {
            path: path.to_owned(),
            line: index + 1,
            error: error.to_string(),
        };
        serde_json::from_str(line).map_err(refused)
    };
    text.lines().enumerate().map(record).collect()
}

impl RecordFile {
    /// Reports whether its path still leads to it, and it has all that was written.
    fn is_in_place(&self) -> bool {
        let (Ok(there), Ok(own)) = (fs::metadata(&self.path), self.file.metadata()) else { return false };
        #[cfg(unix)]
        let is_own = {
            use std::os::unix::fs::MetadataExt;
            (there.dev(), there.ino()) == (own.dev(), own.ino())
        };
        #[cfg(not(unix))]
        let is_own = there.len() == own.len();
        is_own && own.len() == self.length
    }

    fn append(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.flush());
        if written.is_err() {
            // What was written of it goes away; if that fails too, the next run drops it.
            let _ = self.file.set_len(self.length);
            return written;
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { what, path, error }
}

/// Returns what made the records of a directory, if that is known, and the memory of the rows that were measured.
pub fn read_made(directory: &Path) -> (Option<MadeBy>, Peaks) {
    let text = fs::read_to_string(directory.join(CONFIGURATION)).unwrap_or_default();
    take_made(&mut serde_json::from_str(&text).unwrap_or_default())
}

/// Takes the entries out of a configuration that do not describe the run: the makers of the records, and the peaks of
/// memory.
fn take_made(configuration: &mut Map<String, Value>) -> (Option<MadeBy>, Peaks) {
    let mut take = |key: &str| configuration.remove(key).unwrap_or_default();
    let (made, peaks) = (take(MADE_KEY), take(PEAKS_KEY));
    (serde_json::from_value(made).ok(), serde_json::from_value(peaks).unwrap_or_default())
}

/// Compares a directory's configuration, and what made its records, with this run's. Returns what made them, if that is known,
/// and the memory of the rows that were measured.
fn settle(
    directory: &Path,
    configuration: &Map<String, Value>,
    made: Option<&MadeBy>,
    empty: bool,
) -> Result<(Option<MadeBy>, Peaks), StoreError> {
    if empty {
        return Ok((None, Peaks::new()));
    }
    let path = directory.join(CONFIGURATION);
    let configuration = &versioned(configuration);
    let unknown = || StoreError::Unknown { directory: directory.to_owned() };
    let another = |(field, was, is)| StoreError::Another { directory: directory.to_owned(), field, was, is };
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unknown(),
        _ => failed("read", &path)(error),
    })?;
    let mut was: Map<String, Value> = serde_json::from_str(&text).map_err(|_| unknown())?;
    if was.get(VERSION_KEY) != configuration.get(VERSION_KEY) {
        // The first version did not say so.
        let found = was.get(VERSION_KEY).cloned().unwrap_or(1.into());
        return Err(StoreError::Version { directory: directory.to_owned(), found });
    }
    let (earlier, peaks) = take_made(&mut was);
    if let Some(differing) = difference(&grown(&was, configuration), &through_text(configuration)) {
        let changed = changed(&was, configuration, &differing.0);
        let changed = changed.map(|what| StoreError::Changed { directory: directory.to_owned(), what });
        return Err(changed.unwrap_or_else(|| another(differing)));
    }
    if let Some((field, was, is)) = earlier.as_ref().zip(made).and_then(|(was, is)| was.difference(is)) {
        return Err(another((field.to_owned(), was, is)));
    }
    Ok((earlier, peaks))
}

/// Names a changed file of a task, or changed problems: a field has only their fingerprints, which tell people nothing.
fn changed(was: &Map<String, Value>, is: &Map<String, Value>, field: &str) -> Option<String> {
    let (name, part) = field.strip_prefix("tasks.")?.rsplit_once('.')?;
    let [was, is] = [was, is].map(|all| all.get("tasks").and_then(|tasks| tasks.get(name)));
    let (was, is) = (was?, is?);
    // Another file of the task may read other problems of the same data.
    let is_file = ["file", "data"].contains(&part) && was["file"].is_string() && is["file"] != was["file"];
    match is["task"].as_str() {
        Some(task) if is_file => Some(format!("{task}.toml, the file of task {name},")),
        _ => (part == "data").then(|| format!("the problems of task {name}")),
    }
}

/// Names of the tables that may grow between two calls of a run: tasks, rows, tasks of rows.
const MAY_GROW: [&str; 2] = ["tasks", "rows"];

/// Returns a configuration with the rows and tasks that are new in another one.
fn grown(was: &Map<String, Value>, is: &Map<String, Value>) -> Map<String, Value> {
    let mut grown = was.clone();
    for name in MAY_GROW {
        let (Some(Value::Object(old)), Some(Value::Object(new))) = (grown.get_mut(name), is.get(name)) else {
            continue;
        };
        for (key, value) in new {
            match (old.get_mut(key), value) {
                (None, value) => {
                    old.insert(key.clone(), value.clone());
                }
                (Some(Value::Object(there)), Value::Object(value)) if name == "rows" => {
                    *there = self::grown(there, value);
                }
                _ => {}
            }
        }
    }
    through_text(&grown)
}

/// Returns a configuration with its version before it.
fn versioned(configuration: &Map<String, Value>) -> Map<String, Value> {
    let mut versioned = Map::from_iter([(VERSION_KEY.to_owned(), VERSION.into())]);
    versioned.extend(configuration.clone());
    versioned
}

/// Configuration as reading would return it: numbers may change by a hair when they are written and read.
fn through_text(configuration: &Map<String, Value>) -> Map<String, Value> {
    let text = serde_json::to_string(configuration).and_then(|text| serde_json::from_str(&text));
    text.unwrap_or_else(|_| configuration.clone())
}

/// Returns the first value that differs: its path, its earlier value and its present value. A value that is off, empty
/// or null equals a missing one: a version of the program that knows more options goes on where an earlier one ended.
fn difference(was: &Map<String, Value>, is: &Map<String, Value>) -> Option<(String, String, String)> {
    let shown = |value: Option<&Value>| match value {
        None => "not given".to_owned(),
        Some(Value::Object(_)) => "given".to_owned(),
        Some(value) => value.to_string(),
    };
    let off = |value: &&Value| ![Value::Null, Value::Bool(false), Value::Array(Vec::new())].contains(value);
    let keys = was.keys().chain(is.keys().filter(|key| !was.contains_key(*key)));
    for key in keys {
        match (was.get(key), is.get(key)) {
            (was, is) if was.filter(off) == is.filter(off) => {}
            (Some(Value::Object(was)), Some(Value::Object(is))) => {
                if let Some((path, was, is)) = difference(was, is) {
                    return Some((format!("{key}.{path}"), was, is));
                }
            }
            (was, is) => return Some((key.clone(), shown(was), shown(is))),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeMap;

    use super::*;
    use crate::{Verdict, run::RanOn};

    fn record(index: usize) -> Record {
        Record {
            run: "static, cache none".to_owned(),
            task: "t".to_owned(),
            index,
            id: index.to_string(),
            prompt: "p\n".to_owned(),
            output: "o".to_owned(),
            verdict: Verdict::none(),
            expected: "7".to_owned(),
            counts: crate::Counts { tokens: 3, ..crate::Counts::default() },
            receipt: json!({"nfe": 2}),
        }
    }

    fn configuration(shots: usize) -> Map<String, Value> {
        let Value::Object(map) = json!({"model": "m", "tasks": {"t": {"shots": shots}}}) else { unreachable!() };
        map
    }

    fn refused(directory: &Path, configuration: &Map<String, Value>) -> String {
        let text = Store::open(directory, configuration, None).unwrap_err().to_string();
        text.replace(directory.to_str().unwrap(), "D")
    }

    #[test]
    fn records_are_there_after_the_end_and_a_torn_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        store.add(record(0)).unwrap();
        store.add(record(2)).unwrap();
        drop(store);
        let path = directory.path().join(RESULTS);
        let whole = fs::read(&path).unwrap();
        for torn in [&b"{\"run\""[..], b"\xc3", b"{}"] {
            fs::write(&path, [&whole[..], torn].concat()).unwrap();
            let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
            assert_eq!(store.records(), [record(0), record(2)]);
            assert!(store.has("static, cache none", "t", 2) && !store.has("static, cache none", "t", 1));
            store.add(record(1)).unwrap();
            drop(store);
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
            assert_eq!(Store::open(directory.path(), &configuration(0), None).unwrap().records().len(), 3);
        }
    }

    #[test]
    fn another_runs_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        let busy = "another run writes to D: wait for it, or name another `out`";
        assert_eq!(refused(directory.path(), &configuration(0)), busy);
        store.add(record(0)).unwrap();
        drop(store);
        assert_eq!(
            refused(directory.path(), &configuration(4)),
            "D holds results of another run: tasks.t.shots was 0 and is 4: repeat that call, or name another `out`"
        );
        fs::remove_file(directory.path().join(CONFIGURATION)).unwrap();
        let unknown = "D holds results.jsonl without run.json: name another `out`";
        assert_eq!(refused(directory.path(), &configuration(0)), unknown);
    }

    #[test]
    fn a_changed_task_is_told_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let with = |data: &str, file: &str| {
            Map::from_iter([("tasks".to_owned(), json!({"own, 1.5": {"task": "own", "data": data, "file": file}}))])
        };
        let mut store = Store::open(directory.path(), &with("a", "b"), None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        let told = |what: &str| {
            format!(
                "D holds results of another run: {what} changed since they were made: take the change back, or name another `out`"
            )
        };
        let file = told("own.toml, the file of task own, 1.5,");
        assert_eq!(refused(directory.path(), &with("a", "c")), file);
        assert_eq!(refused(directory.path(), &with("d", "c")), file);
        assert_eq!(refused(directory.path(), &with("d", "b")), told("the problems of task own, 1.5"));
    }

    #[test]
    fn rows_and_tasks_may_be_added_and_not_left_out_or_changed() {
        let directory = tempfile::tempdir().unwrap();
        let with = |rows: Value| Map::from_iter([("seed".to_owned(), json!(0)), ("rows".to_owned(), rows)]);
        let one = with(json!({"a": {"model": "m", "tasks": {"t": 1}}}));
        let two = with(json!({"a": {"model": "m", "tasks": {"t": 1, "u": 2}}, "b": {"model": "n"}}));
        let mut store = Store::open(directory.path(), &one, None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        assert_eq!(Store::open(directory.path(), &two, None).unwrap().records().len(), 1);
        assert!(refused(directory.path(), &one).contains("rows.a.tasks.u was 2 and is not given"));
        let changed = with(json!({"a": {"model": "m", "tasks": {"t": 1, "u": 2}}, "b": {"model": "o"}}));
        assert!(refused(directory.path(), &changed).contains("rows.b.model was \"n\" and is \"o\""));
        let fewer = with(json!({"a": {"model": "m", "tasks": {"t": 1, "u": 2}}}));
        assert!(refused(directory.path(), &fewer).contains("rows.b was given and is not given"));
    }

    #[test]
    fn a_directory_that_goes_on_the_way_is_a_failure() {
        type Harm = fn(&Path);
        let harms: [(&str, Harm); 4] = [
            ("the directory", |directory| fs::remove_dir_all(directory).unwrap()),
            ("the file", |directory| fs::remove_file(directory.join(RESULTS)).unwrap()),
            ("its records", |directory| fs::write(directory.join(RESULTS), "").unwrap()),
            ("another file", |directory| {
                let text = fs::read(directory.join(RESULTS)).unwrap();
                fs::remove_file(directory.join(RESULTS)).unwrap();
                fs::write(directory.join("other"), "").unwrap();
                fs::write(directory.join(RESULTS), text).unwrap();
            }),
        ];
        for (what, harm) in harms {
            let directory = tempfile::tempdir().unwrap();
            let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
            store.add(record(0)).unwrap();
            store.check().unwrap();
            harm(directory.path());
            let line = serde_json::to_string(&record(2)).unwrap();
            for error in [store.check(), store.add(record(1)), store.add_line(&line)].map(Result::unwrap_err) {
                let told = error.to_string().replace(directory.path().to_str().unwrap(), "D");
                assert!(
                    told.starts_with("D/results.jsonl was removed, replaced or cut by another program"),
                    "{what}: {told}"
                );
                assert!(told.contains("of 1 results some are lost") && !error.is_usage(), "{what}: {told}");
            }
        }
    }

    #[test]
    fn a_line_of_another_process_is_kept_to_the_letter() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        // A float that other digits could stand for.
        let line =
            serde_json::to_string(&record(1)).unwrap().replace(r#"{"nfe":2}"#, r#"{"nfe":2,"x":1.10000000000000009}"#);
        store.add_line(&line).unwrap();
        for (wrong, told) in [(line.as_str(), "it repeats"), ("{}", "missing field"), ("hello", "expected value")] {
            let error = store.add_line(wrong).unwrap_err().to_string();
            assert!(error.starts_with("what a worker returned is no result (") && error.contains(told), "{error}");
        }
        drop(store);
        assert_eq!(fs::read_to_string(directory.path().join(RESULTS)).unwrap(), line + "\n");
        assert_eq!(Store::open(directory.path(), &configuration(0), None).unwrap().records().len(), 1);
    }

    #[test]
    fn what_is_off_need_not_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let with = |options: Value| {
            let mut configuration = configuration(0);
            configuration.insert("options".to_owned(), options);
            configuration
        };
        let mut store = Store::open(directory.path(), &with(json!({"steps": 8, "old": false})), None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        let more = json!({"steps": 8, "switch": false, "number": null, "texts": []});
        assert_eq!(Store::open(directory.path(), &with(more), None).unwrap().records().len(), 1);
        let on = refused(directory.path(), &with(json!({"steps": 8, "switch": true})));
        assert!(on.contains("options.switch was false and is true"), "{on}");
        // Two objects that say the same in other words hide nothing behind them.
        let later = with(json!({"steps": 8}));
        let later: Map<_, _> = later.into_iter().chain([("seed".to_owned(), json!(3))]).collect();
        assert!(refused(directory.path(), &later).contains("seed was not given and is 3"));
    }

    #[test]
    fn a_directory_of_another_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        let path = directory.path().join(CONFIGURATION);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\n  \"version\": 5,"), "{text}");
        for (other, found) in [("", "1"), ("\"version\": 7,", "7")] {
            fs::write(&path, text.replace("\"version\": 5,", other)).unwrap();
            let told = "D holds results of another version of demask";
            let told = format!("{told} (run.json has version {found}, expected {VERSION}): name another `out`");
            assert_eq!(refused(directory.path(), &configuration(0)), told);
        }
        fs::write(&path, text.replace("\"version\": 5,", "")).unwrap();
        fs::write(directory.path().join(RESULTS), "").unwrap();
        assert!(Store::open(directory.path(), &configuration(0), None).unwrap().records().is_empty());
    }

    /// A directory of one machine was continued by another program, batch and number of threads, in one row.
    #[test]
    fn the_memory_of_rows_is_kept_and_is_no_difference() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        store.add(record(0)).unwrap();
        store.measured("static", "sums", 5 << 20).unwrap();
        drop(store);
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        store.measured("static", "more sums", 6 << 20).unwrap();
        let tasks = BTreeMap::from([("sums".to_owned(), 5 << 20), ("more sums".to_owned(), 6 << 20)]);
        let expected = Peaks::from([("static".to_owned(), tasks)]);
        assert_eq!((store.peaks(), read_made(directory.path())), (&expected, (None, expected.clone())));
    }

    #[test]
    fn nothing_continues_what_another_program_or_batch_has_made() {
        let directory = tempfile::tempdir().unwrap();
        let on =
            |threads| BTreeMap::from([("a".to_owned(), RanOn { device: "cpu".into(), tier: "avx2".into(), threads })]);
        let made = MadeBy { version: "1".into(), executable: "e".into(), batch: 1, rows: on(1), ..MadeBy::default() };
        let open = |made: Option<&MadeBy>| Store::open(directory.path(), &configuration(0), made);
        let mut store = open(Some(&made)).unwrap();
        store.begin(|| "first".to_owned()).unwrap();
        store.begin(|| "no second call of the same program".to_owned()).unwrap();
        store.add(record(0)).unwrap();
        store.end().unwrap();
        drop(store);
        for (other, told) in [
            (MadeBy { batch: 16, ..made.clone() }, "batch was 1 and is 16"),
            (MadeBy { executable: "f".into(), ..made.clone() }, "executable was e and is f"),
            (MadeBy { rows: on(2), ..made.clone() }, "threads was 1 and is 2"),
            (MadeBy { processor: "p".into(), ..made.clone() }, "processor was  and is p"),
        ] {
            let refused = open(Some(&other)).unwrap_err();
            assert!(refused.is_usage() && refused.to_string().contains(told), "{refused}");
            assert!(refused.to_string().ends_with(": repeat that call, or name another `out`"), "{refused}");
        }
        let mut store = open(Some(&made)).unwrap();
        store.begin(|| "again".to_owned()).unwrap();
        drop(store);
        let calls = read_made(directory.path()).0.unwrap().calls;
        let told: Vec<_> = calls.iter().map(|call| (call.command.as_str(), call.ended.is_some())).collect();
        assert_eq!(told, [("first", true), ("again", false)]);
        // Nothing is said of records that others may have made.
        drop(open(None).unwrap());
        assert_eq!(read_made(directory.path()).0, None);
        assert_eq!(open(Some(&made)).unwrap().made(), None);
    }

    #[test]
    fn a_directory_without_results_serves_any_run() {
        let directory = tempfile::tempdir().unwrap();
        drop(Store::open(directory.path(), &configuration(0), None).unwrap());
        let mut store = Store::open(directory.path(), &configuration(4), None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        assert!(refused(directory.path(), &configuration(0)).contains("tasks.t.shots was 4 and is 0"));
    }

    #[test]
    fn a_whole_line_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path(), &configuration(0), None).unwrap();
        store.add(record(0)).unwrap();
        drop(store);
        let path = directory.path().join(RESULTS);
        let line = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{line}{line}")).unwrap();
        assert!(refused(directory.path(), &configuration(0)).contains("line 2, is no result (it repeats"));
        fs::write(&path, format!("{line}hello\n")).unwrap();
        assert!(refused(directory.path(), &configuration(0)).contains("line 2, is no result (expected value"));
    }
}
