//! Mailbox of an engine for the reader of a request: bounded, because updates that were not read yet are merged.

use std::{
    mem,
    ops::Range,
    task::{Poll, Waker},
    time::Instant,
};

use demask_decode::Event;
use demask_step::{Position, TokenId};

// By way of the module above, so that a test can put other locks in their place.
use super::{
    Error, Outcome, RunEvent, TraceLine, logprob,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    trace::{TokenTexts, Tracer},
};

/// Changes of a request since it was last read.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Update {
    /// Layout of the canvas, in the first update of an answer.
    pub started: Option<Started>,
    /// Start of the request's first forward, in the update behind it: until then it waited.
    pub began: Option<Instant>,
    /// Text that can no longer change.
    pub text: String,
    /// Tokens that were committed, in their order; of a position that was written again, the last one.
    pub commits: Vec<Committed>,
    /// Positions whose tokens were taken back: masks stand there again.
    pub taken_back: Vec<Position>,
    /// Texts of holes that were filled and can no longer change, with the index of each.
    pub holes: Vec<(usize, String)>,
    /// Masks that are left in the canvas, those behind the answer in its last block included.
    pub masks: usize,
    /// Number of leading positions behind the prompt that can no longer change and belong to the answer.
    pub settled: usize,
    /// Forwards of the request since the last update, at most 256 of them.
    pub forwards: Vec<Forward>,
    /// Forwards behind those that are not listed because nobody read for so long.
    pub dropped: usize,
    /// Number of forwards since the last update, listed or not.
    pub steps: usize,
    /// NFE so far; 0 if no forward has ended since the last update.
    pub nfe: usize,
    /// Draws of a likelihood that were made, and of how many.
    pub draws: Option<(usize, usize)>,
}

/// A canvas as it was laid out.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Started {
    /// All tokens: the prompt, and masks where something is decoded.
    pub canvas: Vec<TokenId>,
    /// Tokens of the prompt: those in front of the first mask.
    pub prompt_tokens: usize,
    /// Positions behind the prompt, the last block's overhang included.
    pub positions: usize,
    /// Positions of a block.
    pub block_length: usize,
    /// The decoder, with its parameters.
    pub decoder: String,
    /// The cache policy, with its parameters.
    pub cache: String,
    /// Positions of the holes in the canvas; none if the answer follows the prompt. Everything between them was given.
    pub holes: Vec<Range<usize>>,
}

/// A forward of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forward {
    /// Index of the forward, from 0.
    pub step: usize,
    /// NFE so far, this forward included.
    pub nfe: usize,
    /// Rows of the request that entered it.
    pub rows: usize,
    /// Drafts that ran in it.
    pub drafts: usize,
    /// Draft tokens that were accepted.
    pub accepted: usize,
    /// Draft tokens that were not.
    pub rejected: usize,
}

/// A token that was committed.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Committed {
    /// The forward whose predictions were taken, from 0.
    pub step: usize,
    /// Position in the canvas.
    pub position: Position,
    /// The token.
    pub token: TokenId,
    /// Token whose place it took, if one stood there.
    pub replaces: Option<TokenId>,
    /// Probability of the token; 1 where a rule, not the model, chose it.
    pub confidence: f32,
    /// Log-probability as in [`TokenLogprob::logprob`](crate::TokenLogprob::logprob); none unless requested.
    pub logprob: Option<f32>,
    /// Alternatives as in [`TokenLogprob::top`](crate::TokenLogprob::top).
    pub top: Vec<(TokenId, f32)>,
}

/// Forwards that one update lists at most.
const MOST_FORWARDS: usize = 256;

/// Something that a ticket yields.
#[expect(clippy::large_enum_variant, reason = "nearly all mail is updates, and each would be an allocation more")]
#[derive(Debug)]
pub enum Mail<T> {
    /// Changes since the last mail.
    Update(Update),
    /// The end: nothing follows.
    Over(Result<T, Error>),
}

/// The place where an engine leaves mail and a ticket finds it.
#[derive(Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    update: Option<Update>,
    /// Records whether the update may be read: it holds all of a forward.
    delivered: bool,
    /// Records whether nothing is delivered before the end: then one update holds all that has happened.
    whole: bool,
    /// Tracer, and the lines that it has written.
    trace: Option<(Tracer, Arc<TokenTexts>, Vec<TraceLine>)>,
    over: Option<Result<Outcome, Error>>,
    /// Records whether the end was put in once: nothing follows it.
    closed: bool,
    /// Records whether the end was taken out.
    read: bool,
    waker: Option<Waker>,
    /// Records whether the waker is for the end alone.
    patient: bool,
    /// Threads that wait.
    waiting: usize,
}

impl Update {
    /// Merges progress. What it grows to is bounded: text by the answer, commits by the canvas, forwards by a number.
    fn merge(&mut self, progress: &RunEvent<'_>) {
        match *progress {
            RunEvent::Started { canvas, prompt_tokens, positions, block_length, holes, decoder, cache } => {
                self.started = Some(Started {
                    canvas: canvas.to_vec(),
                    prompt_tokens,
                    positions,
                    block_length,
                    decoder: decoder.to_owned(),
                    cache: cache.to_owned(),
                    holes: holes.to_vec(),
                });
            }
            RunEvent::Began { at } => self.began = Some(at),
            RunEvent::Event(Event::Commit { step, position, token, confidence }) => {
                self.write(Committed { step, position, token, confidence, ..Committed::default() });
            }
            RunEvent::Event(Event::Replace { step, position, from, to: Some(token), confidence }) => {
                let replaces = Some(from);
                self.write(Committed { step, position, token, replaces, confidence, ..Committed::default() });
            }
            RunEvent::Event(Event::Replace { position, to: None, .. }) => {
                self.commits.retain(|commit| commit.position != position);
                self.taken_back.push(position);
            }
            RunEvent::Logprob { position, logprob: Some(known) } => {
                if let Some(commit) = self.commit(position) {
                    (commit.logprob, commit.top) = (logprob::finite(known), known.top.to_vec());
                }
            }
            RunEvent::Event(Event::Step { step, nfe, rows, drafts, accepted, rejected }) => {
                self.steps += 1;
                self.nfe = nfe;
                if self.forwards.len() < MOST_FORWARDS {
                    self.forwards.push(Forward { step, nfe, rows, drafts, accepted, rejected });
                } else {
                    self.dropped += 1;
                }
            }
            RunEvent::Left { masks, settled } => (self.masks, self.settled) = (masks, settled),
            RunEvent::Hole { index, text } => self.holes.push((index, text.to_owned())),
            RunEvent::Canvas(_)
            | RunEvent::Predicted(_)
            | RunEvent::Logprob { logprob: None, .. }
            | RunEvent::Event(Event::Draft { .. } | Event::Target { .. }) => {}
            RunEvent::Text(text) => self.text.push_str(text),
            RunEvent::Draws { done, all } => self.draws = Some((done, all)),
        }
    }
}

impl Update {
    /// Adds a token that was written. A position has one entry: what nobody has read is as if it had not been.
    fn write(&mut self, commit: Committed) {
        self.taken_back.retain(|&position| position != commit.position);
        match self.commit(commit.position) {
            Some(other) => *other = Committed { replaces: other.replaces, ..commit },
            None => self.commits.push(commit),
        }
    }

    /// The commit of a position.
    fn commit(&mut self, position: Position) -> Option<&mut Committed> {
        self.commits.iter_mut().rev().find(|commit| commit.position == position)
    }
}

impl Mailbox {
    // A holder of the lock that panicked has left nothing half done: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, mut inside: MutexGuard<'_, Inside>) {
        let waker = inside.waker.take();
        let waiting = inside.waiting > 0;
        drop(inside);
        // A call to the system each time, whether or not anybody waits.
        if waiting {
            self.arrived.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Makes one whose request's way is written down.
    pub(crate) fn traced(tracer: Tracer, texts: Arc<TokenTexts>) -> Self {
        let inside = Inside { trace: Some((tracer, texts, Vec::new())), ..Inside::default() };
        Self { inside: Mutex::new(inside), ..Self::default() }
    }

    /// Takes what was written down since the last time.
    pub(crate) fn take_trace(&self) -> Vec<TraceLine> {
        self.lock().trace.as_mut().map(|(_, _, lines)| mem::take(lines)).unwrap_or_default()
    }

    /// Merges progress into what was not read yet.
    pub(crate) fn tell(&self, progress: &RunEvent<'_>) {
        let mut inside = self.lock();
        if let Some((tracer, texts, lines)) = &mut inside.trace {
            lines.extend(tracer.line(progress, texts));
        }
        match progress {
            // Neither is news by itself.
            RunEvent::Canvas(_) | RunEvent::Predicted(_) => {}
            // It goes with what it is said of.
            RunEvent::Left { .. } if inside.update.is_none() => {}
            _ => {
                // What a slow reader has left waits for the rest of this forward.
                inside.delivered = false;
                inside.update.get_or_insert_default().merge(progress);
            }
        }
    }

    /// Hands over what was reported since the last time: all of a forward at once.
    pub(crate) fn deliver(&self) {
        let mut inside = self.lock();
        if inside.update.is_some() && !inside.whole && !mem::replace(&mut inside.delivered, true) && !inside.patient {
            self.changed(inside);
        }
    }

    /// Delivers nothing any more before the end.
    pub(crate) fn wait_for_the_end(&self) {
        self.lock().whole = true;
    }

    /// Puts the end in; only the first one counts.
    pub(crate) fn close(&self, over: Result<Outcome, Error>) {
        let mut inside = self.lock();
        if !mem::replace(&mut inside.closed, true) {
            inside.over = Some(over);
            inside.delivered = true;
            self.changed(inside);
        }
    }

    /// Takes the next mail; `Ready(None)` behind the end.
    pub(crate) fn poll(&self, waker: Option<&Waker>) -> Poll<Option<Mail<Outcome>>> {
        Self::take(&mut self.lock(), waker)
    }

    /// Waits for the end alone: what comes before it stays here and wakes nobody.
    pub(crate) fn poll_over(&self, waker: &Waker) -> Poll<()> {
        let mut inside = self.lock();
        if inside.closed {
            return Poll::Ready(());
        }
        (inside.waker, inside.patient) = (Some(waker.clone()), true);
        Poll::Pending
    }

    fn take(inside: &mut Inside, waker: Option<&Waker>) -> Poll<Option<Mail<Outcome>>> {
        if mem::take(&mut inside.delivered)
            && let Some(update) = inside.update.take().filter(|update| *update != Update::default())
        {
            inside.delivered = inside.over.is_some();
            return Poll::Ready(Some(Mail::Update(update)));
        }
        if let Some(over) = inside.over.take() {
            inside.read = true;
            return Poll::Ready(Some(Mail::Over(over)));
        }
        if inside.read {
            return Poll::Ready(None);
        }
        (inside.waker, inside.patient) = (waker.cloned(), false);
        Poll::Pending
    }

    fn sleep<'a>(&self, mut inside: MutexGuard<'a, Inside>) -> MutexGuard<'a, Inside> {
        inside.waiting += 1;
        inside = self.arrived.wait(inside).unwrap_or_else(PoisonError::into_inner);
        inside.waiting -= 1;
        inside
    }

    /// Waits for the next mail; none behind the end.
    pub(crate) fn wait(&self) -> Option<Mail<Outcome>> {
        let mut inside = self.lock();
        loop {
            if let Poll::Ready(mail) = Self::take(&mut inside, None) {
                return mail;
            }
            inside = self.sleep(inside);
        }
    }

    /// Waits for the next mail until a time; `Ready(None)` behind the end, `Pending` if none has come.
    pub(crate) fn wait_until(&self, limit: Instant) -> Poll<Option<Mail<Outcome>>> {
        let mut inside = self.lock();
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match Self::take(&mut inside, None) {
                Poll::Pending if !left.is_zero() => {}
                mail => return mail,
            }
            inside.waiting += 1;
            inside = self.arrived.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
            inside.waiting -= 1;
        }
    }
}

/// The engine's end of a mailbox. Dropped without an end, it says that the engine is gone.
pub(crate) struct Post(pub(crate) Arc<Mailbox>);

impl Drop for Post {
    fn drop(&mut self) {
        self.0.close(Err(Error::ShutDown));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
        time::Duration,
    };

    use demask_decode::Logprob;

    use super::*;

    fn commit(position: u32, token: TokenId) -> Event {
        Event::Commit { step: 0, position, token, confidence: 0.5 }
    }

    #[test]
    fn what_is_not_read_is_merged() {
        let mailbox = Mailbox::default();
        for step in 0..1000 {
            mailbox.tell(&RunEvent::Event(commit(step % 4, step)));
            mailbox.tell(&RunEvent::Text("a"));
            let (step, nfe) = (step as usize, step as usize + 1);
            let (rows, drafts, accepted, rejected) = (1, 0, 0, 0);
            mailbox.tell(&RunEvent::Event(Event::Step { step, nfe, rows, drafts, accepted, rejected }));
            mailbox.tell(&RunEvent::Canvas(&[1, 2]));
        }
        assert!(mailbox.poll(None).is_pending(), "nothing is read before all of a forward was told");
        mailbox.deliver();
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
        assert_eq!(update.commits.iter().map(|commit| commit.token).collect::<Vec<_>>(), [996, 997, 998, 999]);
        assert_eq!((update.text.len(), update.steps, update.nfe), (1000, 1000, 1000));
        assert!(mailbox.poll(None).is_pending());
    }

    #[test]
    fn of_a_position_that_is_written_again_the_last_token_is_told() {
        let mailbox = Mailbox::default();
        let replace = |position, from, to| {
            mailbox.tell(&RunEvent::Event(Event::Replace { step: 1, position, from, to, confidence: 0.5 }));
        };
        let read = || {
            mailbox.deliver();
            let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
            let commits = update.commits.iter().map(|commit| (commit.position, commit.token, commit.replaces));
            (commits.collect::<Vec<_>>(), update.taken_back)
        };
        (0..4).for_each(|position| mailbox.tell(&RunEvent::Event(commit(position, 7))));
        replace(1, 7, Some(8));
        replace(2, 7, None);
        assert_eq!(read(), (vec![(0, 7, None), (1, 8, None), (3, 7, None)], vec![2]));
        replace(0, 7, Some(8));
        replace(0, 8, Some(9));
        replace(1, 8, None);
        mailbox.tell(&RunEvent::Event(commit(1, 5)));
        replace(3, 7, None);
        assert_eq!(read(), (vec![(0, 9, Some(7)), (1, 5, None)], vec![3]));
    }

    #[test]
    fn a_slow_reader_gets_no_half_of_a_forward() {
        let mailbox = Mailbox::default();
        mailbox.tell(&RunEvent::Text("a"));
        mailbox.deliver();
        mailbox.tell(&RunEvent::Text("b"));
        assert!(mailbox.poll(None).is_pending(), "the second forward is not told to its end");
        mailbox.tell(&RunEvent::Text("c"));
        mailbox.deliver();
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
        assert_eq!(update.text, "abc");
    }

    #[test]
    fn forwards_are_listed_up_to_a_number_and_then_counted() {
        let mailbox = Mailbox::default();
        let tell = |step: usize| {
            let (nfe, rows, drafts, accepted, rejected) = (step + 1, 8, 4, 2, 1);
            mailbox.tell(&RunEvent::Event(Event::Step { step, nfe, rows, drafts, accepted, rejected }));
            mailbox.tell(&RunEvent::Left { masks: 1000 - step, settled: step });
        };
        (0..300).for_each(tell);
        assert!(mailbox.poll(None).is_pending(), "nothing is read before all of a forward was told");
        mailbox.deliver();
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
        assert_eq!((update.forwards.len(), update.dropped, update.steps), (256, 44, 300));
        assert_eq!((update.masks, update.settled, update.nfe), (701, 299, 300));
        let last = Forward { step: 255, nfe: 256, rows: 8, drafts: 4, accepted: 2, rejected: 1 };
        assert_eq!(update.forwards[255], last);
        // What is left is said of something that has happened, and is no news by itself.
        mailbox.tell(&RunEvent::Left { masks: 3, settled: 4 });
        assert!(mailbox.poll(None).is_pending());
        tell(300);
        assert!(mailbox.poll(None).is_pending(), "nothing is read before all of a forward was told");
        mailbox.deliver();
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
        assert_eq!((update.forwards.len(), update.dropped, update.masks), (1, 0, 700));
    }

    #[test]
    fn a_commit_has_its_step_and_its_alternatives() {
        let mailbox = Mailbox::default();
        for (step, probability) in [(3, 0.25_f32), (4, 0.5)] {
            mailbox.tell(&RunEvent::Event(Event::Commit { step, position: 7, token: 9, confidence: probability }));
            let known = Logprob { log_probability: probability.ln(), top: &[(9, -0.5), (8, -0.75)] };
            mailbox.tell(&RunEvent::Logprob { position: 7, logprob: Some(known) });
        }
        mailbox.tell(&RunEvent::Event(commit(8, 1)));
        mailbox.tell(&RunEvent::Logprob { position: 8, logprob: None });
        assert!(mailbox.poll(None).is_pending(), "nothing is read before all of a forward was told");
        mailbox.deliver();
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(None) else { panic!("there is an update") };
        let [first, second] = &update.commits[..] else { panic!("two positions") };
        assert_eq!((first.step, first.logprob, &first.top[..]), (4, Some(0.5_f32.ln()), &[(9, -0.5), (8, -0.75)][..]));
        assert_eq!((second.step, second.logprob, second.top.len()), (0, None, 0));
    }

    #[test]
    fn the_end_comes_once_and_last() {
        let mailbox = Arc::new(Mailbox::default());
        let post = Post(Arc::clone(&mailbox));
        mailbox.tell(&RunEvent::Text("a"));
        post.0.close(Err(Error::Interrupted));
        drop(post);
        assert!(matches!(mailbox.wait(), Some(Mail::Update(update)) if update.text == "a"));
        assert!(matches!(mailbox.wait(), Some(Mail::Over(Err(Error::Interrupted)))));
        assert!(mailbox.wait().is_none() && matches!(mailbox.poll(None), Poll::Ready(None)));
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_for_the_end_is_woken_by_nothing_else_and_loses_nothing() {
        let (mailbox, woken) = (Mailbox::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let tell = |text| {
            mailbox.tell(&RunEvent::Text(text));
            mailbox.deliver();
        };
        assert!(mailbox.poll_over(&waker).is_pending());
        tell("a");
        tell("b");
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.poll(Some(&waker)) else { panic!("there is an update") };
        assert_eq!(update.text, "ab");
        // Who waits for anything is woken by the next update again.
        assert!(mailbox.poll(Some(&waker)).is_pending());
        tell("c");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(mailbox.poll_over(&waker).is_pending());
        mailbox.close(Err(Error::Interrupted));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(mailbox.poll_over(&waker).is_ready());
        assert!(matches!(mailbox.wait(), Some(Mail::Update(update)) if update.text == "c"));
        assert!(matches!(mailbox.wait(), Some(Mail::Over(Err(Error::Interrupted)))));
        assert!(mailbox.poll_over(&waker).is_ready());
    }

    #[test]
    fn whoever_waits_for_the_end_gets_all_of_it_in_one_update() {
        let mailbox = Arc::new(Mailbox::default());
        let post = Post(Arc::clone(&mailbox));
        mailbox.wait_for_the_end();
        for text in ["a", "b"] {
            mailbox.tell(&RunEvent::Text(text));
            mailbox.deliver();
            assert!(mailbox.wait_until(Instant::now()).is_pending());
        }
        let begun = Instant::now();
        assert!(mailbox.wait_until(begun + Duration::from_millis(20)).is_pending());
        assert!(begun.elapsed() >= Duration::from_millis(20));
        post.0.close(Err(Error::Interrupted));
        let Poll::Ready(Some(Mail::Update(update))) = mailbox.wait_until(Instant::now()) else { panic!("an update") };
        assert_eq!(update.text, "ab");
        let over = mailbox.wait_until(Instant::now());
        assert!(matches!(over, Poll::Ready(Some(Mail::Over(Err(Error::Interrupted))))));
        assert!(matches!(mailbox.wait_until(Instant::now()), Poll::Ready(None)));
    }

    #[test]
    fn a_mailbox_that_nobody_fills_any_more_says_so() {
        let mailbox = Arc::new(Mailbox::default());
        drop(Post(Arc::clone(&mailbox)));
        assert!(matches!(mailbox.wait(), Some(Mail::Over(Err(Error::ShutDown)))));
    }
}
