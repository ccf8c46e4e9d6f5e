//! What one parameter does, everything else being equal: found in any sweep from the specs of its rows.

use std::collections::BTreeMap;

use demask::decode::{
    cache::CacheMethod,
    decoder::DecoderMethod,
    spec::{Kind, Method, Spec, Value},
};

use super::Summary;

/// What sets runs apart, as pairs of name and value.
pub type Traits = Vec<(&'static str, String)>;

/// A parameter that takes several values, and the runs that differ in nothing else.
#[derive(Debug)]
pub struct Ablation<'a> {
    /// `decoder` or `cache`.
    pub side: &'static str,
    /// The method.
    pub method: &'static str,
    /// The parameter.
    pub parameter: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Whether it counts something: doublings matter then.
    pub counts: bool,
    /// Runs with their value, rising, in groups that differ in something else.
    pub groups: Vec<Group<'a>>,
}

/// Runs that differ in one number only.
#[derive(Debug)]
pub struct Group<'a> {
    /// What sets them apart from other groups; empty if there is one group.
    pub label: String,
    /// Values with their runs, rising.
    pub points: Vec<(f64, &'a Summary)>,
}

/// All of them, decoders first. Steps are left out: they have a picture of their own.
pub fn ablations(rows: &[Summary]) -> Vec<Ablation<'_>> {
    let decoders = of_registry::<DecoderMethod>(rows, |row| &row.decoder);
    let caches = of_registry::<CacheMethod>(rows, |row| &row.cache);
    decoders.into_iter().chain(caches).collect()
}

fn of_registry<M: Method>(rows: &[Summary], text: fn(&Summary) -> &str) -> Vec<Ablation<'_>> {
    let mut found = Vec::new();
    for about in M::registry().iter().map(Method::about) {
        for parameter in about.parameters.iter().filter(|parameter| parameter.name != "steps") {
            let counts = match parameter.kind {
                Kind::Count { .. } => true,
                Kind::Number { .. } => false,
                _ => continue,
            };
            let points = rows.iter().filter_map(|row| {
                let spec: Spec<M> = text(row).parse().ok()?;
                let x = number(spec.value(parameter.name)).filter(|_| spec.name() == about.name)?;
                Some((x, row, traits(row, Some((M::WHAT, parameter.name)))))
            });
            let groups = groups(points.collect());
            if !groups.is_empty() {
                let (method, parameter, doc) = (about.name, parameter.name, parameter.doc);
                found.push(Ablation { side: M::WHAT, method, parameter, doc, counts, groups });
            }
        }
    }
    found
}

fn number(value: Value) -> Option<f64> {
    match value {
        Value::Count(count) => Some(count as f64),
        // The shortest decimal that is this f32: 0.1 and not 0.10000000149.
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Puts points that differ in nothing but their number together; a group of one value says nothing and is left out.
pub fn groups(points: Vec<(f64, &Summary, Traits)>) -> Vec<Group<'_>> {
    let mut known: Vec<(Traits, Vec<(f64, &Summary)>)> = Vec::new();
    for (x, row, traits) in points {
        match known.iter_mut().find(|(other, _)| *other == traits) {
            Some((_, points)) => points.push((x, row)),
            None => known.push((traits, vec![(x, row)])),
        }
    }
    for (_, points) in &mut known {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    known.retain(|(_, points)| points.first().map(|point| point.0) != points.last().map(|point| point.0));
    let all: Vec<Traits> = known.iter().map(|(traits, _)| traits.clone()).collect();
    known.into_iter().map(|(traits, points)| Group { label: difference(&traits, &all), points }).collect()
}

/// Everything that can set a run apart but one parameter of its decoder or cache.
pub fn traits(row: &Summary, without: Option<(&str, &str)>) -> Traits {
    let mut traits = vec![("task", row.task.clone())];
    traits.extend(of_spec::<DecoderMethod>(&row.decoder, without));
    traits.extend(of_spec::<CacheMethod>(&row.cache, without));
    let steps = if without == Some((DecoderMethod::WHAT, "steps")) { String::new() } else { row.steps.to_string() };
    traits.push(("remasking", row.remasking.clone()));
    traits.push(("steps", steps));
    traits.push(("early stop", if row.early_stop { "on".to_owned() } else { "off".to_owned() }));
    traits.push(("others", row.others.clone()));
    traits
}

fn of_spec<M: Method>(text: &str, without: Option<(&str, &str)>) -> Traits {
    let Ok(spec) = text.parse::<Spec<M>>() else { return vec![(M::WHAT, text.to_owned())] };
    let parameters = spec.method().about().parameters.iter().map(|parameter| parameter.name);
    let kept = parameters.filter(|&name| without != Some((M::WHAT, name)));
    let values = kept.map(|name| (name, spec.value(name).to_string()));
    std::iter::once((M::WHAT, spec.name().to_owned())).chain(values).collect()
}

/// The pairs in which runs differ, in words.
fn difference(of: &Traits, all: &[Traits]) -> String {
    let maps: Vec<BTreeMap<&str, &str>> =
        all.iter().map(|traits| traits.iter().map(|(name, value)| (*name, value.as_str())).collect()).collect();
    let differs = |name: &str| maps.iter().any(|map| map.get(name) != maps[0].get(name));
    let told = of.iter().filter(|(name, value)| differs(name) && !value.is_empty());
    let words = told.map(|(name, value)| match *name {
        "task" | "decoder" | "cache" | "remasking" | "others" => value.clone(),
        "steps" => format!("{value} steps"),
        name => format!("{name}={value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}
