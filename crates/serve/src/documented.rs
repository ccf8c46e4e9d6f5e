//! Tests that the documents describe the server truly: dashboards and rules name metrics that exist, and the manual has
//! every path.

use std::{collections::BTreeSet, fs, path::PathBuf};

use demask::layers::engine::EngineCounters;

use crate::{api::ENDPOINTS, metrics::Metrics};

fn project(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the series that a server writes.
fn series() -> BTreeSet<String> {
    let text = Metrics::default().write("model", &EngineCounters::default(), (0, 1));
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .flat_map(|(name, kind)| match kind {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            "counter" => vec![format!("{name}_total")],
            _ => vec![name.to_owned()],
        })
        .collect()
}

/// Names of metrics that a server writes, as the manual has them.
fn metrics() -> impl Iterator<Item = String> {
    let text = Metrics::default().write("model", &EngineCounters::default(), (0, 1));
    let types: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| format!("{name}{}", if kind == "counter" { "_total" } else { "" }))
        .collect();
    types.into_iter()
}

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'));
    words.filter(|word| word.starts_with("demask_") || word.starts_with("vllm:")).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let known = series();
    for (path, least) in [("packaging/grafana/dashboard.json", 20), ("packaging/alerts.yml", 3)] {
        let text = project(path);
        let named = named(&text);
        assert!(named.len() >= least, "{path} names {named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{path} names {unknown:?}, which the server does not write");
    }
}

#[test]
fn the_manual_has_each_metric_and_each_path() {
    let page = project("docs/serving.md");
    for name in metrics() {
        assert!(page.contains(&format!("`{name}`")), "docs/serving.md lacks `{name}`");
    }
    let paths = ENDPOINTS.iter().flat_map(|endpoint| endpoint.paths.iter().map(|(path, _)| (&endpoint.method, path)));
    for (method, path) in paths {
        assert!(page.contains(&format!("`{method} {path}`")), "docs/serving.md lacks `{method} {path}`");
    }
}
