//! `demask chat`: a conversation.

mod commands;
mod messages;

use std::ops::ControlFlow;

use demask::{Chat, Error, Model, Options, Request as Prepared};

use crate::{
    args::{ChatArgs, command},
    env,
    exit::{self, Interrupted},
    interrupt::{self, Watched},
    output::{self, Screen},
    settings::{Request, Settings, generate_options, guide, notes, refuse_logprobs},
    show::{Show, Ways, beyond_the_demo},
};
use messages::{Messages, Typed};

/// Part of the context that is left for an answer before turns are forgotten, where the usual answer is longer.
const PART_FOR_ANSWERS: usize = 4;

/// Runs the command.
pub fn run(settings: &Settings, args: &ChatArgs) -> anyhow::Result<()> {
    let mut options = generate_options(&args.decode, settings.seed)?;
    let seed = settings.draw_seed(&mut options);
    let screen = settings.screen;
    refuse_logprobs(&options, screen.json)?;
    let guide = guide(&args.decode, &options)?;
    let device = &settings.device()?;
    let chat = Chat::new(args.decode.system.as_deref());
    // There must be room for an answer to the shortest message; longer canvases are checked as they come.
    let request = Request { prompt: chat.with("a"), options, guide };
    let (model, _) = request.load(request.open(&settings.source, screen)?, device, screen)?;
    notes(model.info(), &request.options).chain(seed).for_each(|note| screen.remark(&note));
    let is_demo = settings.source.name().is_none();
    if is_demo {
        screen.remark("note: the built-in demo has learned no second turn: /reset before the next problem");
    }
    let mut messages = Messages::open(if args.no_history { None } else { env::history() }, screen)?;
    if let Some(usage) = messages.usage() {
        screen.remark(&format!("{}: {usage}", model.name()));
    }
    let show = Show::new(&model, &request.options, screen, Ways::default());
    // In a pipe there is no one to go on with.
    let outlives_errors = matches!(messages, Messages::Edited(_));
    let options = request.options;
    let mut conversation = Conversation {
        model: &model,
        is_demo,
        options,
        chat,
        show,
        screen,
        outlives_errors,
        names_seed: settings.names_seed,
        retries: 0,
        unanswered: None,
    };
    let talked = conversation.talk(&mut messages);
    // What was interrupted may still run.
    model.abandon();
    talked
}

/// A conversation as it is shown.
struct Conversation<'a> {
    model: &'a Model,
    is_demo: bool,
    options: Options,
    chat: Chat,
    show: Show,
    screen: Screen,
    /// Sets whether an error or an interruption ends the answer alone.
    outlives_errors: bool,
    /// Records whether the user has named a seed, so that none is drawn.
    names_seed: bool,
    /// Times that the last message was answered once more.
    retries: u64,
    /// The last message, if it is not part of the conversation.
    unanswered: Option<String>,
}

impl Conversation<'_> {
    /// Answers messages and runs commands to the end.
    fn talk(&mut self, messages: &mut Messages) -> anyhow::Result<()> {
        // An interruption that comes late, when its answer is there, ends nothing.
        let _watched = self.outlives_errors.then(Watched::begin);
        loop {
            let done = match messages.next()? {
                Typed::Nothing => continue,
                Typed::Interruption => {
                    self.screen.remark("Ctrl-D or /bye ends; Ctrl-C ends an answer that is being made");
                    continue;
                }
                Typed::Message(message) => self.say(&message).map(ControlFlow::Continue),
                Typed::Command(line) => commands::run(self, &line),
                Typed::End => return Ok(()),
            };
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) if self.outlives_errors => output::note(&exit::line(&error, &command())),
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers a message.
    fn say(&mut self, message: &str) -> anyhow::Result<()> {
        self.retries = 0;
        self.turn(message)
    }

    /// Answers the last message once more, by other random numbers. The answer that was there stays if there is no other.
    fn retry(&mut self) -> anyhow::Result<()> {
        self.retries += 1;
        if let Some(message) = self.unanswered.take() {
            return self.turn(&message);
        }
        let former = self.chat.clone();
        let Some((message, _)) = self.chat.take_back() else {
            return Err(exit::usage("there is no message to answer once more: type one"));
        };
        let done = self.turn(&message);
        if self.unanswered.take().is_some() {
            self.chat = former;
        }
        done
    }

    /// Answers a message, which is part of the conversation from its first word of an answer on.
    fn turn(&mut self, message: &str) -> anyhow::Result<()> {
        self.unanswered = Some(message.to_owned());
        let _watched = Watched::begin();
        if self.outlives_errors {
            interrupt::forget();
        }
        if let Some(note) = beyond_the_demo(message).filter(|_| self.is_demo) {
            self.screen.remark(&note);
        }
        let prepared = self.prepare(message)?;
        let answer = match self.show.answer(self.model, prepared) {
            Err(error) if self.outlives_errors => return self.stop(message, error),
            answer => answer?,
        };
        if self.show.is_json() {
            self.show.json(&answer)?;
        } else {
            self.show.close(&answer)?;
        }
        self.hear(message, answer.text.unwrap_or_default());
        Ok(())
    }

    fn hear(&mut self, message: &str, answer: String) {
        self.unanswered = None;
        self.chat.heard(message, answer);
    }

    /// Ends an answer early. Its part that was read belongs to the conversation, so that the next message may be about
    /// it.
    fn stop(&mut self, message: &str, error: anyhow::Error) -> anyhow::Result<()> {
        let seen = self.show.stop()?;
        if !is_interruption(&error) {
            return Err(error);
        }
        match seen {
            Some(seen) => {
                self.screen.remark("interrupted: the conversation goes on with this part of the answer");
                self.hear(message, seen);
            }
            None => self.screen.remark("interrupted: the message is not part of the conversation"),
        }
        Ok(())
    }

    /// Gets a message ready. The oldest turns are forgotten, as many as leave room for an answer; none if the message has no room
    /// without them either.
    fn prepare(&mut self, message: &str) -> anyhow::Result<Prepared> {
        let turns = self.chat.turns();
        let without = |forgotten: usize| {
            let mut chat = self.chat.clone();
            chat.forget(forgotten);
            self.model.prepare(&chat.with(message), &self.seeded())
        };
        let fits = |prepared: &Result<Prepared, Error>| prepared.as_ref().is_ok_and(|prepared| self.has_room(prepared));
        let mut whole = without(0);
        if turns == 0 || fits(&whole) {
            return Ok(whole?);
        }
        let mut least = without(turns)?;
        // Each turn that is forgotten makes the prompt shorter: those between are tried by halves.
        let (mut too_few, mut enough) = (0, turns);
        while enough - too_few > 1 {
            let middle = usize::midpoint(too_few, enough);
            whole = without(middle);
            match whole {
                Ok(prepared) if self.has_room(&prepared) => (enough, least) = (middle, prepared),
                _ => too_few = middle,
            }
        }
        self.chat.forget(enough);
        let what = if enough == 1 {
            "turn no longer fits and is".to_owned()
        } else {
            format!("{enough} turns no longer fit and are")
        };
        self.screen.remark(&format!("the oldest {what} forgotten"));
        Ok(least)
    }

    /// Reports whether a prompt leaves room for an answer as it is usual, or for a part of the context.
    fn has_room(&self, prepared: &Prepared) -> bool {
        let info = self.model.info();
        let usual = info.recommended_length().min(info.facts().context / PART_FOR_ANSWERS);
        let wanted = self.options.max_tokens.map_or(usual, |most| most.min(usual));
        prepared.session().is_none_or(|session| {
            let layout = session.layout();
            self.options.gen_length.is_some() || layout.len() - layout.response() >= wanted
        })
    }

    /// Options of the next answer.
    fn seeded(&self) -> Options {
        let seed = self.options.seed.map(|seed| seed.wrapping_add(self.retries));
        Options { seed, ..self.options.clone() }
    }

    /// Refuses a system message or options with which no message can be answered.
    fn check(&self, system: Option<&str>, options: &Options) -> anyhow::Result<()> {
        refuse_logprobs(options, self.screen.json)?;
        self.model.prepare(&Chat::new(system).with(""), options)?;
        Ok(())
    }

    /// Decodes by these options from now on.
    fn decode_with(&mut self, options: Options) {
        self.show = Show::new(self.model, &options, self.screen, Ways::default());
        self.options = options;
    }

    /// Forgets all but the system message.
    fn forget(&mut self) {
        self.chat.reset();
        self.unanswered = None;
    }

    /// Goes on with another conversation.
    fn go_on_with(&mut self, chat: Chat) {
        self.chat = chat;
        self.unanswered = None;
    }
}

fn is_interruption(error: &anyhow::Error) -> bool {
    error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(Error::Interrupted))
}
