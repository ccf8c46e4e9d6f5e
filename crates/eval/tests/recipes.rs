//! Every file under `recipes` is run dry without the weights that it names: its options, wordings, data schemas and
//! lengths, on demo models of the same family and on invented items.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use demask::Opened;
use demask_checkpoint::{HubOptions, ModelFiles};
use demask_eval::{
    Task,
    recipes::RECIPES,
    report::Published,
    run::{Asking, Means, Plan, Row, Spec},
    tasks::Exemplars,
};
use serde_json::{Value, json};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All recipes, as paths below the project's root.
pub fn recipes() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("recipes")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Request of a recipe.
pub fn spec(recipe: &Path) -> Spec {
    Spec::read(&root().join(recipe), None).unwrap_or_else(|error| panic!("{error}"))
}

/// The family that a model's name belongs to: its demo model, the key of its context's length in `config.json`, and that
/// length.
const FAMILIES: &[(&str, &str, &str, usize)] = &[
    ("demo/", "", "", 0),
    ("LLaDA", "demo-llada", "max_sequence_length", 4096),
    ("Dream", "demo-dream", "max_position_embeddings", 131_072),
    ("TraDo", "demo-sdar", "max_position_embeddings", 32_768),
    ("Qwen2.5-Math", "demo-qwen", "max_position_embeddings", 4096),
    ("Qwen2.5", "demo-qwen", "max_position_embeddings", 32_768),
    ("Qwen3", "demo-qwen", "max_position_embeddings", 40_960),
    ("I-DLM", "demo-qwen", "max_position_embeddings", 40_960),
    ("Llama-3", "demo-qwen", "max_position_embeddings", 8192),
];

/// The demo's tokens are shorter than those of a released vocabulary: its contexts are made longer by as much.
const SHORTER: usize = 4;

/// A demo model with the context of the model that it stands for.
fn stand_in(name: &str, scratch: &Path) -> Opened {
    let found = FAMILIES.iter().find(|(part, ..)| name.contains(part));
    let &(_, demo, key, context) = found.unwrap_or_else(|| panic!("no family is known for {name}"));
    if demo.is_empty() {
        return Opened::open(ModelFiles::directory(root().join(name)).unwrap()).unwrap();
    }
    let directory = scratch.join(name.replace('/', "-"));
    fs::create_dir_all(&directory).unwrap();
    for file in fs::read_dir(root().join("demo").join(demo)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.join(file.file_name())).unwrap();
    }
    let path = directory.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config[key] = json!(context * SHORTER);
    fs::write(&path, config.to_string()).unwrap();
    // The demo's causal model has the token of a mask, which its family does not ask for.
    let family = name.contains("I-DLM").then(|| "Qwen2:mask=486".parse().unwrap());
    Opened::open(ModelFiles::directory(&directory).unwrap().of_family(family)).unwrap()
}

/// Fields of the schemas that say what is asked.
const ASKED: &[&str] =
    &["question", "Question", "problem", "Problem", "input", "text", "goal", "ctx_a", "sentence", "prompt"];

/// The invented items of a task as a file of its own schema, and as many others that are asked otherwise, so that there
/// are exemplars for each.
pub fn items(task: &str, scratch: &Path) -> PathBuf {
    let path = scratch.join(format!("{task}.jsonl"));
    let text = fs::read_to_string(root().join(format!("crates/eval/tests/items/{task}.jsonl"))).unwrap();
    let entries: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["entry"].take()).collect();
    let mut lines = String::new();
    for variant in 0..10 {
        for entry in &entries {
            let mut entry = entry.clone();
            let Some(field) = ASKED.iter().find(|field| entry[**field].is_string()) else { continue };
            if variant > 0 {
                entry[*field] = json!(format!("{} ({variant})", entry[*field].as_str().unwrap()));
            }
            lines += &(entry.to_string() + "\n");
        }
    }
    fs::write(&path, lines).unwrap();
    path
}

/// The plan of a recipe over invented items.
fn plan(recipe: &Path, scratch: &Path) -> Plan {
    let mut spec = spec(recipe);
    for (place, task) in spec.tasks.iter_mut().enumerate() {
        if task.task.name == "wordmath" {
            continue;
        }
        let file = items(task.task.name, scratch);
        task.data = Some(file.clone());
        for row in &mut spec.rows {
            let files = matches!(task.task.exemplars, Exemplars::Files { .. });
            let asking = &mut row.asks[place];
            if asking.ask.shots_file.is_some() || files && asking.ask.shots != Some(0) {
                asking.ask.shots_file = Some(file.clone());
            }
        }
    }
    let hub = HubOptions::new("http://127.0.0.1:1", "/nowhere");
    let mut means = Means { hub: &hub, seed: 0, limit: Some(20), programs: true, skip: None, watch: &mut |_| true };
    Plan::of(spec, &mut means).unwrap_or_else(|error| panic!("{}: {error}", recipe.display()))
}

#[test]
fn every_recipe_can_be_run() {
    let scratch = env::temp_dir().join(format!("demask-recipes-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let mut models: BTreeMap<(String, Option<String>), Opened> = BTreeMap::new();
    let (mut recipes_seen, mut rows_seen) = (0, 0);
    for recipe in recipes() {
        let plan = plan(&recipe, &scratch);
        // Seconds and operations are compared with those of papers.
        assert!(plan.rows.iter().all(|row| !row.model.shares_prefixes()), "{}", recipe.display());
        recipes_seen += 1;
        for (index, Row { model, .. }) in plan.rows.iter().enumerate() {
            let name =
                model.load.model.clone().unwrap_or_else(|| panic!("{}: a row without a model", recipe.display()));
            let opened = models.entry((name.clone(), model.guide().map(str::to_owned))).or_insert_with(|| {
                let opened = stand_in(&name, &scratch);
                match model.guide() {
                    Some(guide) => opened.guided_by(stand_in(guide, &scratch)).unwrap(),
                    None => opened,
                }
            });
            let dry_run = plan.dry_run(index, &|prompt, options| opened.prepare(prompt, options));
            let dry_run = dry_run.unwrap_or_else(|error| panic!("{}: {error}", recipe.display()));
            assert!(!dry_run.needs.is_empty());
            rows_seen += 1;
        }
    }
    fs::remove_dir_all(&scratch).unwrap();
    assert!(recipes_seen >= 40 && rows_seen >= 250, "{recipes_seen} recipes, {rows_seen} rows");
}

/// Every figure that a paper prints in a table of its own is in the recipe of that table, and no other figure is.
#[test]
fn recipes_have_the_figures_of_the_papers_tables() {
    let mut reader = csv::Reader::from_path(root().join("crates/eval/tests/figures.csv")).unwrap();
    let printed: BTreeMap<Vec<String>, f64> = reader
        .records()
        .map(|line| {
            let mut cells: Vec<String> = line.unwrap().iter().map(str::to_owned).collect();
            let value = cells.pop().unwrap().parse().unwrap();
            (cells, value)
        })
        .collect();
    let mut found = BTreeMap::new();
    for recipe in recipes() {
        for Published { row, task, figures, .. } in spec(&recipe).published {
            for (figure, value) in figures {
                let name = recipe.strip_prefix("recipes").unwrap().with_extension("");
                found.insert(vec![name.display().to_string(), row.clone(), task.clone(), figure], value);
            }
        }
    }
    for (cell, value) in &printed {
        assert_eq!(found.get(cell), Some(value), "printed: {cell:?}");
    }
    for (cell, value) in &found {
        assert_eq!(printed.get(cell), Some(value), "in a recipe: {cell:?}");
    }
    // The tables of FlashDLM, dLLM-Cache and FreeDave as their seeds have them, and those of what they compare with.
    assert!(printed.len() >= 445, "{} figures", printed.len());
}

/// Ratios and differences that a table prints are those of its own figures, as far as two digits tell, but for those
/// that a recipe names as the paper's slips.
#[test]
fn printed_ratios_are_those_of_the_printed_figures() {
    const SLIPS: [(&str, &str, f64); 5] = [
        ("mmlu-pro", "Dream + FreeCache", 3.11),
        ("piqa", "Dream + FreeCache + Qwen2.5-1.5B", 34.1),
        ("gpqa", "Dream + FreeCache", 2.12),
        ("gsm8k", "LLaDA + FreeCache, blocks of 64", 6.32),
        ("gsm8k", "LLaDA + FreeCache", 6.31),
    ];
    let mut compared = 0;
    for recipe in recipes() {
        let spec = spec(&recipe);
        let of = |row: &str, task: &str, figure: &str| {
            let found = spec.published.iter().find(|published| (&*published.row, &*published.task) == (row, task));
            found.and_then(|published| published.figures.get(figure).copied())
        };
        for Published { row, task, figures, .. } in &spec.published {
            let place = spec.rows.iter().position(|other| other.name.as_deref() == Some(row)).unwrap();
            let base = spec.rows[spec.rows[place].baseline].name.clone().unwrap();
            for (figure, &value) in figures {
                let (of_what, turned) = match figure.as_str() {
                    "speed_up" => ("seconds_per_item", true),
                    "accuracy_difference" => ("accuracy", false),
                    name => (name.strip_suffix("_ratio").unwrap_or_default(), false),
                };
                let (Some(own), Some(base)) = (of(row, &task.clone(), of_what), of(&base, task, of_what)) else {
                    continue;
                };
                if SLIPS.contains(&(task, row, value)) {
                    continue;
                }
                compared += 1;
                let (above, below) = if turned { (base, own) } else { (own, base) };
                let (least, most) = match of_what {
                    "accuracy" => (above - below - 0.006, above - below + 0.006),
                    _ => ((above - 0.006) / (below + 0.006) - 0.01, (above + 0.006) / (below - 0.006) + 0.01),
                };
                assert!(
                    (least..=most).contains(&value),
                    "{}: {figure} of {row} on {task}: {value}, not {least} to {most}",
                    recipe.display()
                );
            }
        }
    }
    assert!(compared >= 120, "{compared}");
}

#[test]
fn the_program_has_every_recipe_of_the_folder() {
    let mut folder: Vec<(String, String)> = recipes()
        .iter()
        .map(|recipe| {
            let name = recipe.strip_prefix("recipes").unwrap().with_extension("");
            (name.display().to_string(), fs::read_to_string(root().join(recipe)).unwrap())
        })
        .collect();
    let built_in: Vec<(String, String)> =
        RECIPES.iter().map(|recipe| (recipe.name.to_owned(), recipe.text.to_owned())).collect();
    // A file's ending sorts otherwise than its name.
    folder.sort();
    let names = |all: &[(String, String)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&built_in), names(&folder));
    assert!(built_in == folder, "the texts of recipes are others than those of the folder");
    let spec = Spec::read(Path::new("recipe:flashdlm/table-3"), None).unwrap();
    assert_eq!(spec.rows.len(), self::spec(Path::new("recipes/flashdlm/table-3.toml")).rows.len());
    let refused = Spec::read(Path::new("recipe:flashdlm/table-33"), None).unwrap_err().to_string();
    let expected = "recipe:flashdlm/table-33: unknown recipe \"flashdlm/table-33\", did you mean \"flashdlm/table-3\"?";
    assert!(refused.starts_with(expected), "{refused}");
}

/// What a recipe compares with stands in it: nobody needs the paper beside the table.
#[test]
fn recipes_of_tables_have_the_published_figures() {
    for recipe in recipes() {
        let spec = spec(&recipe);
        let name = recipe.display().to_string();
        assert!(!spec.heading.title.is_empty() && !spec.heading.source.is_empty(), "{name}");
        // A table whose figures are not at hand says so.
        let says_so = ["were not at hand", "none stand here", "no figures stand here", "No results of these"];
        let none = spec.published.is_empty();
        let demo = name.contains("/demo/");
        assert!(demo || !none || says_so.iter().any(|words| spec.heading.about.contains(words)), "{name}");
        assert!(!demo || none, "{name}: the demo's word problems are in no paper");
    }
}

/// Reports whether a row is an extra baseline of this project, which nobody published.
fn is_ours(name: &str) -> bool {
    name.contains("(ours)")
}

/// The settings of all recipes but those of the demo, as tables: each row of a recipe, with the tasks that it asks alike.
pub fn settings() -> String {
    let mut text = String::new();
    for recipe in recipes().iter().filter(|recipe| !recipe.starts_with("recipes/demo")) {
        let spec = spec(recipe);
        let _ =
            write!(text, "\n### {}\n\n`{}`. {}\n\n", spec.heading.title, recipe.display(), spec.heading.about.trim());
        text += "| row | task | style | shots | length | block | decoder | cache | beside |\n|---|---|---|---|---|---|---|---|---|\n";
        for row in spec.rows.iter().filter(|row| !row.name.as_deref().is_some_and(is_ours)) {
            let mut alike: Vec<(Vec<&str>, String)> = Vec::new();
            for (task, asking) in spec.tasks.iter().zip(&row.asks) {
                let line = asked(task.task, asking, row.model.guide());
                match alike.iter_mut().find(|(_, other)| *other == line) {
                    Some((tasks, _)) => tasks.push(&task.name),
                    None => alike.push((vec![&task.name], line)),
                }
            }
            for (tasks, line) in alike {
                let _ =
                    writeln!(text, "| {} | {} | {line} |", row.name.as_deref().unwrap_or_default(), tasks.join(", "));
            }
        }
    }
    text
}

/// Prompting of a task by a row, as cells of a table.
fn asked(task: &Task, asking: &Asking, guide: Option<&str>) -> String {
    let style = asking.ask.prompt_style.as_deref().map_or(task.styles[0], |name| *task.style(name).unwrap());
    let Value::Object(mut options) = serde_json::to_value(&asking.options).unwrap() else { panic!("no options") };
    let mut cell = |name: &str| match options.remove(name) {
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let [length, block, decoder, cache] = ["gen_length", "block_length", "decoder", "cache"].map(&mut cell);
    let beside = options.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Bool(true) => name.clone(),
        value => format!("{name} {value}"),
    });
    let beside: Vec<String> = guide.map(|guide| format!("guide {guide}")).into_iter().chain(beside).collect();
    let shots = asking.ask.shots.unwrap_or(style.shots);
    format!(
        "`{}` | {shots} | {length} | {block} | {decoder} | {cache} | {}",
        style.name,
        beside.join(", ").replace('_', " ")
    )
}
