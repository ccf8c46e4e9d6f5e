//! Tests of the queue between an engine and a reader.

use std::{sync::atomic::AtomicUsize, task::Wake, time::Duration};

use demask_step::TokenId;

use super::*;

fn commit(position: Position, token: TokenId) -> Event {
    Event::Commit { step: 0, position, token, confidence: 0.5, forced: false, changed: false }
}

fn replace(position: Position, from: TokenId, to: Option<TokenId>) -> Event {
    Event::Replace { step: 1, position, from, to, confidence: 0.5, changed: false }
}

fn step(step: usize) -> Event {
    let (masks, settled, merged) = (1000 - step, step, 0);
    Event::Step { step, nfe: step + 1, rows: 8, drafts: 4, accepted: 2, rejected: 1, masks, settled, merged }
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

/// Delivers the events that were pushed, and reads them.
fn read(queue: &OutputQueue<u32>) -> Vec<Event> {
    queue.deliver();
    match queue.poll(None) {
        Poll::Ready(Some(events)) => events,
        other => panic!("there are events: {other:?}"),
    }
}

#[test]
fn what_is_not_read_is_merged() {
    let queue = OutputQueue::default();
    for number in 0..1000 {
        queue.push(commit(number % 4, number));
        queue.push(text("a"));
        queue.push(Event::Progress { done: number as usize, all: 1000 });
    }
    assert!(queue.poll(None).is_pending(), "nothing is read before all of a forward was pushed");
    let events = read(&queue);
    let progress = Event::Progress { done: 999, all: 1000 };
    assert_eq!(
        events,
        [commit(0, 996), text(&"a".repeat(1000)), progress, commit(1, 997), commit(2, 998), commit(3, 999)]
    );
    assert!(queue.poll(None).is_pending());
}

#[test]
fn of_a_position_that_is_written_again_the_last_token_is_read() {
    let queue = OutputQueue::default();
    (0..4).for_each(|position| queue.push(commit(position, 7)));
    queue.push(replace(1, 7, Some(8)));
    queue.push(replace(2, 7, None));
    let second = Event::Commit { step: 1, position: 1, token: 8, confidence: 0.5, forced: false, changed: false };
    assert_eq!(read(&queue), [commit(0, 7), second, replace(2, 7, None), commit(3, 7)]);
    queue.push(replace(0, 7, Some(8)));
    queue.push(replace(0, 8, Some(9)));
    queue.push(replace(3, 7, None));
    queue.push(commit(3, 5));
    let again = Event::Replace { step: 0, position: 3, from: 7, to: Some(5), confidence: 0.5, changed: false };
    assert_eq!(read(&queue), [replace(0, 7, Some(9)), again]);
}

#[test]
fn merging_takes_linear_time() {
    let seconds = |positions: u32| {
        let queue = OutputQueue::<u32>::default();
        let begun = Instant::now();
        for position in 0..positions {
            queue.push(commit(position, 1));
            queue.push(Event::Logprob { position, logprob: Some(-0.5), top: Vec::new() });
            queue.push(text("a"));
        }
        begun.elapsed().as_secs_f64()
    };
    // Quadratic merging takes 1,024 times as long for 32 times as many.
    let (short, long) = (seconds(2_000), seconds(64_000));
    assert!(long < 200.0 * short.max(1e-4), "{short} s and {long} s");
}

#[test]
fn forwards_are_listed_up_to_a_number_and_then_merged() {
    let queue = OutputQueue::default();
    (0..300).for_each(|number| queue.push(step(number)));
    let events = read(&queue);
    assert_eq!(events.len(), 257);
    assert_eq!(events[..256], (0..256).map(step).collect::<Vec<_>>()[..]);
    let Event::Step { step: last, nfe, masks, settled, merged, .. } = events[256] else { panic!("a step") };
    assert_eq!((last, nfe, masks, settled, merged), (299, 300, 701, 299, 44));
    queue.push(step(300));
    assert_eq!(read(&queue), [step(300)]);
}

#[test]
fn every_event_is_kept_where_it_is_asked_for() {
    let queue = OutputQueue::default();
    queue.keep_every_event();
    let events = [commit(0, 1), text("a"), commit(0, 2), text("b"), step(0)];
    events.iter().cloned().for_each(|event| queue.push(event));
    assert_eq!(read(&queue), events);
}

#[test]
fn the_end_comes_once_and_last() {
    let queue = Arc::new(OutputQueue::default());
    let sender = Sender(Arc::clone(&queue));
    queue.push(text("a"));
    queue.close(7);
    drop(sender);
    assert_eq!(queue.wait(), Some(vec![text("a")]));
    assert_eq!(queue.wait(), None);
    assert_eq!((queue.take_end(), queue.take_end()), (Some(7), None));
    assert!(queue.wait().is_none() && matches!(queue.poll(None), Poll::Ready(None)));
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
fn a_reader_that_waits_for_the_end_is_woken_by_nothing_else_and_loses_nothing() {
    let (queue, woken) = (OutputQueue::default(), Arc::new(Woken::default()));
    let waker = Waker::from(Arc::clone(&woken));
    let push = |said: &str| {
        queue.push(text(said));
        queue.deliver();
    };
    assert!(queue.poll_end(&waker).is_pending());
    push("a");
    push("b");
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    assert_eq!(queue.poll(Some(&waker)), Poll::Ready(Some(vec![text("ab")])));
    // A reader that waits for anything is woken by the next events again.
    assert!(queue.poll(Some(&waker)).is_pending());
    push("c");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(queue.poll_end(&waker).is_pending());
    queue.close(1);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert!(queue.poll_end(&waker).is_ready());
    assert_eq!(queue.wait(), Some(vec![text("c")]));
    assert_eq!((queue.wait(), queue.take_end()), (None, Some(1)));
    assert!(queue.poll_end(&waker).is_ready());
}

#[test]
fn a_reader_that_waits_for_the_end_gets_all_of_it_at_once() {
    let queue = OutputQueue::default();
    queue.wait_for_the_end();
    for said in ["a", "b"] {
        queue.push(text(said));
        queue.deliver();
        assert!(queue.wait_until(Instant::now()).is_pending());
    }
    let begun = Instant::now();
    assert!(queue.wait_until(begun + Duration::from_millis(20)).is_pending());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    queue.close(1);
    assert_eq!(queue.wait_until(Instant::now()), Poll::Ready(Some(vec![text("ab")])));
    assert_eq!(queue.wait_until(Instant::now()), Poll::Ready(None));
}

#[test]
fn a_queue_that_nothing_fills_any_more_says_so() {
    let queue = Arc::new(OutputQueue::<u32>::default());
    drop(Sender(Arc::clone(&queue)));
    assert_eq!((queue.wait(), queue.take_end()), (None, None));
}
