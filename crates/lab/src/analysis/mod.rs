//! Analyses of the decoding of prompts, and their pages of pictures.
//!
//! Each analysis is a type that adds up the observations of several prompts and has [`Findings`]: pictures, numbers, a
//! page. [`decode`] runs a session forward by forward and lets an analysis look into the network after each of them.

pub mod acceptance;
pub mod path;
pub mod stability;
pub mod staleness;

use std::{fmt::Write, path::Path};

use demask::{Error, ModelByHand};
use demask_decode::Session;
use demask_figures::{Figure, files::write_whole, page::Page};
use demask_model::Inspect;
use demask_step::{ForwardInput, HeadAsk, Job, Pending, Predictions, SequenceId, SequenceStep};
use serde_json::Value;

/// Findings of an analysis, ready to be written.
pub trait Findings {
    /// The name of its files.
    const NAME: &'static str;
    /// The page's heading.
    fn title(&self) -> String;
    /// Description of the analysis, in a sentence or two.
    fn about(&self) -> String;
    /// The pictures.
    fn figures(&self) -> Vec<Figure>;
    /// The table of the page and of the terminal; its first row is the header, its first column holds words.
    fn table(&self) -> Vec<Vec<String>> {
        Vec::new()
    }
    /// The numbers that need no picture.
    fn json(&self) -> Value;
}

/// Writes `NAME.html`, `NAME.json` and `plots/` into a directory, which is made if it does not exist; every file appears
/// whole or not at all.
pub fn write<F: Findings>(directory: &Path, found: &F) -> anyhow::Result<()> {
    let mut page = Page::new(&found.title(), &found.about());
    let table = found.table();
    if let Some(first) = table.first().and_then(|header| header.first()) {
        page.table(&table, &[first.as_str()]);
    }
    for figure in &found.figures() {
        plot(directory, &mut page, figure)?;
    }
    let json = format!("{:#}\n", found.json());
    write_whole(&directory.join(format!("{}.json", F::NAME)), json.as_bytes())?;
    write_whole(&directory.join(format!("{}.html", F::NAME)), page.finish()?.as_bytes())?;
    Ok(())
}

/// Puts a figure into a page, and writes it and its numbers into `plots/`.
pub fn plot(directory: &Path, page: &mut Page, figure: &Figure) -> anyhow::Result<()> {
    let picture = figure.svg()?;
    write_whole(&directory.join(format!("plots/{}.svg", figure.name)), picture.as_bytes())?;
    write_whole(&directory.join(format!("plots/{}.csv", figure.name)), figure.data.csv().as_bytes())?;
    page.figure(figure, &picture);
    Ok(())
}

/// A table for a terminal: the first column to the left, all others to the right.
pub fn columns(table: &[Vec<String>]) -> String {
    let width = |column: usize| table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut text = String::new();
    for row in table {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            let _ = if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A look at a decoding between a forward and what comes of it.
pub struct Look<'a> {
    /// The decoding: its canvas is the one that was run.
    pub session: &'a Session,
    /// Request and predictions of the diffusion model for the canvas; none at the end, where nothing runs any more.
    pub ran: Option<(&'a ForwardInput, &'a Predictions)>,
    /// The diffusion model.
    pub network: &'a mut dyn Inspect,
    /// The canvas's sequence on it.
    pub sequence: SequenceId,
}

/// Sees a decoding after each forward of the diffusion model, and at its end.
pub type Looker<'a> = dyn FnMut(Look<'_>) -> Result<(), Error> + 'a;

/// Decodes a session, forward by forward, on the networks of its model.
///
/// # Errors
/// If a forward cannot be run, or the look says so.
pub fn decode(model: &mut ModelByHand, session: Session, look: &mut Looker<'_>) -> Result<Session, Error> {
    decode_with(model, session, false, look)
}

/// The same, and each forward of the diffusion model also answers its logits: `[lanes, positions, vocabulary]`.
///
/// # Errors
/// As [`decode`].
pub fn decode_with_logits(model: &mut ModelByHand, session: Session, look: &mut Looker<'_>) -> Result<Session, Error> {
    decode_with(model, session, true, look)
}

fn decode_with(
    model: &mut ModelByHand,
    mut session: Session,
    logits: bool,
    look: &mut Looker<'_>,
) -> Result<Session, Error> {
    let mut open = Vec::new();
    let decoded =
        open_all(model, &session, logits, &mut open).and_then(|()| run(model, &mut session, logits, &open, look));
    for (network, id) in open {
        model.network_of(network).close(id);
    }
    decoded.map(|()| session)
}

/// Opens the sequences that a session needs: the network of each, and its name there.
fn open_all(
    model: &mut ModelByHand,
    session: &Session,
    logits: bool,
    open: &mut Vec<(usize, SequenceId)>,
) -> Result<(), Error> {
    for (index, need) in session.needs().iter().enumerate() {
        let mut needs = need.limits.clone();
        needs.logits |= logits && index == 0;
        open.push((need.network, model.network_of(need.network).open(&needs)?));
    }
    Ok(())
}

fn run(
    model: &mut ModelByHand,
    session: &mut Session,
    logits: bool,
    open: &[(usize, SequenceId)],
    look: &mut Looker<'_>,
) -> Result<(), Error> {
    while let Pending::Run { requests, .. } = session.pending() {
        let ask = |request: &ForwardInput| {
            let mut ask = request.ask.clone();
            ask.wanted.logits |= logits && request.sequence == 0;
            ask
        };
        let asks: Vec<HeadAsk> = requests.iter().map(ask).collect();
        let mut steps = Vec::with_capacity(requests.len());
        for (request, ask) in requests.iter().zip(&asks) {
            steps.push(SequenceStep { ask, ..request.step(open[request.sequence].1) });
        }
        let network = model.network_of(open[requests[0].sequence].0);
        let mut out = vec![Predictions::default(); steps.len()];
        network.check(&steps)?;
        network.step(&steps, &mut out).map_err(Error::Device)?;
        if requests[0].sequence == 0 {
            let ran = Some((&requests[0], &out[0]));
            look(Look { session, ran, network, sequence: open[0].1 })?;
        }
        session.feed(&out);
    }
    look(Look { session, ran: None, network: model.network_mut(), sequence: open[0].1 })
}

#[cfg(test)]
mod tests;
