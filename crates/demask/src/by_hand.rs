//! A model whose networks are driven by hand, forward by forward, on the thread that owns it.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use demask_decode::Session;
use demask_engine::{NetworkId, Refused, Request, RequestId, Scheduler};
use demask_model::Inspect;

use crate::{Error, Generation, Model, ModelInfo, Options, Prompt, bridge::Bridge, model::limit_memory};

/// A model without a thread, for analyses, measurements and tests: its owner runs each forward, and may look into the networks
/// between any two.
pub struct ModelByHand {
    info: Arc<ModelInfo>,
    scheduler: Scheduler<dyn Inspect>,
    /// Requests that ended while another one was run.
    over: Vec<Over>,
}

/// A request that is over, or why it ended before it was done.
pub type Over = (RequestId, Result<Box<Request>, Error>);

impl Model {
    /// Ends its engine, and hands its networks over, which keep no prefixes.
    ///
    /// # Errors
    /// If the engine has failed.
    pub fn by_hand(self) -> Result<ModelByHand, Error> {
        let (info, scheduler) = self.into_scheduler()?;
        let mut model = ModelByHand { info, scheduler, over: Vec::new() };
        model.set_prefix_cache(0);
        Ok(model)
    }
}

impl ModelByHand {
    /// Returns the model's name, for people.
    pub fn name(&self) -> &str {
        self.info.name()
    }

    /// Returns everything about the model but its network.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns the scheduler that owns its networks, and their names: its own, then its guides'.
    pub fn scheduler(&mut self) -> (&mut Scheduler<dyn Inspect>, Vec<NetworkId>) {
        let networks = self.networks();
        (&mut self.scheduler, networks)
    }

    /// Sets how many bytes of K/V each network keeps of prompts and answers that are over.
    pub fn set_prefix_cache(&mut self, bytes: u64) {
        (0..self.networks().len()).for_each(|index| self.network_of(index).keep_prefixes(bytes));
    }

    /// Sets how many rows of a prompt run in one forward of each network.
    pub fn set_piece_rows(&mut self, rows: usize) {
        (0..self.networks().len()).for_each(|index| self.network_of(index).set_piece(rows));
    }

    /// Returns the names of its networks: its own, then its guides'.
    pub fn networks(&self) -> Vec<NetworkId> {
        self.scheduler.networks()
    }

    /// Returns its network.
    ///
    /// # Panics
    /// Never: a model has its network until it is taken apart.
    pub fn network(&self) -> &dyn Inspect {
        self.scheduler.network(self.networks()[0]).unwrap_or_else(|| unreachable!("a model has its network"))
    }

    /// Returns its network, to run it.
    ///
    /// # Panics
    /// Never: a model has its network until it is taken apart.
    pub fn network_mut(&mut self) -> &mut dyn Inspect {
        self.network_of(0)
    }

    /// Returns a network by its index: its own, then its guides'.
    ///
    /// # Panics
    /// If there is none.
    pub fn network_of(&mut self, index: usize) -> &mut dyn Inspect {
        let id = self.networks()[index];
        self.scheduler.network_mut(id).unwrap_or_else(|| unreachable!("a model has its networks"))
    }

    /// Gets a prompt ready to be answered, with the guide if the decoder wants one.
    ///
    /// # Errors
    /// As [`Handle::prepare`](crate::Handle::prepare).
    pub fn prepare(&self, prompt: &Prompt, options: &Options) -> Result<Request, Error> {
        self.info.prepare(prompt, options)
    }

    /// Returns the session of a prompt.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn session(&self, prompt: &Prompt, options: &Options) -> Result<Session, Error> {
        self.info.session(prompt, options)
    }

    /// Lets a request join the following forwards as soon as there is memory for it.
    ///
    /// # Errors
    /// If it could never run.
    pub fn submit(&mut self, request: impl Into<Request>) -> Result<RequestId, Error> {
        let request = request.into();
        let on = self.info.networks(&request);
        self.scheduler.submit(request, &on).map_err(|Refused { error, .. }| error.into())
    }

    /// Returns whether every request is over and was handed over.
    pub fn is_idle(&self) -> bool {
        self.over.is_empty() && self.scheduler.is_idle()
    }

    /// Runs one forward of one network for as many requests as share it, shows each of them to `seen`, and returns those that
    /// are over.
    pub fn step(&mut self, seen: &mut dyn FnMut(&mut Request) -> ControlFlow<()>) -> Vec<Over> {
        let mut over = Vec::new();
        self.scheduler.expire(Instant::now(), &mut over);
        let seen = &mut |request: &mut Request| {
            let flow = seen(request);
            request.end_if_due();
            flow
        };
        self.scheduler.step(seen, &mut over);
        self.over.extend(over.into_iter().map(|request| (request.id(), finished(request))));
        std::mem::take(&mut self.over)
    }

    /// Gives a request up. Nothing happens if it is over.
    pub fn cancel(&mut self, id: RequestId) {
        self.scheduler.cancel(id);
    }

    /// Runs a request to its end. Others that end meanwhile are handed over by the next [`step`](Self::step).
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn run(
        &mut self,
        request: Request,
        seen: &mut dyn FnMut(&mut Request) -> ControlFlow<()>,
    ) -> Result<Box<Request>, Error> {
        let id = self.submit(request)?;
        loop {
            let mut over = self.step(&mut |request| {
                if request.id() == id { seen(request) } else { ControlFlow::Continue(()) }
            });
            let own = over.iter().position(|(other, _)| *other == id).map(|place| over.remove(place).1);
            self.over = over;
            if let Some(request) = own {
                return request;
            }
        }
    }

    /// Answers a prompt that is ready, shown after each forward to an observer that may end it.
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn answer(
        &mut self,
        request: Request,
        seen: &mut dyn FnMut(&mut Request) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        let over = self.run(request, seen);
        self.generation(over)
    }

    /// Answers a prompt.
    ///
    /// # Errors
    /// As [`Handle::generate_with`](crate::Handle::generate_with).
    pub fn generate_with(&mut self, prompt: impl Into<Prompt>, options: &Options) -> Result<Generation, Error> {
        self.answer(self.prepare(&prompt.into(), options)?, &mut |_| ControlFlow::Continue(()))
    }

    /// Gives it a guide, which takes the place of all guides that were there before.
    ///
    /// # Errors
    /// If the two do not go together, or requests are open on a guide that was there before.
    pub fn set_guide(&mut self, guide: Self) -> Result<(), Error> {
        let bridge = Bridge::between(&self.info, &guide.info)?;
        for former in self.networks().into_iter().skip(1) {
            self.scheduler.remove(former)?;
        }
        let Self { info, mut scheduler, .. } = guide;
        let network = scheduler.remove(scheduler.networks()[0])?.ok_or(Error::ShutDown)?;
        let network = self.scheduler.add(network);
        limit_memory(&mut self.scheduler);
        // Both are in one hand each: no engine shares them any more.
        if let (Some(own), Some(mut info)) = (Arc::get_mut(&mut self.info), Arc::into_inner(info)) {
            info.move_to(network);
            own.guides.clear();
            own.add_guide(Arc::new(info), bridge);
        }
        Ok(())
    }

    /// Returns the answer that a request has come to.
    ///
    /// # Errors
    /// If it ended before it was done, or is no answer.
    pub fn generation(&self, over: Result<Box<Request>, Error>) -> Result<Generation, Error> {
        self.info.generation(over?).ok_or(Error::Interrupted)
    }

    /// Runs a session to its end. All its events are there then.
    ///
    /// # Errors
    /// If it cannot be run, or breaks off.
    pub fn decode(&mut self, session: Session) -> Result<Session, Error> {
        let request = self.run(Request::new(session), &mut |_| ControlFlow::Continue(()))?;
        request.into_job().ok_or(Error::Interrupted)
    }
}

/// Returns a request that is done.
fn finished(request: Box<Request>) -> Result<Box<Request>, Error> {
    match request.end() {
        Some(Err(error)) => Err(error.clone().into()),
        _ => Ok(request),
    }
}
