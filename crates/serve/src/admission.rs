//! Places: a request takes one before any work is done for it, and more once it is known how many answers it asks for.
//! Where none is left for its key, it is refused at once, with the time after which one is likely to be free.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

// By way of the module above, so that a test can put other locks in their place.
use super::{
    Refusal,
    shares::{Missing, Shares},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Ends that the rate of freed places is learned from, and how old they may be.
const REMEMBERED: usize = 64;
const RECENT: Duration = Duration::from_mins(1);
/// Seconds that a client is asked to wait, at most.
const LONGEST_WAIT: u64 = 60;

/// The places of a server.
#[derive(Debug)]
pub struct Admission {
    places: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    in_use: Shares,
    /// Places whose requests have not arrived yet.
    arriving: Shares,
    /// Times at which places became free, oldest first.
    freed: VecDeque<Instant>,
}

/// Places of a request. Dropped, they are free again.
#[derive(Debug)]
pub struct Places {
    admission: Arc<Admission>,
    /// Number of the key that they are for.
    key: usize,
    count: usize,
    /// Records whether its request is not there yet.
    arriving: bool,
}

impl Admission {
    /// Makes so many places for keys of these weights.
    pub fn new(places: usize, weights: &[f64]) -> Arc<Self> {
        let (taken, arriving) = (Shares::new(places, weights), Shares::new((places / 2).max(1), weights));
        Arc::new(Self { places, inside: Mutex::new(Inside { in_use: taken, arriving, freed: VecDeque::new() }) })
    }

    /// Takes a place for a request of which nothing is known yet but its key.
    ///
    /// # Errors
    /// If none is left for it.
    pub fn enter(self: &Arc<Self>, key: usize) -> Result<Places, Refusal> {
        let mut places = Places { admission: Arc::clone(self), key, count: 0, arriving: false };
        places.grow(1)?;
        Ok(places)
    }

    /// Returns how many places are taken.
    pub fn in_use(&self) -> usize {
        self.lock().in_use.in_use()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A holder that panicked has left nothing half done: each change is one assignment.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds until so many places are likely to be free, by the ends of the last minute.
    fn wait(inside: &Inside, missing: usize, now: Instant) -> u64 {
        let recent: Vec<_> = inside.freed.iter().filter(|&&end| now.duration_since(end) < RECENT).collect();
        let Some(&&first) = recent.first() else { return 1 };
        let span = now.duration_since(first).as_secs_f64().max(0.001);
        let seconds = (span / recent.len() as f64 * missing as f64).ceil();
        (seconds as u64).clamp(1, LONGEST_WAIT)
    }
}

impl Places {
    /// Takes more places, until there are so many.
    ///
    /// # Errors
    /// If not so many are left, or there never are.
    pub fn grow(&mut self, count: usize) -> Result<(), Refusal> {
        let mut inside = self.admission.lock();
        let most = inside.in_use.most(self.key);
        if count > most {
            let of = if most < self.admission.places { " for a key" } else { "" };
            let message =
                format!("{count} answers are asked for at once, and this server makes {most}{of}: ask for fewer");
            return Err(Refusal::parameter("n", message));
        }
        if let Err(missing) = inside.in_use.take(self.key, count.saturating_sub(self.count)) {
            let (all, Missing::OfKey(count) | Missing::OfAll(count)) = (self.admission.places, missing);
            let wait = Admission::wait(&inside, count, Instant::now());
            let what = match missing {
                Missing::OfKey(_) if most < all => format!("all {most} places of this key are taken"),
                Missing::OfAll(_) if inside.in_use.in_use() < all => {
                    format!("the {all} places are taken or kept for other keys")
                }
                Missing::OfKey(_) | Missing::OfAll(_) => format!("all {all} places are taken"),
            };
            return Err(Refusal::overloaded(format!("{what}: try again in {wait} s"), wait));
        }
        self.count = self.count.max(count);
        Ok(())
    }
}

impl Places {
    /// Waits for the request's body. A small one gives its place back meanwhile; large ones keep theirs, and at most every
    /// other place of a key is theirs: slow senders keep no other request out.
    ///
    /// # Errors
    /// If no more large ones may wait.
    pub fn await_body(&mut self, is_small: bool) -> Result<(), Refusal> {
        let mut inside = self.admission.lock();
        if is_small {
            inside.in_use.give_back(self.key, self.count);
            self.count = 0;
            return Ok(());
        }
        if inside.arriving.take(self.key, 1).is_err() {
            let message = "as many large bodies are on their way as may be: try again in 1 s".to_owned();
            return Err(Refusal::overloaded(message, 1));
        }
        self.arriving = true;
        Ok(())
    }

    /// Goes on with the body.
    ///
    /// # Errors
    /// If the place was given back, and none is left.
    pub fn body_came(&mut self) -> Result<(), Refusal> {
        self.arrived();
        self.grow(1)
    }

    fn arrived(&mut self) {
        if std::mem::take(&mut self.arriving) {
            self.admission.lock().arriving.give_back(self.key, 1);
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.arrived();
        let mut inside = self.admission.lock();
        inside.in_use.give_back(self.key, self.count);
        let now = Instant::now();
        for _ in 0..self.count {
            inside.freed.push_back(now);
        }
        while inside.freed.len() > REMEMBERED {
            inside.freed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_grown_and_given_back() {
        let admission = Admission::new(4, &[1.0]);
        let mut first = admission.enter(0).unwrap();
        first.grow(3).unwrap();
        let second = admission.enter(0).unwrap();
        assert_eq!(admission.in_use(), 4);
        let refused = admission.enter(0).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (503, Some(1)));
        // A refused growth leaves what was there.
        assert_eq!(first.grow(4).unwrap_err().status.as_u16(), 503);
        assert_eq!(first.grow(5).unwrap_err().status.as_u16(), 400);
        assert_eq!(admission.in_use(), 4);
        drop(first);
        drop(second);
        assert_eq!(admission.in_use(), 0);
    }

    #[test]
    fn a_key_takes_its_places_and_leaves_others_theirs() {
        let admission = Admission::new(8, &[1.0, 3.0]);
        let mut ann = admission.enter(0).unwrap();
        assert_eq!(ann.grow(6).unwrap_err().param.as_deref(), Some("n"), "never");
        ann.grow(5).unwrap();
        let refused = admission.enter(0).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (503, Some(1)));
        assert!(refused.message.starts_with("all 5 places of this key are taken"), "{}", refused.message);
        let mut ben = admission.enter(1).unwrap();
        ben.grow(3).unwrap();
        assert!(ben.grow(4).unwrap_err().message.starts_with("all 8 places are taken"));
        drop(ann);
        ben.grow(7).unwrap();
        assert!(ben.grow(8).is_err(), "one place is Ann's");
        admission.enter(0).unwrap();
    }

    #[test]
    fn bodies_on_their_way_leave_places() {
        let admission = Admission::new(4, &[1.0]);
        let waiting = |is_small| {
            let mut places = admission.enter(0).unwrap();
            places.await_body(is_small).unwrap();
            places
        };
        let mut small: Vec<_> = (0..9).map(|_| waiting(true)).collect();
        assert_eq!(admission.in_use(), 0);
        let large: Vec<_> = (0..2).map(|_| waiting(false)).collect();
        assert_eq!(admission.in_use(), 2);
        let mut third = admission.enter(0).unwrap();
        assert_eq!(third.await_body(false).unwrap_err().status.as_u16(), 503);
        drop(third);
        // Two places are left for those whose bodies are there.
        let came: Vec<_> = small.iter_mut().map(|places| places.body_came().is_ok()).collect();
        assert_eq!(came.iter().filter(|&&came| came).count(), 2);
        drop((small, large));
        assert_eq!((admission.in_use(), admission.lock().arriving.in_use()), (0, 0));
    }

    #[test]
    fn the_wait_follows_the_rate_of_ends() {
        let now = Instant::now();
        let start = now.checked_sub(Duration::from_secs(20)).unwrap();
        let (taken, arriving) = (Shares::new(4, &[1.0]), Shares::new(2, &[1.0]));
        let freed = (0..10).map(|end| start + Duration::from_secs(2 * end)).collect();
        let mut inside = Inside { in_use: taken, arriving, freed };
        assert_eq!(Admission::wait(&inside, 1, now), 2);
        assert_eq!(Admission::wait(&inside, 3, now), 6);
        assert_eq!(Admission::wait(&inside, 1000, now), LONGEST_WAIT);
        inside.freed.clear();
        assert_eq!(Admission::wait(&inside, 3, now), 1);
    }
}
