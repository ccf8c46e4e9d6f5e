//! A constraint as it is asked for, and its automaton over bytes.

use std::rc::Rc;

use super::{
    automaton::{Dfa, Fuel, Operation},
    bytes::ByteAutomaton,
    error::ConstraintError,
    grammar::{Brackets, Expr, Grammar, Spelling},
    json::Json,
    pattern::{self, Reach},
    schema::{self, Layout, Limits, Translated},
    words::Space,
};

/// Most choices.
const CHOICES: usize = 4_096;

/// Longest sources, in bytes.
const LONGEST: usize = 256 << 10;

/// The regular expression of all texts.
const ANY: &str = "(?s:.)*";

/// Longest mark that an answer may come after, in bytes.
const LONGEST_MARK: usize = 256;

/// Work for one constraint: at most a second of an ordinary processor's core.
const FUEL: u64 = 24_000_000;

/// Most of it for one attempt at the automaton of a schema.
const ATTEMPT: u64 = 12_000_000;

/// The limits of the attempts after the first, if its automaton is too large.
const NARROWER: [Limits; 5] = [
    Limits { recursion: 6, depth: 3, length: u32::MAX, items: u32::MAX, short: true },
    Limits { recursion: 4, depth: 2, length: 256, items: 64, short: true },
    Limits { recursion: 2, depth: 1, length: 64, items: 16, short: true },
    Limits { recursion: 1, depth: 1, length: 32, items: 8, short: true },
    Limits { recursion: 0, depth: 0, length: 16, items: 4, short: true },
];

/// Texts of which an answer is one (specs/structure.md#2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// All of them.
    Any,
    /// Those that a regular expression matches as a whole, in the syntax of the crate `regex`.
    Regex(String),
    /// These.
    Choice(Vec<String>),
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under a schema (draft 2020-12, spellings of draft 7).
    JsonSchema(String),
}

/// What an answer must be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Constraint {
    /// Its texts.
    pub language: Language,
    /// Space in JSON.
    pub space: Space,
    /// Texts before and after it, which are part of the answer.
    pub around: Option<[String; 2]>,
    /// A mark: before the text there is another one without it, then the mark, then up to two new lines.
    pub after: Option<String>,
    /// Texts that the answer has nowhere, not in a longer word either.
    pub without: Vec<String>,
    /// How deep values are nested that no schema describes: 3 by default.
    pub depth: u8,
    /// How often a reference of a schema may come back to where it is: 6 by default.
    pub recursion: u8,
}

/// A difference between a schema and its automaton.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// JSON pointer of the schema, with `#` before it.
    pub path: String,
    /// The narrower part, or the keyword that is ignored.
    pub what: String,
}

/// A constraint's automaton.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The answer's texts.
    pub automaton: ByteAutomaton,
    /// Where fewer texts are written than the schema allows.
    pub narrowed: Vec<Difference>,
    /// Parts of the schema without effect.
    pub ignored: Vec<Difference>,
    /// A name of the requested constraint: 32 hexadecimal digits of its kind, source and options.
    pub hash: String,
}

impl Constraint {
    /// A constraint with ordinary options.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            space: Space::default(),
            around: None,
            after: None,
            without: Vec::new(),
            depth: 3,
            recursion: 6,
        }
    }

    /// `bad_words`, `regex`, `choice`, `json_object` or `json_schema`.
    pub fn kind(&self) -> &'static str {
        match self.language {
            Language::Any => "bad_words",
            Language::Regex(_) => "regex",
            Language::Choice(_) => "choice",
            Language::JsonObject => "json_object",
            Language::JsonSchema(_) => "json_schema",
        }
    }

    /// Makes the automaton over bytes. Time and memory are bounded for any input.
    ///
    /// # Errors
    ///
    /// One line for what cannot be read or held to, for an empty language, and for an automaton beyond the bounds.
    pub fn compile(&self) -> Result<Compiled, ConstraintError> {
        for (option, value, most) in [("depth", self.depth, 16), ("recursion", self.recursion, 64)] {
            if value > most {
                return Err(ConstraintError::Option { option, reason: format!("is {value}, expected at most {most}") });
            }
        }
        match &self.language {
            Language::Any => self.regex(ANY),
            Language::Regex(pattern) => self.regex(pattern),
            Language::Choice(choices) => self.choice(choices),
            Language::JsonObject => {
                self.schema(&Json::Object(vec![("type".to_owned(), Json::String("object".to_owned()))]))
            }
            Language::JsonSchema(schema) => self.schema(&Json::parse(schema)?),
        }
    }

    fn regex(&self, pattern: &str) -> Result<Compiled, ConstraintError> {
        let fuel = &mut Fuel::new(FUEL);
        let texts = Rc::new(pattern::automaton(pattern, Reach::Whole, fuel)?);
        let mut grammar = Grammar::new();
        let texts = grammar.text(&texts, Spelling::Plain);
        self.finish(&mut grammar, fuel, written(texts))
    }

    fn choice(&self, choices: &[String]) -> Result<Compiled, ConstraintError> {
        if choices.is_empty() || choices.len() > CHOICES {
            let reason = format!("there are {}, expected 1 to {CHOICES}", choices.len());
            return Err(ConstraintError::Choice(reason));
        }
        let bytes: usize = choices.iter().map(String::len).sum();
        if bytes > LONGEST {
            return Err(ConstraintError::Choice(format!("they have {bytes} bytes, expected at most {LONGEST}")));
        }
        let mut known = std::collections::HashSet::new();
        if let Some(twice) = choices.iter().find(|choice| !known.insert(choice.as_str())) {
            let shown: String = twice.chars().take(40).collect();
            return Err(ConstraintError::Choice(format!("{shown:?} is there twice")));
        }
        let mut grammar = Grammar::new();
        let texts: Vec<Expr> = choices.iter().map(|choice| grammar.bytes(choice.as_str())).collect();
        let texts = grammar.union(&texts);
        self.finish(&mut grammar, &mut Fuel::new(FUEL), written(texts))
    }

    fn schema(&self, schema: &Json) -> Result<Compiled, ConstraintError> {
        let first =
            Limits { recursion: self.recursion, depth: self.depth, length: u32::MAX, items: u32::MAX, short: false };
        let mut too_large = None;
        let mut all = Fuel::new(FUEL);
        for limits in std::iter::once(first).chain(NARROWER) {
            let recursion = limits.recursion.min(self.recursion);
            let limits = Limits { recursion, depth: limits.depth.min(self.depth), ..limits };
            let fuel = &mut all.take(ATTEMPT);
            let mut grammar = Grammar::new();
            let layout = layout(self.space, &mut grammar, fuel)?;
            let made = schema::translate(schema, limits, &mut grammar, layout, fuel)
                .and_then(|translated| self.finish(&mut grammar, fuel, translated));
            all.put_back(fuel);
            match made {
                Err(ConstraintError::TooLarge { unit: schema::MANY, .. }) => return made,
                Err(error @ ConstraintError::TooLarge { .. }) => too_large = too_large.or(Some(error)),
                // An attempt that leaves too much out says nothing of the schema.
                Err(ConstraintError::Empty { .. }) if too_large.is_some() => break,
                made => return made,
            }
        }
        Err(too_large.unwrap_or(ConstraintError::Empty { path: None }))
    }

    /// The automaton of a grammar's texts, after the mark if there is one.
    fn finish(&self, grammar: &mut Grammar, fuel: &mut Fuel, made: Translated) -> Result<Compiled, ConstraintError> {
        if made.texts == Grammar::NEVER {
            return Err(ConstraintError::Empty { path: made.empty });
        }
        let texts = match &self.around {
            None => made.texts,
            Some([before, behind]) => around(before, made.texts, behind, grammar)?,
        };
        let texts = match &self.after {
            None => texts,
            Some(mark) => after(mark, texts, grammar, fuel)?,
        };
        let mut dfa = grammar.automaton(texts, fuel)?;
        if !self.without.is_empty() {
            dfa = dfa.combine(Operation::Without, &having(&self.without, grammar, fuel)?, fuel)?;
        }
        let automaton = ByteAutomaton::from_table(&dfa).ok_or(ConstraintError::Empty { path: None })?;
        if (0..=255).all(|byte| automaton.next(automaton.start(), byte).is_none()) {
            return Err(ConstraintError::OnlyEmpty);
        }
        let differences =
            |of: Vec<(String, String)>| of.into_iter().map(|(path, what)| Difference { path, what }).collect();
        Ok(Compiled {
            automaton,
            narrowed: differences(made.narrowed),
            ignored: differences(made.ignored),
            hash: self.hash(),
        })
    }

    /// A name of the constraint: equal ones have equal names on every machine.
    pub fn hash(&self) -> String {
        let mut hash = Fnv::default();
        hash.field(self.kind().as_bytes());
        match &self.language {
            Language::Regex(source) | Language::JsonSchema(source) => hash.field(source.as_bytes()),
            Language::Choice(choices) => choices.iter().for_each(|choice| hash.field(choice.as_bytes())),
            Language::JsonObject | Language::Any => (),
        }
        self.without.iter().for_each(|text| hash.field(text.as_bytes()));
        hash.field(&[self.space as u8, self.depth, self.recursion, self.after.is_some().into()]);
        hash.field(self.after.as_deref().unwrap_or_default().as_bytes());
        if let Some([before, behind]) = &self.around {
            hash.field(before.as_bytes());
            hash.field(behind.as_bytes());
        }
        format!("{:032x}", hash.0)
    }
}

/// FNV-1a of 128 bits, over fields with their lengths.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn field(&mut self, bytes: &[u8]) {
        for &byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

/// Texts that are neither narrower nor wider than the requested ones.
fn written(texts: Expr) -> Translated {
    Translated { texts, narrowed: Vec::new(), ignored: Vec::new(), empty: None }
}

/// Texts without the mark, the mark, up to two new lines, then `texts`.
fn after(mark: &str, texts: Expr, grammar: &mut Grammar, fuel: &mut Fuel) -> Result<Expr, ConstraintError> {
    if mark.is_empty() || mark.len() > LONGEST_MARK {
        let reason = format!("has {} bytes, expected 1 to {LONGEST_MARK}", mark.len());
        return Err(ConstraintError::Option { option: "after", reason });
    }
    let all = pattern::automaton(ANY, Reach::Whole, fuel)?;
    let with = pattern::automaton(&regex_syntax::escape(mark), Reach::Anywhere, fuel)?;
    let without: Rc<Dfa> = Rc::new(all.combine(Operation::Without, &with, fuel)?);
    let without = grammar.text(&without, Spelling::Plain);
    let (mark, line) = (grammar.bytes(mark), grammar.bytes("\n"));
    let lines = grammar.bytes("\n\n");
    let lines = grammar.union(&[Grammar::EMPTY, line, lines]);
    Ok(grammar.concat(&[without, mark, lines, texts]))
}

/// The automaton of all texts that have one of some.
fn having(words: &[String], grammar: &mut Grammar, fuel: &mut Fuel) -> Result<Dfa, ConstraintError> {
    let bytes: usize = words.iter().map(String::len).sum();
    if bytes > LONGEST || words.iter().any(String::is_empty) {
        let reason = format!("has {bytes} bytes in all, expected 1 to {LONGEST}, and no empty text");
        return Err(ConstraintError::Option { option: "bad_words", reason });
    }
    let escaped: Vec<String> = words.iter().map(|word| regex_syntax::escape(word)).collect();
    let having = Rc::new(pattern::automaton(&escaped.join("|"), Reach::Anywhere, fuel)?);
    let having = grammar.text(&having, Spelling::Plain);
    grammar.automaton(having, fuel)
}

/// `texts` between two others.
fn around(before: &str, texts: Expr, behind: &str, grammar: &mut Grammar) -> Result<Expr, ConstraintError> {
    let length = before.len() + behind.len();
    if length > LONGEST_MARK {
        let reason = format!("has {length} bytes, expected at most {LONGEST_MARK}");
        return Err(ConstraintError::Option { option: "around", reason });
    }
    let mut part = |text: &str| if text.is_empty() { Grammar::EMPTY } else { grammar.bytes(text) };
    let (before, behind) = (part(before), part(behind));
    Ok(grammar.concat(&[before, texts, behind]))
}

/// Returns the texts around values.
fn layout(space: Space, grammar: &mut Grammar, fuel: &mut Fuel) -> Result<Layout, ConstraintError> {
    let one = grammar.bytes(" ");
    let one = grammar.union(&[Grammar::EMPTY, one]);
    let (around, between) = match space {
        Space::Compact => (Grammar::EMPTY, Grammar::EMPTY),
        Space::Spaced => (Grammar::EMPTY, one),
        Space::Pretty => {
            let lines = Rc::new(pattern::automaton(" ?|\n {0,32}", Reach::Whole, fuel)?);
            let lines = grammar.text(&lines, Spelling::Plain);
            (lines, lines)
        }
    };
    let mut with_space = |before: Expr, text: &str, behind: Expr| {
        let text = grammar.bytes(text);
        grammar.concat(&[before, text, behind])
    };
    let comma = with_space(Grammar::EMPTY, ",", between);
    let colon = with_space(Grammar::EMPTY, ":", between);
    let mut brackets = |open: &str, close: &str| Brackets {
        open: with_space(Grammar::EMPTY, open, Grammar::EMPTY),
        lead: around,
        comma,
        close: with_space(around, close, Grammar::EMPTY),
        bare: with_space(Grammar::EMPTY, close, Grammar::EMPTY),
    };
    Ok(Layout { colon, array: brackets("[", "]"), object: brackets("{", "}") })
}
