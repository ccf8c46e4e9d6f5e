//! Places: a request takes one before any work is done for it, and more once it is known how many answers it asks for.
//! Where none is left, it is refused at once, with the time after which one is likely to be free.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

// By way of the module above, so that a test can put other locks in their place.
use super::{
    Refusal,
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

#[derive(Debug, Default)]
struct Inside {
    taken: usize,
    /// Number of places whose requests have not arrived yet.
    arriving: usize,
    /// Times at which places became free, oldest first.
    freed: VecDeque<Instant>,
}

/// Places of a request. Dropped, they are free again.
#[derive(Debug)]
pub struct Places {
    admission: Arc<Admission>,
    count: usize,
    /// Records whether its request is not there yet.
    arriving: bool,
}

impl Admission {
    /// Makes so many places.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, inside: Mutex::default() })
    }

    /// Takes a place for a request of which nothing is known yet.
    ///
    /// # Errors
    /// If none is left.
    pub fn enter(self: &Arc<Self>) -> Result<Places, Refusal> {
        let mut places = Places { admission: Arc::clone(self), count: 0, arriving: false };
        places.grow(1)?;
        Ok(places)
    }

    /// Returns how many places are taken.
    pub fn taken(&self) -> usize {
        self.lock().taken
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
        let admission = &self.admission;
        if count > admission.places {
            let message = format!(
                "{count} answers are asked for at once, and this server makes {}: ask for fewer",
                admission.places
            );
            return Err(Refusal::parameter("n", message));
        }
        let mut inside = admission.lock();
        let more = count.saturating_sub(self.count);
        if inside.taken + more > admission.places {
            let missing = inside.taken + more - admission.places;
            let wait = Admission::wait(&inside, missing, Instant::now());
            let message = format!("all {} places are taken: try again in {wait} s", admission.places);
            return Err(Refusal::overloaded(message, wait));
        }
        inside.taken += more;
        self.count = self.count.max(count);
        Ok(())
    }
}

impl Places {
    /// Waits for the request's body. A small one gives its place back meanwhile; large ones keep theirs, and at most every
    /// other place is theirs: whoever sends slowly keeps nobody out.
    ///
    /// # Errors
    /// If no more large ones may wait.
    #[cfg(feature = "http")]
    pub fn await_body(&mut self, is_small: bool) -> Result<(), Refusal> {
        let mut inside = self.admission.lock();
        if is_small {
            inside.taken -= self.count;
            self.count = 0;
            return Ok(());
        }
        if inside.arriving >= (self.admission.places / 2).max(1) {
            let message = "as many large bodies are on their way as may be: try again in 1 s".to_owned();
            return Err(Refusal::overloaded(message, 1));
        }
        inside.arriving += 1;
        self.arriving = true;
        Ok(())
    }

    /// Goes on with the body.
    ///
    /// # Errors
    /// If the place was given back, and none is left.
    #[cfg(feature = "http")]
    pub fn body_came(&mut self) -> Result<(), Refusal> {
        self.arrived();
        self.grow(1)
    }

    fn arrived(&mut self) {
        if std::mem::take(&mut self.arriving) {
            self.admission.lock().arriving -= 1;
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.arrived();
        let mut inside = self.admission.lock();
        inside.taken -= self.count;
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
        let admission = Admission::new(4);
        let mut first = admission.enter().unwrap();
        first.grow(3).unwrap();
        let second = admission.enter().unwrap();
        assert_eq!(admission.taken(), 4);
        let refused = admission.enter().unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (503, Some(1)));
        // A refused growth leaves what was there.
        assert_eq!(first.grow(4).unwrap_err().status.as_u16(), 503);
        assert_eq!(first.grow(5).unwrap_err().status.as_u16(), 400);
        assert_eq!(admission.taken(), 4);
        drop(first);
        drop(second);
        assert_eq!(admission.taken(), 0);
    }

    #[cfg(feature = "http")]
    #[test]
    fn bodies_on_their_way_leave_places() {
        let admission = Admission::new(4);
        let waiting = |is_small| {
            let mut places = admission.enter().unwrap();
            places.await_body(is_small).unwrap();
            places
        };
        let mut small: Vec<_> = (0..9).map(|_| waiting(true)).collect();
        assert_eq!(admission.taken(), 0);
        let large: Vec<_> = (0..2).map(|_| waiting(false)).collect();
        assert_eq!(admission.taken(), 2);
        let mut third = admission.enter().unwrap();
        assert_eq!(third.await_body(false).unwrap_err().status.as_u16(), 503);
        drop(third);
        // Two places are left for those whose bodies are there.
        let came: Vec<_> = small.iter_mut().map(|places| places.body_came().is_ok()).collect();
        assert_eq!(came.iter().filter(|&&came| came).count(), 2);
        drop((small, large));
        assert_eq!((admission.taken(), admission.lock().arriving), (0, 0));
    }

    #[test]
    fn the_wait_follows_the_rate_of_ends() {
        let now = Instant::now();
        let start = now.checked_sub(Duration::from_secs(20)).unwrap();
        let mut inside =
            Inside { taken: 4, arriving: 0, freed: (0..10).map(|end| start + Duration::from_secs(2 * end)).collect() };
        assert_eq!(Admission::wait(&inside, 1, now), 2);
        assert_eq!(Admission::wait(&inside, 3, now), 6);
        assert_eq!(Admission::wait(&inside, 1000, now), LONGEST_WAIT);
        inside.freed.clear();
        assert_eq!(Admission::wait(&inside, 3, now), 1);
    }
}
