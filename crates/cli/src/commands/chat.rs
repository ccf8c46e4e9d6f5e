//! `demask chat`: a conversation, line by line.

use std::io::{self, BufRead, IsTerminal};

use demask::{Chat, plain};

use crate::{
    args::ChatArgs,
    output,
    settings::{Request, Settings, generate_options, guide, notes, refuse_logprobs},
    show::{Show, Ways},
};

/// Runs the command.
pub fn run(settings: &Settings, args: &ChatArgs) -> anyhow::Result<()> {
    let options = generate_options(&args.decode, settings.seed)?;
    refuse_logprobs(&options, settings.screen.json)?;
    let guide = guide(&args.decode, &options)?;
    let device = &settings.device()?;
    let mut chat = Chat::new(args.decode.system.as_deref());
    // There must be room for an answer to the shortest message; longer canvases are checked as they come.
    let request = Request { prompt: chat.with(""), options, guide };
    let (model, _) = request.load(request.open(&settings.source, settings.screen)?, device, settings.screen)?;
    notes(model.info(), &request.options).for_each(|note| settings.screen.remark(&note));
    let invite = io::stdin().is_terminal();
    if invite {
        settings.screen.remark(&format!("{}: /reset forgets, /exit ends", model.name()));
    }
    let mut show = Show::new(&model, &request.options, settings.screen, Ways::default());
    let mut input = io::stdin().lock();
    while let Some(line) = read_line(&mut input, invite)? {
        match plain::clean(&line).trim() {
            "" => {}
            "/exit" => break,
            "/reset" => chat.reset(),
            message => {
                let prepared = model.prepare(&chat.with(message), &request.options)?;
                let answer = show.answer(&model, prepared)?;
                if settings.screen.json {
                    show.json(&answer)?;
                } else {
                    show.close(&answer)?;
                }
                chat.heard(message, answer.text.unwrap_or_default());
            }
        }
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
