//! An answer while it is made: text as it settles, a drawn canvas, a trace, a bar.

use std::{io::Write, mem, ops::ControlFlow, sync::Arc};

use demask::{Event, Generation, Model, Options, Receipt, Request, TraceLine};
use demask::{
    TokenId,
    layers::step::NO_TOKEN,
    trace::{TokenTexts, Tracer},
};
use demask_terminal::args::in_flags;

use crate::{
    args::command,
    canvas::{Canvas, Player, Stage, picture, shown},
    files::OutFile,
    interrupt::{self, Watched},
    output::{self, Screen},
    progress::Bar,
};

/// Ways in which answers are shown beside their text.
#[derive(Default)]
pub struct Ways {
    /// The canvas is drawn.
    pub watch: bool,
    /// Commits are written here.
    pub trace: Option<OutFile>,
    /// The canvas is drawn into this one as a picture that moves.
    pub svg: Option<OutFile>,
}

/// Shows answers while they are made.
pub struct Show {
    screen: Screen,
    ways: Ways,
    tracer: Tracer,
    /// Lines of the trace that the picture shows.
    pictured: Vec<TraceLine>,
    mask: Option<TokenId>,
    texts: Arc<TokenTexts>,
    player: Option<Player>,
    bar: Bar,
    /// Sets whether answers are to fill their length, whatever ends stand there.
    fills: bool,
    /// Text that standard output has seen.
    streamed: String,
    /// Error while showing: it ended the generation.
    failure: Option<anyhow::Error>,
}

impl Show {
    /// Creates a show for answers of a model with these options.
    pub fn new(model: &Model, options: &Options, screen: Screen, ways: Ways) -> Self {
        let needs_texts = ways.watch || ways.trace.is_some() || ways.svg.is_some();
        Self {
            screen,
            tracer: Tracer::new(model.info(), options.seed.unwrap_or(0)),
            pictured: Vec::new(),
            mask: model.info().facts().mask_id,
            texts: if needs_texts { model.texts() } else { Arc::default() },
            player: None,
            bar: Bar::hidden(),
            fills: options.ignore_eos == Some(true),
            streamed: String::new(),
            failure: None,
            ways,
        }
    }

    /// Makes an answer and shows it on the way.
    pub fn answer(&mut self, model: &Model, request: Request) -> anyhow::Result<Generation> {
        let _watched = Watched::begin();
        self.streamed.clear();
        let result = model.answer(request, &mut |event| self.see(event));
        self.bar.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        interrupt::check()?;
        Ok(result?)
    }

    /// Ends the line of an answer that was interrupted, and returns the text that was seen of it, if there was any.
    pub fn stop(&mut self) -> anyhow::Result<Option<String>> {
        let seen = mem::take(&mut self.streamed);
        if seen.is_empty() {
            self.screen.remark("interrupted: the message is not part of the conversation");
            return Ok(None);
        }
        output::line("")?;
        self.screen.remark("interrupted: the conversation goes on with this part of the answer");
        Ok(Some(seen))
    }

    /// Returns whether answers are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.screen.json
    }

    /// Shows what the way has not shown yet, and puts the files into their places.
    pub fn finish(mut self, answer: &Generation) -> anyhow::Result<()> {
        if let Some(trace) = self.ways.trace.take() {
            trace.finish()?;
        }
        if let Some(mut svg) = self.ways.svg.take() {
            svg.write_all(picture::animation(&self.pictured, picture::SPEED)?.as_bytes())?;
            svg.finish()?;
        }
        if self.screen.json {
            return self.json(answer);
        }
        self.close(answer)
    }

    /// Prints an answer as JSON.
    pub fn json(&self, answer: &Generation) -> anyhow::Result<()> {
        output::json(answer)?;
        self.tell_cut(answer);
        Ok(())
    }

    /// Says that an answer was cut by its length, unless it was asked to be.
    fn tell_cut(&self, answer: &Generation) {
        if let Some(more) = answer.receipt.more.as_ref().filter(|_| !self.fills) {
            self.screen.remark(&in_flags(&command(), more));
        }
    }

    /// Ends the text of an answer, and says in a line how it was made.
    pub fn close(&self, answer: &Generation) -> anyhow::Result<()> {
        let text = answer.to_string();
        output::line(text.strip_prefix(self.streamed.as_str()).unwrap_or_default())?;
        self.screen.remark(&summary(answer));
        self.tell_cut(answer);
        Ok(())
    }

    fn see(&mut self, event: &Event) -> ControlFlow<()> {
        if interrupt::requested() {
            return ControlFlow::Break(());
        }
        match self.show(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        let is_traced = self.ways.trace.is_some() || self.ways.svg.is_some();
        if let Some(line) = is_traced.then(|| self.tracer.line(event, &self.texts)).flatten() {
            self.write(line)?;
        }
        match event {
            Event::Started(started) => self.start(&started.canvas, started.prompt_tokens),
            Event::Text(text) => self.text(text)?,
            Event::Commit { .. } => self.bar.advance(),
            Event::Replace { to: None, .. } => self.bar.go_back(),
            _ => {}
        }
        if let Some(player) = &mut self.player {
            player.event(event, &self.texts)?;
        }
        Ok(())
    }

    /// Writes a line of the trace, and keeps it for the picture.
    fn write(&mut self, line: TraceLine) -> anyhow::Result<()> {
        if let Some(trace) = &mut self.ways.trace {
            line.write(trace)?;
        }
        if self.ways.svg.is_some() && picture::shows(&line) {
            self.pictured.push(line);
        }
        Ok(())
    }

    /// Draws the canvas as it starts, or the bar.
    fn start(&mut self, canvas: &[TokenId], prompt_tokens: usize) {
        let (mask, texts) = (self.mask, &self.texts);
        let response = &canvas[prompt_tokens..];
        let known =
            |token: TokenId| (token != NO_TOKEN && Some(token) != mask).then(|| shown(token, texts.text(token)));
        if self.ways.watch {
            let canvas = Canvas::new(prompt_tokens, response.iter().map(|&token| known(token)));
            self.player = Some(Player::new(canvas, Stage::stderr()));
        } else {
            let masks = response.iter().filter(|&&token| token == NO_TOKEN || Some(token) == mask).count();
            self.bar = Bar::positions(self.screen, "decoding");
            self.bar.set(0, masks as u64);
        }
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        // A drawn canvas and streaming text would write over each other, and so would a bar on the same terminal.
        if self.screen.json || self.ways.watch {
            return Ok(());
        }
        if output::stdout_is_terminal() {
            self.bar.clear();
        }
        self.streamed.push_str(text);
        Ok(output::text(text)?)
    }
}

/// Summary of an answer's receipt, in a line.
fn summary(answer: &Generation) -> String {
    let Receipt { decoding, seconds, .. } = &answer.receipt;
    let demask::layers::decode::DecodingReceipt { nfe, tokens_per_nfe, exactness, decoder, cache, .. } = decoding;
    let against = exactness.against().map(|run| format!(" against {run}")).unwrap_or_default();
    format!(
        "{}, {nfe} NFE, {tokens_per_nfe:.2} tokens/NFE, {:.2} s; {decoder}, cache {cache}: {exactness}{against}",
        output::counted(answer.generated_tokens, "token"),
        seconds.total
    )
}
