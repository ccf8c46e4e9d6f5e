//! An evaluation in pieces: the same plan is laid out wherever it is made, any of its items run by anyone, and the
//! lines kept by one. Or as a whole, in one process.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use demask::{DeviceOptions, Guides, LoadOptions, Model, ModelError, Opened, layers::checkpoint::HubOptions};
use demask_eval::{
    Record,
    report::{self, Format, Numbers, ReportError},
    run::{
        AskOptions, Asking, Changes, Combination, DryRun, FileError, Happened, Item, MadeBy, Means, ModelSpec, Peaks,
        Plan, RowSpec, RunError, RunOptions, Runs, Spec, Store, StoreError, TaskSpec, about_model, configuration,
        needs, outline, run, task, together,
    },
};
use demask_settings::names::UnknownName;
use pyo3::{
    exceptions::{PyIndexError, PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};
use serde_json::{Map, Value};

use crate::{error, load, options};

/// The problems of tasks, rows of models and methods that answer them, and the results.
///
/// It is made alike on every machine that takes part: `configuration` shows whether it was. A worker calls `answer`,
/// which loads the model at its first call; the keeper of the results calls `open`, `keep` and `finish`. A process that does
/// everything calls `begin`, `run` and `finish`.
#[pyclass(frozen, module = "demask")]
pub struct Evaluation {
    plan: Plan,
    dry_runs: Vec<DryRun>,
    combinations: Vec<Combination>,
    /// Facts of each row's model.
    about: Vec<Map<String, Value>>,
    groups: Vec<Group>,
    store: Mutex<Option<Store>>,
    finished: Mutex<Option<Finished>>,
}

/// A model, and the rows that it answers.
struct Group {
    rows: Vec<usize>,
    device: DeviceOptions,
    /// Bytes that are kept of prefixes, if that is said.
    prefix_bytes: Option<u64>,
    state: Mutex<State>,
}

/// State of the model.
enum State {
    Opened(Box<Opened>),
    Loaded(Box<Model>),
    /// Loading it failed, or it has answered and made room for others.
    Gone,
}

/// Results of an evaluation that is over.
struct Finished {
    numbers: Numbers,
    records: Vec<Record>,
}

#[pymethods]
impl Evaluation {
    /// Lays out the problems of `tasks`, and the longest prompt of each of them. No weights are read.
    #[new]
    #[pyo3(signature = (tasks, model, keywords: "dict[str, Any]", decoding: "dict[str, Any]", *, seed = 0,
        limit = None, shots = None, shots_file = None, prompt_style = None, score = None, likelihood_draws = None,
        data = None, subject = None, system = None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords, each a flag of `demask-lab eval`")]
    fn new(
        py: Python<'_>,
        tasks: Vec<String>,
        model: Option<PathBuf>,
        keywords: &Bound<'_, PyDict>,
        decoding: &Bound<'_, PyDict>,
        seed: u64,
        limit: Option<usize>,
        shots: Option<usize>,
        shots_file: Option<PathBuf>,
        prompt_style: Option<String>,
        score: Option<String>,
        likelihood_draws: Option<usize>,
        data: Option<PathBuf>,
        subject: Option<String>,
        system: Option<String>,
    ) -> PyResult<Self> {
        let options = options::options(decoding)?;
        let load = load::read(keywords)?;
        let ask =
            AskOptions { prompt_style, shots, shots_file, system, score, likelihood_draws, ..AskOptions::default() };
        let asking = Asking { ask, options };
        let made = py.detach(|| {
            let opened = load::opened(model.as_deref(), &load, &mut |_| true)?;
            let infos = opened.info().infos();
            let guide = infos.get(1).filter(|_| asking.options.wants_guide());
            let model = ModelSpec {
                load: LoadOptions {
                    model: model.map(|model| model.to_string_lossy().into_owned()),
                    guide: guide.map(|guide| Guides::one(guide.name())),
                    ..LoadOptions::default()
                },
                run: RunOptions { no_prefix_cache: (load.prefix_cache == Some(0)).then_some(true) },
            };
            let spec = spec(&tasks, model, asking, data.as_deref(), subject.as_deref())?;
            let device = load.device_options(&DeviceOptions::default());
            let group = (opened, device, load.prefix_cache.map(|mebibytes| mebibytes << 20));
            let mut group = Some(group);
            Self::of(Self::plan(spec, seed, limit)?, &mut |_| group.take().ok_or_else(gone))
        });
        made.map_err(|failure| failure.raise(py))
    }

    /// Lays out a file of runs, a recipe by its name, or the text of such a file, whose name is then in errors alone. `model` is that
    /// of rows that name none, `keywords` say where rows run that do not say it. `maps`, `data`, `tasks` and `rows` change it as the
    /// flags of `demask-lab eval` do. No weights are read.
    #[staticmethod]
    #[pyo3(signature = (path, text, model, keywords: "dict[str, Any]", *, seed, limit, maps, data, tasks, rows))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords, each a flag of `demask-lab eval`")]
    fn of_runs(
        py: Python<'_>,
        path: PathBuf,
        text: Option<String>,
        model: Option<String>,
        keywords: &Bound<'_, PyDict>,
        seed: u64,
        limit: Option<usize>,
        maps: Vec<(String, String)>,
        data: Vec<(String, PathBuf)>,
        tasks: Vec<String>,
        rows: Vec<String>,
    ) -> PyResult<Self> {
        let usual = load::read(keywords)?.device_options(&DeviceOptions::default());
        let made = py.detach(|| {
            let mut spec = match &text {
                Some(text) => Spec::parse(&path, text, model.as_deref()),
                None => Spec::read(&path, model.as_deref()),
            }?;
            spec.change(&Changes { models: maps, data, tasks, rows })?;
            let mut plan = Self::plan(spec, seed, limit)?;
            plan.again = true;
            Self::of(plan, &mut |spec: &ModelSpec| {
                let load = LoadOptions { model: None, ..spec.load.clone() };
                let opened = load::opened(spec.load.model.as_deref().map(Path::new), &load, &mut |_| true)?;
                Ok((opened, spec.load.device_options(&usual), None))
            })
        });
        made.map_err(|failure| failure.raise(py))
    }

    /// Configuration of the results, as in `run.json`.
    #[getter]
    fn configuration(&self) -> String {
        Value::Object(self.described()).to_string()
    }

    /// Number of items.
    fn __len__(&self) -> usize {
        self.all().len()
    }

    /// Opens a results directory, or makes it; returns the numbers of the items that it lacks.
    fn open(&self, py: Python<'_>, directory: PathBuf) -> PyResult<Vec<usize>> {
        let opened = py.detach(|| {
            let store = Store::open(&directory, &self.described(), None)?;
            self.outline().write(&directory).map_err(ReportError::from)?;
            Ok(store)
        });
        let store = opened.map_err(|error: Failure| error.raise(py))?;
        let there = |combination: usize, (at, index): Item| {
            store.has(&self.combinations[combination].label, &self.plan.tasks[at].name, index)
        };
        let missing = self.all().into_iter().enumerate().filter(|(_, (combination, item))| !there(*combination, *item));
        let missing = missing.map(|(number, _)| number).collect();
        *lock(&self.store) = Some(store);
        Ok(missing)
    }

    /// Runs and judges items, `batch` of them at the same time; returns their lines of `results.jsonl` in the order of
    /// `items`.
    #[pyo3(signature = (items, batch = 1))]
    fn answer(&self, py: Python<'_>, items: Vec<usize>, batch: usize) -> PyResult<Vec<String>> {
        if batch == 0 {
            return Err(PyValueError::new_err("batch is 0, expected at least 1"));
        }
        let all = self.all();
        let wanted = items.iter().map(|&number| all.get(number).copied()).collect::<Option<Vec<_>>>();
        let Some(wanted) = wanted else {
            let told = format!("an item of {items:?} is not there, expected numbers below {}", all.len());
            return Err(PyIndexError::new_err(told));
        };
        let answered = py.detach(|| self.lines(&wanted, batch));
        answered.map_err(|error| error.raise(py))
    }

    /// Writes a line that `answer` returned, here or on another machine, to the directory that is open.
    fn keep(&self, py: Python<'_>, line: &str) -> PyResult<()> {
        let kept = self.with_store(|store| Ok(store.add_line(line)?))?;
        kept.map_err(|error| error.raise(py))
    }

    /// Opens a results directory, or makes it, or keeps results in memory, for `run`; `library` is the file of this module. Returns
    /// how many items are missing.
    fn begin(&self, py: Python<'_>, directory: Option<PathBuf>, library: PathBuf, batch: usize) -> PyResult<usize> {
        if batch == 0 {
            return Err(PyValueError::new_err("batch is 0, expected at least 1"));
        }
        let begun = py.detach(|| {
            let Some(directory) = directory else { return Ok(Store::nowhere()) };
            let rows = self.combinations.iter();
            let rows = rows.filter_map(|one| Some((one.label.as_str(), &self.group(one.row)?.device)));
            let made = MadeBy::here(Some(&library), batch, rows).map_err(|error| Failure::Device(error.to_string()))?;
            let commit = option_env!("DEMASK_COMMIT").map(str::to_owned);
            let made = MadeBy { commit, dirty: option_env!("DEMASK_CHANGED") == Some("true"), ..made };
            let store = Store::open(&directory, &self.described(), Some(&made))?;
            self.outline().write(&directory).map_err(ReportError::from)?;
            Ok(store)
        });
        let store = begun.map_err(|error: Failure| error.raise(py))?;
        let rows: Vec<usize> = (0..self.plan.rows.len()).collect();
        let missing = self.runs(&self.combinations, batch, None).missing(&rows, &store);
        *lock(&self.store) = Some(store);
        Ok(missing)
    }

    /// Runs and judges all items that are missing, `batch` of them at the same time; models and rows take turns as in
    /// `demask-lab eval`. The results record `command` as the call. `progress` is called with the number of items that
    /// are made, and hears Ctrl-C.
    fn run(&self, py: Python<'_>, batch: usize, command: String, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let mut broken = None;
        let done = self.with_store(|store| {
            py.detach(|| {
                let mut made = 0;
                let result = self.run_all(store, batch, &command, &mut |happened| {
                    made += usize::from(matches!(happened, Happened::Item(_)));
                    match heard(progress.as_ref(), matches!(happened, Happened::Item(_)).then_some(made)) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(error) => {
                            broken = Some(error);
                            ControlFlow::Break(())
                        }
                    }
                });
                store.end()?;
                result
            })
        })?;
        match broken {
            Some(error) => Err(error),
            None => done.map_err(|error| error.raise(py)),
        }
    }

    /// Writes the reports, and closes the directory; returns the numbers of the table's rows as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let finished = py.detach(|| {
            self.with_store(|store| {
                store.check()?;
                let evaluation = self.outline().evaluation(store.records(), store.made(), store.peaks());
                if let Some(directory) = store.directory() {
                    report::write(directory, &evaluation, &report::Extras::default())?;
                }
                let numbers = Numbers::of(&evaluation)?;
                let rows = serde_json::to_string(&numbers.rows).unwrap_or_default();
                *lock(&self.finished) = Some(Finished { numbers, records: store.records().to_vec() });
                Ok(rows)
            })
        });
        let told = finished?.map_err(|error| error.raise(py))?;
        *lock(&self.store) = None;
        Ok(told)
    }

    /// Returns the lines of `results.jsonl` of an evaluation that is over.
    fn records(&self) -> PyResult<Vec<String>> {
        self.over(|finished| finished.records.iter().filter_map(|record| serde_json::to_string(record).ok()).collect())
    }

    /// Returns the report of an evaluation that is over, in a form: `text`, `markdown`, `html`, `json`, `csv` or `latex`. The last two are
    /// of one task, and may choose columns. The others may compare every row with every other.
    fn report(
        &self,
        py: Python<'_>,
        format: &str,
        task: Option<String>,
        columns: Vec<String>,
        pairs: bool,
    ) -> PyResult<String> {
        let made = self.over(|finished| {
            if !pairs {
                return written(&finished.numbers, format, task.as_deref(), &columns);
            }
            if TABLES.contains(&format) {
                return Err(asking_error("`pairs` go with the forms text, markdown, html and json: omit them").into());
            }
            let evaluation = self.outline().evaluation(&finished.records, None, &Peaks::new());
            let numbers = Numbers { pairs: report::pairs(&evaluation)?, ..finished.numbers.clone() };
            written(&numbers, format, task.as_deref(), &columns)
        })?;
        made.map_err(|error| error.raise(py))
    }

    /// Returns the warnings about numbers that mislead, such as many cut answers.
    fn warnings(&self) -> PyResult<Vec<String>> {
        self.over(|finished| finished.numbers.warnings())
    }
}

/// How models are opened: the model of a specification, the device of its runs, and the bytes that are kept of prefixes.
type Open<'a> = dyn FnMut(&ModelSpec) -> Result<(Opened, DeviceOptions, Option<u64>), Failure> + 'a;

impl Evaluation {
    fn plan(spec: Spec, seed: u64, limit: Option<usize>) -> Result<Plan, Failure> {
        let hub = HubOptions::from_env();
        let mut means = Means { hub: &hub, seed, limit, programs: false, skip: None, watch: &mut |_| true };
        Ok(Plan::of(spec, &mut means)?)
    }

    fn of(plan: Plan, open: &mut Open<'_>) -> Result<Self, Failure> {
        let (mut dry_runs, mut about) = (vec![None; plan.rows.len()], vec![Map::new(); plan.rows.len()]);
        let mut groups = Vec::new();
        for (spec, rows) in plan.groups() {
            let (opened, device, prefix_bytes) = open(&spec)?;
            for &row in &rows {
                dry_runs[row] = Some(plan.dry_run(row, &|prompt, options| opened.prepare(prompt, options))?);
                about[row] = about_model(&opened, &plan.rows[row].model, &device);
            }
            groups.push(Group { rows, device, prefix_bytes, state: Mutex::new(State::Opened(Box::new(opened))) });
        }
        // Each row is in a group.
        let dry_runs: Vec<DryRun> = dry_runs.into_iter().flatten().collect();
        let combinations = Combination::all(&plan, &dry_runs)?;
        let (store, finished) = (Mutex::new(None), Mutex::new(None));
        Ok(Self { plan, dry_runs, combinations, about, groups, store, finished })
    }

    /// Returns the row's group.
    fn group(&self, row: usize) -> Option<&Group> {
        self.groups.iter().find(|group| group.rows.contains(&row))
    }

    /// All items with their combinations, in the order in which one machine would run them.
    fn all(&self) -> Vec<(usize, Item)> {
        let nowhere = Store::nowhere();
        let runs = self.runs(&self.combinations, 1, None);
        let of =
            |(number, combination)| runs.pending(combination, &nowhere).into_iter().map(move |item| (number, item));
        self.combinations.iter().enumerate().flat_map(of).collect()
    }

    fn runs<'a>(&'a self, combinations: &'a [Combination], width: usize, part: Option<&'a BTreeSet<Item>>) -> Runs<'a> {
        Runs { plan: &self.plan, combinations, width, permission: None, part }
    }

    fn described(&self) -> Map<String, Value> {
        configuration(&self.plan, &self.dry_runs, &self.combinations, &self.about)
    }

    fn outline(&self) -> report::Outline {
        outline(&self.plan, &self.dry_runs, &self.combinations, &self.about)
    }

    /// Takes the model of a group, and loads it if it is not there.
    fn take(&self, group: &Group, width: usize) -> Result<Box<Model>, Failure> {
        match std::mem::replace(&mut *lock(&group.state), State::Gone) {
            State::Loaded(model) => Ok(model),
            State::Opened(opened) => {
                let model = opened.load(&group.device, &needs(&self.dry_runs, &group.rows, width), &mut |_| true);
                let model = model.map_err(demask::Error::from)?;
                if let Some(bytes) = group.prefix_bytes {
                    model.set_prefix_cache(bytes)?;
                }
                Ok(Box::new(model))
            }
            State::Gone => Err(gone()),
        }
    }

    fn lines(&self, wanted: &[(usize, Item)], width: usize) -> Result<Vec<String>, Failure> {
        let mut store = Store::nowhere();
        for (number, combination) in self.combinations.iter().enumerate() {
            let part: BTreeSet<Item> = wanted.iter().filter(|(of, _)| *of == number).map(|&(_, item)| item).collect();
            let Some(group) = self.group(combination.row).filter(|_| !part.is_empty()) else { continue };
            let model = self.take(group, width)?;
            let runs = self.runs(std::slice::from_ref(combination), width, Some(&part));
            let made = run(&[(&model, &[combination.row])], runs, &mut store, &mut |_| ControlFlow::Continue(()));
            *lock(&group.state) = State::Loaded(model);
            made?;
        }
        let line = |&(number, (at, index)): &(usize, Item)| {
            let (run, task) = (&self.combinations[number].label, &self.plan.tasks[at].name);
            let of = |record: &&Record| (&record.run, &record.task, record.index) == (run, task, index);
            store.records().iter().find(of).and_then(|record| serde_json::to_string(record).ok()).unwrap_or_default()
        };
        Ok(wanted.iter().map(line).collect())
    }

    /// Runs the items that a store lacks.
    fn run_all(
        &self,
        store: &mut Store,
        width: usize,
        command: &str,
        observer: &mut dyn FnMut(Happened<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let runs = self.runs(&self.combinations, width, None);
        let idle: Vec<bool> = self.groups.iter().map(|group| runs.missing(&group.rows, store) == 0).collect();
        let mut load = |group: usize| {
            if idle[group] { Ok(None) } else { self.take(&self.groups[group], width).map(Some) }
        };
        let is_full = |failure: &Failure| {
            let Failure::Model(demask::Error::Model(error)) = failure else { return false };
            matches!(error, ModelError::TooLarge(_) | ModelError::Memory { .. })
        };
        let mut work = |models: Vec<(usize, Box<Model>)>| {
            if !models.is_empty() {
                store.begin(|| command.to_owned())?;
            }
            let rows: Vec<(&Model, &[usize])> =
                models.iter().map(|(group, model)| (&**model, self.groups[*group].rows.as_slice())).collect();
            run(&rows, runs, store, observer)?;
            Ok(())
        };
        together(self.groups.len(), &mut load, &is_full, &mut work).map(drop)
    }

    fn with_store<T>(&self, what: impl FnOnce(&mut Store) -> Result<T, Failure>) -> PyResult<Result<T, Failure>> {
        match &mut *lock(&self.store) {
            Some(store) => Ok(what(store)),
            None => Err(PyRuntimeError::new_err("no results directory is open: call `open` first")),
        }
    }

    fn over<T>(&self, what: impl FnOnce(&Finished) -> T) -> PyResult<T> {
        let finished = lock(&self.finished);
        finished
            .as_ref()
            .map(what)
            .ok_or_else(|| PyRuntimeError::new_err("the evaluation is not over: call `finish` first"))
    }
}

/// Reports the items that are made to Python, if there is another one, and hears Ctrl-C.
fn heard(progress: Option<&Py<PyAny>>, made: Option<usize>) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match (progress, made) {
            (Some(progress), Some(made)) => progress.call1(py, (made,)).map(drop),
            _ => Ok(()),
        }
    })
}

/// Failure of a model that is not there.
fn gone() -> Failure {
    RunError::Asking("the model did not load at an earlier call: make the evaluation again".to_owned()).into()
}

/// Forms of a report as one text.
const FORMS: [&str; 6] = ["text", "markdown", "html", "json", "csv", "latex"];
/// Formats that write the table of one task.
const TABLES: [&str; 2] = ["csv", "latex"];

/// Returns a report in a form; tables of a task may choose columns.
fn written(numbers: &Numbers, form: &str, task: Option<&str>, columns: &[String]) -> Result<String, Failure> {
    let is_table = TABLES.contains(&form);
    if !is_table && (task.is_some() || !columns.is_empty()) {
        return Err(asking_error("`task` and `columns` go with the forms csv and latex: omit them").into());
    }
    match form {
        "text" => Ok(report::plain(numbers)),
        "markdown" => Ok(report::markdown(numbers, &report::figures(numbers))),
        "html" => Ok(report::page(numbers)?),
        "json" => Ok(numbers.json()),
        _ if is_table => {
            let names: Vec<&str> = numbers.tasks.iter().map(|task| task.name.as_str()).collect();
            let found = match (task, &*numbers.tasks) {
                (None, [one]) => Some(one),
                (None, _) => {
                    return Err(
                        asking_error(&format!("`task` is missing: a table is of one of {}", names.join(", "))).into()
                    );
                }
                (Some(name), all) => all.iter().find(|task| task.name == name),
            };
            let Some(found) = found else {
                let (name, names) = (task.unwrap_or_default(), names.join(", "));
                return Err(asking_error(&format!("there is no task \"{name}\" (there are: {names})")).into());
            };
            let columns = report::columns(columns).map_err(RunError::from)?;
            Ok(report::table(Format::read(form).map_err(RunError::from)?, numbers, found, &columns))
        }
        _ => Err(RunError::from(UnknownName { what: "format", found: form.to_owned(), known: FORMS.to_vec() }).into()),
    }
}

fn asking_error(what: &str) -> RunError {
    RunError::Asking(what.to_owned())
}

/// Request for the evaluation, as `demask-lab eval` makes it of its flags: one row.
pub fn spec(
    tasks: &[String],
    model: ModelSpec,
    asking: Asking,
    data: Option<&Path>,
    subject: Option<&str>,
) -> Result<Spec, RunError> {
    if tasks.is_empty() {
        let known: Vec<_> = demask_eval::tasks::TASKS.iter().map(|task| task.name).collect();
        return Err(asking_error(&format!("no task is given: name some of {}", known.join(", "))));
    }
    if tasks.len() > 1 && (data.is_some() || subject.is_some() || asking.ask.shots_file.is_some()) {
        return Err(asking_error("`data`, `subject` and `shots_file` are of one task: name one"));
    }
    let mut specs: Vec<TaskSpec> = Vec::new();
    for name in tasks {
        let task = task(name)?;
        if specs.iter().any(|other| other.name == task.name) {
            return Err(asking_error(&format!("task {name} is named twice: name it once")));
        }
        let (data, subject) = (data.map(Path::to_owned), subject.map(str::to_owned));
        specs.push(TaskSpec { place: None, name: task.name.to_owned(), task, limit: None, data, subject });
    }
    let row = RowSpec {
        place: None,
        name: None,
        values: Vec::new(),
        model,
        seeds: Vec::new(),
        baseline: 0,
        asks: vec![asking; specs.len()],
    };
    Ok(Spec { tasks: specs, rows: vec![row], ..Spec::default() })
}

/// Failure of an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Model(#[from] demask::Error),
    #[error("{0}")]
    Device(String),
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Run(error.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}

impl Failure {
    /// Returns it as an exception.
    pub fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Model(error) | Self::Run(RunError::Generate(error)) => error::raise(py, error),
            Self::Run(found @ (RunError::Row { error: inner, .. } | RunError::Item { error: inner, .. })) => {
                error::exception(py, error::class(inner), &found.to_string())
            }
            Self::Run(found) if found.is_usage() => error::exception(py, "OptionsError", &found.to_string()),
            Self::Device(found) => error::exception(py, "DeviceError", found),
            other => error::exception(py, "Error", &other.to_string()),
        }
    }
}

/// Locks a mutex, even if a thread panicked while holding it: nothing is half done there.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
