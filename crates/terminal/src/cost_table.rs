//! Costs as a table for people.

use std::fmt::Write;

use demask::costs::{
    Costs,
    estimate::{Estimate, NetworkEstimate, StepKind},
};

use serde::Serialize;

use crate::words::{bytes, seconds, three_digits};

/// Kinds of forwards that are listed one by one.
const KINDS: usize = 8;

/// Costs of the same answer where more predictions come true.
#[derive(Debug, Serialize)]
pub struct Hoped {
    /// Share of predictions that come true.
    pub acceptance: f64,
    /// Where that was seen.
    pub source: &'static str,
    /// Costs of the answer.
    pub estimate: Estimate,
}

/// Ceilings of a machine, and the shortest time that they allow for an answer.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Multiplications and additions, in 1e12 a second.
    pub tflops: f64,
    /// Memory that is read, in 1e9 bytes a second.
    pub gbs: f64,
}

impl Machine {
    /// Returns the seconds that reading and multiplying take at least: in each forward the longer of the two.
    pub fn seconds(&self, network: &NetworkEstimate) -> f64 {
        let reading = network.bytes as f64 / network.forwards.max(1) as f64 / (self.gbs * 1e9);
        let of_kind = |kind: &StepKind| (kind.flops / (self.tflops * 1e12)).max(kind.forwards as f64 * reading);
        network.steps.iter().map(of_kind).sum()
    }
}

/// What costs are shown beside.
#[derive(Debug, Default, Serialize)]
pub struct Beside {
    /// A better case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hoped: Option<Hoped>,
    /// The machine that would run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// Returns a table: a column for the model, for a better case, its guide and an autoregressive model of the same shape.
pub fn describe(costs: &Costs, Beside { hoped, machine }: &Beside) -> String {
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
    let own = if autoregressive.is_some() { "diffusion" } else { "autoregressive" };
    let better = hoped.as_ref().map(|hoped| format!("acceptance {}", hoped.acceptance));
    let mut columns = vec![(if hoped.is_some() { "worst case" } else { own }, &estimate.network)];
    columns.extend(better.iter().zip(hoped).map(|(name, hoped)| (name.as_str(), &hoped.estimate.network)));
    columns.extend(guide_model.iter().zip(&estimate.guide).map(|_| "guide").zip(&estimate.guide));
    columns.extend(autoregressive.iter().map(|estimate| ("autoregressive", &estimate.network)));
    text += &table(&columns, machine.as_ref());
    if let Some(Hoped { acceptance, source, .. }) = hoped {
        let _ = writeln!(text, "acceptance {acceptance}: {source}");
    }
    if let Some(machine) = machine {
        text += &at_least(costs, machine);
    }
    text += &summary(estimate);
    text += &kinds(&estimate.network);
    text
}

/// A row of a table: its name, and its cell for a network.
type Row = (&'static str, fn(&NetworkEstimate) -> String);

const ROWS: &[Row] = &[
    ("forwards", |found| found.forwards.to_string()),
    ("rows", |found| found.rows.to_string()),
    ("computed rows", |found| format!("{:.0}", found.computed_rows)),
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

fn table(columns: &[(&str, &NetworkEstimate)], machine: Option<&Machine>) -> String {
    let mut cells =
        vec![std::iter::once(String::new()).chain(columns.iter().map(|(name, _)| (*name).to_owned())).collect()];
    if let Some(machine) = machine {
        let seconds = columns.iter().map(|(_, network)| seconds(machine.seconds(network)));
        cells.push(std::iter::once("time, at least".to_owned()).chain(seconds).collect());
    }
    for (name, cell) in ROWS {
        let mut row = vec![(*name).to_owned()];
        row.extend(columns.iter().map(|(_, found)| cell(found)));
        cells.push(row);
    }
    aligned(&cells)
}

/// Returns the meaning of the seconds, and the tokens per NFE from which on diffusion takes fewer than autoregression.
fn at_least(costs: &Costs, machine: &Machine) -> String {
    let mut text = format!(
        "time: what multiplying ({} TFLOP/s) and reading ({} GB/s) take on this machine\n",
        three_digits(machine.tflops),
        three_digits(machine.gbs)
    );
    let alone = costs.guide_model.is_none().then_some(costs.autoregressive.as_ref()).flatten();
    if let Some(autoregressive) = alone {
        let each = |estimate: &Estimate, count: usize| machine.seconds(&estimate.network) / count.max(1) as f64;
        let forward = each(&costs.estimate, costs.estimate.decoding.nfe);
        let token = each(autoregressive, autoregressive.decoding.generated_tokens);
        let even = three_digits(forward / token);
        let _ = writeln!(text, "at {even} tokens/NFE it takes the time of autoregression, above that less");
    }
    text
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
            format!("{:.1}", sum.computed_rows / sum.forwards as f64),
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
