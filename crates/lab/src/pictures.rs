//! Pictures of costs: operations, bytes and memory at several lengths.

use std::path::Path;

use demask::Options;
use demask::costs::{Costs, Predicted, Subject, estimate::Estimate};
use demask_figures::{Axis, Figure, Join, Panel, Point, Series, Table, files::write_whole, page::Page};
use demask_terminal::cost_table::{Beside, describe};
use serde_json::json;

use crate::analysis::plot;

/// Lengths that are drawn, as multiples of the one asked for.
const SCALES: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Writes a page, its data and its plots.
pub fn write(directory: &Path, subject: &Subject<'_>, costs: &Costs, acceptance: f64) -> anyhow::Result<()> {
    let all = scaled(subject, costs, acceptance)?;
    let decoding = &costs.estimate.decoding;
    let mut page = Page::new(
        &format!("Costs: {}", costs.model),
        &format!("Decoder {}, cache {}, acceptance {acceptance}.", decoding.decoder, decoding.cache),
    );
    plot(directory, &mut page, &figure(costs, &all))?;
    page.lines(&describe(costs, &Beside::default()));
    write_whole(&directory.join("cost.json"), format!("{:#}\n", json!({"costs": costs, "lengths": all})).as_bytes())?;
    write_whole(&directory.join("cost.html"), page.finish()?.as_bytes())?;
    Ok(())
}

/// Costs at all lengths that the model's context holds.
fn scaled(subject: &Subject<'_>, costs: &Costs, acceptance: f64) -> anyhow::Result<Vec<Costs>> {
    let (prompt, context) = (costs.estimate.prompt_tokens, subject.shape.info().spec().context);
    let asked = subject.options.gen_length.unwrap_or(costs.estimate.decoding.generated_tokens);
    let mut all = Vec::new();
    for scale in SCALES {
        // Whole blocks stay whole.
        let block = costs.estimate.decoding.block_length.min(asked).max(1);
        let times = |length: usize| ((length as f64 * scale).round() as usize).max(1);
        let gen_length = times(asked).next_multiple_of(block);
        let prompt_length = times(prompt);
        if prompt_length + gen_length > context {
            break;
        }
        if scale == 1.0 {
            all.push(costs.clone());
            continue;
        }
        let steps = subject.options.steps.map(|steps| (steps * gen_length).div_ceil(asked));
        let options = Options { gen_length: Some(gen_length), steps, ..subject.options.clone() };
        let subject = Subject { options: &options, ..*subject };
        all.push(subject.costs(prompt_length, &Predicted::Assumed(acceptance))?);
    }
    Ok(all)
}

/// Quantity of an estimate that a panel shows.
type Measure = (&'static str, fn(&Estimate) -> f64);

const MEASURES: [Measure; 3] = [
    ("operations (TFLOP)", |estimate| {
        (estimate.network.flops + estimate.guide.as_ref().map_or(0.0, |guide| guide.flops)) / 1e12
    }),
    ("read (GB)", |estimate| {
        (estimate.network.bytes + estimate.guide.as_ref().map_or(0, |guide| guide.bytes)) as f64 / 1e9
    }),
    ("K/V memory (MB)", |estimate| {
        (estimate.network.memory.cache + estimate.guide.as_ref().map_or(0, |guide| guide.memory.cache)) as f64 / 1e6
    }),
];

/// A way to decode: its name, and its estimate.
type Way = (String, fn(&Costs) -> Option<&Estimate>);

fn figure(costs: &Costs, all: &[Costs]) -> Figure {
    let decoding = &costs.estimate.decoding;
    let own = format!("{} over {}", decoding.decoder, decoding.cache);
    let ways: [Way; 2] =
        [(own, |costs| Some(&costs.estimate)), ("autoregressive".to_owned(), |costs| costs.autoregressive.as_ref())];
    let length = |estimate: &Estimate| (estimate.prompt_tokens + estimate.decoding.generated_tokens) as f64;
    let mut data = Table::new(&["way", "positions", MEASURES[0].0, MEASURES[1].0, MEASURES[2].0]);
    for (label, estimate) in &ways {
        for estimate in all.iter().filter_map(estimate) {
            let mut row = vec![label.clone(), length(estimate).to_string()];
            row.extend(MEASURES.map(|(_, value)| value(estimate).to_string()));
            data.rows.push(row);
        }
    }
    let panels = MEASURES.iter().map(|(name, value)| {
        let series = ways.iter().map(|(label, estimate)| {
            let point = |estimate: &Estimate| Point::at(length(estimate), value(estimate));
            let points = all.iter().filter_map(estimate).map(point).collect();
            Series::new(label.clone(), Join::Line, points)
        });
        let series = series.filter(|series| !series.points.is_empty()).collect();
        Panel::series(Axis::log("positions"), Axis::log(name), series)
    });
    Figure {
        name: "cost_length".to_owned(),
        title: format!("Operations, bytes and memory of {} against length", costs.model),
        caption:
            "Prompt and answer grow together; the sum of both is across. The same network that takes one token after \
                  the other stands beside it."
                .to_owned(),
        panels: panels.collect(),
        data,
    }
}
