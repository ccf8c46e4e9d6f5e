//! A model, ready to answer.

use std::{ops::Deref, sync::Arc, time::Duration};

use demask_engine::{Engine, Faults, Scheduler};
use demask_model::Inspect;

use crate::{Error, Handle, ModelError, ModelInfo, info::Machine};

/// A network that was loaded, and the time that it took.
pub(crate) type LoadedNetwork = (Box<dyn Inspect>, Duration);

/// A model, ready to answer: the engine that its requests run on, and a [`Handle`] to it, whose methods are the model's.
/// [`handle`](Self::handle) returns one for another thread. Dropped, it gives up all requests and ends its engine.
pub struct Model {
    handle: Handle,
    engine: Engine<dyn Inspect>,
}

impl Deref for Model {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Model {
    /// Returns a handle, which may be cloned and sent anywhere.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes no requests from now on, finishes those that were submitted, and ends the engine.
    pub fn drain(self) {
        self.engine.drain();
    }

    /// Takes no requests from now on, gives up those that were submitted, and ends the engine. So does dropping it.
    pub fn shut_down(self) {
        drop(self.engine);
    }

    /// Does so without waiting for the forward that runs: for a program that ends.
    pub fn abandon(self) {
        self.engine.abandon();
    }
}

impl Model {
    /// Puts networks, the model's own and its guides', to work.
    pub(crate) fn of(info: ModelInfo, networks: Vec<LoadedNetwork>) -> Result<Self, ModelError> {
        let mut scheduler = Scheduler::new();
        for (index, (network, load_time)) in networks.into_iter().enumerate() {
            let (device, weights, meter) = (network.describe(), network.weight_bytes(), network.memory_meter());
            let (rows, network) = (network.rows().capacity, scheduler.add(network));
            let machine = Machine { network, load_time, device, weights, rows, meter };
            let at = index.checked_sub(1).map_or(&info, |guide| &*info.guides[guide].info);
            let _ = at.machine.set(machine);
        }
        Self::on(info, scheduler)
    }

    /// Gives a scheduler with a model's networks a thread.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn on(mut info: ModelInfo, mut scheduler: Scheduler<dyn Inspect>) -> Result<Self, ModelError> {
        limit_memory(&mut scheduler);
        let own = info.machine.get().and_then(|machine| scheduler.network(machine.network));
        if let Some(network) = own {
            info.free_memory = Some(network.available().1);
            info.facts.free_rows = network.rows().free;
        }
        keep_prefixes(&mut scheduler);
        let engine = Engine::start(scheduler)?;
        let handle = Handle::new(Arc::new(info), engine.handle());
        Ok(Self { handle, engine })
    }

    /// Sets the faults that are injected before the forwards and openings of its network from now on, for tests.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Self {
        let own = self.info().machine.get().map(|machine| machine.network);
        let _ = self.engine().with_scheduler(move |scheduler| own.map(|own| scheduler.set_faults(own, faults)));
        self
    }

    /// Ends its engine, and returns the scheduler with its networks: to be driven by hand, one forward at a time.
    ///
    /// # Errors
    /// If the engine has failed.
    pub fn into_scheduler(self) -> Result<(Arc<ModelInfo>, Scheduler<dyn Inspect>), Error> {
        let Self { handle, engine } = self;
        let scheduler = engine.into_scheduler().ok_or(Error::ShutDown)?;
        Ok((Arc::clone(handle.info()), scheduler))
    }
}

/// Lets open sequences take the memory that the devices have left now that all weights are there.
pub(crate) fn limit_memory(scheduler: &mut Scheduler<dyn Inspect>) {
    for id in scheduler.networks() {
        if let Some((device, available)) = scheduler.network(id).map(Inspect::available) {
            scheduler.limit(device, available);
        }
    }
}

/// Lets each network keep K/V of earlier prompts in its part of a quarter of the memory that is left: it goes before any request
/// waits for memory.
fn keep_prefixes(scheduler: &mut Scheduler<dyn Inspect>) {
    let networks = scheduler.networks();
    for &id in &networks {
        if let Some(network) = scheduler.network_mut(id) {
            let (_, available) = network.available();
            network.keep_prefixes(available / 4 / networks.len() as u64);
        }
    }
}
