//! Methods that are not ours, those of the examples: they hold what every method must, and run like our own.

#[path = "../examples/own_cache.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod own_cache;
#[path = "../examples/own_decoder.rs"]
#[allow(dead_code, reason = "its main is not run here")]
mod own_decoder;

use crate::{
    batch::{by_hand, question, same, together},
    outlines::demo::opened,
};
use demask::ModelByHand;
use demask::costs::dry_run::{Assumed, explain};
use demask::{Options, Prompt};
use demask_decode::{
    CacheSpec, CanvasSpec, DecoderSpec, Event, Registry, Session, SessionOptions, StopRule,
    methods::{FreeDave, Static},
    spec::OrAuto,
};
use demask_testkit::suite;
use own_cache::Sliding;
use own_decoder::MarginDrop;

#[test]
fn they_hold_what_every_method_must() {
    suite::decoder(&own_decoder::METHOD).unwrap_or_else(|broken| panic!("{broken}"));
    suite::cache(&own_cache::METHOD).unwrap_or_else(|broken| panic!("{broken}"));
}

fn registry() -> Registry {
    let registry = Registry::default().with_decoder(&own_decoder::METHOD).unwrap();
    registry.with_cache(&own_cache::METHOD).unwrap()
}

fn requests() -> Vec<(Prompt, Options)> {
    let registry = registry();
    let methods = [
        ("margin_drop:delta=0.2", "none"),
        ("static", "sliding:every=3"),
        ("margin_drop", "sliding:reach=2"),
        ("margin_drop:delta=0.5", "dual"),
    ];
    let request = |(decoder, cache)| {
        let options = Options {
            decoder: Some(registry.decoder(decoder).unwrap()),
            cache: Some(registry.cache(cache).unwrap()),
            gen_length: Some(32),
            ..Options::default()
        };
        (question(1), options)
    };
    methods.into_iter().map(request).collect()
}

#[test]
fn they_run_in_company_as_alone_and_say_so_in_their_receipts() {
    let mut model = by_hand("demo-llada");
    let requests = requests();
    let alone = together(&mut model, &requests, 1);
    for (alone, joined) in alone.iter().zip(together(&mut model, &requests, 4)) {
        same(alone, &joined);
    }
    let told = |index: usize| {
        let receipt = &alone[index].receipt.decoding;
        format!("{}, {}: {}", receipt.decoder, receipt.cache, receipt.exactness)
    };
    assert_eq!(told(0), "margin_drop:delta=0.2, none: approximate");
    assert_eq!(told(1), "static, sliding:every=3,reach=8: approximate");
    let nfe = |index: usize| alone[index].receipt.decoding.nfe;
    assert!(nfe(0) < nfe(1), "several tokens a forward: {} NFE, static decoding {}", nfe(0), nfe(1));
    let rows = |index: usize| alone[index].receipt.decoding.rows / alone[index].receipt.decoding.forwards;
    assert!(rows(2) < rows(0), "a window is less than everything");
}

fn session(model: &ModelByHand, decoder: DecoderSpec, cache: CacheSpec) -> Session {
    let canvas = CanvasSpec::Prompt { tokens: (10..23).collect(), gen_length: 24 };
    let options = SessionOptions {
        block_length: Some(8),
        stop: StopRule::Never,
        decoder,
        cache,
        ..SessionOptions::new(model.info().facts().clone(), canvas)
    };
    Session::new(options).unwrap()
}

#[test]
fn single_drafts_over_the_cache_are_static_decoding_on_a_network() {
    let mut model = by_hand("demo-llada");
    let mut commits = |decoder| {
        let session = session(&model, decoder, Sliding::default().into());
        let mut session = model.decode(session).unwrap();
        let commit = |event| match event {
            Event::Commit { position, token, confidence, .. } => Some((position, token, confidence.to_bits())),
            _ => None,
        };
        session.events().filter_map(commit).collect::<Vec<_>>()
    };
    let single = FreeDave { d: OrAuto::Given(1), ..FreeDave::default() };
    assert_eq!(commits(single.into()), commits(Static::default().into()));
}

/// Dry runs explain them as our own.
#[test]
fn plans_of_methods_that_are_not_ours_are_told_without_a_network() {
    let facts = opened("demo-llada").info().facts().clone();
    let canvas = CanvasSpec::Prompt { tokens: (10..23).collect(), gen_length: 24 };
    let options = SessionOptions {
        block_length: Some(8),
        stop: StopRule::Never,
        decoder: MarginDrop::default().into(),
        cache: Sliding { every: 2, reach: 1 }.into(),
        ..SessionOptions::new(facts.clone(), canvas)
    };
    let mut lines = Vec::new();
    let mut session = Session::new(options).unwrap();
    let mut mock = Assumed::with_tokens(&facts, [10, 11], 0.0, 0);
    explain(&mut session, &mut mock, &mut |line| lines.push(line), &mut |_, _| {}).unwrap();
    assert_eq!(lines[0], "step 0 sequence 0: live 0..37 visible 37 full canvas predict 13..21");
    assert!(lines[1].starts_with("step 1 sequence 0: live "), "{}", lines[1]);
    assert!(!lines[1].contains("live 0..37"), "{}", lines[1]);
}
