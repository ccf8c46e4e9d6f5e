use super::*;

const WHOLE: &str = r#"title = "A table"
source = "a paper, table 2"
baseline = "plain"

[defaults]
model = "demo/demo-llada"
dtype = "f32"
remasking = "margin"
guide = "demo/demo-qwen"

[[task]]
task = "wordmath"
limit = 5
gen-length = 64
steps = 32

[[task]]
task = "wordmath"
name = "long"
gen_length = 128
prompt_style = "chat"

[[row]]
name = "plain"
decoder = "static"
steps = 16

[row.on.long]
temperature = 0.1

[[row]]
name = "guided"
model = "demo"
quantize = "q8"
decoder = "guided"
seeds = [3, 4]

[[row]]
name = "drafts"
decoder = "freedave:d={d}"
sweep = { d = [2, 4], cache = ["none", "dual"] }
baseline = "drafts, d=2, cache=none"

[[published]]
row = "drafts, d=4, cache=dual"
task = "long"
accuracy = 71
speed_up = 2.5
note = "on another machine"
"#;

fn read(text: &str, model: Option<&str>) -> Result<Spec, FileError> {
    Spec::parse(Path::new("x.toml"), text, model)
}

fn refused(text: &str) -> String {
    read(text, None).unwrap_err().to_string()
}

#[test]
fn a_file_is_rows_and_tasks() {
    let spec = read(WHOLE, None).unwrap();
    let names: Vec<&str> = spec.rows.iter().map(|row| row.name.as_deref().unwrap()).collect();
    let drafts = ["d=2, cache=none", "d=2, cache=dual", "d=4, cache=none", "d=4, cache=dual"];
    assert_eq!(names[..2], ["plain", "guided"]);
    assert_eq!(names[2..], drafts.map(|values| format!("drafts, {values}")));
    assert_eq!(spec.rows.iter().map(|row| row.baseline).collect::<Vec<_>>(), [0, 0, 2, 2, 2, 2]);
    let tasks: Vec<_> = spec.tasks.iter().map(|task| (task.name.as_str(), task.limit, task.task.name)).collect();
    assert_eq!(tasks, [("wordmath", Some(5), "wordmath"), ("long", None, "wordmath")]);
    // The row wins over the task, the row on a task over both.
    let options = |row: usize, task: usize| spec.rows[row].asks[task].options.clone();
    assert_eq!((options(0, 0).steps, options(0, 0).gen_length, options(0, 0).temperature), (Some(16), Some(64), None));
    assert_eq!((options(0, 1).steps, options(0, 1).gen_length), (Some(16), Some(128)));
    assert_eq!((options(0, 1).temperature, options(1, 0).steps), (Some(0.1), Some(32)));
    assert_eq!(spec.rows[0].asks[1].ask.prompt_style.as_deref(), Some("chat"));
    assert_eq!(options(5, 0).decoder.unwrap().to_string(), "freedave:d=4");
    assert_eq!(options(5, 0).cache.unwrap().to_string(), "dual");
    // A default guide is for those who ask one.
    let guides: Vec<_> = spec.rows.iter().map(|row| row.model.guide().is_some()).collect();
    assert_eq!(guides, [false, true, false, false, false, false]);
    assert_eq!((spec.rows[1].model.load.model.clone(), spec.rows[1].seeds.clone()), (None, vec![3, 4]));
    assert!(spec.rows[1].model.load.quantize.is_some() && spec.rows[0].model.load.dtype.is_some());
    let figures = &spec.published[0];
    assert_eq!((figures.figures["accuracy"], figures.source.as_str()), (71.0, "a paper, table 2"));
    assert_eq!(spec.rows[1].place.as_ref().unwrap().line, 31);
}

#[test]
fn rows_without_a_model_have_that_of_the_command() {
    let text = "[[task]]\ntask = \"wordmath\"\n[[row]]\nname = \"a\"\n";
    assert_eq!(read(text, Some("dir")).unwrap().rows[0].model.load.model.as_deref(), Some("dir"));
    let told =
        "x.toml, line 3: row \"a\" names no model: add model = \"...\" (\"demo\" is the built-in one), or give --model";
    assert_eq!(refused(text), told);
}

#[test]
fn what_cannot_be_meant_is_told_with_its_line() {
    let line = |text: &str| WHOLE.lines().position(|line| line == text).unwrap() + 1;
    let instead = |old: &str, new: &str| refused(&WHOLE.replacen(old, new, 1));
    for (old, new, at, told) in [
        (
            "limit = 5",
            "limt = 5",
            "limit = 5",
            "unknown key \"limt\" of a task, did you mean \"limit\"? (known: task, name, ",
        ),
        ("limit = 5", "limit = 0", "limit = 5", "limit is 0, expected at least 1"),
        ("limit = 5", "limit = -5", "limit = 5", "limit is integer, expected a whole number from 0 on"),
        ("steps = 16", "step = 16", "steps = 16", "unknown key \"step\" of a row, did you mean \"steps\"?"),
        ("steps = 16", "steps = 1.5", "steps = 16", "steps is 1.5, expected a whole number from 0 on"),
        ("steps = 16", "decoder = 1", "steps = 16", "this is no TOML: duplicate key"),
        ("steps = 16", "steps = ", "steps = 16", "this is no TOML: "),
        ("steps = 16", "seed = 1", "steps = 16", "unknown key \"seed\" of a row, did you mean \"seeds\"?"),
        (
            "steps = 16",
            "guide = \"g\"",
            "steps = 16",
            "row \"plain\" has a guide, and no decoder that asks it: omit it, or ",
        ),
        ("steps = 16", "dtype = \"f16\"", "steps = 16", "dtype \"f16\" is unknown: use one of "),
        (
            "decoder = \"static\"",
            "decoder = \"statc\"",
            "decoder = \"static\"",
            "unknown decoder \"statc\", did you mean \"static\"?",
        ),
        ("temperature = 0.1", "temp = 0.1", "temperature = 0.1", "unknown key \"temp\" of a row on a task"),
        (
            "[row.on.long]",
            "[row.on.longer]",
            "[row.on.long]",
            "there is no task \"longer\", did you mean \"long\"? (there are: wordmath, long)",
        ),
        ("seeds = [3, 4]", "seeds = [3, 3]", "seeds = [3, 4]", "seed 3 is there twice: omit one"),
        (
            "seeds = [3, 4]",
            "seeds = [-1]",
            "seeds = [3, 4]",
            "seeds are not all whole numbers from 0 on, or there are none",
        ),
        (
            "seeds = [3, 4]",
            "baseline = \"plan\"",
            "seeds = [3, 4]",
            "there is no row \"plan\", did you mean \"plain\"? (there are: \"plain\", \"guided\", ",
        ),
        (
            "accuracy = 71",
            "acuracy = 71",
            "accuracy = 71",
            "unknown key \"acuracy\" of a published figure, did you mean \"accuracy\"?",
        ),
        ("accuracy = 71", "accuracy = \"71\"", "accuracy = 71", "accuracy is string, expected a number"),
        ("task = \"long\"", "task = \"short\"", "task = \"long\"", "there is no task \"short\""),
    ] {
        let (found, expected) = (instead(old, new), format!("x.toml, line {}: {told}", line(at)));
        assert!(found.starts_with(&expected) && !found.contains('\n'), "{new}: {found}\nexpected {expected}");
    }
    for (old, new, at, told) in [
        (
            "name = \"guided\"",
            "name = \"plain\"",
            "[[row]]",
            "row \"plain\" is there twice, first on line 23: name one otherwise",
        ),
        ("name = \"guided\"", "", "[[row]]", "a row without a name: expected name = \"...\""),
        ("name = \"long\"", "", "[[task]]", "task \"wordmath\" is there twice, first on line 11: give it a `name`"),
    ] {
        let found = instead(old, new);
        let expected = WHOLE.lines().collect::<Vec<_>>();
        let places: Vec<usize> =
            (0..expected.len()).filter(|&place| expected[place] == at).map(|place| place + 1).collect();
        assert_eq!(found, format!("x.toml, line {}: {told}", places[1]));
    }
    let sweep = "sweep = { d = [2, 4], cache = [\"none\", \"dual\"] }";
    for (new, told) in [
        ("sweep = { e = [2] }", "sweep: e is no key of a row, and no text of the row has {e} in it"),
        ("sweep = { d = [] }", "sweep: d has no values: expected d = [value, value]"),
        ("sweep = { d = 2 }", "sweep: d is no list: expected d = [value, value]"),
        ("sweep = { d = [2, 2] }", "sweep: d has 2 twice: omit one"),
    ] {
        assert_eq!(instead(sweep, new), format!("x.toml, line {}: {told}", line(sweep)));
    }
    assert_eq!(refused(""), "x.toml, line 1: no [[task]]: expected at least one");
    assert_eq!(refused("[[task]]\ntask = \"wordmath\"\n"), "x.toml, line 1: no [[row]]: expected at least one");
    let nothing = Spec::read(Path::new("nowhere.toml"), None).unwrap_err().to_string();
    assert!(nothing.starts_with("nowhere.toml: there is no such file: check the path"), "{nothing}");
    let found = refused("[[row]]\nname = \"a\"\n[[task]]\ntask = \"wordmaths\"\n");
    assert!(found.starts_with("x.toml, line 4: unknown task \"wordmaths\", did you mean \"wordmath\"?"), "{found}");
}

const GROUPED: &str = r#"task = [{ task = "wordmath", gen_length = 64 }]
defaults = { model = "demo", decoder = "static" }

[[row]]
model = "models/{who}"
baseline = "{who}"
steps = 16
sweep = { who = ["a", "b"] }
rows = [
  { name = "{who}" },
  { name = "{who}, {d} drafts", decoder = "freedave:d={d}", sweep = { d = [2, 4] } },
  { name = "{who}, few steps", steps = 4, sweep = { cache = ["none", "dual"] } },
]
on.wordmath.temperature = 0.5

[[row]]
name = "alone"
"#;

#[test]
fn rows_share_settings_and_their_names_hold_words_of_the_sweep() {
    let spec = read(GROUPED, None).unwrap();
    let names: Vec<&str> = spec.rows.iter().map(|row| row.name.as_deref().unwrap()).collect();
    let of = |who: &str| {
        let own = [", 2 drafts", ", 4 drafts", ", few steps, cache=none", ", few steps, cache=dual"];
        std::iter::once(who.to_owned()).chain(own.map(|own| format!("{who}{own}"))).collect::<Vec<_>>()
    };
    assert_eq!(names, [of("a"), of("b"), vec!["alone".to_owned()]].concat());
    let baselines: Vec<usize> = spec.rows.iter().map(|row| row.baseline).collect();
    assert_eq!(baselines, [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 0]);
    let models: Vec<Option<&str>> = spec.rows.iter().map(|row| row.model.load.model.as_deref()).collect();
    assert_eq!((models[4], models[7], models[10]), (Some("models/a"), Some("models/b"), None));
    let options = |row: usize| spec.rows[row].asks[0].options.clone();
    assert_eq!(options(6).decoder.unwrap().to_string(), "freedave:d=2");
    // What a row says wins over what rows share.
    assert_eq!((options(6).steps, options(8).steps, options(10).steps), (Some(16), Some(4), None));
    assert_eq!((options(1).temperature, options(10).temperature), (Some(0.5), None));
    // A word in the name is no value of the row; the others are, and follow the name.
    assert!(spec.rows[1].values.is_empty(), "{:?}", spec.rows[1].values);
    assert_eq!(spec.rows[3].values, [("cache".to_owned(), "none".to_owned())]);
    assert_eq!((spec.rows[3].place.as_ref().unwrap().line, spec.rows[10].place.as_ref().unwrap().line), (12, 16));
}

#[test]
fn groups_of_rows_that_cannot_be_meant_are_refused_with_their_line() {
    for (old, new, line, told) in [
        ("steps = 4", "step = 4", 12, "unknown key \"step\" of a row, did you mean \"steps\"?"),
        ("steps = 4", "rows = []", 12, "unknown key \"rows\" of a row"),
        ("steps = 16", "name = \"all\"", 7, "name beside rows: name each of them instead"),
        ("{ name = \"{who}\" },", "{ steps = 8 },", 10, "a row without a name: expected name = \"...\""),
        ("name = \"{who}\" }", "name = \"first\" }", 6, "there is no row \"a\""),
        ("\"{who}, few steps\"", "\"{who}\"", 0, ""),
        ("name = \"{who}, {d} drafts\"", "name = \"{who}\"", 0, ""),
        (
            "name = \"{who}, {d} drafts\", decoder = \"freedave:d={d}\"",
            "name = \"x\"",
            11,
            "sweep: d is no key of a row, and no text of the row has {d} in it",
        ),
        ("[\"a\", \"b\"]", "[]", 8, "sweep: who has no values: expected who = [value, value]"),
        ("d = [2, 4]", "d = []", 11, "sweep: d has no values: expected d = [value, value]"),
        (
            "{ d = [2, 4] }",
            "{ d = [2, 4], who = [\"c\"] }",
            11,
            "sweep: who is swept for all of these rows already: omit one",
        ),
        ("\"alone\"", "\"b\"", 16, "row \"b\" is there twice, first on line 10: name one otherwise"),
    ] {
        let text = GROUPED.replacen(old, new, 1);
        assert_ne!(text, GROUPED);
        match told {
            "" => assert_eq!(read(&text, None).unwrap().rows.len(), 11, "{new}: values not in the name follow it"),
            told => {
                let found = refused(&text);
                assert!(found.starts_with(&format!("x.toml, line {line}: {told}")) && !found.contains('\n'), "{found}");
            }
        }
    }
    let empty = "task = [{ task = \"wordmath\" }]\n[[row]]\nsteps = 4\nrows = []\n";
    assert_eq!(refused(empty), "x.toml, line 4: rows is empty: expected rows = [{ name = \"...\" }]");
    let many = "task = [{ task = \"wordmath\" }]\n[[row]]\nmodel = \"demo\"\nsweep = { steps = [NUMBERS] }\nrows = [\n  { name = \"a\" },\n  { name = \"b\" },\n]\n";
    let numbers: Vec<String> = (1..=501).map(|number| number.to_string()).collect();
    let found = refused(&many.replace("NUMBERS", &numbers.join(", ")));
    assert_eq!(found, "x.toml, line 2: sweep makes 1002 rows, expected 1000 at most: sweep less at once");
}

#[test]
fn the_example_of_the_documents_is_read() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evaluation.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let spec = read(example, None).unwrap();
    assert_eq!((spec.tasks.len(), spec.rows.len(), spec.published.len()), (2, 7, 2));
    assert_eq!(spec.rows[3].name.as_deref(), Some("FreeDave, d=4, cache=none"));
    let rows = page.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let spec = read(&format!("task = [{{ task = \"wordmath\" }}]\n{rows}"), None).unwrap();
    assert_eq!(spec.rows[2].name.as_deref(), Some("TraDo-8B, static"));
    let over = page.split("```toml\n").nth(3).unwrap().split("```").next().unwrap();
    let spec = read(over, None).unwrap();
    assert_eq!((spec.tasks.len(), spec.rows.len(), spec.published.len()), (2, 3, 4));
    let told = METRICS.iter().all(|metric| page.contains(&format!("`{}`", metric.name)));
    assert!(told, "each figure that may be published is named");
}
