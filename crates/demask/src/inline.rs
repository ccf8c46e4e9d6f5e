//! A model that runs on the thread that owns it.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use demask_decode::Session;
use demask_model::Inspect;
use demask_step::{OpenError, TokenId};

use crate::{
    Class, Error, Generation, Likelihood, LikelihoodOptions, Model, NetworkId, Observer, Options, Outcome, Prepared,
    Prompt, Refused, RequestId, RunEvent, Scheduler, Task,
    guide::{self, Bridge, Guiding},
    model::{Front, Guide},
    scheduler::Attendant,
};

/// Sees the progress of all requests and may end each of them.
pub type RequestObserver<'a> = dyn FnMut(RequestId, RunEvent<'_>) -> ControlFlow<()> + 'a;

/// A request that is over, and what came of it.
pub type Over = (RequestId, Result<Outcome, Error>);

impl Front {
    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    pub(crate) fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        let chosen = guide::choose(&self.guides, options)?;
        let guide = chosen.map(|index| {
            let Guide { prompter, bridge, .. } = &self.guides[index];
            Guiding { index, prompter, bridge }
        });
        self.prompter.prepare_with(prompt, options, guide)
    }
}

// Behind the face: what the programs of this project need of a model.
#[doc(hidden)]
impl Model {
    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// If the prompt cannot be put into tokens, or the options contradict each other or the model.
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Prepared, Error> {
        self.front.prepare(prompt, options)
    }

    /// Sets who is there while works are fed of which at least one asks for it: it calls what it is given.
    pub fn set_attendant(&mut self, attendant: Box<Attendant>) {
        self.scheduler.set_attendant(attendant);
    }

    /// Lets a task join the following forwards as soon as there is memory for it.
    ///
    /// ```no_run
    /// # use std::{ops::ControlFlow, sync::Arc};
    /// # use demask::{Class, Model, Options, Prompt, internals::Outcome};
    /// # let mut model = Model::demo()?;
    /// for prompt in ["Ada has 3 pears.", "Ben has 4 cards."] {
    ///     let answer = model.prepare(&Prompt::user(prompt, None), &Options::default())?;
    ///     model.submit(answer, Class::default())?;
    /// }
    /// while !model.is_idle() {
    ///     for (_, outcome) in model.step(&mut |_, _| ControlFlow::Continue(())) {
    ///         if let Outcome::Answer(answer) = outcome? {
    ///             println!("{}", answer.text.unwrap_or_default());
    ///         }
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it could never run.
    pub fn submit(&mut self, task: impl Into<Task>, class: Class) -> Result<RequestId, Error> {
        let mut task = task.into();
        let class = task.end_by(class);
        let guide = self.networks.get(1 + task.guide()).copied();
        let on: Vec<NetworkId> = self.networks.first().copied().into_iter().chain(guide).collect();
        self.scheduler.submit(task, &on, class).map_err(|Refused { error, .. }| error.into())
    }

    /// Returns whether every request is over and was handed over.
    pub fn is_idle(&self) -> bool {
        self.over.is_empty() && self.scheduler.is_idle()
    }

    /// Gives a request up. Nothing happens if it is over.
    pub fn cancel(&mut self, id: RequestId) {
        self.scheduler.cancel(id);
    }

    /// Runs one forward of one network for as many requests as share it, reports what it changed, and returns those that are
    /// over.
    pub fn step(&mut self, observer: &mut RequestObserver<'_>) -> Vec<Over> {
        let mut finished = Vec::new();
        let mut seen = |id, task: &mut Task| task.look(&mut |progress| observer(id, progress));
        self.scheduler.expire(Instant::now(), &mut finished);
        self.scheduler.step(&mut seen, &mut finished);
        self.over.extend(finished.into_iter().map(|one| (one.id, self.front.outcome(one))));
        std::mem::take(&mut self.over)
    }

    /// Runs until one request is over; others that end meanwhile are handed over by the next [`step`](Self::step).
    pub(crate) fn run_to_end(&mut self, id: RequestId, observer: &mut Observer<'_>) -> Result<Outcome, Error> {
        let mut watch = |other, progress: RunEvent<'_>| {
            if other == id { observer(progress) } else { ControlFlow::Continue(()) }
        };
        loop {
            let mut over = self.step(&mut watch);
            let own = over.iter().position(|(other, _)| *other == id);
            let outcome = own.map(|place| over.remove(place).1);
            self.over = over;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// Answers a prompt, and shows it on the way to an observer that may end it.
    ///
    /// # Errors
    /// As [`generate_with`](Self::generate_with), and if the observer ends it.
    pub fn watch(
        &mut self,
        prompt: &Prompt,
        options: &Options,
        observer: &mut Observer<'_>,
    ) -> Result<Generation, Error> {
        let answer = self.prepare(prompt, options)?;
        self.answer(answer, observer)
    }

    /// Runs a prompt that was prepared for this model, and shows it on the way to an observer that may end it.
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn answer(&mut self, answer: Prepared, observer: &mut Observer<'_>) -> Result<Generation, Error> {
        let id = self.submit(answer, Class::default())?;
        match self.run_to_end(id, observer)? {
            Outcome::Answer(generation) => Ok(*generation),
            Outcome::Likelihoods(_) | Outcome::Session(_) => unreachable!("a prepared prompt is answered"),
        }
    }

    /// Runs a session that somebody else made to its end. Its events are all there in the end.
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn decode(&mut self, session: Session) -> Result<Session, Error> {
        let id = self.submit(session, Class::default())?;
        match self.run_to_end(id, &mut |_| ControlFlow::Continue(()))? {
            Outcome::Session(session) => Ok(*session),
            Outcome::Answer(_) | Outcome::Likelihoods(_) => unreachable!("a session was submitted"),
        }
    }

    /// Judges how probable `continuation` is behind `context`. `go_on` is asked after each forward.
    ///
    /// # Errors
    /// If the model has no such estimate (block-causal ones), an option has no meaning for it, or the tokens cannot be
    /// run.
    pub fn log_likelihood(
        &mut self,
        context: &[TokenId],
        continuation: &[TokenId],
        options: &LikelihoodOptions,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Likelihood, Error> {
        let pair = (context.to_vec(), continuation.to_vec());
        let mut all = self.log_likelihoods(&[pair], options, go_on)?;
        all.pop().ok_or(Error::EmptyLikelihood)
    }

    /// Judges how probable continuations are, each behind its context: forwards that several of them need run once, and each
    /// likelihood is the same to the bit as alone. `go_on` is asked after each forward.
    ///
    /// # Errors
    /// As [`log_likelihood`](Self::log_likelihood).
    pub fn log_likelihoods(
        &mut self,
        pairs: &[(Vec<TokenId>, Vec<TokenId>)],
        options: &LikelihoodOptions,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Likelihood>, Error> {
        let mut rows = self.network().rows().capacity;
        loop {
            let task = self.prompter().likelihoods(pairs, options, rows)?;
            let side_by_side = task.side_by_side();
            let mut canvases = 0;
            let mut watch = |progress: RunEvent<'_>| match progress {
                // It is shown once before its first forward.
                RunEvent::Draws { done, .. } if std::mem::replace(&mut canvases, done) < done && !go_on() => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            };
            let over = self.submit(task, Class::default()).and_then(|id| self.run_to_end(id, &mut watch));
            match over {
                Ok(Outcome::Likelihoods(likelihoods)) => return Ok(likelihoods),
                Ok(Outcome::Answer(_) | Outcome::Session(_)) => unreachable!("likelihoods were asked for"),
                // Fewer canvases side by side do as well.
                Err(Error::Open(OpenError::Memory(_))) if side_by_side > 1 => rows /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives it a guide: an autoregressive model that decoder `guided` lets judge drafts. It takes the place of all guides
    /// that were there before.
    ///
    /// # Errors
    /// If the two do not go together, or requests are open on a guide that was there before.
    pub fn set_guide(&mut self, guide: Self) -> Result<(), Error> {
        let bridge = Bridge::between(self.prompter(), guide.prompter())?;
        while let [_, .., former] = self.networks[..] {
            self.scheduler.remove(former)?;
            self.networks.pop();
            if let Some(front) = Arc::get_mut(&mut self.front) {
                front.guides.pop();
            }
        }
        self.attach(None, guide, bridge);
        Ok(())
    }

    /// Gives it another guide, which requests choose by this name.
    ///
    /// # Errors
    /// If the two do not go together, or there is a guide of that name.
    pub fn add_guide(&mut self, name: impl Into<String>, guide: Self) -> Result<(), Error> {
        let name = name.into();
        let bridge = Bridge::between(self.prompter(), guide.prompter())?;
        guide::check_name(&self.front.guides, &name)?;
        self.attach(Some(name), guide, bridge);
        Ok(())
    }

    /// Takes the network of a guide in beside its own.
    pub(crate) fn attach(&mut self, name: Option<String>, guide: Self, bridge: Bridge) {
        let Self { front, mut scheduler, networks, .. } = guide;
        let Ok(Some(network)) = scheduler.remove(networks[0]) else { return };
        self.networks.push(self.scheduler.add(network));
        self.limit_memory();
        self.set_prefix_cache(self.prefix_bytes);
        // An engine alone shares what is known of its model, and hands no model out.
        if let (Some(own), Some(front)) = (Arc::get_mut(&mut self.front), Arc::into_inner(front)) {
            own.load_time += front.load_time;
            let Front { prompter, weights, meter, .. } = front;
            own.guides.push(Guide { name, prompter, bridge, weights, meter });
        }
    }

    /// Returns the network, to look at it.
    ///
    /// # Panics
    /// Never: a model has its network until it is taken apart.
    pub fn network(&self) -> &dyn Inspect {
        self.scheduler.network(self.networks[0]).unwrap_or_else(|| unreachable!("a model has its network"))
    }

    /// Returns the network, to look into it between forwards.
    ///
    /// # Panics
    /// Never: a model has its network until it is taken apart.
    pub fn network_mut(&mut self) -> &mut dyn Inspect {
        self.scheduler.network_mut(self.networks[0]).unwrap_or_else(|| unreachable!("a model has its network"))
    }

    /// Returns the scheduler that owns its networks, and their names: its own, then its guides'.
    pub fn scheduler(&mut self) -> (&mut Scheduler<Task, dyn Inspect>, &[NetworkId]) {
        (&mut self.scheduler, &self.networks)
    }
}
