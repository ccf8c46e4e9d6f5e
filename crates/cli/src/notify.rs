//! Reports to the service manager that started the command, if one did: that the server is ready, lives, and is about to
//! end.
//!
//! This is systemd's notification protocol: datagrams of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names.

use std::{
    ffi::OsStr,
    io,
    time::{Duration, Instant},
};

use crate::{env, output::Screen};

/// A service manager, or nobody.
#[derive(Debug)]
pub struct Manager {
    socket: Option<socket::Socket>,
    /// Time within which a sign of life must come.
    limit: Option<Duration>,
    /// Time of the last sign of life.
    beat: Option<Instant>,
    ending: bool,
}

impl Manager {
    /// Finds the service manager, and says so where it cannot be reached.
    pub fn find(screen: Screen) -> Self {
        let Some(name) = env::notify_socket() else { return Self::nobody() };
        match Self::at(&name, env::watchdog()) {
            Ok(manager) => manager,
            Err(error) => {
                let shown = name.to_string_lossy();
                screen.remark(&format!(
                    "warning: the service manager at NOTIFY_SOCKET {shown:?} cannot be reached: {error}"
                ));
                Self::nobody()
            }
        }
    }

    fn nobody() -> Self {
        Self { socket: None, limit: None, beat: None, ending: false }
    }

    fn at(name: &OsStr, limit: Option<Duration>) -> io::Result<Self> {
        Ok(Self { socket: Some(socket::Socket::to(name)?), limit, ..Self::nobody() })
    }

    /// Reports that requests are served.
    pub fn ready(&self, address: &str) {
        self.send(&format!("READY=1\nSTATUS=Serving on {address}"));
    }

    /// Reports the server's state, to be called a few times a second: once that the end has begun, and now and then
    /// that the server lives. `is_well` gets the time that one piece of work may take; if it returns false, no sign of
    /// life is sent.
    pub fn look(&mut self, ending: bool, is_well: impl FnOnce(Duration) -> bool) {
        if ending && !std::mem::replace(&mut self.ending, true) {
            self.send("STOPPING=1\nSTATUS=Waiting for requests on their way");
        }
        let Some(limit) = self.limit else { return };
        // Three tries within the limit: a late one is not the end.
        let due = self.beat.is_none_or(|beat| beat.elapsed() >= limit / 3);
        if due && is_well(limit) {
            self.send("WATCHDOG=1");
            self.beat = Some(Instant::now());
        }
    }

    /// Sends a message. If the service manager does not take it, the server warns and goes on.
    fn send(&self, message: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(message)) {
            tracing::warn!(%error, message, "the service manager takes no message");
        }
    }
}

#[cfg(unix)]
mod socket {
    use std::{
        ffi::OsStr,
        io,
        os::unix::{ffi::OsStrExt, net::SocketAddr, net::UnixDatagram},
    };

    /// A socket that messages go to.
    #[derive(Debug)]
    pub struct Socket {
        from: UnixDatagram,
        to: SocketAddr,
    }

    impl Socket {
        pub fn to(name: &OsStr) -> io::Result<Self> {
            let to = match name.as_bytes() {
                [b'/', ..] => SocketAddr::from_pathname(name)?,
                [b'@', name @ ..] => of_abstract(name)?,
                _ => return Err(io::Error::other("expected a path from / on, or @ and a name")),
            };
            let from = UnixDatagram::unbound()?;
            // Requests do not wait for a manager that is busy.
            from.set_nonblocking(true)?;
            Ok(Self { from, to })
        }

        pub fn send(&self, message: &str) -> io::Result<usize> {
            self.from.send_to_addr(message.as_bytes(), &self.to)
        }
    }

    #[cfg(target_os = "linux")]
    fn of_abstract(name: &[u8]) -> io::Result<SocketAddr> {
        <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
    }

    #[cfg(not(target_os = "linux"))]
    fn of_abstract(_: &[u8]) -> io::Result<SocketAddr> {
        Err(io::Error::other("this system has no abstract names"))
    }
}

#[cfg(not(unix))]
mod socket {
    use std::{ffi::OsStr, io};

    /// No socket: only systems with systemd have them.
    #[derive(Debug)]
    pub struct Socket(());

    impl Socket {
        pub fn to(_: &OsStr) -> io::Result<Self> {
            Err(io::Error::other("this system has no such sockets"))
        }

        pub fn send(&self, _: &str) -> io::Result<usize> {
            Ok(0)
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    };

    use super::*;

    /// Takes what has arrived.
    fn received(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        let next = || {
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_manager_is_told_of_start_life_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut manager = Manager::at(path.as_os_str(), Some(Duration::from_millis(30))).unwrap();
        manager.ready("http://127.0.0.1:1");
        assert_eq!(received(&socket), ["READY=1\nSTATUS=Serving on http://127.0.0.1:1"]);
        manager.look(false, |limit| limit == Duration::from_millis(30));
        manager.look(false, |_| true);
        assert_eq!(received(&socket), ["WATCHDOG=1"], "one a third of the limit");
        std::thread::sleep(Duration::from_millis(15));
        manager.look(false, |_| false);
        assert!(received(&socket).is_empty(), "what is stuck gives no sign of life");
        manager.look(true, |_| true);
        manager.look(true, |_| true);
        let told = received(&socket);
        assert_eq!(told.iter().filter(|message| message.starts_with("STOPPING=1\n")).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|message| *message == "WATCHDOG=1").count(), 1, "{told:?}");
    }

    #[test]
    fn a_name_without_a_file_is_a_socket_too() {
        let name = format!("demask-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mut manager = Manager::at(OsStr::new(&format!("@{name}")), None).unwrap();
        manager.ready("x");
        manager.look(false, |_| true);
        assert_eq!(received(&socket), ["READY=1\nSTATUS=Serving on x"], "no watchdog, no sign of life");
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        for name in ["vsock:2:1", "relative", ""] {
            let refused = Manager::at(OsStr::new(name), None).unwrap_err().to_string();
            assert_eq!(refused, "expected a path from / on, or @ and a name", "{name}");
        }
        assert!(Manager::at(OsStr::new(&format!("/{}", "x".repeat(200))), None).is_err(), "too long");
        // A socket that nobody holds is noticed when something is sent to it, and ends nothing.
        Manager::at(OsStr::new("/nowhere/notify"), None).unwrap().ready("x");
    }
}
