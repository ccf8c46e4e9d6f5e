//! Arguments of a call, evaluated, and the parameters that they are for.

use super::{Trouble, value::Value};

/// Arguments by place and by name.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

impl Given {
    /// The arguments in the order of their parameters' names; any other is refused, so that none goes without effect.
    pub(super) fn bind<const N: usize>(self, what: &str, names: [&str; N]) -> Result<[Option<Value>; N], Trouble> {
        let found = self.positional.len();
        if found > N {
            return Trouble::failed(format!("{what} takes at most {N} arguments, found {found}"));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let Some(place) = names.iter().position(|known| *known == name) else {
                return Trouble::failed(format!("{what} knows no argument {name}"));
            };
            if bound[place].replace(value).is_some() {
                return Trouble::failed(format!("{what} is given {name} twice"));
            }
        }
        Ok(bound)
    }

    /// The only argument, which must be there.
    pub(super) fn one(self, what: &str, name: &str) -> Result<Value, Trouble> {
        let [value] = self.bind(what, [name])?;
        needed(value, what, name)
    }

    /// Refuses any argument.
    pub(super) fn none(self, what: &str) -> Result<(), Trouble> {
        self.bind(what, []).map(|[]| ())
    }
}

/// An argument that must be there.
pub(super) fn needed(value: Option<Value>, what: &str, name: &str) -> Result<Value, Trouble> {
    value.map_or_else(|| Trouble::failed(format!("{what} needs the argument {name}")), Ok)
}

/// An argument for which `none` means that it is not given.
pub(super) fn some(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

/// A flag; not set unless it is given.
pub(super) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}

/// A whole number, if it is given and not `none`.
pub(super) fn int(value: Option<Value>, what: &str) -> Result<Option<i64>, Trouble> {
    some(value).map(|value| value.int(what)).transpose()
}
