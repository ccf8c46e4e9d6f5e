//! Rules that every decoding method must keep, callable for any method: our own tests call them for each entry of the
//! registry, and authors of a method call them for theirs.
//!
//! [`decoder`] and [`cache`] run a method with the defaults and with every other kind of value of its parameters, beside
//! all methods that go with it, on scripted networks in which every stale slot shows, for random prompts, lengths,
//! blocks, schedules and temperatures. What they hold it to:
//!
//! * its description can be read, printed and documented;
//! * a run decodes everything, touches no given token and no settled one, commits no position twice and no token that
//!   is none. Tokens that a revising decoder replaces or takes back were there before;
//! * tokens that are called settled stay;
//! * its plans are legal, and take no more than it reserved;
//! * two equal runs are equal;
//! * the slots that it leaves for later requests are right, and a run that begins with them commits the same;
//! * predictions that make no sense end no run with a panic, and nothing of them is written;
//! * its own claims are true: see [`decoder`] and [`cache`].

mod case;
mod ending;
mod run;
#[cfg(test)]
mod tests;
mod words;

use std::{cell::RefCell, fmt};

use demask_decode::{
    CacheSpec, DecoderSpec, Exactness, Memory, Registry, Remasking, Session, SessionOptions, Setup, StopRule,
    caches::{CacheKind, CacheMethod, CachePolicy, CacheTraits},
    methods::{DecoderMethod, Progress, Promise, Query, View},
    parameters,
    spec::{About, Kind, Method, OrAuto, Value},
    transfer::Ranking,
};
use demask_step::{Mask, MaskKind, Position, StepPlan};

use case::{Case, cases};
use run::{Outcome, hostile, run, run_preempted, run_twice};

/// Rule that a method broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The method with its parameters, and the conditions of the run.
    pub method: String,
    /// Rule that it had to keep.
    pub rule: &'static str,
    /// Outcome that was found instead.
    pub found: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected that {}, found {}", self.method, self.rule, self.found)
    }
}

impl std::error::Error for Broken {}

/// Holds a decoder to the rules of every decoder, and to its own claims. With [`Promise::Reference`] its commits are
/// those of the family's reference over the same exact cache. With [`Promise::Official`] they are the same over every
/// exact cache. With [`Promise::SameAs`] they are the other decoder's over every cache whose slots are a function of
/// the canvas. Its commits are those that it foresees.
pub fn decoder(method: &'static DecoderMethod) -> Result<(), Broken> {
    let registry = Registry::default();
    let registry =
        if is_listed(registry.decoders(), method) { registry } else { added(registry.with_decoder(method))? };
    described(method.about())?;
    let partners: Vec<CacheSpec> = registry.caches().iter().map(|cache| CacheSpec::of(cache)).collect();
    let mut ran = Ran::default();
    for text in variants(method.about()) {
        let spec = registry.decoder(&text).map_err(|error| unreadable(&text, &error))?;
        read_back(&text, &spec, registry.decoder(&spec.to_string()).ok().as_ref())?;
        for case in cases(method.about().attention) {
            for cache in &partners {
                let Some(options) = case.options(&spec, cache) else { continue };
                ran.note(options.facts.mask.kind());
                let pair = Pair { case: &case, options, name: format!("decoder {spec}, cache {cache}") };
                let outcome = pair.hold()?;
                pair.keeps_promise(&outcome)?;
                pair.is_neutral(&outcome)?;
                pair.obeys()?;
                pair.adjusts()?;
            }
            foresees(&spec, &case)?;
        }
    }
    ran.all(method.about(), "decoder")
}

/// Holds a cache policy to what every policy must hold, and to its own claims: if it is exact its commits are those of
/// no cache; its plans end where a decoder ends a forward; over slots that are a function of the canvas drafts are lossless; and over others one draft is the decoder
/// without drafts.
pub fn cache(method: &'static CacheMethod) -> Result<(), Broken> {
    let registry = Registry::default();
    let registry = if is_listed(registry.caches(), method) { registry } else { added(registry.with_cache(method))? };
    described(method.about())?;
    let mut partners: Vec<DecoderSpec> = registry.decoders().iter().map(|decoder| DecoderSpec::of(decoder)).collect();
    for text in ["threshold:tau=0.4", "freedave:d=1", "freedave:d=9,eager=false", "freedave:d=3,tau=0.4,quota"] {
        partners.push(registry.decoder(text).map_err(|error| unreadable(text, &error))?);
    }
    let mut ran = Ran::default();
    for text in variants(method.about()) {
        let spec = registry.cache(&text).map_err(|error| unreadable(&text, &error))?;
        read_back(&text, &spec, registry.cache(&spec.to_string()).ok().as_ref())?;
        for case in cases(method.about().attention) {
            ending::honoured(&spec, &case)?;
            for decoder in &partners {
                let Some(options) = case.options(decoder, &spec) else { continue };
                ran.note(options.facts.mask.kind());
                let pair = Pair { case: &case, options, name: format!("cache {spec}, decoder {decoder}") };
                let outcome = pair.hold()?;
                pair.keeps_promise(&outcome)?;
                pair.is_exact(&outcome)?;
                pair.drafts_singly(&outcome)?;
            }
        }
    }
    ran.all(method.about(), "cache")
}

/// A decoder and a cache policy on one case.
struct Pair<'a> {
    case: &'a Case,
    options: SessionOptions,
    name: String,
}

impl Pair<'_> {
    fn broken(&self, rule: &'static str, found: impl Into<String>) -> Broken {
        Broken { method: format!("{} ({})", self.name, self.case), rule, found: found.into() }
    }

    /// Checks the rules of every method.
    fn hold(&self) -> Result<Outcome, Broken> {
        let outcome = self.run(&self.options)?;
        let again = self.run(&self.options)?;
        if outcome != again {
            return Err(self.broken("two equal runs are equal", difference(&outcome, &again)));
        }
        self.shares(&outcome)?;
        self.goes_on(&outcome)?;
        match hostile(self.case, self.options.clone()) {
            Ok(()) => Ok(outcome),
            Err(found) => Err(self.broken("predictions that make no sense leave no trace", found)),
        }
    }

    /// Reports whether the constraint of all texts changes nothing.
    fn is_neutral(&self, outcome: &Outcome) -> Result<(), Broken> {
        let case = self.case.constrained(true);
        let Some(options) = case.under(&self.options) else { return Ok(()) };
        let pair = Pair { case: &case, options, name: self.name.clone() };
        let found = pair.run(&pair.options)?;
        let of = |run: &Outcome| (run.commits.clone(), run.text.clone(), run.forwards, run.changed);
        if of(&found) == of(outcome) {
            return Ok(());
        }
        let found = format!(
            "{}, in {} forwards for {}, and {} tokens that are marked as changed",
            difference(&found, outcome),
            found.forwards,
            outcome.forwards,
            found.changed
        );
        Err(self.broken("the constraint of all texts changes nothing", found))
    }

    /// Reports whether it keeps the common rules and its promise under the constraint of a language too.
    fn obeys(&self) -> Result<(), Broken> {
        let case = self.case.constrained(false);
        let Some(options) = case.under(&self.options) else { return Ok(()) };
        let pair = Pair { case: &case, options, name: format!("{}, under a constraint", self.name) };
        let outcome = pair.hold()?;
        pair.keeps_promise(&outcome)
    }

    /// Reports whether it keeps the common rules and its promise where logits are adjusted too.
    fn adjusts(&self) -> Result<(), Broken> {
        let Some(options) = self.case.adjusted(&self.options) else { return Ok(()) };
        let pair = Pair { case: self.case, options, name: format!("{}, with adjusted logits", self.name) };
        let outcome = pair.hold()?;
        pair.keeps_promise(&outcome)
    }

    /// Reports whether runs that leave slots for others, and begin with those of others, are what they are alone.
    fn shares(&self, outcome: &Outcome) -> Result<(), Broken> {
        if self.case.mask == Mask::Full && self.options.guide.is_none() {
            // Where everybody sees everybody, nothing depends on the first tokens alone.
            return Ok(());
        }
        let (runs, _) = run_twice(self.case, &self.options).map_err(|(rule, found)| self.broken(rule, found))?;
        match runs.iter().find(|run| *run != outcome) {
            Some(run) => {
                let rule = "a run that shares slots with others commits what it commits alone";
                Err(self.broken(rule, difference(run, outcome)))
            }
            None => Ok(()),
        }
    }

    /// Reports whether a run whose memory is given up and given back equals the run alone.
    fn goes_on(&self, outcome: &Outcome) -> Result<(), Broken> {
        match run_preempted(self.case, &self.options).map_err(|(rule, found)| self.broken(rule, found))? {
            Some(run) if run != *outcome => {
                let rule = "a run that is preempted commits what it commits alone";
                Err(self.broken(rule, difference(&run, outcome)))
            }
            _ => Ok(()),
        }
    }

    fn run(&self, options: &SessionOptions) -> Result<Outcome, Broken> {
        run(self.case, options).map_err(|(rule, found)| self.broken(rule, found))
    }

    /// Compares with another run of the same case.
    fn compare(&self, rule: &'static str, outcome: &Outcome, other: &SessionOptions) -> Result<(), Broken> {
        let other = self.run(other)?;
        if outcome.commits == other.commits {
            return Ok(());
        }
        // The forward that ends a text may commit several steps of the other run, whichever of the two drafts further.
        let common = outcome.commits.len().min(other.commits.len());
        let same = outcome.commits[..common] == other.commits[..common] && outcome.text == other.text;
        if same && self.options.stop == StopRule::Prefix {
            return Ok(());
        }
        Err(self.broken(rule, difference(outcome, &other)))
    }

    /// Reports whether the decoder's promise over this cache is true.
    fn keeps_promise(&self, outcome: &Outcome) -> Result<(), Broken> {
        match (self.options.decoder.traits().promise, &outcome.exactness) {
            (Promise::Reference, Exactness::Reference) => {
                let SessionOptions { mut facts, canvas, .. } = self.options.clone();
                if self.options.decoder.traits().causal {
                    // Its passes are those of a causal model, and so is the reference.
                    facts.mask = Mask::Causal;
                }
                let reference = SessionOptions::new(facts, canvas).decoder;
                if self.options.remasking == Remasking::Origin && !reference.traits().takes_origin {
                    return Ok(());
                }
                let steps = self.options.decoder.traits().steps.or(self.options.steps);
                let other = SessionOptions { decoder: reference, steps, ..self.options.clone() };
                self.compare("a decoder that promises the reference commits what it commits", outcome, &other)
            }
            (Promise::Official, Exactness::Reference) => {
                let other = SessionOptions { cache: CacheSpec::default(), ..self.options.clone() };
                self.compare("a family's own sampler commits the same over every exact cache", outcome, &other)
            }
            (Promise::SameAs(decoder) | Promise::Greedy(decoder), Exactness::Lossless { .. }) => {
                let other = SessionOptions { decoder, ..self.options.clone() };
                let rule = "drafts are lossless: the commits are those of the decoder that is promised";
                self.compare(rule, outcome, &other)
            }
            _ => Ok(()),
        }
    }

    /// Reports whether a cache that calls itself exact gives the commits of no cache.
    fn is_exact(&self, outcome: &Outcome) -> Result<(), Broken> {
        if !self.options.cache.traits().exact {
            return Ok(());
        }
        let other = SessionOptions { cache: CacheSpec::default(), ..self.options.clone() };
        if Session::new(other.clone()).is_err() {
            // The decoder needs the cache.
            return Ok(());
        }
        self.compare("an exact cache gives the commits of no cache", outcome, &other)
    }

    /// Reports whether single drafts over slots with a history are the decoder without drafts.
    fn drafts_singly(&self, outcome: &Outcome) -> Result<(), Broken> {
        let single = demask_decode::methods::FreeDave { d: OrAuto::Given(1), ..Default::default() };
        if self.options.decoder != single.into() || outcome.memory_is(Memory::OfState) {
            return Ok(());
        }
        let other = SessionOptions { decoder: DecoderSpec::default(), ..self.options.clone() };
        self.compare("one draft is static decoding, whatever the slots depend on", outcome, &other)
    }
}

/// Kinds of models that a method ran.
#[derive(Default)]
struct Ran(Vec<MaskKind>);

impl Ran {
    fn note(&mut self, attention: MaskKind) {
        if !self.0.contains(&attention) {
            self.0.push(attention);
        }
    }

    fn all(self, about: &About, what: &str) -> Result<(), Broken> {
        match about.attention.iter().find(|attention| !self.0.contains(attention)) {
            Some(attention) => Err(Broken {
                method: format!("{what} {}", about.name),
                rule: "it decodes the models that it names",
                found: format!("that it refuses every case with {attention}"),
            }),
            None => Ok(()),
        }
    }
}

fn is_listed<M>(known: &[&'static M], method: &'static M) -> bool {
    known.iter().any(|other| std::ptr::eq(*other, method))
}

fn added(registry: Result<Registry, demask_decode::registry::RegistryError>) -> Result<Registry, Broken> {
    registry.map_err(|error| Broken {
        method: "the registry".into(),
        rule: "the method can be registered beside those of the crate",
        found: error.to_string(),
    })
}

fn described(about: &About) -> Result<(), Broken> {
    let missing = [("summary", about.summary), ("source", about.source)].into_iter().find(|(_, text)| text.is_empty());
    let undocumented = about.parameters.iter().find(|parameter| parameter.doc.is_empty());
    let found = match (missing, undocumented) {
        (Some((what, _)), _) => format!("no {what}"),
        (None, Some(parameter)) => format!("no line for its parameter {}", parameter.name),
        (None, None) => return Ok(()),
    };
    Err(Broken { method: about.name.into(), rule: "it is documented", found })
}

fn unreadable(text: &str, error: &demask_decode::SpecError) -> Broken {
    Broken { method: text.into(), rule: "a value within a parameter's bounds is read", found: error.to_string() }
}

fn read_back<M: Method>(
    text: &str,
    spec: &demask_decode::spec::Spec<M>,
    again: Option<&demask_decode::spec::Spec<M>>,
) -> Result<(), Broken> {
    if again == Some(spec) {
        return Ok(());
    }
    let rule = "its canonical text is read as what it was";
    Err(Broken { method: text.into(), rule, found: format!("{spec}, read as {again:?}") })
}

/// A method with its defaults, and with other values of one parameter at a time.
fn variants(about: &About) -> Vec<String> {
    let mut variants = vec![about.name.to_owned()];
    for parameter in about.parameters {
        let values: Vec<String> = match parameter.kind.of_values() {
            Kind::Or(..) => Vec::new(),
            Kind::Flag => vec![(parameter.default() != Value::Flag(true)).to_string()],
            Kind::Choice(words) => words.iter().map(|&word| word.to_owned()).collect(),
            Kind::Count { least, most } => {
                [least, least.saturating_add(2).min(most)].iter().map(ToString::to_string).collect()
            }
            Kind::Number { least, most } => {
                let least = least.max(-1.0);
                [least, least + 0.4 * (most.min(1.0) - least)].iter().map(ToString::to_string).collect()
            }
        };
        variants.extend(values.iter().map(|value| format!("{}:{}={value}", about.name, parameter.name)));
        if let Kind::Or(word, _) = parameter.kind {
            variants.push(format!("{}:{}={word}", about.name, parameter.name));
        }
    }
    variants
}

/// Describes where two runs part.
fn difference(found: &Outcome, expected: &Outcome) -> String {
    let part = found.commits.iter().zip(&expected.commits).position(|(found, expected)| found != expected);
    let part = part.unwrap_or(found.commits.len().min(expected.commits.len()));
    let commit = |outcome: &Outcome| match outcome.commits.get(part) {
        Some((position, token, confidence)) => {
            format!("token {token} at position {position} (confidence {})", f32::from_bits(*confidence))
        }
        None => "no commit".to_owned(),
    };
    format!("{} instead of {} as commit number {}", commit(found), commit(expected), part + 1)
}

parameters! {
    /// No cache, but the commits that the decoder foresees are compared with its commits.
    pub struct Watching {}
}

/// Observer of a decoder's foresight, passed in as a cache policy, which has no other way to the suite.
#[derive(Debug, Default)]
struct Foresight {
    /// Records whether it says that it always foresees.
    always: bool,
    /// Positions that it foresaw for the current forward.
    foreseen: Vec<Position>,
    /// The first forward that committed something else.
    wrong: Option<String>,
}

thread_local! {
    static FORESIGHT: RefCell<Foresight> = const { RefCell::new(Foresight { always: false, foreseen: Vec::new(), wrong: None }) };
}

impl CacheKind for Watching {
    const NAME: &'static str = "watching";
    const SUMMARY: &'static str = "no cache, and a look at what is foreseen";
    const SOURCE: &'static str = "this suite";
    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full, MaskKind::BlockCausal, MaskKind::Causal];

    fn traits(&self) -> CacheTraits {
        CacheTraits { exact: true, memory: Memory::OfState, ..CacheTraits::default() }
    }

    fn build(&self, setup: &Setup<'_>) -> Box<dyn CachePolicy> {
        Box::new(Watch(CacheSpec::default().build(setup)))
    }
}

#[derive(Debug)]
struct Watch(Box<dyn CachePolicy>);

impl CachePolicy for Watch {
    fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
        FORESIGHT.with_borrow_mut(|foresight| foresight.foreseen.clone_from(&query.foreseen));
        self.0.plan(view, query, plan);
    }

    fn observe(&mut self, view: &View<'_>, plan: &StepPlan, progress: &Progress) {
        let committed: Vec<Position> = progress.commits.iter().map(|commit| commit.position).collect();
        FORESIGHT.with_borrow_mut(|Foresight { always, foreseen, wrong }| {
            if (*always || !foreseen.is_empty()) && *foreseen != committed {
                wrong.get_or_insert(format!("that it foresaw positions {foreseen:?} and committed {committed:?}"));
            }
        });
        self.0.observe(view, plan, progress);
    }

    fn memory(&self) -> Memory {
        self.0.memory()
    }
}

/// Reports whether a decoder commits the tokens that it foresees, and foresees where it says so.
fn foresees(spec: &DecoderSpec, case: &Case) -> Result<(), Broken> {
    let Some(options) = case.options(spec, &Watching::default().into()) else { return Ok(()) };
    let always = spec.traits().foresees && Ranking::foresees(options.remasking);
    FORESIGHT.set(Foresight { always, ..Foresight::default() });
    let pair = Pair { case, options, name: format!("decoder {spec}") };
    pair.run(&pair.options)?;
    match FORESIGHT.take().wrong {
        Some(found) => Err(pair.broken("it commits what it foresees, and foresees where it says so", found)),
        None => Ok(()),
    }
}
