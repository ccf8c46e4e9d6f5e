//! The accept loop, its bounds, and how it ends.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::connection::{self, Shared};
use crate::{Service, config::HttpConfig, inner::Ending, lane::Lanes};

/// Way in which a server is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// Running: no end was requested.
    #[default]
    No,
    /// Once the running requests are over, or their time is up.
    Drain,
    /// Now.
    Now,
}

/// A server with its socket.
pub struct Server {
    listener: std::net::TcpListener,
    service: Service,
    config: HttpConfig,
}

impl Server {
    /// Takes a socket.
    ///
    /// # Errors
    /// If the address is in use, or not this machine's.
    pub fn bind(address: SocketAddr, service: Service, config: HttpConfig) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, service, config })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections on this thread until it is told to stop; it asks a few times a second.
    ///
    /// # Errors
    /// If the system has no means to wait for sockets.
    pub fn run(self, mut stop: impl FnMut() -> Stop) -> io::Result<()> {
        let threads = Lanes::JOBS.iter().sum();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().max_blocking_threads(threads).build()?;
        let served = runtime.block_on(self.serve(&mut stop));
        // A prompt that is being put into tokens for a client that is gone is not waited for.
        runtime.shutdown_timeout(Duration::from_secs(1));
        served
    }

    async fn serve(self, stop: &mut dyn FnMut() -> Stop) -> io::Result<()> {
        let Self { listener, service, config } = self;
        let listener = TcpListener::from_std(listener)?;
        let router = service.router(config.clone());
        let shared = Arc::new(Shared { service, router, config });
        let mut connections = JoinSet::new();
        let accepting = accept(&listener, &shared, &mut connections);
        let stopped = until_stopped(stop, Stop::Drain);
        tokio::select! {
            () = accepting => {}
            () = stopped => {}
        }
        drain(listener, &shared, &mut connections, stop).await;
        Ok(())
    }
}

/// Refuses new requests, waits for the running ones, and gives up those that take too long.
async fn drain(
    listener: TcpListener,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
    stop: &mut dyn FnMut() -> Stop,
) {
    shared.service.end(Ending::Refusing);
    let notice = Instant::now() + shared.config.drain_notice;
    tokio::select! {
        () = accept(&listener, shared, connections) => {}
        () = sleep_until(notice) => {}
        () = until_stopped(stop, Stop::Now) => {}
    }
    // Who comes now is told at once that nobody is here, instead of waiting for the end in the system's queue.
    drop(listener);
    shared.service.end(Ending::Closing);
    tokio::select! {
        () = emptied(connections) => {}
        () = sleep(shared.config.drain_time) => {}
        () = until_stopped(stop, Stop::Now) => {}
    }
    shared.service.end(Ending::GivingUp);
    // Each stream gets its last messages, unless its reader takes none.
    let _ = timeout(Duration::from_secs(2), emptied(connections)).await;
    connections.abort_all();
}

async fn emptied(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

/// Waits until the server is told to stop as soon as this.
async fn until_stopped(stop: &mut dyn FnMut() -> Stop, wanted: Stop) {
    loop {
        let told = stop();
        if told == Stop::Now || told != Stop::No && told == wanted {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Takes connections, as many as there may be.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>, connections: &mut JoinSet<()>) {
    let addresses: Arc<Mutex<HashMap<IpAddr, usize>>> = Arc::default();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= shared.config.connections {
            // The system keeps those that wait.
            connections.join_next().await;
            continue;
        }
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, for example: what is open must end first.
                tracing::warn!(%error, "a connection cannot be taken");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = Place::take(&addresses, peer.ip(), shared.config.per_address) else { continue };
        start(stream, shared, connections, place);
    }
}

fn start(stream: TcpStream, shared: &Arc<Shared>, connections: &mut JoinSet<()>, place: Place) {
    // What is written is whole messages: waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let shared = Arc::clone(shared);
    connections.spawn(async move {
        connection::serve(stream, shared).await;
        drop(place);
    });
}

/// One of an address's connections.
struct Place {
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Place {
    fn take(addresses: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr, most: usize) -> Option<Self> {
        let mut counts = addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { addresses: Arc::clone(addresses), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}
