//! The answers of one request while they are made: one ticket each, asked in turn, told as they come.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use demask::{Generation, Mail, Options, Ticket, Update};

use crate::{Entry, Refusal, account::Account, admission::Places, ask::Ask, metrics::Answered, service::Inner};

/// Answers on their way. Dropped, those that are not over are cancelled before the next forward.
pub struct Run {
    choices: Vec<Choice>,
    /// Which one is asked first, so that each has its turn.
    turn: usize,
    account: Account,
    /// Held for as long as anything of the request is alive.
    _places: Places,
}

/// One answer on its way.
struct Choice {
    ticket: Ticket<Generation>,
    seed: u64,
    over: Option<Box<Generation>>,
}

/// Something that happened to an answer.
pub enum Happened {
    /// It went on.
    Went(usize, Box<Update>),
    /// It is over.
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
        places.grow(prompts.len() * ask.wishes.choices)?;
        let mut prepared = Vec::new();
        for prompt in prompts {
            for choice in 0..ask.wishes.choices {
                let seed = ask.seed.wrapping_add(choice as u64);
                let options = Options { seed: Some(seed), ..ask.options.clone() };
                let mut answer = service.handle.prepare(prompt, &options)?;
                if let Some(keep) = ask.keep {
                    answer.keep(keep);
                }
                prepared.push((seed, answer));
            }
        }
        let submit = |(seed, prepared)| Choice { ticket: service.handle.submit(prepared, ask.class), seed, over: None };
        let choices = prepared.into_iter().map(submit).collect();
        service.metrics.admitted();
        // Not before: what is refused was never taken on.
        let account = service.account(entry);
        Ok(Self { choices, turn: 0, account, _places: places })
    }

    /// Returns how many answers there are.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// Returns whether every answer is over.
    pub fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.over.is_some())
    }

    /// Returns an answer that is over, and its seed.
    pub fn answer(&self, index: usize) -> Option<(&Generation, u64)> {
        let choice = self.choices.get(index)?;
        Some((choice.over.as_deref()?, choice.seed))
    }

    /// Returns what is written down of the request.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Waits for something to happen; none once every answer is over.
    ///
    /// # Errors
    /// If an answer cannot be made: then none of the others is wanted any more.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Happened>, Refusal>> {
        let count = self.choices.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let choice = &mut self.choices[index];
            if choice.over.is_some() {
                continue;
            }
            let mail = match choice.ticket.poll_next(context) {
                Poll::Pending => continue,
                Poll::Ready(mail) => mail,
            };
            self.turn = index + 1;
            return Poll::Ready(match mail {
                Some(Mail::Update(update)) => {
                    self.account.went(&update);
                    Ok(Some(Happened::Went(index, Box::new(update))))
                }
                Some(Mail::Over(Ok(generation))) => {
                    self.account.answered(&answered(&generation), generation.finish);
                    choice.over = Some(Box::new(generation));
                    if self.is_over() {
                        self.account.done(200);
                    }
                    Ok(Some(Happened::Over(index)))
                }
                Some(Mail::Over(Err(error))) => Err(self.fail(error.into())),
                None => Err(self.fail(Refusal::shutting_down())),
            });
        }
        if self.is_over() { Poll::Ready(Ok(None)) } else { Poll::Pending }
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

/// What is counted of an answer.
fn answered(generation: &Generation) -> Answered {
    let receipt = &generation.receipt.decoding;
    Answered {
        prompt_tokens: generation.prompt_tokens,
        generated_tokens: generation.generated_tokens,
        nfe: receipt.nfe,
    }
}
