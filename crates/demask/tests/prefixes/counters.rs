//! Counters of prefixes: tokens that were looked up, tokens that were found, and pages.

use demask::Options;

use super::{ALL, Bench, question, session, tokens};
use crate::batch::load;

#[test]
fn queries_and_hits_are_counted_in_tokens() {
    let mut bench = Bench::of("causal", ALL);
    for _ in 0..3 {
        bench.run(session(&bench.facts, &tokens(70), 4, ("ar", "causal")));
    }
    let found = bench.counters().prefixes.unwrap();
    assert_eq!((found.queries, found.hits), (3 * 69, 2 * 69));
}

/// An engine that was asked to keeps prefixes, and tells of it.
#[test]
fn an_engine_tells_pages_queries_and_hits() {
    let model = load("demo-sdar");
    model.set_prefix_cache(ALL).unwrap();
    let handle = model.handle();
    let options = Options { gen_length: Some(32), ..Options::default() };
    let answers = [0, 1].map(|_| handle.generate_with(question(1), &options).unwrap());
    assert_eq!(answers[0].text, answers[1].text);
    let cached = answers[1].receipt.decoding.cached_tokens;
    assert!(cached > 0);
    let json = serde_json::to_value(&answers[1].receipt).unwrap();
    assert_eq!(json["cached_tokens"], cached);
    let without = serde_json::to_value(&answers[0].receipt).unwrap();
    assert_eq!(without.get("cached_tokens"), None, "what did not happen is not told");
    // A look comes after the counts of the forward before it.
    handle.with_network(|_| ()).unwrap();
    let network = handle.counters().networks[0];
    let found = network.prefixes.unwrap();
    assert_eq!((found.hits, network.pages.used), (cached as u64, 0));
    assert!(network.pages.idle > 0 && network.page_capacity.unwrap() > network.pages.idle as u64);
    model.drain();
}
