//! The answers of one request while they are made: one handle each, asked in turn, handed on as they come.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use demask::{Error, Event, Finish, Generation, Options, RequestHandle, layers::decode::Session};

use crate::{
    Refusal,
    account::Account,
    admission::Places,
    answer::Counts,
    ask::{Ask, Judged, Wishes},
    echo::Echo,
    entry::Entry,
    inner::Inner,
    metrics::Answered,
};

/// Tokens, each of their alternatives counted, that are written within a few milliseconds.
pub(crate) const MUCH: usize = 1024;

/// Answers on their way, a handle each. Dropped, those that are not over are cancelled before the next forward.
pub struct Run {
    choices: Vec<Choice>,
    /// The prompts, if they are returned with their log-probabilities.
    echoes: Vec<Echo>,
    /// Index of the answer that is asked first, so that each has its turn.
    turn: usize,
    account: Account,
    /// Held for as long as anything of the request is alive.
    places: Arc<Places>,
}

/// One answer on its way.
struct Choice {
    answer: RequestHandle<Generation>,
    seed: u64,
    over: Option<Box<Generation>>,
}

/// Something that happened to an answer.
pub enum Happened {
    /// Events of an answer that went on.
    Went(usize, Vec<Event>),
    /// End: the answer is over.
    Over(usize),
}

impl Run {
    /// Submits every prompt as often as it is to be answered. What cannot be prepared is known before anything is submitted.
    ///
    /// # Errors
    /// If a prompt or an option is wrong, or there are not so many places.
    pub fn start(
        service: &Arc<Inner>,
        prompts: &[demask::Prompt],
        ask: &Ask,
        mut places: Places,
        entry: &Entry,
    ) -> Result<Self, Refusal> {
        let (answers, echoes) = match ask.wishes.judged {
            Judged::No => (prompts, &[][..]),
            Judged::BesideAnswers => (prompts, prompts),
            Judged::Alone => (&[][..], prompts),
        };
        places.grow(answers.len() * ask.wishes.choices + echoes.len())?;
        let mut prepared = Vec::new();
        for prompt in answers {
            for choice in 0..ask.wishes.choices {
                let seed = ask.seed.wrapping_add(choice as u64);
                let options = Options { seed: Some(seed), ..ask.options.clone() };
                let mut answer = service.handle.prepare(prompt, &options).map_err(|error| ask.blame(error))?;
                if let Some(salt) = &ask.cache_salt {
                    answer.set_cache_salt(salt);
                }
                answer.set_scheduling(ask.scheduling);
                prepared.push((seed, answer));
            }
        }
        let top = ask.options.top_logprobs.unwrap_or(0);
        let echoes = echoes.iter().map(|prompt| Echo::read(service, prompt)).collect::<Result<Vec<_>, _>>()?;
        let judged = echoes.iter().map(Vec::len).sum::<usize>() * ask.wishes.choices;
        let generated = prepared.iter().map(|(_, answer)| answer.session().map_or(0, Session::masks)).sum::<usize>();
        check_listed(judged + generated, ask, service.config.limits.listed)?;
        let echo = |ids| Echo::start(service, ids, top, ask.scheduling, ask.cache_salt.as_deref());
        let echoes = echoes.into_iter().map(echo).collect::<Result<_, _>>()?;
        // Opened now, when nothing can be refused any more: dropped, an account says that the client has left.
        let account = Account::new(service, entry.caller.clone(), entry.started);
        let submit = |(seed, prepared)| Choice { answer: service.handle.submit(prepared), seed, over: None };
        let choices = prepared.into_iter().map(submit).collect();
        service.metrics.admitted();
        Ok(Self { choices, echoes, turn: 0, account, places: Arc::new(places) })
    }

    /// Returns the prompts that are returned with their log-probabilities.
    pub fn echoes(&self) -> &[Echo] {
        &self.echoes
    }

    /// Returns how many answers there are.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// Returns whether every answer is over, and every prompt judged.
    pub fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.over.is_some()) && self.echoes.iter().all(Echo::is_over)
    }

    /// Returns an answer that is over, and its seed.
    pub fn answer(&self, index: usize) -> Option<(&Generation, u64)> {
        let choice = self.choices.get(index)?;
        Some((choice.over.as_deref()?, choice.seed))
    }

    /// Returns the places of the request.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Returns the time that it waited, until the first forward of the first of its answers began.
    pub fn queued(&self) -> Option<Duration> {
        self.account.queued()
    }

    /// Returns how many tokens are to be written once all is over, each of their alternatives counted.
    pub fn length(&self, wishes: &Wishes) -> usize {
        let of = |choice: &Choice| choice.over.as_deref().map_or(0, |over| written_length(over, wishes));
        let judged = self.echoes.iter().map(|echo| echo.length() * wishes.choices);
        self.choices.iter().map(of).sum::<usize>() + judged.sum::<usize>()
    }

    /// Returns the request's account, from which its line of the log is written.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Waits for something to happen; none once every answer is over.
    ///
    /// # Errors
    /// If an answer cannot be made: then none of the others is wanted any more.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Happened>, Refusal>> {
        if let Poll::Ready(Err(refusal)) = self.poll_echoes(context) {
            return Poll::Ready(Err(self.fail(refusal)));
        }
        let count = self.choices.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let choice = &mut self.choices[index];
            if choice.over.is_some() {
                continue;
            }
            let events = match choice.answer.poll_events(context) {
                Poll::Pending => continue,
                Poll::Ready(events) => events,
            };
            self.turn = index + 1;
            if let Some(events) = events {
                self.account.went(&events);
                return Poll::Ready(Ok(Some(Happened::Went(index, events))));
            }
            return Poll::Ready(match choice.answer.result() {
                Ok(generation) => {
                    self.account.answered(&answered(&generation), generation.finish);
                    choice.over = Some(Box::new(generation));
                    if self.is_over() {
                        self.account.done(200);
                    }
                    Ok(Some(Happened::Over(index)))
                }
                Err(error) => Err(self.fail(Error::from(error).into())),
            });
        }
        if !self.is_over() {
            return Poll::Pending;
        }
        self.account.done(200);
        Poll::Ready(Ok(None))
    }

    /// Waits for the end of an answer alone: what comes before it wakes nobody.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.choices.iter_mut().filter(|choice| choice.over.is_none()).peekable();
        // Prompts that are judged have nothing to tell before their end.
        if waiting.peek().is_none() || self.echoes.iter().any(|echo| !echo.is_over()) {
            return Poll::Ready(());
        }
        // All are asked: each keeps the waker of its own.
        let over = waiting.filter_map(|choice| choice.answer.poll_end(context).is_ready().then_some(())).count() > 0;
        if over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits for the prompts that are judged.
    fn poll_echoes(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let mut over = Poll::Ready(Ok(()));
        for echo in self.echoes.iter_mut().filter(|echo| !echo.is_over()) {
            match echo.poll(&mut self.account, context) {
                Poll::Pending => over = Poll::Pending,
                Poll::Ready(Err(refusal)) => return Poll::Ready(Err(refusal)),
                // Where something is generated, the answer has the prompt's tokens on its account.
                Poll::Ready(Ok(())) if self.choices.is_empty() => {
                    let (prompt_tokens, nfe) = (echo.tokens(), echo.forwards());
                    self.account.answered(&Answered { prompt_tokens, generated_tokens: 0, nfe }, Finish::Length);
                }
                Poll::Ready(Ok(())) => {}
            }
        }
        over
    }

    /// Gives the request up: its answers are cancelled, even if a slow reader takes the news late.
    pub fn fail(&mut self, refusal: Refusal) -> Refusal {
        self.account.failed(&refusal);
        self.choices.clear();
        refusal
    }

    /// Returns when the request came.
    pub fn started(&self) -> Instant {
        self.account.started()
    }
}

/// Refuses log-probabilities of so many tokens, with their alternatives, that their body would fill the memory.
fn check_listed(tokens: usize, ask: &Ask, most: usize) -> Result<(), Refusal> {
    let Some(top) = ask.options.top_logprobs.filter(|_| ask.wishes.logprobs) else { return Ok(()) };
    let listed = tokens.saturating_mul(1 + top);
    if listed <= most {
        return Ok(());
    }
    let message = format!(
        "`top_logprobs` {top} of {tokens} tokens are {listed} log-probabilities, and this server returns {most} at most: \
         lower `top_logprobs`, `max_tokens` or `n`"
    );
    Err(Refusal::parameter("top_logprobs", message))
}

/// Tokens of an answer that are written at its end, each of their alternatives counted.
pub fn written_length(generation: &Generation, wishes: &Wishes) -> usize {
    let listed = generation.logprobs.iter().flatten().map(|at| 1 + at.top.len()).sum::<usize>();
    let receipt = if wishes.receipt { generation.receipt.decoding.nfe } else { 0 };
    // Text alone is quick.
    generation.tokens.len() / 16 + listed + receipt
}

/// Counts of an answer.
fn answered(generation: &Generation) -> Answered {
    let Counts { prompt: prompt_tokens, generated: generated_tokens, .. } = Counts::of(generation);
    Answered { prompt_tokens, generated_tokens, nfe: generation.receipt.decoding.nfe }
}
