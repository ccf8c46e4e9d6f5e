//! An evaluation in pieces: the same plan is laid out wherever it is made, any of its items run by anyone, and the
//! lines kept by one.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use demask::{DeviceOptions, Guides, LoadOptions, Model, Opened, layers::checkpoint::HubOptions};
use demask_eval::{
    report::{self, ReportError},
    run::{
        AskOptions, Asking, Combination, Item, Means, ModelSpec, Plan, Rehearsed, RowSpec, RunError, RunOptions, Runs,
        Spec, Store, StoreError, TaskSpec, about_model, configuration, needs, outline, run, task,
    },
};
use pyo3::{
    exceptions::{PyIndexError, PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};
use serde_json::{Map, Value};

use crate::{error, load, options};

/// The problems of tasks, the methods of one model, and the results.
///
/// It is made alike on every machine that takes part: `configuration` shows whether it was. A worker calls `answer`,
/// which loads the model at its first call; the keeper of the results calls `open`, `keep` and `finish`.
#[pyclass(frozen, module = "demask")]
pub struct Evaluation {
    plan: Plan,
    rehearsed: Vec<Rehearsed>,
    combinations: Vec<Combination>,
    about: Map<String, Value>,
    device: DeviceOptions,
    /// Bytes that are kept of prefixes, if that is said.
    prefix_bytes: Option<u64>,
    state: Mutex<State>,
    store: Mutex<Option<Store>>,
}

/// State of the model.
enum State {
    Opened(Box<Opened>),
    Loaded(Box<Model>),
    /// Loading it failed.
    Gone,
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
        let ask = AskOptions { prompt_style, shots, shots_file, system, score, likelihood_draws };
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
            Self::of(spec, opened, &load, seed, limit)
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
            let store = Store::open(&directory, &self.described())?;
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
        let answered = py.detach(|| {
            let mut state = lock(&self.state);
            let model = self.loaded(&mut state, batch)?;
            self.lines(model, &wanted, batch)
        });
        answered.map_err(|error| error.raise(py))
    }

    /// Writes a line that `answer` returned, here or on another machine, to the directory that is open.
    fn keep(&self, py: Python<'_>, line: &str) -> PyResult<()> {
        let kept = self.kept(|store| Ok(store.add_line(line)?))?;
        kept.map_err(|error| error.raise(py))
    }

    /// Writes the reports, and closes the directory; returns the numbers of the table's rows as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let finished = py.detach(|| {
            self.kept(|store| {
                store.check()?;
                let evaluation = self.outline().evaluation(store.records());
                if let Some(directory) = store.directory() {
                    report::write(directory, &evaluation)?;
                }
                Ok(serde_json::to_string(&report::Numbers::of(&evaluation)?.rows).unwrap_or_default())
            })
        });
        let told = finished?.map_err(|error| error.raise(py))?;
        *lock(&self.store) = None;
        Ok(told)
    }
}

impl Evaluation {
    fn of(spec: Spec, opened: Opened, load: &LoadOptions, seed: u64, limit: Option<usize>) -> Result<Self, Failure> {
        let device = load.device_options(&DeviceOptions::default());
        let prefix_bytes = load.prefix_cache.map(|mebibytes| mebibytes << 20);
        let hub = HubOptions::from_env();
        let mut means = Means { hub: &hub, seed, limit, programs: false, watch: &mut |_| true };
        let plan = Plan::of(spec, &mut means)?;
        let rehearsed = vec![plan.rehearse(0, &|prompt, options| opened.prepare(prompt, options))?];
        let combinations = Combination::all(&plan, &rehearsed)?;
        let about = about_model(&opened, &plan.rows[0].model, &device);
        let (state, store) = (Mutex::new(State::Opened(Box::new(opened))), Mutex::new(None));
        Ok(Self { plan, rehearsed, combinations, about, device, prefix_bytes, state, store })
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
        configuration(&self.plan, &self.combinations, std::slice::from_ref(&self.about))
    }

    fn outline(&self) -> report::Outline {
        outline(&self.plan, &self.rehearsed, &self.combinations, std::slice::from_ref(&self.about))
    }

    /// Loads the model, if it is not there.
    fn loaded<'a>(&self, state: &'a mut State, width: usize) -> Result<&'a mut Model, Failure> {
        if let State::Opened(_) = state
            && let State::Opened(opened) = std::mem::replace(state, State::Gone)
        {
            let model = opened.load(&self.device, &needs(&self.rehearsed, &[0], width), &mut |_| true);
            let model = model.map_err(demask::Error::from)?;
            if let Some(bytes) = self.prefix_bytes {
                model.set_prefix_cache(bytes)?;
            }
            *state = State::Loaded(Box::new(model));
        }
        match state {
            State::Loaded(model) => Ok(model),
            State::Opened(_) | State::Gone => {
                Err(RunError::Asking("the model did not load at an earlier call: make the evaluation anew".to_owned())
                    .into())
            }
        }
    }

    fn lines(&self, model: &mut Model, wanted: &[(usize, Item)], width: usize) -> Result<Vec<String>, Failure> {
        let mut store = Store::nowhere();
        for (number, combination) in self.combinations.iter().enumerate() {
            let part: BTreeSet<Item> = wanted.iter().filter(|(of, _)| *of == number).map(|&(_, item)| item).collect();
            let runs = self.runs(std::slice::from_ref(combination), width, Some(&part));
            run(model, &[combination.row], runs, &mut store, &mut |_| ControlFlow::Continue(()))?;
        }
        let line = |&(number, (at, index)): &(usize, Item)| {
            let (run, task) = (&self.combinations[number].label, &self.plan.tasks[at].name);
            let of = |record: &&demask_eval::Record| (&record.run, &record.task, record.index) == (run, task, index);
            store.records().iter().find(of).and_then(|record| serde_json::to_string(record).ok()).unwrap_or_default()
        };
        Ok(wanted.iter().map(line).collect())
    }

    fn kept<T>(&self, what: impl FnOnce(&mut Store) -> Result<T, Failure>) -> PyResult<Result<T, Failure>> {
        match &mut *lock(&self.store) {
            Some(store) => Ok(what(store)),
            None => Err(PyRuntimeError::new_err("no results directory is open: call `open` first")),
        }
    }
}

/// Request for the evaluation, as `demask-lab eval` makes it of its flags: one row.
fn spec(
    tasks: &[String],
    model: ModelSpec,
    asking: Asking,
    data: Option<&Path>,
    subject: Option<&str>,
) -> Result<Spec, RunError> {
    let told = |what: &str| RunError::Asking(what.to_owned());
    if tasks.is_empty() {
        let known: Vec<_> = demask_eval::tasks::TASKS.iter().map(|task| task.name).collect();
        return Err(told(&format!("no task is given: name some of {}", known.join(", "))));
    }
    if tasks.len() > 1 && (data.is_some() || subject.is_some() || asking.ask.shots_file.is_some()) {
        return Err(told("`data`, `subject` and `shots_file` are of one task: name one"));
    }
    let mut specs: Vec<TaskSpec> = Vec::new();
    for name in tasks {
        let task = task(name)?;
        if specs.iter().any(|other| other.name == task.name) {
            return Err(told(&format!("task {name} is named twice: name it once")));
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
enum Failure {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Model(#[from] demask::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}

impl Failure {
    /// Returns it as an exception.
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Model(error) | Self::Run(RunError::Generate(error)) => error::raise(py, error),
            Self::Run(found @ (RunError::Row { error: inner, .. } | RunError::Item { error: inner, .. })) => {
                error::exception(py, error::class(inner), &found.to_string())
            }
            Self::Run(found) if found.is_usage() => error::exception(py, "OptionsError", &found.to_string()),
            other => error::exception(py, "Error", &other.to_string()),
        }
    }
}

/// Locks a mutex, whoever panicked while holding it: nothing is half done there.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
