use super::super::super::Spec;
use std::{fs, path::Path};

const BASE: &str = r#"title = "A table"
source = "a paper"
baseline = "plain"
seeds = [1, 2]
task = [{ task = "wordmath", limit = 5, gen_length = 64 }, { task = "wordmath", name = "long", gen_length = 128 }]
row = [
  { name = "plain", cache = "none" },
  { name = "drafts", decoder = "freedave:d={d}", sweep = { d = [2, 4] }, on.long.temperature = 0.5 },
]
published = [
  { row = "plain", task = "wordmath", accuracy = 50 },
  { row = "plain", task = "long", accuracy = 40 },
  { row = "drafts, d=2", task = "long", accuracy = 41 },
]

[defaults]
model = "demo/demo-llada"
decoder = "static"
steps = 32
"#;

/// Reads `own.toml`, whose base is `base.toml` in the same folder.
fn read(own: &str) -> Result<Spec, String> {
    read_over(BASE, own)
}

fn read_over(base: &str, own: &str) -> Result<Spec, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base.toml"), base).unwrap();
    let path = folder.path().join("own.toml");
    fs::write(&path, own).unwrap();
    let said = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
    Spec::read(&path, None).map_err(|error| said(error.to_string()))
}

fn names(spec: &Spec) -> Vec<&str> {
    spec.rows.iter().map(|row| row.name.as_deref().unwrap()).collect()
}

/// The published accuracies, by row and task.
fn accuracies(spec: &Spec) -> Vec<(&str, &str, f64)> {
    let figures = spec.published.iter();
    figures.map(|one| (one.row.as_str(), one.task.as_str(), one.figures["accuracy"])).collect()
}

#[test]
fn a_base_alone_is_read_as_it_is() {
    let shown = |spec: Spec| format!("{:?} {:?} {:?}", spec.heading, names(&spec), accuracies(&spec));
    assert_eq!(shown(read("base = \"base.toml\"").unwrap()), shown(read_over(BASE, BASE).unwrap()));
    let spec = read("base = \"recipe:flashdlm/table-3\"").unwrap();
    assert_eq!((spec.rows.len(), spec.tasks.len(), spec.published.len()), (6, 6, 24));
}

#[test]
fn a_file_adds_to_its_base_and_changes_it() {
    let spec = read(
        r#"base = "base.toml"
title = "My table"
defaults.model = "demo"
change.task.long = { limit = 7, gen_length = 256 }
change.row."drafts, d=4" = { steps = 8, seeds = [3], baseline = "mine", on.long.top_k = 1 }
task = [{ task = "wordmath", name = "short", gen_length = 16 }]
row = [{ name = "mine", cache = "dual", on.short.steps = 2 }]
published = [
  { row = "plain", task = "long", accuracy = 45 },
  { row = "mine", task = "short", accuracy = 30 },
]
"#,
    )
    .unwrap();
    assert_eq!((spec.heading.title.as_str(), spec.heading.source.as_str()), ("My table", "a paper"));
    assert_eq!(names(&spec), ["plain", "drafts, d=2", "drafts, d=4", "mine"]);
    let tasks: Vec<_> = spec.tasks.iter().map(|task| (task.name.as_str(), task.limit)).collect();
    assert_eq!(tasks, [("wordmath", Some(5)), ("long", Some(7)), ("short", None)]);
    let options = |row: usize, task: usize| spec.rows[row].asks[task].options.clone();
    assert_eq!((options(0, 0).gen_length, options(0, 1).gen_length), (Some(64), Some(256)));
    assert_eq!((options(1, 0).steps, options(2, 0).steps, options(3, 2).steps), (Some(32), Some(8), Some(2)));
    assert_eq!((options(2, 1).temperature, options(2, 1).top_k, options(1, 1).top_k), (Some(0.5), Some(1), None));
    assert!(spec.rows.iter().all(|row| row.model.load.model.is_none()), "the built-in model");
    assert_eq!(spec.rows.iter().map(|row| row.baseline).collect::<Vec<_>>(), [0, 0, 3, 0]);
    assert_eq!(
        spec.rows.iter().map(|row| row.seeds.clone()).collect::<Vec<_>>(),
        [vec![1, 2], vec![1, 2], vec![3], vec![1, 2]]
    );
    let figures = accuracies(&spec);
    assert_eq!(figures[..2], [("plain", "wordmath", 50.0), ("drafts, d=2", "long", 41.0)]);
    assert_eq!(figures[2..], [("plain", "long", 45.0), ("mine", "short", 30.0)]);
}

#[test]
fn tasks_and_rows_of_a_base_are_chosen_and_the_figures_of_others_left_out() {
    let spec = read("base = \"base.toml\"\nonly_rows = [\"drafts, d=2\", \"plain\"]\nonly_tasks = [\"long\"]").unwrap();
    assert_eq!(names(&spec), ["plain", "drafts, d=2"]);
    assert_eq!(accuracies(&spec), [("plain", "long", 40.0), ("drafts, d=2", "long", 41.0)]);
    // What a row says of a task that is not there any more is of no account.
    let spec =
        read("base = \"base.toml\"\nonly_tasks = []\ntask = [{ task = \"wordmath\", name = \"short\" }]").unwrap();
    assert_eq!((spec.tasks.len(), spec.rows[1].asks[0].options.temperature), (1, None));
    assert!(spec.published.is_empty());
}

#[test]
fn a_base_may_have_a_base_and_need_not_be_whole() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("below")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("first.toml", "task = [{ task = \"wordmath\" }]\ndefaults = { model = \"demo\", steps = 4 }");
    write("below/second.toml", "base = \"../first.toml\"\ndefaults.steps = 8\nrow = [{ name = \"a\" }]");
    write("third.toml", "base = \"below/second.toml\"\nrow = [{ name = \"b\", steps = 16 }]");
    let spec = Spec::read(&folder.path().join("third.toml"), None).unwrap();
    let steps: Vec<_> = spec.rows.iter().map(|row| row.asks[0].options.steps).collect();
    assert_eq!(steps, [Some(8), Some(16)]);
    let refused = Spec::read(&folder.path().join("first.toml"), None).unwrap_err();
    assert!(refused.to_string().ends_with("first.toml, line 1: no [[row]]: expected at least one"), "{refused}");
}

#[test]
fn bases_that_cannot_be_meant_are_refused_with_their_line() {
    let own = |text: &str| format!("title = \"t\"\nbase = \"base.toml\"\n{text}\n");
    let row = "row \"plain\" is there twice, first in base.toml, line 7: name one otherwise";
    for (text, told) in [
        ("only_rows = [\"plan\"]", "3: there is no row \"plan\", did you mean \"plain\"? (there are: \"plain\", "),
        ("only_rows = \"plain\"", "3: only_rows is string, expected a list of texts"),
        ("only_tasks = [\"lung\"]", "3: there is no task \"lung\", did you mean \"long\"? (there are: "),
        ("change.row.plan.steps = 4", "3: there is no row \"plan\", did you mean \"plain\"? (there are: \"plain\", "),
        ("change.row.plain.step = 4", "3: unknown key \"step\" of a row, did you mean \"steps\"?"),
        ("change.row.plain.name = \"a\"", "3: unknown key \"name\" of a row"),
        ("change.row.plain.on.lung.steps = 4", "3: there is no task \"lung\", did you mean \"long\"? (there are: "),
        ("change.row.plain = 4", "3: plain is integer, expected a table"),
        ("change.task.lung.shots = 4", "3: there is no task \"lung\", did you mean \"long\"? (there are: "),
        ("change.task.long.limit = 0", "3: limit is 0, expected at least 1"),
        ("change.rows.plain.steps = 4", "3: unknown key \"rows\" of change, did you mean \"row\"?"),
        ("only_rows = [\"drafts, d=2\"]", "base.toml, line 3: there is no row \"plain\" (there are: \"drafts, d=2\")"),
        ("only_rows = []", "1: no [[row]]: expected at least one"),
        ("row = [{ name = \"plain\" }]", &format!("3: {row}")),
        (
            "task = [{ task = \"wordmath\" }]",
            "3: task \"wordmath\" is there twice, first in base.toml, line 5: give it a `name`",
        ),
    ] {
        let told = if told.starts_with("base.toml") { told.to_owned() } else { format!("own.toml, line {told}") };
        let found = read(&own(text)).unwrap_err();
        assert!(found.starts_with(&told) && !found.contains('\n'), "{text}: {found}\nexpected {told}");
    }
    for key in ["only_tasks = []", "only_rows = []", "change.row.a.steps = 4"] {
        let told = format!(
            "own.toml, line 1: {} is of a base, and the file has none: ",
            key.split([' ', '.']).next().unwrap()
        );
        let found = read(&format!("{key}\n")).unwrap_err();
        assert!(found.starts_with(&told) && !found.contains('\n'), "{found}");
    }
}

#[test]
fn bases_that_are_not_there_or_run_in_a_circle_are_refused_with_their_line() {
    let found = read("base = \"bass.toml\"").unwrap_err();
    assert!(found.starts_with("own.toml, line 1: the base bass.toml cannot be read: No such file"), "{found}");
    let found = read("\nbase = \"recipe:flashdlm/table-33\"").unwrap_err();
    let told = "own.toml, line 2: unknown recipe \"flashdlm/table-33\", did you mean \"flashdlm/table-3\"?";
    assert!(found.starts_with(told) && !found.contains('\n'), "{found}");
    assert_eq!(read("base = 1").unwrap_err(), "own.toml, line 1: base is integer, expected a text");
    let circle = "has this file as a base: omit one";
    assert_eq!(read("base = \"./own.toml\"").unwrap_err(), format!("own.toml, line 1: base \"./own.toml\" {circle}"));
    let found = read_over("base = \"own.toml\"", "base = \"base.toml\"").unwrap_err();
    assert_eq!(found, format!("base.toml, line 1: base \"own.toml\" {circle}"));
    // An error in a base names the base's line.
    let found = read_over(&BASE.replace("steps = 32", "step = 32"), "base = \"base.toml\"").unwrap_err();
    assert!(found.starts_with("base.toml, line 19: unknown key \"step\" of defaults"), "{found}");
    assert!(Spec::parse(Path::new("x.toml"), "base = \"recipe:demo/guided-rules\"", None).is_ok());
}
