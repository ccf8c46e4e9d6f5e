//! Languages over a model's tokens, kept for the requests that ask for them again.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use demask_decode::constraint::{
    Constraint, Difference, Language, Limits, Source, Spelling, TokenAutomaton, TokenConstraint, Vocabulary,
};

use crate::Error;

/// Languages that a model keeps.
const CACHED: usize = 64;

/// Memory that the kept languages may take together, in bytes.
const MEMORY: usize = 256 << 20;

/// Differences between a schema and its language that a receipt lists.
const MOST_LISTED: usize = 32;

/// A model's tokens as constraints read them, and the languages that were asked for last.
#[derive(Default)]
pub(crate) struct Languages {
    /// The tokens, once a constraint was asked for.
    pub(crate) vocabulary: OnceLock<Arc<Vocabulary>>,
    /// The tokenizer's own tokens of texts, once a constraint asked for them.
    pub(crate) spelling: OnceLock<Spelling>,
    /// The latest last.
    cached: Mutex<VecDeque<CachedLanguage>>,
}

/// A language that may be asked for again.
struct CachedLanguage {
    constraint: Constraint,
    automaton: Arc<TokenAutomaton>,
    source: Source,
}

impl Languages {
    /// Returns a constraint over a vocabulary, which is the same for all requests.
    ///
    /// # Errors
    /// If the language cannot be held to: one line says which part.
    pub(crate) fn constraint(&self, asked: Constraint, vocabulary: &Arc<Vocabulary>) -> Result<TokenConstraint, Error> {
        let says_end = asked.language != Language::Any;
        let (automaton, source) = self.cached(asked, |asked| make(asked, vocabulary))?;
        Ok(TokenConstraint { says_end, ..TokenConstraint::new(automaton, source) })
    }

    /// Returns the automaton over a vocabulary of a language that another model's tokens have already: that over bytes is one
    /// for both.
    pub(crate) fn automaton(
        &self,
        asked: Constraint,
        other: &TokenConstraint,
        vocabulary: &Arc<Vocabulary>,
    ) -> Arc<TokenAutomaton> {
        let make = |constraint| {
            let bytes = Arc::clone(other.automaton.bytes());
            let automaton = Arc::new(TokenAutomaton::new(bytes, Arc::clone(vocabulary), Limits::default()));
            Ok::<_, Infallible>(CachedLanguage { constraint, automaton, source: (*other.source).clone() })
        };
        let Ok((automaton, _)) = self.cached(asked, make);
        automaton
    }

    /// Returns a language that is kept, or keeps a new one.
    fn cached<E>(
        &self,
        asked: Constraint,
        make: impl FnOnce(Constraint) -> Result<CachedLanguage, E>,
    ) -> Result<(Arc<TokenAutomaton>, Source), E> {
        let mut kept = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|kept| kept.constraint == asked).and_then(|index| kept.remove(index));
        let latest = if let Some(known) = known {
            known
        } else {
            // A schema may take a second: others that know theirs do not wait for it.
            drop(kept);
            let made = make(asked)?;
            kept = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            made
        };
        let found = (Arc::clone(&latest.automaton), latest.source.clone());
        kept.push_back(latest);
        while kept.len() > CACHED || (kept.len() > 1 && memory(&kept) > MEMORY) {
            kept.pop_front();
        }
        Ok(found)
    }
}

/// Makes the automaton of a language.
fn make(asked: Constraint, vocabulary: &Arc<Vocabulary>) -> Result<CachedLanguage, Error> {
    let compiled =
        asked.compile().map_err(|error| Error::Constraint { option: asked.kind(), text: error.to_string() })?;
    let told = |differences: Vec<Difference>| {
        let more = differences.len().saturating_sub(MOST_LISTED);
        let first = differences.into_iter().take(MOST_LISTED).map(|at| format!("{}: {}", at.path, at.what));
        first.chain((more > 0).then(|| format!("{more} more"))).collect()
    };
    let source = Source {
        kind: asked.kind().to_owned(),
        hash: compiled.hash,
        narrowed: told(compiled.narrowed),
        ignored: told(compiled.ignored),
    };
    let automaton = TokenAutomaton::new(compiled.automaton, Arc::clone(vocabulary), Limits::default());
    Ok(CachedLanguage { constraint: asked, automaton: Arc::new(automaton), source })
}

/// Memory of languages, in bytes.
fn memory(kept: &VecDeque<CachedLanguage>) -> usize {
    kept.iter().map(|kept| kept.automaton.memory()).sum()
}
