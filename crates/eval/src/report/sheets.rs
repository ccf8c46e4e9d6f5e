//! The tables of a report, each where there is data for it: what `report.md`, `report.html` and the terminal show.

use demask_figures::short;

use super::{
    BINS, Bin, METRICS, Numbers, Pair, Summary, TaskInfo,
    columns::{Column, MAIN, MORE, RATIOS, WORDS, differ, optional, points, times},
    compare::ratio,
    pairs,
};

/// One table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// Title above it; the main table of a task has none.
    pub title: &'static str,
    /// Explanation of how to read it.
    pub note: String,
    /// The header, and the rows.
    pub cells: Vec<Vec<String>>,
}

impl Sheet {
    /// Returns the names of the columns that stand to the left.
    pub fn left(&self) -> Vec<&str> {
        let header = self.cells.first().into_iter().flatten().map(String::as_str);
        header.filter(|name| WORDS.contains(name)).collect()
    }
}

/// Budgets of seconds that a table has at most.
const BUDGETS: usize = 8;

/// The tables of a task, the main one first.
pub fn of_task(numbers: &Numbers, task: &TaskInfo, rows: &[&Summary]) -> Vec<Sheet> {
    let main = Sheet { title: "", note: task_line(task, rows) + ".", cells: numbered(rows, rows, MAIN) };
    let pairs: Vec<&Pair> = numbers.pairs.iter().filter(|pair| pair.task == task.name).collect();
    let published = published(rows, &numbers.heading.source);
    let sheets =
        [Some(main), calibration(rows), ratios(rows), pairs::sheet(&pairs), more(rows), published, equal_seconds(rows)];
    sheets.into_iter().flatten().collect()
}

/// The tables over all tasks; none if there is one.
pub fn over_tasks(numbers: &Numbers) -> Vec<Sheet> {
    if numbers.tasks.len() < 2 {
        return Vec::new();
    }
    std::iter::once(side_by_side(numbers)).chain(means(numbers)).collect()
}

/// The main table of all rows.
pub fn main(rows: &[&Summary]) -> Vec<Vec<String>> {
    numbered(rows, rows, MAIN)
}

/// Meaning of the columns of all tables: name and words.
pub fn legend(rows: &[&Summary]) -> Vec<(&'static str, &'static str)> {
    let compared = rows.iter().any(|row| row.compared());
    let ratios: &[Column] = if compared { RATIOS } else { &[] };
    let more: &[Column] = if tells_more(rows) { MORE } else { &[] };
    let shown =
        MAIN.iter().chain(ratios).chain(more).filter(|column| (column.visible)(rows) && !column.about.is_empty());
    shown.map(|column| (column.name, column.about)).collect()
}

/// Description of a task's prompting, in a sentence.
fn task_line(task: &TaskInfo, rows: &[&Summary]) -> String {
    let most = rows.iter().map(|row| row.items).max().unwrap_or(0);
    let shots = if task.shots == 1 { "1 exemplar".to_owned() } else { format!("{} exemplars", task.shots) };
    let others = if differ(rows, |row| row.prompts.as_str()) { " (the first run's)" } else { "" };
    let note = if task.note.is_empty() { String::new() } else { format!(". {}", task.note) };
    format!(
        "{most} of {} items, {shots}, prompts in the style `{}`{others}{note}",
        task.available.max(most),
        task.style
    )
}

/// Header and rows, the number that a run has among `all` in front.
fn numbered(rows: &[&Summary], all: &[&Summary], columns: &[Column]) -> Vec<Vec<String>> {
    let shown: Vec<&Column> = columns.iter().filter(|column| (column.visible)(all)).collect();
    let header = std::iter::once("#".to_owned()).chain(shown.iter().map(|column| column.name.to_owned())).collect();
    let cells = rows
        .iter()
        .map(|row| std::iter::once(number(all, row)).chain(shown.iter().map(|column| (column.cell)(row))).collect());
    std::iter::once(header).chain(cells).collect()
}

/// The number of a run in the main table.
fn number(all: &[&Summary], row: &Summary) -> String {
    let place = all.iter().position(|other| (&other.run, &other.task) == (&row.run, &row.task));
    place.map(|place| (place + 1).to_string()).unwrap_or_default()
}

fn ratios(rows: &[&Summary]) -> Option<Sheet> {
    let compared: Vec<&Summary> = rows.iter().copied().filter(|row| row.compared()).collect();
    (!compared.is_empty()).then(|| Sheet {
        title: "Against the baseline",
        note: "On the items that both answered.".to_owned(),
        cells: numbered(&compared, rows, RATIOS),
    })
}

/// The bins of decisions: the winners' probabilities, and how often they were right.
fn calibration(rows: &[&Summary]) -> Option<Sheet> {
    let header = ["#", "run", "winner's probability", "items", "mean %", "right %"].map(str::to_owned).to_vec();
    let mut cells = vec![header];
    for row in rows {
        for Bin { place, items, confidence, accuracy } in row.calibration.iter().flat_map(|found| &found.bins) {
            let of = |place: usize| format!("{:.1}", place as f64 / BINS as f64);
            cells.push(vec![
                number(rows, row),
                row.run.clone(),
                format!("{} to {}", of(*place), of(place + 1)),
                items.to_string(),
                format!("{:.1}", 100.0 * confidence),
                format!("{:.1}", 100.0 * accuracy),
            ]);
        }
    }
    let note = "Decisions by the probability of their winner: of calibrated ones, both shares are alike.".to_owned();
    (cells.len() > 1).then_some(Sheet { title: "Calibration", note, cells })
}

fn tells_more(rows: &[&Summary]) -> bool {
    rows.iter().any(|row| row.plain_tokens.is_some() || !row.guide.is_empty() || row.accepted_drafts.is_some())
}

fn more(rows: &[&Summary]) -> Option<Sheet> {
    tells_more(rows).then(|| Sheet {
        title: "Tokens, guides and drafts",
        note: String::new(),
        cells: numbered(rows, rows, MORE),
    })
}

/// Published figures, each with ours after it.
fn published(rows: &[&Summary], source: &str) -> Option<Sheet> {
    let with: Vec<&Summary> = rows.iter().copied().filter(|row| !row.published.is_empty()).collect();
    let told: Vec<_> =
        METRICS.iter().filter(|metric| with.iter().any(|row| row.published.contains_key(metric.name))).collect();
    let mut header = vec!["#".to_owned(), "run".to_owned()];
    header.extend(told.iter().flat_map(|metric| [format!("{}, published", metric.label), "here".to_owned()]));
    let cells = with.iter().map(|row| {
        let figures = told.iter().flat_map(|metric| {
            let theirs = row.published.get(metric.name).copied();
            // Ours beside nothing of theirs would be a column of its own.
            [optional(theirs), theirs.map_or_else(String::new, |_| optional((metric.ours)(row)))]
        });
        [number(rows, row), row.run.clone()].into_iter().chain(figures).collect()
    });
    let cells: Vec<Vec<String>> = std::iter::once(header).chain(cells).collect();
    let source = if source.is_empty() { String::new() } else { format!("Published in {source}.") };
    (!with.is_empty()).then_some(Sheet { title: "Published, and here", note: source, cells })
}

/// Family of a run: its model where models differ, else its decoder, else its cache.
pub fn family(rows: &[&Summary], row: &Summary) -> String {
    let method = |spec: &str| spec.split(':').next().unwrap_or_default().to_owned();
    let guided = |row: &Summary| match row.guide.as_str() {
        "" => row.model.clone(),
        guide => format!("{} + {guide}", row.model),
    };
    if differ(rows, |row| row.model.as_str()) {
        return guided(row);
    }
    let decoders = rows.iter().any(|other| method(&other.decoder) != method(&row.decoder));
    if decoders { method(&row.decoder) } else { method(&row.cache) }
}

/// The best of each family within the seconds of each run.
fn equal_seconds(rows: &[&Summary]) -> Option<Sheet> {
    let mut families: Vec<String> = Vec::new();
    for row in rows {
        let family = family(rows, row);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    if families.len() < 2 || rows.len() < 3 {
        return None;
    }
    let mut budgets: Vec<f64> = rows.iter().map(|row| row.seconds_per_item).collect();
    budgets.sort_by(f64::total_cmp);
    budgets.dedup();
    let every = budgets.len().div_ceil(BUDGETS);
    let last = budgets.len() - 1;
    let budgets = budgets.into_iter().enumerate().filter(|(place, _)| (last - place).is_multiple_of(every));
    let best = |family: &str, seconds: f64| {
        let within = rows.iter().filter(|row| row.seconds_per_item <= seconds && self::family(rows, row) == family);
        within.reduce(|best, row| if row.accuracy > best.accuracy { row } else { best })
    };
    let header = std::iter::once("s/item at most".to_owned()).chain(families.iter().cloned()).collect();
    let cells = budgets.map(|(_, seconds)| {
        let bests = families.iter().map(|family| match best(family, seconds) {
            Some(row) => format!("{:.1} (#{})", 100.0 * row.accuracy, number(rows, row)),
            None => "–".to_owned(),
        });
        std::iter::once(short(seconds)).chain(bests).collect()
    });
    Some(Sheet {
        title: "Accuracy at equal seconds",
        note: "The best that each can do within the seconds of some run, and which run that is.".to_owned(),
        cells: std::iter::once(header).chain(cells).collect(),
    })
}

/// The runs of all tasks, in the order in which they first come.
fn runs(numbers: &Numbers) -> Vec<&str> {
    let mut runs: Vec<&str> = Vec::new();
    for row in &numbers.rows {
        if !runs.contains(&row.run.as_str()) {
            runs.push(&row.run);
        }
    }
    runs
}

fn row_of<'a>(numbers: &'a Numbers, run: &str, task: &str) -> Option<&'a Summary> {
    numbers.rows.iter().find(|row| row.run == run && row.task == task)
}

/// Tasks across, runs down.
fn side_by_side(numbers: &Numbers) -> Sheet {
    let header = std::iter::once("run".to_owned()).chain(numbers.tasks.iter().map(|task| task.name.clone())).collect();
    let theirs = numbers.rows.iter().any(|row| row.published.contains_key("accuracy"));
    let cells = runs(numbers).into_iter().map(|run| {
        let cells = numbers.tasks.iter().map(|task| {
            row_of(numbers, run, &task.name).map_or_else(
                || "–".to_owned(),
                |row| {
                    let theirs = row.published.get("accuracy").map(|theirs| format!(" [{theirs}]")).unwrap_or_default();
                    let speed = if row.compared() { format!(", {:.2}x", row.speed_up) } else { String::new() };
                    format!("{:.1}{theirs}{speed}", 100.0 * row.accuracy)
                },
            )
        });
        std::iter::once(run.to_owned()).chain(cells).collect()
    });
    let brackets = if theirs { "; published ones in brackets" } else { "" };
    Sheet {
        title: "Tasks side by side",
        note: format!("Accuracy in percent{brackets}, and speed-up over the baseline."),
        cells: std::iter::once(header).chain(cells).collect(),
    }
}

/// A ratio over tasks in both ways that people mean.
fn mean_ratios(pairs: &[(Option<f64>, Option<f64>)]) -> [Option<f64>; 2] {
    let pairs: Option<Vec<(f64, f64)>> = pairs.iter().map(|(above, below)| above.zip(*below)).collect();
    let Some(pairs) = pairs else { return [None, None] };
    let count = pairs.len() as f64;
    let ratios: Option<Vec<f64>> = pairs.iter().map(|&(above, below)| ratio(above, below)).collect();
    let sums = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    [ratios.map(|ratios| ratios.iter().sum::<f64>() / count), ratio(sums.0, sums.1)]
}

/// Means over the tasks of runs that answered all of them.
fn means(numbers: &Numbers) -> Option<Sheet> {
    const RATIOS: [&str; 4] = ["speed-up", "tokens/s", "tokens/NFE", "operations saved"];
    let mut header: Vec<String> = ["run", "accuracy %", "difference"].map(str::to_owned).to_vec();
    header
        .extend(RATIOS.iter().flat_map(|name| [format!("{name}: mean of ratios"), format!("{name}: ratio of means")]));
    let mut cells = vec![header];
    for run in runs(numbers) {
        let rows: Option<Vec<&Summary>> = numbers.tasks.iter().map(|task| row_of(numbers, run, &task.name)).collect();
        let Some(rows) = rows else { continue };
        let count = rows.len() as f64;
        let mean = |of: &dyn Fn(&Summary) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / count;
        let differences: Option<Vec<f64>> =
            rows.iter().map(|row| row.difference.map(|difference| difference.mean)).collect();
        let difference = differences.map(|all| points(all.iter().sum::<f64>() / count));
        let mut line = vec![run.to_owned(), format!("{:.1}", 100.0 * mean(&|row| row.accuracy))];
        line.push(difference.unwrap_or_else(|| "–".to_owned()));
        let pairs = |of: fn(&Summary) -> Option<f64>, upside_down: bool| -> Vec<(Option<f64>, Option<f64>)> {
            let of_row = |row: &&Summary| {
                let base = row.compared().then(|| row_of(numbers, &row.baseline, &row.task)).flatten();
                let (own, base) = (of(row), base.and_then(of));
                if upside_down { (base, own) } else { (own, base) }
            };
            rows.iter().map(of_row).collect()
        };
        let all = [
            pairs(|row| Some(row.seconds_per_item), true),
            pairs(|row| row.tokens_per_second, false),
            pairs(|row| row.tokens_per_nfe, false),
            pairs(|row| row.gflop_per_token, true),
        ];
        line.extend(all.iter().flat_map(|pairs| mean_ratios(pairs)).map(times));
        cells.push(line);
    }
    (cells.len() > 1).then(|| Sheet {
        title: "Means over tasks",
        note:
            "Of runs that answered all tasks. The mean of ratios gives each task the same weight, the ratio of means \
               weighs tasks by how long they take or how much they cost."
                .to_owned(),
        cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_ratios_is_not_a_ratio_of_means() {
        let pairs = [(Some(10.0), Some(1.0)), (Some(10.0), Some(10.0))];
        let [mean, ratio] = mean_ratios(&pairs);
        assert_eq!(mean, Some(5.5));
        assert!((ratio.unwrap() - 20.0 / 11.0).abs() < 1e-12);
        assert_eq!(mean_ratios(&[(None, Some(1.0))]), [None, None]);
    }
}
