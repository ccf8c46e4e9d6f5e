//! `demask chat`: a conversation.

mod messages;

use demask::{Chat, Error, Model, Options};

use crate::{
    args::ChatArgs,
    env,
    exit::Interrupted,
    interrupt::{self, Watched},
    settings::{Request, Settings, generate_options, guide, notes, refuse_logprobs},
    show::{Show, Ways},
};
use messages::{Messages, Typed};

/// Runs the command.
pub fn run(settings: &Settings, args: &ChatArgs) -> anyhow::Result<()> {
    let options = generate_options(&args.decode, settings.seed)?;
    let screen = settings.screen;
    refuse_logprobs(&options, screen.json)?;
    let guide = guide(&args.decode, &options)?;
    let device = &settings.device()?;
    let chat = Chat::new(args.decode.system.as_deref());
    // There must be room for an answer to the shortest message; longer canvases are checked as they come.
    let request = Request { prompt: chat.with(""), options, guide };
    let (model, _) = request.load(request.open(&settings.source, screen)?, device, screen)?;
    notes(model.info(), &request.options).for_each(|note| screen.remark(&note));
    let mut messages = Messages::open(if args.no_history { None } else { env::history() }, screen)?;
    if let Some(usage) = messages.usage() {
        screen.remark(&format!("{}: {usage}", model.name()));
    }
    let show = Show::new(&model, &request.options, screen, Ways::default());
    // In a pipe there is no one to go on with.
    let outlives_interruption = matches!(messages, Messages::Edited(_));
    let mut conversation = Conversation { model: &model, options: &request.options, chat, show, outlives_interruption };
    loop {
        match messages.next()? {
            Typed::Nothing => {}
            Typed::Reset => conversation.chat.reset(),
            Typed::Interruption => screen.remark("Ctrl-D or /exit ends; Ctrl-C ends an answer that is being made"),
            Typed::Message(message) => conversation.turn(&message)?,
            Typed::End => return Ok(()),
        }
    }
}

/// A conversation as it is shown.
struct Conversation<'a> {
    model: &'a Model,
    options: &'a Options,
    chat: Chat,
    show: Show,
    /// Sets whether an interruption ends the answer alone.
    outlives_interruption: bool,
}

impl Conversation<'_> {
    /// Answers a message.
    fn turn(&mut self, message: &str) -> anyhow::Result<()> {
        let _watched = Watched::begin();
        if self.outlives_interruption {
            interrupt::forget();
        }
        let prepared = self.model.prepare(&self.chat.with(message), self.options)?;
        let answer = match self.show.answer(self.model, prepared) {
            Err(error) if self.outlives_interruption && is_interruption(&error) => return self.stop(message),
            answer => answer?,
        };
        if self.show.is_json() {
            self.show.json(&answer)?;
        } else {
            self.show.close(&answer)?;
        }
        self.chat.heard(message, answer.text.unwrap_or_default());
        Ok(())
    }

    /// Ends an answer early. What was read of it is part of the conversation, so that the next message may be about it.
    fn stop(&mut self, message: &str) -> anyhow::Result<()> {
        if let Some(seen) = self.show.stop()? {
            self.chat.heard(message, seen);
        }
        Ok(())
    }
}

fn is_interruption(error: &anyhow::Error) -> bool {
    error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(Error::Interrupted))
}
