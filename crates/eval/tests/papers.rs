//! `docs/papers.md` names every recipe, and shows what was recorded of those of the demo; `DEMASK_BLESS=1` writes the
//! records' part anew.

use std::{env, fs, path::Path};

use demask_eval::report::readme;

use crate::{
    recipes::{recipes, root, spec},
    records::Recorded,
};

const PAGE: &str = "docs/papers.md";

/// Section of the page for a recipe of the demo: its words, its command, and the table of its record.
fn section(recipe: &Path) -> String {
    let heading = spec(recipe).heading;
    let name = recipe.file_stem().unwrap().to_str().unwrap();
    let path = root().join("bench/record/papers").join(name).with_extension("json");
    let head = format!("### {}\n\n{}\n\n", heading.title, heading.about.trim());
    let Some(record) = Recorded::read(&path) else {
        return format!(
            "{head}    demask-lab eval --runs {}\n\nNot recorded yet: `bench/run.py papers recipe={name}` does it.\n",
            recipe.display()
        );
    };
    let doubts = record.doubts();
    let Recorded { command, date, machine, timed, numbers, .. } = record;
    assert!(command.ends_with(&recipe.display().to_string()), "{}: made by {command}", path.display());
    let effort = readme::effort(&numbers, timed);
    format!("{head}    demask-lab eval --runs {}\n\n{effort}\n{doubts}{date}, {machine}.\n", recipe.display())
}

#[test]
fn the_page_shows_what_was_recorded_of_the_demo() {
    let demo: Vec<String> =
        recipes().iter().filter(|recipe| recipe.starts_with("recipes/demo")).map(|recipe| section(recipe)).collect();
    assert!(demo.len() >= 15);
    let path = root().join(PAGE);
    let there = fs::read_to_string(&path).unwrap();
    let wanted = readme::insert(&there, &demo).unwrap();
    if env::var_os("DEMASK_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(there == wanted, "{PAGE} is out of date: DEMASK_BLESS=1 cargo test -p demask-eval --test all papers");
    }
}

#[test]
fn the_page_names_every_recipe_and_nothing_else() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (tables, _) = page.split_once("<!-- eval table -->").unwrap();
    let recipes: Vec<String> = recipes().iter().map(|recipe| recipe.display().to_string()).collect();
    for recipe in &recipes {
        assert!(tables.contains(&format!("`{recipe}`")), "{PAGE} does not name {recipe}");
    }
    for named in tables.split('`').filter_map(|word| word.strip_prefix("recipes/")?.strip_suffix(".toml")) {
        let named = format!("recipes/{named}.toml");
        assert!(recipes.contains(&named), "{PAGE} names {named}, which is not there");
    }
}
