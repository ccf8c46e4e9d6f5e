//! `demask-lab recipe`: the papers' tables as files of runs.

use std::fmt::Write as _;

use demask_eval::recipes::{RECIPES, Recipe};
use serde::Serialize;

use crate::{
    args::{RecipeArgs, RecipeCommand},
    exit::usage,
    output,
};

/// Last lines of the list.
const HINT: &str = "
Run one with demask-lab eval --runs recipe:NAME --out DIR. Those of demo/ name models of the repository's folder demo/.
";

/// A line of the list.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    title: String,
    source: String,
    /// Models and guides of its rows.
    models: Vec<String>,
}

/// Runs the command.
pub fn run(json: bool, args: &RecipeArgs) -> anyhow::Result<()> {
    match &args.command {
        RecipeCommand::List => list(json),
        RecipeCommand::Show { name } => {
            let recipe = Recipe::find(name).map_err(|error| usage(error.to_string()))?;
            if json { output::json(&recipe.text) } else { Ok(output::text(recipe.text)?) }
        }
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let lines = RECIPES.iter().map(line).collect::<anyhow::Result<Vec<Line>>>()?;
    if json {
        return output::json(&lines);
    }
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Line { name, title, models, .. } in &lines {
        let _ = writeln!(text, "{name:<width$}  {title} ({})", models.join(", "));
    }
    Ok(output::text(&(text + HINT))?)
}

fn line(recipe: &Recipe) -> anyhow::Result<Line> {
    let spec = recipe.spec(None)?;
    let mut models: Vec<String> = Vec::new();
    for name in spec.rows.iter().flat_map(|row| [row.model.load.model.as_deref(), row.model.guide()]).flatten() {
        if !models.iter().any(|known| known == name) {
            models.push(name.to_owned());
        }
    }
    Ok(Line { name: recipe.name, title: spec.heading.title, source: spec.heading.source, models })
}
