//! Parameters of methods: each method declares one plain struct with [`parameters!`](crate::parameters), and what reads,
//! prints and documents it follows from that declaration.

use std::fmt;

use demask_settings::names::same;

/// One parameter of a method.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// Kind of its values.
    pub kind: Kind,
    /// Its meaning in one line.
    pub doc: &'static str,
    default: fn() -> Value,
}

impl Parameter {
    /// Makes one of a field's type; [`parameters!`](crate::parameters) does so for each field.
    pub const fn new<F: Field>(name: &'static str, doc: &'static str, default: fn() -> Value) -> Self {
        Self { name, kind: F::KIND, doc: doc.trim_ascii(), default }
    }

    /// Gives it another key than the field's name.
    pub const fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Narrows its values. Bounds of another kind than the field's, or without its default, do not compile.
    pub const fn within(mut self, kind: Kind, default: Value) -> Self {
        assert!(self.kind.is_like(kind), "the bounds are not of the field's type");
        assert!(kind.holds(default), "the default is outside of the bounds: correct one of them");
        self.kind = kind;
        self
    }

    /// Returns its value if none is named.
    pub fn default(&self) -> Value {
        (self.default)()
    }
}

/// Kind of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number within these bounds, inclusive.
    Count {
        /// Smallest.
        least: usize,
        /// Largest.
        most: usize,
    },
    /// A finite number within these bounds, inclusive.
    Number {
        /// Smallest.
        least: f32,
        /// Largest.
        most: f32,
    },
    /// `true` or `false`; the bare key means `true`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// This word, or a value of this kind.
    Or(&'static str, &'static Kind),
}

/// The word for a value that the method chooses by itself.
const AUTO: &str = "auto";

impl Kind {
    /// Whole numbers from `least` to `most`.
    pub const fn count(least: usize, most: usize) -> Self {
        Self::Count { least, most }
    }

    /// Finite numbers from `least` to `most`.
    pub const fn number(least: f32, most: f32) -> Self {
        Self::Number { least, most }
    }

    /// `auto`, or a value of this kind.
    pub const fn or_auto(kind: &'static Self) -> Self {
        Self::Or(AUTO, kind)
    }

    /// Returns the kind of the values themselves, a word in their place left out.
    pub const fn of_values(self) -> Self {
        match self {
            Self::Or(_, kind) => kind.of_values(),
            kind => kind,
        }
    }

    const fn is_like(self, other: Self) -> bool {
        if let (Self::Or(_, kind), Self::Or(_, other)) = (self, other) {
            return kind.is_like(*other);
        }
        matches!(
            (self, other),
            (Self::Count { .. }, Self::Count { .. })
                | (Self::Number { .. }, Self::Number { .. })
                | (Self::Flag, Self::Flag)
                | (Self::Choice(_), Self::Choice(_))
        )
    }

    /// Reads a value as people type it; none if it is no such value.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Count { .. } => text.parse().ok().map(Value::Count),
            Self::Number { .. } => text.parse().ok().map(Value::Number),
            Self::Flag => text.parse().ok().map(Value::Flag),
            Self::Choice(words) => words.iter().find(|word| same(word, text)).map(|word| Value::Choice(word)),
            Self::Or(word, _) if same(word, text) => Some(Value::Choice(word)),
            Self::Or(_, kind) => kind.read(text),
        }
        .filter(|&value| self.holds(value))
    }

    /// Reports whether a value, if there is one, is of this kind and within its bounds.
    pub(crate) const fn holds(self, value: Value) -> bool {
        match (self, value) {
            (_, Value::Fit) | (Self::Flag, Value::Flag(_)) => true,
            (Self::Count { least, most }, Value::Count(count)) => least <= count && count <= most,
            // No NaN is within bounds, which are finite.
            (Self::Number { least, most }, Value::Number(number)) => least <= number && number <= most,
            (Self::Choice(words), Value::Choice(word)) => has_word(words, word),
            (Self::Or(word, _), Value::Choice(found)) if same(word, found) => true,
            (Self::Or(_, kind), value) => kind.holds(value),
            _ => false,
        }
    }
}

/// Reports whether a word is one of these.
pub(super) const fn has_word(words: &[&str], word: &str) -> bool {
    if let [others @ .., last] = words { same(last, word) || has_word(others, word) } else { false }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count { least, most: usize::MAX } => write!(f, "a whole number from {least} on"),
            Self::Count { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::Number { least: f32::MIN, most: f32::MAX } => f.write_str("a number"),
            Self::Number { least, most: f32::MAX } => write!(f, "a number from {least} on"),
            Self::Number { least, most } => write!(f, "a number from {least} to {most}"),
            Self::Flag => f.write_str("true or false"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Or(word, kind) => write!(f, "{word} or {kind}"),
        }
    }
}

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Chosen to fit, because it was not set.
    Fit,
    /// A whole number, of [`Kind::Count`].
    Count(usize),
    /// A finite number, of [`Kind::Number`].
    Number(f32),
    /// Yes or no, of [`Kind::Flag`].
    Flag(bool),
    /// A word, of [`Kind::Choice`].
    Choice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fit => f.write_str("chosen to fit"),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Choice(word) => f.write_str(word),
        }
    }
}

/// A type that a parameter may have: `usize`, `u32`, `f32`, `bool`, an enum made by [`choices!`](crate::choices), an
/// [`OrAuto`] of one of them, or an `Option`, whose `None` means "chosen to fit".
pub trait Field: Copy + PartialEq {
    /// Kind of its values unless its declaration narrows them.
    const KIND: Kind;

    /// Returns it as a value.
    fn value(self) -> Value;

    /// Converts a parameter's value to this type. None if it is of another kind.
    fn of_value(value: Value) -> Option<Self>;
}

/// The default of a field that has narrower bounds, for constants: a number, or an `Option` or [`OrAuto`] of one.
#[derive(Debug, Clone, Copy)]
pub struct Preset<F>(pub F);

macro_rules! plain_field {
    ($type:ty, $variant:ident, $kind:expr, $stored:ty) => {
        impl Field for $type {
            const KIND: Kind = $kind;

            fn value(self) -> Value {
                Value::$variant(self as $stored)
            }

            fn of_value(value: Value) -> Option<Self> {
                if let Value::$variant(value) = value { Self::try_from(value).ok() } else { None }
            }
        }

        impl Preset<$type> {
            /// Returns it as a value.
            pub const fn value(self) -> Value {
                Value::$variant(self.0 as $stored)
            }
        }

        impl Preset<Option<$type>> {
            /// Returns it as a value.
            pub const fn value(self) -> Value {
                if let Some(value) = self.0 { Preset(value).value() } else { Value::Fit }
            }
        }

        impl Preset<OrAuto<$type>> {
            /// Returns it as a value.
            pub const fn value(self) -> Value {
                if let OrAuto::Given(value) = self.0 { Preset(value).value() } else { Value::Choice(AUTO) }
            }
        }
    };
}

plain_field!(usize, Count, Kind::count(0, usize::MAX), usize);
plain_field!(u32, Count, Kind::count(0, u32::MAX as usize), usize);
plain_field!(f32, Number, Kind::number(f32::MIN, f32::MAX), f32);
plain_field!(bool, Flag, Kind::Flag, bool);

impl<F: Field> Field for Option<F> {
    const KIND: Kind = F::KIND;

    fn value(self) -> Value {
        self.map_or(Value::Fit, F::value)
    }

    fn of_value(value: Value) -> Option<Self> {
        if value == Value::Fit { Some(None) } else { F::of_value(value).map(Some) }
    }
}

/// A value that the method may also choose by itself, while it runs: people type `auto` for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrAuto<F> {
    /// Chosen by the method.
    Auto,
    /// Set to this value.
    Given(F),
}

impl<F> OrAuto<F> {
    /// Returns the value, if it is given.
    pub fn given(self) -> Option<F> {
        match self {
            Self::Auto => None,
            Self::Given(value) => Some(value),
        }
    }
}

impl<F: Field> Field for OrAuto<F> {
    const KIND: Kind = Kind::or_auto(&F::KIND);

    fn value(self) -> Value {
        self.given().map_or(Value::Choice(AUTO), F::value)
    }

    fn of_value(value: Value) -> Option<Self> {
        if value == Value::Choice(AUTO) { Some(Self::Auto) } else { F::of_value(value).map(Self::Given) }
    }
}

/// The parameters of a method, as [`parameters!`](crate::parameters) makes them.
pub trait Parameters: Copy + PartialEq + Default + fmt::Debug + Send + Sync + 'static {
    /// Fields of the parameters, in canonical order.
    const TABLE: &'static [Parameter];
    /// Name and version of the crate that declares them.
    const CRATE: (&'static str, &'static str);

    /// Returns the fields' values, in the order of the table.
    fn values(&self) -> Vec<Value>;

    /// Returns the struct with these values; a field whose value is missing or of another kind has its default.
    fn of_values(values: &[Value]) -> Self;
}

/// Declares the parameters of a method: a struct with its defaults, and what reads and documents it.
///
/// A field's doc comment is its line in the documentation of methods. After the default may come narrower bounds of a number,
/// and `as "key"` after the name where people type another key than the field's name.
///
/// ```
/// use demask_decode::{parameters, spec::{Kind, Parameters}};
///
/// parameters! {
///     /// Parameters of a method that takes what lies within a margin.
///     pub struct Margin {
///         /// how far below the best a confidence may lie
///         pub delta: f32 = 0.1, Kind::number(0.0, 1.0);
///         /// tokens of one step at most; fitted: no bound
///         pub most as "max": Option<usize> = None, Kind::count(1, 64);
///     }
/// }
///
/// assert_eq!(Margin::default(), Margin { delta: 0.1, most: None });
/// assert_eq!(Margin::TABLE[1].name, "max");
/// assert_eq!(Margin::TABLE[0].doc, "how far below the best a confidence may lie");
/// ```
#[macro_export]
macro_rules! parameters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                pub $field:ident $(as $key:literal)?: $type:ty = $default:expr $(, $kind:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $crate::spec::Parameters for $name {
            const TABLE: &'static [$crate::spec::Parameter] = &[$(
                $crate::spec::Parameter::new::<$type>(
                    stringify!($field),
                    concat!($($doc),+),
                    || <$type as $crate::spec::Field>::value($default),
                )$(.called($key))?$(.within($kind, $crate::spec::Preset::<$type>($default).value()))?,
            )*];
            // Of the crate in which the declaration is expanded, not of this one.
            const CRATE: (&'static str, &'static str) = $crate::declaring_crate!();

            fn values(&self) -> Vec<$crate::spec::Value> {
                vec![$($crate::spec::Field::value(self.$field)),*]
            }

            #[allow(unused_variables, unused_mut, reason = "a struct without fields reads none")]
            fn of_values(values: &[$crate::spec::Value]) -> Self {
                let mut values = values.iter();
                Self { $($field: values.next().and_then(|&value| $crate::spec::Field::of_value(value)).unwrap_or($default)),* }
            }
        }
    };
}

/// Name and version of the crate that is compiled, which a compiler without Cargo does not know.
#[doc(hidden)]
#[macro_export]
macro_rules! declaring_crate {
    () => {{
        let (name, version) = (option_env!("CARGO_PKG_NAME"), option_env!("CARGO_PKG_VERSION"));
        (
            if let Some(name) = name { name } else { module_path!() },
            if let Some(version) = version { version } else { "" },
        )
    }};
}

/// Declares an enum whose variants are words that people type for a parameter.
///
/// ```
/// use demask_decode::{choices, spec::{Field, Value}};
///
/// choices! {
///     /// Who goes first.
///     pub enum First {
///         /// The surest.
///         Surest = "surest",
///         /// The leftmost.
///         Leftmost = "leftmost",
///     }
/// }
///
/// assert_eq!(First::Leftmost.value(), Value::Choice("leftmost"));
/// ```
#[macro_export]
macro_rules! choices {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $crate::spec::Field for $name {
            const KIND: $crate::spec::Kind = $crate::spec::Kind::Choice(&[$($word),+]);

            fn value(self) -> $crate::spec::Value {
                $crate::spec::Value::Choice(match self { $(Self::$variant => $word,)+ })
            }

            fn of_value(value: $crate::spec::Value) -> Option<Self> {
                match value {
                    $($crate::spec::Value::Choice($word) => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
