//! An engine: a scheduler on a thread of its own, for handles that any thread may hold.

use std::{
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::Ordering,
        mpsc::{self, Receiver, SyncSender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use demask_step::Network;

use crate::{
    error::EngineError,
    handle::RequestHandle,
    health::{Health, Heartbeat},
    ids::{NetworkId, RequestId},
    network::NetworkCounters,
    output::{OutputQueue, Sender},
    request::{Request, message},
    scheduler::{Scheduler, Totals},
};

/// Most commands that are taken between two forwards, so that many submissions cannot keep the engine from its forwards.
const MOST_COMMANDS: usize = 1024;
/// Most commands that wait. A thread that submits more waits until the engine has taken some.
const MOST_WAITING: usize = 16_384;

/// A thread that owns a scheduler and runs the requests of all handles. Dropped, it gives up all requests and ends.
pub struct Engine<N: Network + ?Sized + 'static> {
    handle: EngineHandle<N>,
    thread: Option<JoinHandle<Option<Scheduler<N>>>>,
}

/// Handle of an engine: submits requests to it, from any thread. Clones share the engine.
pub struct EngineHandle<N: Network + ?Sized + 'static> {
    shared: Arc<Shared>,
    commands: SyncSender<Command<N>>,
}

impl<N: Network + ?Sized> Clone for EngineHandle<N> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), commands: self.commands.clone() }
    }
}

/// State that an engine's thread and its handles share.
#[derive(Default)]
struct Shared {
    counters: Mutex<EngineCounters>,
    health: Arc<Health>,
}

/// Counts of an engine as they were after its last forward.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineCounters {
    /// Counts over all networks.
    pub totals: Totals,
    /// Counts of each network, in the order in which they were added.
    pub networks: Vec<NetworkCounters>,
}

/// Function that is called with the scheduler between two forwards.
type Look<N> = Box<dyn FnOnce(&mut Scheduler<N>) + Send>;

enum Command<N: Network + ?Sized> {
    Submit(Box<Request>, Vec<NetworkId>),
    Look(Look<N>),
    /// Ends the thread: once all requests are over, or at once.
    Shut {
        drain: bool,
    },
}

impl<N: Network + ?Sized + 'static> Engine<N> {
    /// Gives a scheduler a thread of its own.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(scheduler: Scheduler<N>) -> Result<Self, EngineError> {
        let (commands, received) = mpsc::sync_channel(MOST_WAITING);
        let shared = Arc::<Shared>::default();
        let handle = EngineHandle { shared: Arc::clone(&shared), commands };
        let work = Loop { shared, scheduler, over: Vec::new(), draining: false };
        let thread = thread::Builder::new().name("demask-engine".to_owned()).spawn(move || work.live(&received));
        Ok(Self { handle, thread: Some(thread.map_err(EngineError::NoThread)?) })
    }

    /// Returns a handle, which may be cloned and sent anywhere.
    pub fn handle(&self) -> EngineHandle<N> {
        self.handle.clone()
    }

    /// Takes no requests from now on, finishes those that were submitted, and ends.
    pub fn drain(mut self) {
        self.shut(true);
    }

    /// Ends the thread, gives up all requests, and returns the scheduler; none if the thread has panicked.
    pub fn into_scheduler(mut self) -> Option<Scheduler<N>> {
        self.shut(false)
    }

    /// Gives up all requests without waiting for the forward that runs: the thread ends after it, or with the process.
    pub fn abandon(mut self) {
        self.thread = None;
        let _ = self.handle.commands.send(Command::Shut { drain: false });
    }

    fn shut(&mut self, drain: bool) -> Option<Scheduler<N>> {
        let thread = self.thread.take()?;
        // A thread that has ended already takes no command, and has closed all queues.
        let _ = self.handle.commands.send(Command::Shut { drain });
        thread.join().ok().flatten()
    }
}

impl<N: Network + ?Sized + 'static> Drop for Engine<N> {
    fn drop(&mut self) {
        self.shut(false);
    }
}

impl<N: Network + ?Sized + 'static> EngineHandle<N> {
    /// Submits a request to run on these networks: its own network 0 is `on[0]`, and so on. `finish` makes the result from the
    /// request that is done, on the thread of the reader. Every error, a refusal too, is the handle's result.
    pub fn submit<T>(
        &self,
        request: Request,
        on: &[NetworkId],
        finish: impl FnOnce(Box<Request>) -> Option<T> + Send + 'static,
    ) -> RequestHandle<T> {
        self.post(request, on, Box::new(finish), false)
    }

    /// Submits a request whose reader gets every event as it was, none merged.
    pub fn submit_for_every_event<T>(
        &self,
        request: Request,
        on: &[NetworkId],
        finish: impl FnOnce(Box<Request>) -> Option<T> + Send + 'static,
    ) -> RequestHandle<T> {
        self.post(request, on, Box::new(finish), true)
    }

    fn post<T>(
        &self,
        mut request: Request,
        on: &[NetworkId],
        finish: Box<dyn FnOnce(Box<Request>) -> Option<T> + Send>,
        every: bool,
    ) -> RequestHandle<T> {
        let output = Arc::<OutputQueue<Box<Request>>>::default();
        if every {
            output.keep_every_event();
        }
        request.id = RequestId::next();
        request.output = Some(Sender(Arc::clone(&output)));
        // An engine that has ended drops the request, which ends its handle.
        let _ = self.commands.send(Command::Submit(Box::new(request), on.to_vec()));
        RequestHandle::new(output, Arc::clone(&self.shared.health), finish)
    }

    /// Calls a function with the scheduler between two forwards, and waits for it.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn with_scheduler<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Scheduler<N>) -> R + Send + 'static,
    ) -> Result<R, EngineError> {
        let (sender, found) = mpsc::sync_channel(1);
        let look: Look<N> = Box::new(move |scheduler| {
            let _ = sender.send(look(scheduler));
        });
        self.commands.send(Command::Look(look)).map_err(|_| self.shared.health.end())?;
        found.recv().map_err(|_| self.shared.health.end())
    }

    /// Returns the condition of the engine's thread, without waiting for it.
    pub fn heartbeat(&self) -> Heartbeat {
        self.shared.health.heartbeat()
    }

    /// Returns the reason why the engine failed; none if it has not. Another one has to be made from the model's files.
    pub fn failure(&self) -> Option<&str> {
        self.shared.health.failure.get().map(String::as_str)
    }

    /// Returns whether the engine's thread runs; one that has ended serves no request any more.
    pub fn is_alive(&self) -> bool {
        self.heartbeat().alive
    }

    /// Returns the engine's counts as they were after its last forward.
    pub fn counters(&self) -> EngineCounters {
        self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The engine's thread.
struct Loop<N: Network + ?Sized> {
    shared: Arc<Shared>,
    scheduler: Scheduler<N>,
    /// Requests that are over and whose readers have not been notified.
    over: Vec<Box<Request>>,
    draining: bool,
}

impl<N: Network + ?Sized> Loop<N> {
    /// Runs to the end, and records how it ended before its readers learn that it did.
    fn live(mut self, commands: &Receiver<Command<N>>) -> Option<Scheduler<N>> {
        let panic = catch_unwind(AssertUnwindSafe(|| self.run(commands))).err();
        let Self { shared, mut scheduler, .. } = self;
        if let Some(panic) = &panic {
            let said = message(&**panic);
            shared.health.fail(format!("its thread panicked (a bug, please report it): {said}"));
        }
        shared.health.ended.store(true, Ordering::Release);
        if panic.is_some() {
            return None;
        }
        drop(scheduler.cancel_all(|_| true));
        Some(scheduler)
    }

    /// Takes commands and runs forwards until it is shut down, or no handle is left to send a command.
    fn run(&mut self, commands: &Receiver<Command<N>>) {
        while self.obey(commands) {
            self.shared.health.record_heartbeat(true);
            let Self { scheduler, over, .. } = self;
            over.extend(scheduler.cancel_all(Request::is_cancelled));
            scheduler.expire(Instant::now(), over);
            let report = &mut |request: &mut Request| {
                request.report_to_reader();
                ControlFlow::Continue(())
            };
            scheduler.step(report, over);
            // A reader that learns of a forward finds it counted.
            self.publish();
            // A reader is woken once a forward, not by each commit.
            self.scheduler.running().for_each(Request::deliver);
            if let Some(error) = self.scheduler.failure() {
                self.shared.health.fail(format!("the device failed: {error}"));
            }
            self.over.drain(..).for_each(Request::close);
        }
    }

    /// Takes the commands that have come, and waits for one if nothing runs. Returns whether to go on.
    fn obey(&mut self, commands: &Receiver<Command<N>>) -> bool {
        for _ in 0..MOST_COMMANDS {
            let idle = self.scheduler.is_idle();
            if idle && self.draining {
                return false;
            }
            if idle {
                self.publish();
                self.shared.health.record_heartbeat(false);
            }
            let command =
                if idle { commands.recv().map_err(|_| TryRecvError::Disconnected) } else { commands.try_recv() };
            if idle {
                self.shared.health.record_heartbeat(true);
            }
            match command {
                Ok(Command::Submit(request, on)) => self.submit(request, &on),
                Ok(Command::Look(look)) => {
                    // A request whose reader has gone is not seen any more.
                    self.scheduler.cancel_all(Request::is_cancelled).into_iter().for_each(Request::close);
                    look(&mut self.scheduler);
                }
                Ok(Command::Shut { drain: true }) => self.draining = true,
                Ok(Command::Shut { drain: false }) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
        true
    }

    fn submit(&mut self, request: Box<Request>, on: &[NetworkId]) {
        if self.draining || request.is_cancelled() {
            return;
        }
        if let Err(refused) = self.scheduler.submit(request, on) {
            let mut request = refused.request;
            request.refuse(refused.error);
            request.close();
        }
    }

    fn publish(&self) {
        let mut counters = self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.totals = self.scheduler.counters();
        counters.networks.clear();
        counters.networks.extend(self.scheduler.all_network_counters());
    }
}
