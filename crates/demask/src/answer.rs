//! An answer under way: a session, and its text as it settles.

use std::{
    hash::{BuildHasher, RandomState},
    ops::ControlFlow,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use demask_checkpoint::{TextStream, Tokenizer};
use demask_decode::{DecodingReceipt, Session, SessionOptions};
use demask_step::{Need, Pending, Position, Predictions, Prefix, Request, Work};

use crate::{
    Error, Options, Prompt, Prompter, RunEvent,
    guide::Bridge,
    replay::{Script, Tape},
    text,
};

/// Sees progress and says whether to go on.
pub(crate) type Tell<'a> = dyn FnMut(RunEvent<'_>) -> ControlFlow<()> + 'a;

/// A prompt that is ready to be answered: in tokens, its canvas laid out, its methods chosen. It belongs to no thread and
/// to no network.
pub struct Prepared {
    session: Session,
    infill: bool,
    stops: Vec<String>,
    /// Turns settled tokens into text; none without a tokenizer, and none for infilling, which has no settled end.
    stream: Option<TextStream<Arc<Tokenizer>>>,
    /// Settled text.
    text: String,
    /// Bytes of it that were told.
    told: usize,
    /// Settled tokens that went into it.
    read: usize,
    /// Length of the text before the stop text that ended it.
    stopped: Option<usize>,
    /// Whether the canvas was told.
    announced: bool,
    /// Time that it took to get ready.
    spent: Duration,
    /// Predictions that it gets and keeps.
    tape: Tape,
}

/// What is known of an answer when its session is over.
pub(crate) struct Answered {
    pub(crate) session: Session,
    /// None without a tokenizer.
    pub(crate) text: Option<String>,
    pub(crate) prepared: Duration,
}

impl Prompter {
    /// Gets a prompt ready to be answered.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        self.prepare_with(prompt, options, None)
    }

    pub(crate) fn prepare_with(
        &self,
        prompt: &Prompt,
        options: &Options,
        guide: Option<(&Prompter, &Bridge)>,
    ) -> Result<Prepared, Error> {
        let started = Instant::now();
        let session_options: SessionOptions = self.options(prompt, options, guide)?;
        let stops = options.stop.clone().unwrap_or_default();
        if !stops.is_empty() {
            self.tokenizer()?;
        }
        let infill = matches!(prompt, Prompt::Infill(_));
        let tokenizer = self.text.tokenizer.as_ref().filter(|_| !infill);
        Ok(Prepared {
            session: Session::new(session_options)?,
            infill,
            stops,
            stream: tokenizer.map(|tokenizer| TextStream::new(Arc::clone(tokenizer), true)),
            text: String::new(),
            told: 0,
            read: 0,
            stopped: None,
            announced: false,
            spent: started.elapsed(),
            tape: Tape::default(),
        })
    }
}

impl Prepared {
    /// Returns the session that decodes it.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Lets it tell the drafts of each forward, and what was predicted in them.
    pub fn tell_drafts(&mut self) {
        self.session.tell_drafts();
    }

    /// Returns the session, to give it what only a loaded model knows.
    pub(crate) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns the session alone, for those who run it themselves.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Lets it take the K/V of its prompt only from requests of the same salt, and leave its own only to them: so that
    /// nobody learns from how fast an answer comes what others have asked. Requests without a salt are among themselves.
    #[must_use]
    pub fn with_cache_salt(mut self, salt: &str) -> Self {
        self.session.set_salt(keyed(salt));
        self
    }

    /// Lets it tell what networks predict, in [`RunEvent::Predicted`].
    pub fn record(&mut self) {
        self.tape.records = true;
    }

    /// Lets it take predictions from a script in place of those of the networks, which run all the same.
    pub fn follow(&mut self, script: Script) {
        self.tape.script = Some(script);
    }

    /// Tells what has changed since it was last asked: the canvas first, then commits, steps and text.
    pub(crate) fn look(&mut self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        if !std::mem::replace(&mut self.announced, true) {
            return self.announce(tell);
        }
        for record in self.tape.take() {
            tell(RunEvent::Predicted(&record))?;
        }
        for event in self.session.events() {
            tell(RunEvent::Event(event))?;
        }
        tell(RunEvent::Canvas(self.session.canvas()))?;
        self.read_settled();
        if self.session.is_over() {
            self.finish_text();
        }
        let end = match self.stopped {
            Some(end) => end,
            None if self.session.is_over() => self.text.len(),
            None => text::safe_length(&self.text, &self.stops),
        };
        if self.told < end {
            tell(RunEvent::Text(&self.text[self.told..end]))?;
            self.told = end;
        }
        ControlFlow::Continue(())
    }

    fn announce(&self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        let (canvas, prompt_tokens) = (self.session.canvas(), self.session.layout().response());
        let DecodingReceipt { decoder, cache, .. } = self.session.receipt();
        tell(RunEvent::Started {
            canvas,
            prompt_tokens,
            positions: canvas.len() - prompt_tokens,
            decoder: &decoder,
            cache: &cache,
        })
    }

    /// Turns tokens that have settled into text, up to a stop text, which ends the session.
    fn read_settled(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|_| self.stopped.is_none()) else { return };
        let start = self.session.layout().response();
        while self.read < self.session.settled() {
            self.text.push_str(&stream.push(self.session.canvas()[start + self.read]));
            self.read += 1;
            if let Some((at, _)) = text::find_stop(&self.text, &self.stops) {
                self.stopped = Some(at);
                self.session.finish_at(self.read);
                return;
            }
        }
    }

    /// Adds half a character at the very end.
    fn finish_text(&mut self) {
        if let (None, Some(mut stream)) = (self.stopped, self.stream.take()) {
            self.text.push_str(&stream.finish());
        }
    }

    /// Ends it with what is settled.
    pub(crate) fn into_answered(mut self, tokenizer: Option<&Tokenizer>) -> Answered {
        self.read_settled();
        self.finish_text();
        let Self { session, infill, mut text, stopped, spent, .. } = self;
        if infill {
            text = tokenizer.map(|tokenizer| tokenizer.decode(session.canvas(), true)).unwrap_or_default();
        }
        text.truncate(stopped.unwrap_or(text.len()));
        Answered { session, text: tokenizer.map(|_| text), prepared: spent }
    }
}

/// A number for a salt, the same as long as this process runs; nobody outside can choose two texts with the same one. 0 is
/// that of no salt.
fn keyed(salt: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(salt).max(1)
}

impl Work for Prepared {
    fn needs(&self) -> &[Need] {
        self.session.needs()
    }

    fn pending(&self) -> Pending<'_> {
        self.session.pending()
    }

    fn feed(&mut self, answers: &[Predictions]) {
        let needs = self.session.needs();
        let network = |request: &Request| needs.get(request.sequence).map_or(0, |need| need.network);
        match &mut self.tape.script {
            None => {
                self.tape.keep(self.session.pending().requests(), network, answers);
                self.session.feed(answers);
            }
            Some(script) => {
                let answers = script.next(answers);
                self.tape.keep(self.session.pending().requests(), network, &answers);
                self.session.feed(&answers);
            }
        }
    }

    fn begins(&self, sequence: usize) -> Prefix<'_> {
        self.session.begins(sequence)
    }

    fn opened(&mut self, filled: &[Position]) {
        self.session.opened(filled);
    }

    fn reusable(&self, sequence: usize) -> Prefix<'_> {
        self.session.reusable(sequence)
    }
}
