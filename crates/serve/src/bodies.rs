//! The bodies of requests while they are held: one bound on all of them together, and each costs what its bytes cost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::HttpBody;
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::shares::Shares;

/// Bytes that a body is given room for at first.
const FIRST: usize = 1 << 10;

/// Memory for all bodies, which keys share.
#[derive(Debug)]
pub struct Bodies {
    shares: Mutex<Shares>,
    /// Bytes of one body at most.
    most: usize,
}

/// The bytes of one body that are here, and the memory that they take.
#[derive(Debug)]
struct Held {
    bodies: Arc<Bodies>,
    key: usize,
    bytes: Vec<u8>,
    /// Bytes that are counted for it.
    room: usize,
}

/// Reason why a body is not read.
#[derive(Debug)]
pub enum Unread {
    /// It is longer than a body may be.
    TooLarge,
    /// It broke off.
    Broken,
    /// There is no memory for it now.
    Full,
}

impl Bodies {
    /// Gives bodies so many bytes together, and each at most `most`, for keys of these weights.
    pub fn new(all: usize, most: usize, weights: &[f64]) -> Arc<Self> {
        Arc::new(Self { shares: Mutex::new(Shares::new(all, weights)), most })
    }

    /// Reads a body, as large as it may be. Its memory is free once the last of its bytes is dropped.
    ///
    /// # Errors
    /// If it breaks off, or is too large for itself or beside others.
    pub async fn read<B>(self: &Arc<Self>, key: usize, mut body: B) -> Result<Bytes, Unread>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let mut held = Held { bodies: Arc::clone(self), key, bytes: Vec::new(), room: 0 };
        while let Some(frame) = body.frame().await {
            // What follows a body's last chunk says nothing.
            if let Ok(piece) = frame.map_err(|_| Unread::Broken)?.into_data() {
                held.push(&piece)?;
            }
        }
        Ok(Bytes::from_owner(held))
    }

    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn push(&mut self, piece: &[u8]) -> Result<(), Unread> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bodies.most {
            return Err(Unread::TooLarge);
        }
        if needed > self.room {
            let room = needed.max(2 * self.room).max(FIRST).min(self.bodies.most);
            self.bodies.lock().take(self.key, room - self.room).map_err(|_| Unread::Full)?;
            self.bytes.reserve_exact(room - self.bytes.len());
            self.room = room;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.bytes = Vec::new();
        self.bodies.lock().give_back(self.key, self.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_one_bound_and_give_it_back() {
        let bodies = Bodies::new(10_000, 6_000, &[1.0]);
        let held = || Held { bodies: Arc::clone(&bodies), key: 0, bytes: Vec::new(), room: 0 };
        let (mut first, mut second) = (held(), held());
        // Piece by piece, a body takes at most twice its bytes.
        for _ in 0..3_000 {
            first.push(b"x").unwrap();
        }
        assert!(bodies.lock().in_use() <= 6_000);
        assert!(matches!(first.push(&[0; 3_001]), Err(Unread::TooLarge)));
        assert!(matches!(second.push(&[0; 6_000]), Err(Unread::Full)));
        second.push(&[1; 4_000]).unwrap();
        let bytes = Bytes::from_owner(first);
        assert_eq!((bytes.len(), &bytes[..2]), (3_000, &b"xx"[..]));
        drop(second);
        drop((bytes.clone(), bytes));
        assert_eq!(bodies.lock().in_use(), 0);
    }
}
