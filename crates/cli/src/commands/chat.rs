//! `demask chat`: a conversation, line by line.

use std::io::{self, BufRead, IsTerminal};

use demask::{Model, Prompt, checkpoint::Message};

use crate::{
    args::ChatArgs,
    output,
    settings::{Request, Settings, generate_options, guide},
    show::{Show, Ways},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &ChatArgs) -> anyhow::Result<()> {
    let options = generate_options(&args.decode, settings.seed)?;
    let guide = guide(&args.decode, &options)?;
    let device = &settings.device()?;
    let system = args.decode.system.as_ref().map(|text| Message::new("system", text));
    // There must be room for an answer to the shortest message; longer canvases are checked as they come.
    let first = system.iter().cloned().chain([Message::new("user", "")]).collect();
    let mut request = Request { prompt: Prompt::Chat(first), options, guide };
    let mut model = request.load(settings.source.open(settings.screen)?, device, settings.screen)?;
    request.prompt = Prompt::Chat(system.iter().cloned().collect());
    let invite = io::stdin().is_terminal();
    if invite {
        settings.screen.remark(&format!("{}: /reset forgets, /exit ends", model.name()));
    }
    let mut show = Show::new(&model, settings.screen, Ways::default());
    let mut input = io::stdin().lock();
    while let Some(line) = read_line(&mut input, invite)? {
        match line.trim() {
            "" => {}
            "/exit" => break,
            "/reset" => request.prompt = Prompt::Chat(system.iter().cloned().collect()),
            message => turn(&mut show, &mut model, &mut request, message, settings.screen.json)?,
        }
    }
    Ok(())
}

/// One message and its answer.
fn turn(show: &mut Show, model: &mut Model, request: &mut Request, message: &str, json: bool) -> anyhow::Result<()> {
    if let Prompt::Chat(messages) = &mut request.prompt {
        messages.push(Message::new("user", message));
    }
    let answer = show.answer(model, request)?;
    if json {
        output::json(&answer)?;
    } else {
        show.close(&answer)?;
    }
    if let Prompt::Chat(messages) = &mut request.prompt {
        messages.push(Message::new("assistant", answer.text.unwrap_or_default()));
    }
    Ok(())
}

/// The next line; nothing at the end of the input.
fn read_line(input: &mut impl BufRead, invite: bool) -> io::Result<Option<String>> {
    if invite {
        output::text("> ")?;
    }
    let mut line = String::new();
    Ok((input.read_line(&mut line)? > 0).then_some(line))
}
