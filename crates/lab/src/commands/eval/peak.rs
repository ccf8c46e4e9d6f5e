//! Memory of a row alone. A process never gives back all that it took, so that a row's peak in one that has answered others is
//! theirs too: each row of the table has a process of its own, which runs this program once more for its longest items.

use std::{
    ffi::OsString,
    io::Read,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use demask::receipt::peak_memory;
use demask_eval::run::{Combination, DevItems, Spec};
use serde::{Deserialize, Serialize};

use super::{Answers, Ready, laid_out};
use crate::{
    args::EvalArgs,
    exit::{Interrupted, usage},
    interrupt::{self, Watched},
    output::{self, Screen},
    progress::Bar,
    settings::Settings,
};

/// Items that a process answers, at least: those at the same time are as many as in the table.
const ITEMS: usize = 4;
/// Time between two looks at whether a process is done, or is to end.
const PATIENCE: Duration = Duration::from_millis(20);

/// Outcome of a process: its measurement, with the run and the task.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Measured {
    run: String,
    task: String,
    /// Bytes.
    peak_memory: u64,
}

/// Measures the rows of a plan that are not measured yet, each by a process of its own. A row whose process fails stays without
/// a number, and a warning says why.
pub fn measure(ready: &Ready, answers: &mut Answers, screen: Screen) -> anyhow::Result<()> {
    if peak_memory() == 0 {
        return Err(usage("--peak-memory reads VmHWM of /proc/self/status, which this system lacks: omit it"));
    }
    let _watched = Watched::begin();
    let mut bar = Bar::positions(screen, "");
    let tasks = || ready.plan.tasks.iter().map(|task| task.name.clone()).enumerate();
    let all = ready.rows().enumerate().flat_map(|(row, one)| tasks().map(move |task| (row, one, task)));
    let known = |one: &Combination, task: &str| {
        answers.store.peaks().get(&one.label).is_some_and(|tasks| tasks.contains_key(task))
    };
    let all: Vec<_> = all.filter(|(_, one, (_, task))| !known(one, task)).collect();
    bar.set(0, all.len() as u64);
    for (row, one, (place, task)) in all {
        bar.report(&format!("memory of {}", one.label));
        match of_process(row, place) {
            Ok(found) if (&found.run, &found.task) == (&one.label, &task) => {
                answers.store.measured(&one.label, &task, found.peak_memory)?;
            }
            Ok(found) => {
                let told = format!("the file of runs has \"{}\" on {} in its place now", found.run, found.task);
                warn(screen, &one.label, &task, &told);
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => warn(screen, &one.label, &task, &format!("{error:#}")),
        }
        bar.advance();
    }
    bar.clear();
    Ok(())
}

fn warn(screen: Screen, run: &str, task: &str, told: &str) {
    screen.remark(&format!("warning: peak memory of \"{run}\" on {task} is not measured: {told}"));
}

/// Runs this program once more for a row and a task, by their places.
fn of_process(row: usize, task: usize) -> anyhow::Result<Measured> {
    let program = std::env::current_exe().context("cannot find the running binary")?;
    let arguments = arguments(std::env::args_os().skip(1), row, task);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a process")?;
    // What it writes is a line or two: a pipe holds them.
    let status = loop {
        if interrupt::requested() {
            child.kill()?;
            child.wait()?;
            return Err(Interrupted.into());
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(PATIENCE);
    };
    let (mut found, mut errors) = (String::new(), String::new());
    child.stdout.take().map(|mut out| out.read_to_string(&mut found)).transpose()?;
    child.stderr.take().map(|mut out| out.read_to_string(&mut errors)).transpose()?;
    if !status.success() {
        let told = errors.lines().last().unwrap_or_default();
        let told = told.strip_prefix("error: ").unwrap_or(told);
        return Err(if told.is_empty() { anyhow!("its process ended with {status}") } else { anyhow!("{told}") });
    }
    serde_json::from_str(&found).context("its process did not say what it measured")
}

/// Returns the arguments of such a process: those of this one, and the row and task that it measures.
fn arguments(own: impl Iterator<Item = OsString>, row: usize, task: usize) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = own.collect();
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    arguments.insert(end, format!("--peak-of={row},{task}").into());
    arguments
}

/// In a process of its own: answers a row's longest items of a task, and prints the largest memory that this took. Programs that
/// the model writes are not run.
pub fn alone(
    settings: &Settings,
    mut spec: Spec,
    args: &EvalArgs,
    width: usize,
    place: &[usize],
) -> anyhow::Result<()> {
    let there = matches!(*place, [row, task] if spec.keep_one(row, task));
    if !there {
        return Err(usage(format!("--peak-of is {place:?}, expected the places of a row and a task")));
    }
    let skip = args.skip_dev.as_deref().map(DevItems::read).transpose()?;
    let skip = skip.filter(|skip| spec.tasks.iter().any(|task| task.task.name == skip.task));
    let mut plan = laid_out(settings, spec, args, args.limit, skip.as_ref())?;
    plan.keep_longest(width.max(ITEMS))?;
    let mut ready = Ready::open(settings, plan, None, true)?;
    let mut answers = ready.answers(None, width)?;
    let peak_memory = ready.peak_memory(settings, &mut answers)?;
    let run = ready.rows().next().map(|one| one.label.clone()).unwrap_or_default();
    let task = ready.plan.tasks[0].name.clone();
    output::json(&Measured { run, task, peak_memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_before_what_is_no_flag() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let of = |own: &[&str]| arguments(words(own).into_iter(), 2, 1);
        assert_eq!(of(&["eval", "wordmath"]), words(&["eval", "wordmath", "--peak-of=2,1"]));
        assert_eq!(of(&["eval", "--", "wordmath"]), words(&["eval", "--peak-of=2,1", "--", "wordmath"]));
    }
}
