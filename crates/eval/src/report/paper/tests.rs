//! Checks LaTeX tables with a small parser: LaTeX sets every table that the parser accepts.

use super::*;
use crate::report::{Difference, Faster};

fn row(run: &str, accuracy: f64, nfe: f64) -> Summary {
    let standard_error = (accuracy * (1.0 - accuracy) / 100.0).sqrt();
    let difference =
        Difference { mean: -0.031, low: -0.07, high: 0.008, items: 100, p: Some(0.1), ..Difference::default() };
    Summary {
        task: "gsm8k, 50 %".to_owned(),
        run: run.to_owned(),
        baseline: "static_1".to_owned(),
        items: 100,
        accuracy,
        standard_error,
        nfe,
        seconds_per_item: nfe / 10.0,
        speed_up: 2.0,
        faster: Some(Faster { ratio: 2.0, low: 1.5, high: 2.5 }),
        difference: (run != "static_1").then_some(difference),
        ..Summary::default()
    }
}

fn numbers() -> (Numbers, TaskInfo) {
    let task = TaskInfo { name: "gsm8k, 50 %".to_owned(), ..TaskInfo::default() };
    let rows =
        vec![row("static_1", 0.80, 64.0), row("threshold:tau=0.9 & {x}", 0.77, 20.0), row("C# \\ 5^2 ~ $", 0.40, 64.0)];
    let heading = crate::run::Heading { title: "A & B".to_owned(), ..crate::run::Heading::default() };
    (Numbers { heading, rows, tasks: vec![task.clone()], ..Numbers::default() }, task)
}

/// Reads the cells of a table, and refuses what LaTeX would: environments and braces that are not closed, rows of another number
/// of cells than the table has columns, letters that mean something.
fn parsed(text: &str) -> Vec<Vec<String>> {
    let (mut open, mut rows, mut columns) = (Vec::new(), Vec::new(), 0);
    for line in text.lines().filter(|line| !line.starts_with('%')).map(str::trim) {
        balanced(line);
        if let Some(name) = line.strip_prefix("\\begin{") {
            let (name, rest) = name.split_once('}').unwrap();
            open.push(name.to_owned());
            columns = rest.chars().filter(char::is_ascii_alphabetic).count();
        } else if let Some(name) = line.strip_prefix("\\end{") {
            assert_eq!(open.pop().as_deref(), name.strip_suffix('}'), "{line}");
        } else if let Some(row) = line.strip_suffix("\\\\") {
            assert_eq!(open.last().map(String::as_str), Some("tabular"));
            let cells: Vec<String> =
                row.replace("\\&", "\u{1}").split('&').map(|cell| cell.trim().to_owned()).collect();
            assert_eq!(cells.len(), columns, "{line}");
            rows.push(cells.iter().map(|cell| cell.replace('\u{1}', "\\&")).collect());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    rows
}

/// Braces are closed, formulas too, and no letter but those of commands means something.
fn balanced(line: &str) {
    let (mut depth, mut formulas, mut letters) = (0, 0, line.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '{' => depth += 1,
            '}' => depth -= 1,
            '$' => formulas += 1,
            '#' | '_' | '~' | '^' | '%' => panic!("{letter} in {line}"),
            _ => {}
        }
        assert!(depth >= 0, "{line}");
    }
    assert!(depth == 0 && formulas % 2 == 0, "{line}");
}

#[test]
fn a_latex_table_can_be_set_and_its_best_are_bold() {
    let (numbers, task) = numbers();
    let text = table(Format::Latex, &numbers, &task, &[]);
    assert!(text.contains("\\caption{A \\& B: gsm8k, 50 \\%. ") && text.contains("\\label{tab:gsm8k--50--}"), "{text}");
    for rule in ["\\toprule", "\\midrule", "\\bottomrule"] {
        assert_eq!(text.matches(rule).count(), 1);
    }
    let rows = parsed(&text);
    assert_eq!(rows[0], ["run", "accuracy (\\%)", "difference (points)", "s/item", "NFE", "speed-up"]);
    // 77 lies within Wilson's interval of 80 in 100, 40 does not.
    assert_eq!(rows[1][1], "\\textbf{80.0} {\\scriptsize [71.1, 86.7]}");
    assert!(rows[2][1].starts_with("\\textbf{77.0}") && rows[3][1].starts_with("40.0 "), "{rows:?}");
    assert_eq!((rows[1][2].as_str(), rows[1][5].as_str()), ("--", "--"));
    // The baseline's is 0, which lies within the interval.
    assert_eq!(rows[2][2], "\\textbf{$-$3.1} {\\scriptsize [$-$7.0, +0.8]}");
    assert_eq!([&rows[1][4], &rows[2][4], &rows[3][4]], ["64", "\\textbf{20}", "64"]);
    assert_eq!(rows[2][0], "threshold:tau=0.9 \\& \\{x\\}");
    assert_eq!(rows[3][0], "C\\# \\textbackslash{} 5\\textasciicircum{}2 \\textasciitilde{} \\$");
}

#[test]
fn the_best_speed_up_is_bold_where_it_is_the_only_one() {
    let (mut numbers, task) = numbers();
    let speed_ups = |numbers: &Numbers| {
        let rows = parsed(&table(Format::Latex, numbers, &task, &columns(&["speed-up".to_owned()]).unwrap()));
        rows.concat()
    };
    numbers.rows.truncate(2);
    assert_eq!(speed_ups(&numbers), ["speed-up", "--", "\\textbf{2.00} {\\scriptsize [1.50, 2.50]}"]);
    // Slower than the baseline, which is the best then.
    numbers.rows[1].speed_up = 0.5;
    numbers.rows[1].faster = Some(Faster { ratio: 0.5, low: 0.4, high: 0.6 });
    assert_eq!(speed_ups(&numbers)[2], "0.50 {\\scriptsize [0.40, 0.60]}");
}

#[test]
fn a_csv_table_has_nothing_rounded_and_the_columns_that_were_named() {
    let (numbers, task) = numbers();
    let names = ["Run", " nfe", "speed_up"].map(str::to_owned);
    let text = table(Format::Csv, &numbers, &task, &columns(&names).unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "run,NFE,speed-up,\"speed-up, low\",\"speed-up, high\"");
    assert_eq!(lines[2], "threshold:tau=0.9 & {x},20,2,1.5,2.5");
    let unknown = columns(&["accurcy".to_owned()]).unwrap_err().to_string();
    assert!(unknown.starts_with("unknown column \"accurcy\", did you mean \"accuracy\"?"), "{unknown}");
}

#[test]
fn an_unknown_format_is_refused() {
    assert_eq!(Format::read("LaTeX"), Ok(Format::Latex));
    let told = Format::read("xlsx").unwrap_err().to_string();
    assert!(told.starts_with("unknown format \"xlsx\"") && told.contains("csv, latex"), "{told}");
}

#[test]
fn equal_numbers_are_not_bold() {
    let (mut numbers, task) = numbers();
    numbers.rows.iter_mut().for_each(|row| row.nfe = 64.0);
    let rows = parsed(&table(Format::Latex, &numbers, &task, &columns(&["NFE".to_owned()]).unwrap()));
    assert_eq!(rows.concat(), ["NFE", "64", "64", "64"]);
}
