//! The methods that a program knows: those of this crate, and others that it adds.

use demask_settings::names::same;

use crate::{
    caches::CACHES,
    method::{CacheMethod, CacheSpec, DecoderMethod, DecoderSpec},
    methods::DECODERS,
    spec::{Method, Spec, SpecError},
};

/// The decoders and cache policies that specs are read with.
///
/// A program has one: [`install`](Self::install) makes it the one that text, JSON, files and pages are read with, in every
/// part of the program. Without it, the program knows the methods of this crate.
///
/// ```
/// use demask_decode::Registry;
///
/// let registry = Registry::default();
/// assert_eq!(registry.decoder("threshold").unwrap().to_string(), "threshold:tau=0.9");
/// let twice = registry.with_decoder(&demask_decode::methods::DECODERS[0]).unwrap_err();
/// assert_eq!(twice.to_string(), "decoder \"static\" is registered already as \"static\": give it another name");
/// ```
#[derive(Debug, Clone)]
pub struct Registry {
    decoders: Vec<&'static DecoderMethod>,
    caches: Vec<&'static CacheMethod>,
}

impl Default for Registry {
    /// Returns the registry of this crate's own methods.
    fn default() -> Self {
        Self { decoders: DECODERS.iter().collect(), caches: CACHES.iter().collect() }
    }
}

impl Registry {
    /// Makes it the registry of the program, once and before any method is read.
    ///
    /// # Errors
    /// If the program has one already: another was installed, or a method was read.
    pub fn install(self) -> Result<(), RegistryError> {
        let Self { decoders, caches } = self;
        if DecoderMethod::install(decoders) && CacheMethod::install(caches) { Ok(()) } else { Err(RegistryError::Late) }
    }

    /// Returns the registry of the program.
    pub fn of_program() -> Self {
        Self { decoders: DecoderMethod::known().to_vec(), caches: CacheMethod::known().to_vec() }
    }

    /// Adds a decoder.
    pub fn with_decoder(mut self, method: &'static DecoderMethod) -> Result<Self, RegistryError> {
        add(&mut self.decoders, method)?;
        Ok(self)
    }

    /// Adds a cache policy.
    pub fn with_cache(mut self, method: &'static CacheMethod) -> Result<Self, RegistryError> {
        add(&mut self.caches, method)?;
        Ok(self)
    }

    /// Reads a decoder as people type it: `name` or `name:key=value,key=value`.
    pub fn decoder(&self, text: &str) -> Result<DecoderSpec, SpecError> {
        Spec::read(text, &self.decoders)
    }

    /// Reads a cache policy as people type it: `name` or `name:key=value,key=value`.
    pub fn cache(&self, text: &str) -> Result<CacheSpec, SpecError> {
        Spec::read(text, &self.caches)
    }

    /// Returns all decoders, the default first.
    pub fn decoders(&self) -> &[&'static DecoderMethod] {
        &self.decoders
    }

    /// Returns all cache policies, the default first.
    pub fn caches(&self) -> &[&'static CacheMethod] {
        &self.caches
    }
}

/// A method that cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A name that is taken, whatever its case and hyphens.
    #[error("{what} \"{name}\" is registered already as \"{known}\": give it another name")]
    Taken {
        /// `decoder` or `cache`.
        what: &'static str,
        /// The method's name.
        name: &'static str,
        /// The name that it is registered under.
        known: &'static str,
    },
    /// The program has a registry already.
    #[error("the program has a registry already: install one, first of all in `main`")]
    Late,
}

fn add<M: Method>(known: &mut Vec<&'static M>, method: &'static M) -> Result<(), RegistryError> {
    let about = method.about();
    if let Some(other) = known.iter().find(|other| same(other.about().name, about.name)) {
        return Err(RegistryError::Taken { what: M::WHAT, name: about.name, known: other.about().name });
    }
    known.push(method);
    Ok(())
}

#[cfg(test)]
mod tests {
    use demask_step::{MaskKind, StepPlan};

    use super::*;
    use crate::{
        legality::{Exactness, exactness},
        method::{CacheKind, Setup},
        parameters,
        policy::{CachePolicy, Memory},
        spec::{Kind, Parameters},
        step::{Progress, Query, View},
    };

    #[derive(Debug)]
    struct Everything;

    impl CachePolicy for Everything {
        fn plan(&mut self, view: &View<'_>, query: &Query, plan: &mut StepPlan) {
            plan.query.set_range(0..query.end(view.canvas));
        }
        fn observe(&mut self, _view: &View<'_>, _plan: &StepPlan, _progress: &Progress) {}
        fn memory(&self) -> Memory {
            Memory::OfState
        }
    }

    /// A foreign cache policy with these fields and this name.
    macro_rules! foreign {
        ($module:ident, $name:literal, { $($fields:tt)* }) => {
            mod $module {
                use super::*;

                parameters! {
                    /// Memory that the test declares.
                    pub struct Foreign { $($fields)* }
                }

                impl CacheKind for Foreign {
                    const NAME: &'static str = $name;
                    const SUMMARY: &'static str = "everything";
                    const SOURCE: &'static str = "this test";
                    const ATTENTION: &'static [MaskKind] = &[MaskKind::Full];

                    fn build(&self, _setup: &Setup<'_>) -> Box<dyn CachePolicy> {
                        Box::new(Everything)
                    }
                }

                pub(super) static METHOD: CacheMethod = CacheMethod::of::<Foreign>();
            }
        };
    }

    foreign!(sound, "windowed", {
        /// how often
        pub every: usize = 4, Kind::count(1, 64);
        /// how far
        pub reach as "far": Option<f32> = None;
    });
    foreign!(taken, "Free-Cache", {});
    foreign!(taken_by_case, "DUAL", {});

    #[test]
    fn every_method_of_this_crate_says_what_it_is() {
        for about in DECODERS.iter().map(Method::about).chain(CACHES.iter().map(Method::about)) {
            assert!(!about.summary.is_empty() && !about.source.is_empty(), "{}", about.name);
            for parameter in about.parameters {
                assert!(!parameter.doc.is_empty() && parameter.kind.holds(parameter.default()), "{}", about.name);
            }
        }
    }

    #[test]
    fn foreign_methods_are_read_like_our_own() {
        let registry = Registry::default().with_cache(&sound::METHOD).unwrap();
        let spec = registry.cache("Windowed:far=0.5").unwrap();
        assert_eq!(spec.to_string(), "windowed:every=4,far=0.5");
        assert_eq!(registry.cache(&spec.to_string()).unwrap(), spec);
        assert_eq!(spec, CacheSpec::from(sound::Foreign { every: 4, reach: Some(0.5) }));
        assert_eq!(spec.parameters::<sound::Foreign>().unwrap().reach, Some(0.5));
        assert_eq!(spec.parameters::<taken::Foreign>(), None);
        assert_eq!(exactness(&DecoderSpec::default(), &spec), Exactness::Approximate);
        assert!(registry.cache("windwed").unwrap_err().to_string().contains("did you mean \"windowed\"?"));
        assert!("windowed".parse::<CacheSpec>().is_err(), "FromStr knows the methods of the program's registry");
        assert!(!spec.is_built_in() && CacheSpec::default().is_built_in());
        assert_eq!(registry.caches().len(), CACHES.len() + 1);
        assert!(sound::Foreign { every: 0, reach: None }.values() != sound::Foreign::default().values());
        assert!(CacheSpec::from(sound::Foreign { every: 0, reach: None }).check_bounds().is_err());
    }

    #[test]
    fn names_that_are_taken_are_refused_in_plain_words() {
        let known = || Registry::default().with_cache(&sound::METHOD).unwrap();
        for (method, refusal) in [
            (&sound::METHOD, "cache \"windowed\" is registered already as \"windowed\": give it another name"),
            (&taken_by_case::METHOD, "cache \"DUAL\" is registered already as \"dual\": give it another name"),
        ] {
            assert_eq!(known().with_cache(method).unwrap_err().to_string(), refusal);
        }
        assert!(known().with_cache(&taken::METHOD).is_ok(), "free_cache is not freecache");
    }
}
