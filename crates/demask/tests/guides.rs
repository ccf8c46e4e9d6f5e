//! Several guides beside one model, which requests choose by name.

use demask::{Model, Options};

use crate::batch::{load, load_guided, question, same};

fn guided(guide: Option<&str>) -> Options {
    Options {
        decoder: Some("guided".parse().unwrap()),
        gen_length: Some(32),
        guide: guide.map(str::to_owned),
        ..Options::default()
    }
}

fn refusal(model: &Model, options: &Options) -> String {
    let error = model.generate_with(question(1), options).unwrap_err();
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn a_request_names_its_guide() {
    let alone = load("demo-llada");
    assert_eq!(refusal(&alone, &guided(Some("q"))), "unknown `guide` \"q\" (the model was loaded without a guide)");
    assert!(refusal(&alone, &guided(None)).contains("guide"));
    let alone = load_guided("demo-llada", &[None]);
    let name = alone.guides()[0].to_owned();
    let expected = alone.generate_with(question(1), &guided(None)).unwrap();
    // A guide without a name of its own is called as its model.
    same(&alone.generate_with(question(1), &guided(Some(&name))).unwrap(), &expected);

    let model = load_guided("demo-llada", &[Some("large")]);
    assert!(model.generate_with(question(1), &guided(None)).is_ok(), "there is only one");
    let model = load_guided("demo-llada", &[Some("large"), Some("small")]);
    assert_eq!(model.guides(), ["large", "small"]);
    let told = "`guide` is not set and the model has several: name one of large, small";
    assert_eq!(refusal(&model, &guided(None)), told);
    assert_eq!(refusal(&model, &guided(Some("larg"))), "unknown `guide` \"larg\" (known: large, small)");
    let named = Options { guide: Some("small".into()), gen_length: Some(32), ..Options::default() };
    let told = "`guide` has no meaning without `decoder` guided, which is the one that asks it: omit it";
    assert_eq!(refusal(&model, &named), told);
    let qwen = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/demo-qwen");
    let twice = Model::builder().named_guide("small", qwen).named_guide("small", qwen).demo();
    let twice = twice.err().unwrap().to_string();
    assert_eq!(twice, "the model has a guide small already: give the other one another name");
    assert!(model.generate_with(question(1), &Options { guide: None, ..named }).is_ok(), "no guide is asked");
    let weights = model.generate_with(question(1), &guided(Some("small"))).unwrap().receipt.memory.guide;
    assert_eq!(weights, 2 * expected.receipt.memory.guide, "both are there");
}

#[test]
fn each_request_runs_on_the_guide_that_it_named() {
    let model = load_guided("demo-llada", &[Some("one"), Some("two")]);
    model.set_prefix_cache(0).unwrap();
    let expected = model.generate_with(question(2), &guided(Some("one"))).unwrap();
    let handle = model.handle();
    assert_eq!(handle.guides(), ["one", "two"]);
    let ask = |name| handle.stream(question(2), &guided(Some(name))).unwrap();
    let tickets = [ask("one"), ask("two"), ask("two")];
    let answers = tickets.map(|ticket| ticket.wait().unwrap());
    for answer in &answers {
        same(answer, &expected);
        assert!(answer.receipt.seconds.guide > 0.0);
    }
    handle.with_network(|_| ()).unwrap();
    let rows: Vec<u64> = handle.counters().networks.iter().map(|network| network.rows).collect();
    let guide = expected.receipt.guide.unwrap().rows as u64;
    // The first has answered once before.
    assert_eq!(rows[1..], [2 * guide, 2 * guide]);
    model.drain();
}

#[test]
fn a_builder_takes_named_guides() {
    let qwen = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/demo-qwen");
    let model = Model::builder().named_guide("a", qwen).guide(qwen).named_guide("b", qwen).demo().unwrap();
    assert_eq!(model.guides()[0], "a");
    assert_eq!((model.guides().len(), model.guides()[2]), (3, "b"));
    assert!(Model::builder().named_guide("a", qwen).named_guide("a", qwen).demo().is_err());
}
