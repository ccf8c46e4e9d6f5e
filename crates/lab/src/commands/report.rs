//! `demask-lab report`: results directories of different models, machines and days as one report.

use anyhow::anyhow;
use demask_eval::report::{self, Extras, Format, Numbers, columns, join};

use crate::{args::ReportArgs, exit::usage, output, settings::Settings};

/// Runs the command.
pub fn run(settings: &Settings, args: &ReportArgs) -> anyhow::Result<()> {
    if args.directories.is_empty() {
        return Err(usage("no directory given: name some that eval wrote with --out"));
    }
    if let Some(out) = args.out.as_ref().filter(|out| args.directories.contains(out)) {
        return Err(usage(format!("{} holds results: name another --out for the report", out.display())));
    }
    let extras = extras(args)?;
    if args.out.is_none() && (extras.formats.len() > 1 || settings.screen.json && !extras.formats.is_empty()) {
        return Err(usage("several forms of the tables, and no directory for them: give one --format, or --out DIR"));
    }
    let evaluation = join(&args.directories, args.baseline.as_deref())?;
    if evaluation.runs.iter().all(|run| run.records.is_empty()) {
        return Err(anyhow!(
            "no item is answered in any of these directories: run eval again, it goes on where it ended"
        ));
    }
    if let Some(out) = &args.out {
        report::write(out, &evaluation, &extras)?;
    }
    let numbers = Numbers::with(&evaluation, &extras)?;
    if settings.screen.json {
        return output::json(&numbers);
    }
    if let (None, Some(&format)) = (&args.out, extras.formats.first()) {
        let tables: Vec<String> =
            numbers.tasks.iter().map(|task| report::table(format, &numbers, task, &extras.columns)).collect();
        return Ok(output::text(&tables.join("\n"))?);
    }
    output::text(&report::plain(&numbers))?;
    if let Some(out) = &args.out {
        settings.screen.remark(&format!("{} has the tables and pictures", out.join("report.html").display()));
    }
    Ok(())
}

/// Reads the extras that are wanted besides tables and pictures.
fn extras(args: &ReportArgs) -> anyhow::Result<Extras> {
    if args.format.iter().any(|name| name.eq_ignore_ascii_case("pdf")) {
        return Err(usage(
            "--format pdf: pictures are SVG with their texts as text, and a PDF needs fonts that demask has not: convert \
             plots/NAME.svg, for example by rsvg-convert -f pdf, or include it with LaTeX's package svg",
        ));
    }
    if args.format.is_empty() && !args.columns.is_empty() {
        return Err(usage("--columns goes with --format csv or latex: the report itself has all columns"));
    }
    let mut formats = args.format.iter().map(|name| Format::read(name)).collect::<Result<Vec<_>, _>>()?;
    formats.dedup();
    Ok(Extras { formats, columns: columns(&args.columns)?, pairs: args.pairs })
}
