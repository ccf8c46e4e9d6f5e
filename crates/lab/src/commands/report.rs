//! `demask-lab report`: results directories of different models, machines and days as one report.

use anyhow::anyhow;
use demask_eval::report::{self, Numbers, join};

use crate::{args::ReportArgs, exit::usage, output, settings::Settings};

/// Runs the command.
pub fn run(settings: &Settings, args: &ReportArgs) -> anyhow::Result<()> {
    if args.directories.is_empty() {
        return Err(usage("no directory given: name some that eval wrote with --out"));
    }
    if args.directories.contains(&args.out) {
        return Err(usage(format!("{} holds results: name another --out for the report", args.out.display())));
    }
    let evaluation = join(&args.directories, args.baseline.as_deref())?;
    if evaluation.runs.iter().all(|run| run.records.is_empty()) {
        return Err(anyhow!(
            "no item is answered in any of these directories: run eval again, it goes on where it ended"
        ));
    }
    report::write(&args.out, &evaluation)?;
    let numbers = Numbers::of(&evaluation)?;
    if settings.screen.json {
        return output::json(&numbers);
    }
    output::text(&report::plain(&numbers))?;
    settings.screen.remark(&format!("{} has the tables and pictures", args.out.join("report.html").display()));
    Ok(())
}
