//! An answer while it is made: text as it settles, a drawn canvas, a trace, a bar.

use std::{io::Write, mem, sync::Arc, task::Poll, time::Duration};

use demask::{Event, Generation, Mask, Model, Options, Receipt, Request, RequestHandle, TraceLine};
use demask::{
    TokenId, demo,
    layers::{decode::DecodingReceipt, step::NO_TOKEN},
    trace::{TokenTexts, Tracer},
};
use demask_terminal::args::in_flags;

use crate::{
    args::command,
    canvas::{Canvas, Player, Stage, film::Film, picture, token_text},
    files::OutFile,
    interrupt::{self, Watched},
    output::{self, Screen, counted},
    progress::Bar,
};

/// The smallest of the released models that answers any question: 4 GB, block diffusion.
const REAL: &str = "JetLM/SDAR-1.7B-Chat";

/// Time within which an interruption is heard, whatever the engine does: a forward over a long prompt may take a minute.
const LISTENING: Duration = Duration::from_millis(50);

/// Ways in which answers are shown beside their text.
#[derive(Default)]
pub struct Ways {
    /// Forwards a second at which the canvas is drawn in place; none: it is not drawn.
    pub watch: Option<f64>,
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
    /// Records whether each token is made of those before it alone.
    causal: bool,
    texts: Arc<TokenTexts>,
    film: Option<Film>,
    bar: Bar,
    /// Masks of the canvas, while its prompt is read.
    unread: Option<usize>,
    /// Sets whether answers are to fill their length, whatever ends stand there.
    fills: bool,
    /// Text that standard output has seen.
    streamed: String,
}

impl Show {
    /// Creates a show for answers of a model with these options.
    pub fn new(model: &Model, options: &Options, screen: Screen, ways: Ways) -> Self {
        let needs_texts = ways.watch.is_some() || ways.trace.is_some() || ways.svg.is_some();
        Self {
            screen,
            tracer: Tracer::new(model.info(), options.seed.unwrap_or(0)),
            pictured: Vec::new(),
            mask: model.info().facts().mask_id,
            causal: model.info().facts().mask == Mask::Causal,
            texts: if needs_texts { model.texts() } else { Arc::default() },
            film: None,
            bar: Bar::hidden(),
            unread: None,
            fills: options.ignore_eos == Some(true),
            streamed: String::new(),
            ways,
        }
    }

    /// Makes an answer and shows it on the way. An interruption does not wait for the forward that runs: the engine ends that
    /// one and drops the request.
    pub fn answer(&mut self, model: &Model, request: Request) -> anyhow::Result<Generation> {
        let _watched = Watched::begin();
        self.streamed.clear();
        if let Some(session) = request.session().filter(|_| self.ways.watch.is_none()) {
            // Its first event comes with the end of a forward.
            self.bar = Bar::positions(self.screen, "reading the prompt");
            self.bar.set(0, session.layout().response() as u64);
        }
        let result = self.watch(model.submit_for_every_event(request));
        self.bar.clear();
        if let (Ok(_), Some(mut film)) = (&result, self.film.take()) {
            film.finish(&self.texts)?;
            interrupt::check()?;
        }
        result
    }

    fn watch(&mut self, mut answer: RequestHandle<Generation>) -> anyhow::Result<Generation> {
        loop {
            interrupt::check()?;
            match answer.events_within(LISTENING) {
                Poll::Pending => {}
                Poll::Ready(Some(events)) => events.iter().try_for_each(|event| self.see(event))?,
                Poll::Ready(None) => return Ok(answer.result()?),
            }
        }
    }

    /// Ends the line of an answer that broke off, and returns the text that was seen of it, if there was any.
    pub fn stop(&mut self) -> anyhow::Result<Option<String>> {
        let seen = mem::take(&mut self.streamed);
        if seen.is_empty() {
            return Ok(None);
        }
        output::line("")?;
        Ok(Some(seen))
    }

    /// Returns whether answers are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.screen.json
    }

    /// Shows the rest of the answer, and puts the files into their places.
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

    /// Says that an answer was cut, unless it was asked to fill its length, and what of a schema was not understood.
    fn tell_cut(&self, answer: &Generation) {
        let form = answer.receipt.decoding.constraint.as_ref();
        for part in form.map(|form| &form.source.ignored).into_iter().flatten() {
            let (place, what) = part.split_once(": ").unwrap_or(("#", part));
            self.screen.remark(&format!("note: {what} at {place} of the JSON schema is unknown and changes nothing"));
        }
        if let Some(more) = answer.receipt.more.as_ref().filter(|_| !self.fills) {
            self.screen.remark(&in_flags(&command(), more));
        }
    }

    /// Ends the text of an answer, and says in a line how it was made.
    pub fn close(&self, answer: &Generation) -> anyhow::Result<()> {
        let text = answer.to_string();
        output::line(text.strip_prefix(self.streamed.as_str()).unwrap_or_default())?;
        self.screen.remark(&summary(answer, self.causal));
        self.tell_cut(answer);
        Ok(())
    }

    fn see(&mut self, event: &Event) -> anyhow::Result<()> {
        let is_traced = self.ways.trace.is_some() || self.ways.svg.is_some();
        if let Some(line) = is_traced.then(|| self.tracer.line(event, &self.texts)).flatten() {
            self.write(line)?;
        }
        match event {
            Event::Started(started) => self.start(&started.canvas, started.prompt_tokens),
            Event::Text(text) => self.text(text)?,
            &Event::Progress { done, all } => self.bar.set(done as u64, all as u64),
            Event::Commit { .. } => self.advance(),
            Event::Replace { to: None, .. } => self.bar.go_back(),
            _ => {}
        }
        match &mut self.film {
            Some(film) => film.take(event, &self.texts),
            None => Ok(()),
        }
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

    /// Draws the canvas as it starts, or counts its masks for the bar.
    fn start(&mut self, canvas: &[TokenId], prompt_tokens: usize) {
        let (mask, texts) = (self.mask, &self.texts);
        let response = &canvas[prompt_tokens..];
        let known =
            |token: TokenId| (token != NO_TOKEN && Some(token) != mask).then(|| token_text(token, texts.text(token)));
        if let Some(speed) = self.ways.watch {
            let canvas = Canvas::new(prompt_tokens, response.iter().map(|&token| known(token)));
            // The text takes the place of the canvas where both are on one screen.
            let is_wiped = output::stdout_is_terminal() && !self.screen.json;
            self.film = Some(Film::new(Player::new(canvas, Stage::stderr()), speed, is_wiped));
        } else {
            self.unread = Some(response.iter().filter(|&&token| token == NO_TOKEN || Some(token) == mask).count());
        }
    }

    /// Counts a token. The first one says that the prompt is read.
    fn advance(&mut self) {
        if let Some(masks) = self.unread.take() {
            self.bar.clear();
            self.bar = Bar::positions(self.screen, "decoding");
            self.bar.set(0, masks as u64);
        }
        self.bar.advance();
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        // A drawn canvas and streaming text would write over each other, and so would a bar on the same terminal.
        if self.screen.json || self.ways.watch.is_some() {
            return Ok(());
        }
        if output::stdout_is_terminal() {
            self.bar.clear();
        }
        self.streamed.push_str(text);
        Ok(output::text(text)?)
    }
}

/// Returns what to say if the built-in model plainly cannot know the answer.
pub fn beyond_the_demo(question: &str) -> Option<String> {
    let why = demo::beyond(question)?;
    Some(format!(
        "note: the built-in demo solves small word problems and knows nothing else ({why}); for other questions name a \
         model, such as --model {REAL}"
    ))
}

/// Returns what an answer took, and how it was made, in a line. Of a causal model the prompt's time is said apart, as others do.
fn summary(answer: &Generation, causal: bool) -> String {
    let Receipt { decoding, seconds, .. } = &answer.receipt;
    let DecodingReceipt { forwards, cached_tokens, exactness, decoder, cache, .. } = decoding;
    let made = if decoder == "ar" { String::new() } else { format!(" in {}", counted(*forwards, "forward")) };
    let cached = if *cached_tokens > 0 { format!(" ({cached_tokens} cached)") } else { String::new() };
    let time = if causal {
        format!("prompt {}{cached} in {}", answer.prompt_tokens, output::seconds(seconds.first_token))
    } else {
        output::seconds(seconds.wall)
    };
    let against = exactness.against().map(|run| format!(" against {run}")).unwrap_or_default();
    format!(
        "{}{made}, {} tokens/s, {time}; {decoder}, cache {cache}: {exactness}{against}",
        counted(answer.generated_tokens, "token"),
        output::three_digits(seconds.tokens_per_second),
    )
}
