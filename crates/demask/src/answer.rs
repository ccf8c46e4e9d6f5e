//! An answer under way: a session, and its text as it settles.

use std::{
    hash::{BuildHasher, RandomState},
    ops::{ControlFlow, Range},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use demask_checkpoint::{TextStream, Tokenizer};
use demask_decode::{DecodingReceipt, Event, Session, transfer::OwnRule};
use demask_step::{Need, Pending, Position, Predictions, Prefix, Request, Work};

use crate::{
    Error, Options, Prompt, Prompter, RunEvent, TokenLogprob,
    filling::Filling,
    guide::Guiding,
    length::Length,
    replay::{Script, Tape},
    text,
};

/// Sees progress and says whether to go on.
pub(crate) type Tell<'a> = dyn FnMut(RunEvent<'_>) -> ControlFlow<()> + 'a;

/// A prompt that is ready to be answered: in tokens, its canvas laid out, its methods chosen. It belongs to no thread and
/// to no network.
pub struct Prepared {
    session: Session,
    /// Index of the guide that judges its drafts.
    guide: Option<usize>,
    filling: Filling,
    stops: Vec<String>,
    /// Turns settled tokens into text; none without a tokenizer, and none for infilling, which has no settled end.
    stream: Option<TextStream<Arc<Tokenizer>>>,
    /// Text that can no longer change.
    text: String,
    /// What set its length.
    length: Length,
    /// Bytes of it that were reported.
    told: usize,
    /// Number of settled tokens in that text.
    read: usize,
    /// Length of the text up to the stop text that ended it, and which one that was.
    stopped: Option<(usize, usize)>,
    /// Records whether that stop text is part of the text.
    include_stop: bool,
    /// Time at which it ends with its settled part.
    deadline: Option<Instant>,
    /// Records whether the canvas was reported.
    announced: bool,
    /// Start of its first forward, until it is reported.
    began: Option<Instant>,
    /// Time that it took to get ready.
    spent: Duration,
    /// Predictions that it gets and keeps.
    tape: Tape,
    /// Records whether log-probabilities are reported.
    tells_logprobs: bool,
    /// Events of the last forward, while they are reported.
    events: Vec<Event>,
}

/// Outcome of an answer when its session is over.
pub(crate) struct Answered {
    pub(crate) session: Session,
    /// Text of the answer; none without a tokenizer.
    pub(crate) text: Option<String>,
    /// The stop text that ended it.
    pub(crate) stop_text: Option<String>,
    /// The text of each hole.
    pub(crate) holes: Vec<String>,
    /// Positions of the holes in the canvas.
    pub(crate) hole_positions: Vec<Range<usize>>,
    /// Log-probabilities of the answer's tokens, if they are kept.
    pub(crate) logprobs: Option<Vec<TokenLogprob>>,
    /// What set its length.
    pub(crate) length: Length,
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
        guide: Option<Guiding<'_>>,
    ) -> Result<Prepared, Error> {
        let started = Instant::now();
        let tokens = self.tokenize(prompt, options)?;
        let holes = tokens.holes.clone();
        let (session_options, length) = self.options(prompt, tokens, options, guide)?;
        let mut session = Session::new(session_options)?;
        if let Some(kept) = length.kept {
            session.keep(kept);
        }
        let stops = options.stop.clone().unwrap_or_default();
        if !stops.is_empty() {
            self.tokenizer()?;
        }
        let tokenizer = self.text.tokenizer.as_ref();
        Ok(Prepared {
            session,
            length,
            guide: guide.map(|guide| guide.index),
            filling: Filling::new(holes, tokenizer),
            stops,
            stream: tokenizer
                .filter(|_| !prompt.infills())
                .map(|tokenizer| TextStream::new(Arc::clone(tokenizer), true)),
            text: String::new(),
            told: 0,
            read: 0,
            stopped: None,
            include_stop: options.include_stop == Some(true),
            deadline: options.deadline_ms.and_then(|limit| started.checked_add(Duration::from_millis(limit))),
            announced: false,
            began: None,
            spent: started.elapsed(),
            tape: Tape::default(),
            tells_logprobs: options.top_logprobs.is_some(),
            events: Vec::new(),
        })
    }
}

impl Prepared {
    /// Returns the session that decodes it.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Makes it report the drafts of each forward, and what was predicted in them.
    pub fn tell_drafts(&mut self) {
        self.session.tell_drafts();
    }

    /// Bounds the answer to so many tokens, at least one, as `max_tokens` does; the canvas keeps its length. It has no meaning for
    /// a text with holes.
    pub fn keep(&mut self, tokens: usize) {
        if !self.filling.is_some() {
            self.session.keep(tokens);
        }
    }

    /// Returns which of the model's guides judges its drafts.
    pub(crate) fn guide(&self) -> Option<usize> {
        self.guide
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

    /// Lets a transfer rule decide in the place of the decoder, before it has begun.
    ///
    /// # Errors
    /// If the rule does not go with the model or the cache policy.
    pub fn decided_by(self, rule: OwnRule) -> Result<Self, Error> {
        let Self { session, .. } = self;
        Ok(Self { session: session.decided_by(rule)?, ..self })
    }

    /// Makes it report what networks predict, in [`RunEvent::Predicted`].
    pub fn record(&mut self) {
        self.tape.records = true;
    }

    /// Lets it take predictions from a script in place of those of the networks, which run all the same.
    pub fn follow(&mut self, script: Script) {
        self.tape.script = Some(script);
    }

    /// Returns when it ends with what is settled.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Lets it end by a time, or earlier if it does so anyway.
    pub(crate) fn end_by(&mut self, deadline: Option<Instant>) {
        self.deadline = self.deadline.into_iter().chain(deadline).min();
    }

    /// Reports the changes since the last call: the canvas first, then commits, steps and text.
    pub(crate) fn look(&mut self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        if !std::mem::replace(&mut self.announced, true) {
            self.announce(tell)?;
            return tell(self.left());
        }
        if let Some(at) = self.began.take() {
            tell(RunEvent::Began { at })?;
        }
        for record in self.tape.take() {
            tell(RunEvent::Predicted(&record))?;
        }
        self.tell_events(tell)?;
        tell(RunEvent::Canvas(self.session.canvas()))?;
        self.filling.look(&self.session, tell)?;
        self.read_settled();
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.session.give_up();
        }
        if self.session.is_over() {
            self.finish_text();
        }
        tell(self.left())?;
        let end = match self.stopped {
            Some((end, _)) => end,
            None if self.session.is_over() => self.text.len(),
            None => text::safe_length(&self.text, &self.stops),
        };
        if self.told < end {
            tell(RunEvent::Text(&self.text[self.told..end]))?;
            self.told = end;
        }
        ControlFlow::Continue(())
    }

    /// Reports the session's events, each token that was written with its log-probability behind it.
    fn tell_events(&mut self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        self.events.clear();
        self.events.extend(self.session.events());
        for &event in &self.events {
            tell(RunEvent::Event(event))?;
            if let Event::Commit { position, .. } | Event::Replace { position, to: Some(_), .. } = event
                && self.tells_logprobs
            {
                tell(RunEvent::Logprob { position, logprob: self.session.logprob(position) })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the work that is left.
    fn left(&self) -> RunEvent<'static> {
        RunEvent::Left { masks: self.session.masks(), settled: self.session.settled() }
    }

    fn announce(&self, tell: &mut Tell<'_>) -> ControlFlow<()> {
        let (canvas, prompt_tokens) = (self.session.canvas(), self.session.layout().response());
        let DecodingReceipt { decoder, cache, .. } = self.session.receipt();
        tell(RunEvent::Started {
            canvas,
            prompt_tokens,
            positions: canvas.len() - prompt_tokens,
            block_length: self.session.layout().block_length(),
            holes: self.filling.holes(),
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
            if let Some((at, which)) = text::find_stop(&self.text, &self.stops) {
                let kept = if self.include_stop { self.stops[which].len() } else { 0 };
                self.stopped = Some((at + kept, which));
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
        let Self { session, length, filling, mut stops, mut text, stopped, spent, tells_logprobs, .. } = self;
        let (holes, hole_positions) = (filling.texts(&session), filling.holes().to_vec());
        if filling.is_some() {
            // Nothing but the text: a fixed token behind it is none of it.
            let end = session.layout().response() + session.layout().gen_length();
            text = tokenizer.map(|tokenizer| tokenizer.decode(&session.canvas()[..end], true)).unwrap_or_default();
        }
        text.truncate(stopped.map_or(text.len(), |(end, _)| end));
        let stop_text = stopped.map(|(_, which)| stops.swap_remove(which));
        let start = session.layout().response();
        let answer = start..start + session.settled();
        let logprobs =
            tells_logprobs.then(|| answer.map(|position| TokenLogprob::of(&session, position as Position)).collect());
        let text = tokenizer.map(|_| text);
        Answered { session, text, stop_text, holes, hole_positions, logprobs, length, prepared: spent }
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

    fn fault(&self) -> Option<&str> {
        self.session.fault()
    }

    fn is_attended(&self) -> bool {
        self.session.is_attended()
    }

    fn begins(&self, sequence: usize) -> Prefix<'_> {
        self.session.begins(sequence)
    }

    fn opened(&mut self, filled: &[Position]) {
        self.session.opened(filled);
    }

    fn began(&mut self) {
        self.began = Some(Instant::now());
    }

    fn reusable(&self, sequence: usize) -> Prefix<'_> {
        self.session.reusable(sequence)
    }
}
