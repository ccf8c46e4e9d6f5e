//! Effect of one parameter, everything else being equal: found in any sweep from the specs of its rows.

use std::collections::BTreeMap;

use demask_decode::{
    caches::CacheMethod,
    methods::DecoderMethod,
    spec::{Kind, Method, Spec, Value},
};

use super::Summary;

/// Traits by which runs differ.
pub type Traits = Vec<Trait>;

/// One setting of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trait {
    name: &'static str,
    value: String,
    /// Records whether the value is the method's default.
    default: bool,
}

impl Trait {
    fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, value: value.into(), default: false }
    }
}

/// A parameter that takes several values, and the runs that differ in nothing else.
#[derive(Debug)]
pub struct Ablation<'a> {
    /// `decoder` or `cache`.
    pub side: &'static str,
    /// The method.
    pub method: &'static str,
    /// The parameter.
    pub parameter: &'static str,
    /// Meaning of the parameter.
    pub doc: &'static str,
    /// Records whether it counts something: doublings matter then.
    pub counts: bool,
    /// Runs with their value, rising, in groups that differ in something else.
    pub groups: Vec<Group<'a>>,
}

/// Runs that differ in one number only.
#[derive(Debug)]
pub struct Group<'a> {
    /// Difference from other groups; empty if there is one group.
    pub label: String,
    /// Values with their runs, rising.
    pub points: Vec<(f64, &'a Summary)>,
}

/// Ablations of a sweep, decoders first. Steps are left out: they have a picture of their own.
pub fn ablations(rows: &[Summary]) -> Vec<Ablation<'_>> {
    let decoders = of_registry::<DecoderMethod>(rows, |row| &row.decoder);
    let caches = of_registry::<CacheMethod>(rows, |row| &row.cache);
    decoders.into_iter().chain(caches).collect()
}

fn of_registry<M: Method>(rows: &[Summary], text: fn(&Summary) -> &str) -> Vec<Ablation<'_>> {
    let mut found = Vec::new();
    for about in M::known().iter().map(|method| method.about()) {
        for parameter in about.parameters.iter().filter(|parameter| parameter.name != "steps") {
            let counts = match parameter.kind.of_values() {
                Kind::Count { .. } => true,
                Kind::Number { .. } => false,
                _ => continue,
            };
            let points = rows.iter().filter_map(|row| {
                let spec: Spec<M> = text(row).parse().ok()?;
                let value = spec.values().find(|(other, _)| other.name == parameter.name)?.1;
                let x = number(value).filter(|_| spec.name() == about.name)?;
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

/// Traits that can set a run apart, but one parameter of its decoder or cache.
pub fn traits(row: &Summary, without: Option<(&str, &str)>) -> Traits {
    let mut traits = vec![
        Trait::new("task", row.task.as_str()),
        Trait::new("model", row.model.as_str()),
        Trait::new("guide", row.guide.as_str()),
        Trait::new("device", row.device.as_str()),
        Trait::new("prompts", row.prompts.as_str()),
    ];
    traits.extend(of_spec::<DecoderMethod>(&row.decoder, without));
    traits.extend(of_spec::<CacheMethod>(&row.cache, without));
    let steps = if without == Some((DecoderMethod::WHAT, "steps")) { String::new() } else { row.steps.to_string() };
    traits.push(Trait::new("remasking", row.remasking.as_str()));
    traits.push(Trait::new("steps", steps));
    traits.push(Trait::new("early stop", if row.early_stop { "on" } else { "off" }));
    traits.push(Trait::new("others", row.others.as_str()));
    traits
}

fn of_spec<M: Method>(text: &str, without: Option<(&str, &str)>) -> Traits {
    let Ok(spec) = text.parse::<Spec<M>>() else { return vec![Trait::new(M::WHAT, text)] };
    let kept = spec.values().filter(|(parameter, _)| without != Some((M::WHAT, parameter.name)));
    let values = kept.map(|(parameter, value)| Trait {
        name: parameter.name,
        value: value.to_string(),
        default: value == parameter.default(),
    });
    std::iter::once(Trait::new(M::WHAT, spec.name())).chain(values).collect()
}

/// The settings in which runs differ, in words. A parameter that not all of the methods have is told only if it is not
/// its default.
fn difference(of: &Traits, all: &[Traits]) -> String {
    let maps: Vec<BTreeMap<&str, &str>> =
        all.iter().map(|traits| traits.iter().map(|one| (one.name, one.value.as_str())).collect()).collect();
    let differs = |name: &str| maps.iter().any(|map| map.get(name) != maps[0].get(name));
    let everywhere = |name: &str| maps.iter().all(|map| map.contains_key(name));
    let told = of.iter().filter(|one| differs(one.name) && !one.value.is_empty());
    let told = told.filter(|one| !one.default || everywhere(one.name));
    let words = told.map(|Trait { name, value, .. }| match *name {
        "task" | "model" | "device" | "prompts" | "decoder" | "cache" | "remasking" | "others" => value.clone(),
        "steps" => format!("{value} steps"),
        name => format!("{name}={value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}
