//! Costs as a table for people.

use std::fmt::Write;

use demask::costs::{
    Costs,
    estimate::{Estimate, NetworkEstimate, StepKind},
};

use crate::words::bytes;

/// Kinds of forwards that are listed one by one.
const KINDS: usize = 8;

/// Returns a table: a column for the model, its guide and an autoregressive model of the same shape.
pub fn told(costs: &Costs) -> String {
    let Costs { model, guide_model, acceptance, estimate, autoregressive } = costs;
    let decoding = &estimate.decoding;
    let assumed = acceptance.map_or_else(|| "recorded predictions".to_owned(), |share| format!("acceptance {share}"));
    let mut text = format!(
        "{model}: decoder {}, cache {}; {} prompt tokens, {} decoded; {assumed}, operations as {} counts\n",
        decoding.decoder,
        decoding.cache,
        estimate.prompt_tokens,
        decoding.generated_tokens,
        if estimate.convention == "published" { "dLLM-Cache's table" } else { "demask" },
    );
    let mut columns = vec![(if autoregressive.is_some() { "diffusion" } else { "autoregressive" }, &estimate.network)];
    columns.extend(guide_model.iter().zip(&estimate.guide).map(|_| "guide").zip(&estimate.guide));
    columns.extend(autoregressive.iter().map(|estimate| ("autoregressive", &estimate.network)));
    text += &table(&columns);
    text += &summary(estimate);
    text += &kinds(&estimate.network);
    text
}

/// A row of a table: what it is, and its cell for a network.
type Row = (&'static str, fn(&NetworkEstimate) -> String);

const ROWS: &[Row] = &[
    ("forwards", |found| found.forwards.to_string()),
    ("rows", |found| found.rows.to_string()),
    ("computed rows", |found| found.computed_rows.to_string()),
    ("head rows", |found| found.head_rows.to_string()),
    ("operations", |found| units(found.flops)),
    ("  projections", |found| units(found.modules.projections.flops)),
    ("  attention", |found| units(found.modules.attention.flops)),
    ("  mlp", |found| units(found.modules.mlp.flops)),
    ("  head", |found| units(found.modules.head.flops)),
    ("read", |found| bytes(found.bytes)),
    ("  projections", |found| bytes(found.modules.projections.bytes)),
    ("  K/V", |found| bytes(found.modules.attention.bytes)),
    ("  mlp", |found| bytes(found.modules.mlp.bytes)),
    ("  head", |found| bytes(found.modules.head.bytes)),
    ("K/V memory", |found| bytes(found.memory.cache)),
    ("weights", |found| bytes(found.memory.weights)),
    ("workspace", |found| bytes(found.memory.workspace)),
];

fn table(columns: &[(&str, &NetworkEstimate)]) -> String {
    let mut cells =
        vec![std::iter::once(String::new()).chain(columns.iter().map(|(name, _)| (*name).to_owned())).collect()];
    for (name, cell) in ROWS {
        let mut row = vec![(*name).to_owned()];
        row.extend(columns.iter().map(|(_, found)| cell(found)));
        cells.push(row);
    }
    aligned(&cells)
}

/// Cost of an answer for each token.
fn summary(estimate: &Estimate) -> String {
    let decoding = &estimate.decoding;
    let flops = estimate.network.flops + estimate.guide.as_ref().map_or(0.0, |guide| guide.flops);
    let tokens = decoding.generated_tokens.max(1) as f64;
    let guided = estimate.guide_acceptance.map_or_else(String::new, |share| format!("; the guide accepts {share:.3}"));
    let rounds = decoding.rounds.as_ref().map_or_else(String::new, |rounds| format!("{rounds}\n"));
    format!(
        "{} NFE, {:.2} tokens/NFE, {} for each token{guided}\n{rounds}",
        decoding.nfe,
        decoding.tokens_per_nfe,
        units(flops / tokens)
    )
}

/// Forwards by their rows, as far as they fit: those that take most operations, in the order in which they come.
fn kinds(network: &NetworkEstimate) -> String {
    let mut groups: Vec<Group> = Vec::new();
    for kind in &network.steps {
        match groups.iter_mut().find(|group| (group.sum.rows, group.sum.partial) == (kind.rows, kind.partial)) {
            Some(group) => group.add(kind),
            None => groups.push(Group { sum: *kind, keys: (kind.keys, kind.keys) }),
        }
    }
    groups.sort_by(|one, other| other.sum.flops.total_cmp(&one.sum.flops));
    let rest = groups.split_off(groups.len().min(KINDS));
    groups.sort_by_key(|group| group.sum.first);
    let header = ["from step", "forwards", "rows", "computed", "keys", "head rows", "operations"];
    let mut cells = vec![header.map(str::to_owned).to_vec()];
    cells.extend(groups.iter().map(Group::cells));
    let mut text = "each forward:\n".to_owned() + &aligned(&cells);
    if !rest.is_empty() {
        let forwards: usize = rest.iter().map(|group| group.sum.forwards).sum();
        let flops: f64 = rest.iter().map(|group| group.sum.flops).sum();
        let _ = writeln!(text, "{forwards} forwards of {} other sizes, together {}", rest.len(), units(flops));
    }
    text
}

/// Forwards of as many rows each.
struct Group {
    /// All together.
    sum: StepKind,
    /// Fewest and most keys of one.
    keys: (u64, u64),
}

impl Group {
    fn add(&mut self, kind: &StepKind) {
        let sum = &mut self.sum;
        sum.forwards += kind.forwards;
        sum.computed_rows += kind.computed_rows;
        sum.head_rows += kind.head_rows;
        sum.flops += kind.flops;
        self.keys = (self.keys.0.min(kind.keys), self.keys.1.max(kind.keys));
    }

    /// Average values of a step of the group.
    fn cells(&self) -> Vec<String> {
        let Self { sum, keys: (fewest, most) } = self;
        let each = |sum: u64| format!("{:.1}", sum as f64 / self.sum.forwards as f64);
        let keys = if fewest == most { fewest.to_string() } else { format!("{fewest}..{most}") };
        vec![
            sum.first.to_string(),
            sum.forwards.to_string(),
            sum.rows.to_string(),
            each(sum.computed_rows),
            keys,
            each(sum.head_rows),
            units(sum.flops / sum.forwards as f64),
        ]
    }
}

/// Cells in columns: the first to the left if it holds words, all others to the right.
fn aligned(cells: &[Vec<String>]) -> String {
    let columns = cells.first().map_or(0, Vec::len);
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    cells.iter().map(line).collect()
}

/// Operations for people.
fn units(operations: f64) -> String {
    let units = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| operations >= *unit) {
        Some((unit, name)) => format!("{:.2} {name}FLOP", operations / unit),
        None => format!("{operations:.0} FLOP"),
    }
}
