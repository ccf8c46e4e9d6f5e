//! `demask-lab trace`: replays what `generate --trace` wrote.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::Context;
use demask::TraceLine;
use demask::trace::{Given, read_trace};

use crate::{
    args::TraceArgs,
    canvas::{Canvas, Drafted, Player, Stage, bounded, film, picture, speed, token_text},
    drafts::{Round, board, rounds},
    exit::usage,
    files::OutFile,
    output,
};

/// Runs the command.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    refuse_idle_frames(args)?;
    let speed = speed("--speed", args.speed)?;
    let name = args.file.display().to_string();
    let input: Box<dyn BufRead> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(&args.file).with_context(|| format!("cannot read {name}"))?))
    };
    let lines = read_trace(input).with_context(|| format!("cannot replay {name}"))?;
    match &args.svg {
        svg if args.drafts => drafts(svg.as_deref(), &lines),
        Some(path) if args.frames.is_empty() => write(path, &picture::animation(&lines, speed)?),
        Some(path) => write(path, &picture::frames(&lines, &args.frames)?),
        None => replay(&lines, film::pause(speed)),
    }
}

/// Refuses frames of no picture, and what has no meaning beside them.
fn refuse_idle_frames(args: &TraceArgs) -> anyhow::Result<()> {
    if args.frames.is_empty() {
        return Ok(());
    }
    let refused = match args {
        TraceArgs { svg: None, .. } => "--frames goes with --svg FILE.svg: name the file",
        TraceArgs { drafts: true, .. } => {
            "--frames are of the canvas, and --drafts draws each forward's drafts: omit one"
        }
        TraceArgs { speed: Some(_), .. } => "--speed has no meaning with --frames, which stand still: omit it",
        _ => return Ok(()),
    };
    Err(usage(refused))
}

/// Shows or draws the drafts of a trace.
fn drafts(svg: Option<&Path>, lines: &[TraceLine]) -> anyhow::Result<()> {
    let rounds = rounds(lines);
    if rounds.is_empty() {
        anyhow::bail!(
            "the trace has no drafts: expected one of generate --trace FILE --drafts with --decoder freedave or guided"
        );
    }
    if let Some(path) = svg {
        return draw_drafts(lines, &rounds, path);
    }
    let all: String = rounds.iter().map(Round::lines).collect();
    Ok(output::text(&all)?)
}

/// Draws drafts into a file.
fn draw_drafts(lines: &[TraceLine], rounds: &[Round], path: &Path) -> anyhow::Result<()> {
    write(path, &board(&picture::title(lines), rounds).svg()?)
}

/// Writes a picture's file.
fn write(path: &Path, picture: &str) -> anyhow::Result<()> {
    let mut file = OutFile::create(path)?;
    io::Write::write_all(&mut file, picture.as_bytes())?;
    file.finish()
}

fn replay(lines: &[TraceLine], pause: Duration) -> anyhow::Result<()> {
    let mut player = None;
    for (index, line) in lines.iter().enumerate() {
        match (line, &mut player) {
            (TraceLine::Header { model, prompt, length, given, decoder, cache, seed, .. }, None) => {
                bounded(*length)?;
                output::line(&format!(
                    "{model}, decoder {decoder}, cache {cache}, seed {seed}: {} prompt tokens, {length} positions",
                    prompt.len()
                ))?;
                let mut cells = vec![None; *length];
                for Given { position, token, text } in given {
                    let index = (*position as usize).checked_sub(prompt.len());
                    if let Some(cell) = index.and_then(|index| cells.get_mut(index)) {
                        *cell = Some(token_text(*token, text.as_deref()));
                    }
                }
                let canvas = Canvas::new(prompt.len(), cells.into_iter());
                player = Some(Player::new(canvas, Stage::stdout()));
            }
            (TraceLine::Commit { position, token, text, .. }, Some(player)) => {
                player.commit(*position as usize, token_text(*token, text.as_deref()));
            }
            (TraceLine::Replace { at, to, text, .. }, Some(player)) => {
                player.replace(*at as usize, to.map(|token| token_text(token, text.as_deref())));
            }
            (&TraceLine::Step { step, nfe, accepted, rejected, .. }, Some(player)) => {
                player.step(step, nfe, Drafted { accepted, rejected })?;
                if player.is_animated() {
                    thread::sleep(pause);
                }
            }
            (TraceLine::Predictions { .. } | TraceLine::Draft { .. } | TraceLine::Target { .. }, Some(_)) => {}
            _ => anyhow::bail!("line {} of the trace is a second header: expected steps and commits", index + 1),
        }
    }
    Ok(())
}
