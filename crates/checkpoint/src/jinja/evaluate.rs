//! Runs a tree: what its statements do, and what its expressions are worth.

use std::{collections::HashMap, rc::Rc, time::SystemTime};

use super::{
    Error, Trouble, arithmetic, checks, filters,
    format::Finds,
    functions,
    given::Given,
    meter::Meter,
    methods,
    tree::{Arguments, Comparison, Expression, ExpressionKind as Kind, Filters, Statement, StatementKind, Target},
    value::{Closure, Value, contains, equal, order},
    write::Writer,
};

/// Outcome of a statement.
#[derive(PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Break,
    Continue,
}

/// Variables of a part of a template.
#[derive(Debug, Default)]
struct Scope {
    names: HashMap<String, Value>,
    /// Scope around it.
    parent: Option<usize>,
    /// Records whether a macro was defined in it, which sees its variables whenever it is called.
    kept: bool,
}

/// Bytes of a scope, and of a variable beside its name.
const SCOPE_BYTES: usize = 96;

/// The state of a rendering.
pub(super) struct Evaluator {
    pub(super) meter: Rc<Meter>,
    pub(super) now: SystemTime,
    /// All scopes that are in use. The first is that of the whole template.
    scopes: Vec<Scope>,
    /// The scope that is run in.
    pub(super) scope: usize,
    /// Attributes of namespaces.
    namespaces: Vec<Vec<(String, Value)>>,
    /// Outputs that are being written, innermost capture last.
    pub(super) outputs: Vec<Writer>,
    /// Calls within calls.
    pub(super) depth: usize,
}

pub(super) type Done<T> = Result<T, Error>;

impl Evaluator {
    pub(super) fn new(meter: Rc<Meter>, now: SystemTime) -> Self {
        let outputs = vec![Writer::new(&meter)];
        let (scopes, namespaces) = (vec![Scope::default()], Vec::new());
        Self { meter, now, scopes, scope: 0, namespaces, outputs, depth: 0 }
    }

    /// Sets a variable of the innermost scope.
    pub(super) fn define(&mut self, name: &str, value: Value) -> Result<(), Trouble> {
        let names = &mut self.scopes[self.scope].names;
        if !names.contains_key(name) {
            self.meter.claim(name.len() + SCOPE_BYTES)?;
        }
        names.insert(name.to_owned(), value);
        Ok(())
    }

    /// A macro as a value that sees the variables of this place.
    pub(super) fn closure(&mut self, definition: &Rc<super::tree::Macro>) -> Result<Value, Trouble> {
        self.meter.claim(size_of::<Closure>())?;
        self.scopes[self.scope].kept = true;
        Ok(Value::Macro(Rc::new(Closure { definition: Rc::clone(definition), scope: self.scope })))
    }

    /// Runs a whole template.
    pub(super) fn run(mut self, tree: &[Statement]) -> Done<String> {
        self.statements(tree)?;
        Ok(self.outputs.swap_remove(0).into_text())
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) -> Done<Flow> {
        for statement in statements {
            let flow = self.statement(statement)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn push(&mut self, text: &str) -> Result<(), Trouble> {
        let last = self.outputs.len() - 1;
        self.outputs[last].push(text)
    }

    fn statement(&mut self, statement: &Statement) -> Done<Flow> {
        let at = |trouble| Error { trouble, line: statement.line };
        self.meter.step(1).map_err(at)?;
        match &statement.kind {
            StatementKind::Data(text) => self.push(text).map_err(at)?,
            StatementKind::Print(value) => {
                let value = self.value(value)?;
                let last = self.outputs.len() - 1;
                self.outputs[last].value(&value).map_err(at)?;
            }
            StatementKind::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.value(condition)?.is_true() {
                        return self.statements(body);
                    }
                }
                return self.statements(otherwise);
            }
            StatementKind::For(each) => self.for_loop(each, statement.line)?,
            StatementKind::Set(target, value) => {
                let value = self.value(value)?;
                self.assign(target, value).map_err(at)?;
            }
            StatementKind::Capture(target, filters, body) => {
                let value = self.captured(filters, body, statement.line)?;
                self.assign(target, value).map_err(at)?;
            }
            StatementKind::Filter(filters, body) => {
                let value = self.captured(filters, body, statement.line)?;
                let last = self.outputs.len() - 1;
                self.outputs[last].value(&value).map_err(at)?;
            }
            StatementKind::Macro(definition) => {
                let value = self.closure(definition).map_err(at)?;
                self.define(&definition.name, value).map_err(at)?;
            }
            StatementKind::Call(call, body) => {
                let caller = self.closure(body).map_err(at)?;
                let value = self.call(call, Some(caller))?;
                let last = self.outputs.len() - 1;
                self.outputs[last].value(&value).map_err(at)?;
            }
            StatementKind::With(values, body) => {
                let values =
                    values.iter().map(|(target, value)| Ok((target, self.value(value)?))).collect::<Done<Vec<_>>>()?;
                return self.scoped(|evaluator| {
                    for (target, value) in values {
                        evaluator.assign(target, value).map_err(at)?;
                    }
                    evaluator.statements(body)
                });
            }
            StatementKind::Do(value) => {
                self.value(value)?;
            }
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    /// Runs with a scope of its own, whose variables end with it.
    pub(super) fn scoped<T>(&mut self, work: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        self.scoped_in(self.scope, work)
    }

    /// The same, within any scope.
    pub(super) fn scoped_in<T>(&mut self, parent: usize, work: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        self.meter.claim(SCOPE_BYTES).map_err(|trouble| Error { trouble, line: 1 })?;
        let (outer, own) = (self.scope, self.scopes.len());
        self.scopes.push(Scope { parent: Some(parent), ..Scope::default() });
        self.scope = own;
        let result = work(self);
        self.scope = outer;
        // A scope stays as long as a macro may look into it, or into one that was made later.
        if own + 1 == self.scopes.len() && !self.scopes[own].kept {
            for name in self.scopes.pop().unwrap_or_default().names.into_keys() {
                self.meter.release(name.len() + SCOPE_BYTES);
            }
            self.meter.release(SCOPE_BYTES);
        }
        result
    }

    fn captured(&mut self, filters: &Filters, body: &[Statement], line: usize) -> Done<Value> {
        self.outputs.push(Writer::new(&self.meter));
        let flow = self.scoped(|evaluator| evaluator.statements(body));
        let output = self.outputs.pop();
        flow?;
        let at = |trouble| Error { trouble, line };
        let mut value = output.map_or(Ok(Value::Undefined), Writer::into_value).map_err(at)?;
        for (name, arguments) in filters {
            let given = self.arguments(arguments)?;
            value = filters::filter(self, name, &value, given).map_err(at)?;
        }
        Ok(value)
    }

    pub(super) fn assign(&mut self, target: &Target, value: Value) -> Result<(), Trouble> {
        match target {
            Target::Name(name) => self.define(name, value),
            Target::Attribute(name, attribute) => {
                let Value::Namespace(place) = self.lookup(name) else {
                    return Trouble::failed(format!("{name} is not a namespace: only its attributes can be set"));
                };
                self.set_attribute(place, attribute, value)
            }
            Target::Several(targets) => {
                let values = value.walk(&self.meter)?;
                if values.len() != targets.len() {
                    let (expected, found) = (targets.len(), values.len());
                    return Trouble::failed(format!("{expected} names are set from {found} values"));
                }
                targets.iter().zip(values).try_for_each(|(target, value)| self.assign(target, value))
            }
        }
    }

    fn set_attribute(&mut self, place: usize, name: &str, value: Value) -> Result<(), Trouble> {
        let attributes = &mut self.namespaces[place];
        self.meter.step(attributes.len() / 16)?;
        if let Some((_, old)) = attributes.iter_mut().find(|(known, _)| known == name) {
            *old = value;
            return Ok(());
        }
        self.meter.claim(name.len() + 64)?;
        attributes.push((name.to_owned(), value));
        Ok(())
    }

    /// A new namespace with attributes.
    pub(super) fn namespace(&mut self, attributes: Vec<(String, Value)>) -> Result<Value, Trouble> {
        self.meter.claim(64)?;
        let place = self.namespaces.len();
        self.namespaces.push(Vec::new());
        for (name, value) in attributes {
            self.set_attribute(place, &name, value)?;
        }
        Ok(Value::Namespace(place))
    }

    fn lookup(&self, name: &str) -> Value {
        let mut scope = Some(&self.scopes[self.scope]);
        let mut found = None;
        while let (Some(inner), None) = (scope, &found) {
            found = inner.names.get(name).cloned();
            scope = inner.parent.map(|parent| &self.scopes[parent]);
        }
        found.or_else(|| functions::function(name)).unwrap_or(Value::Undefined)
    }

    // Expressions.

    pub(super) fn value(&mut self, expression: &Expression) -> Done<Value> {
        let at = |trouble| Error { trouble, line: expression.line };
        self.meter.step(1).map_err(at)?;
        match &*expression.kind {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Name(name) => Ok(self.lookup(name)),
            Kind::List(items) => {
                let items = self.values(items)?;
                self.meter.list(items).map_err(at)
            }
            Kind::Tuple(items) => {
                let items = self.values(items)?;
                self.meter.tuple(items).map_err(at)
            }
            Kind::Map(items) => {
                let items = items
                    .iter()
                    .map(|(key, value)| Ok((self.value(key)?, self.value(value)?)))
                    .collect::<Done<Vec<_>>>()?;
                dictionary(&self.meter, items).map_err(at)
            }
            Kind::Not(value) => Ok(Value::Bool(!self.value(value)?.is_true())),
            Kind::Negative(value) => arithmetic::negative(&self.value(value)?).map_err(at),
            Kind::Positive(value) => self.value(value),
            Kind::Binary(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                arithmetic::binary(&self.meter, *operator, &a, &b).map_err(at)
            }
            Kind::And(a, b) => {
                let a = self.value(a)?;
                if a.is_true() { self.value(b) } else { Ok(a) }
            }
            Kind::Or(a, b) => {
                let a = self.value(a)?;
                if a.is_true() { Ok(a) } else { self.value(b) }
            }
            Kind::Compare(first, rest) => self.compare(first, rest),
            Kind::Choice(value, condition, otherwise) => {
                if self.value(condition)?.is_true() {
                    return self.value(value);
                }
                otherwise.as_ref().map_or(Ok(Value::Undefined), |otherwise| self.value(otherwise))
            }
            Kind::Attribute(value, name) => {
                let value = self.value(value)?;
                self.attribute(&value, name).map_err(at)
            }
            Kind::Item(value, index) => {
                let (value, index) = (self.value(value)?, self.value(index)?);
                self.item(&value, &index).map_err(at)
            }
            Kind::Slice(value, bounds) => {
                let value = self.value(value)?;
                let mut given = [const { None }; 3];
                for (given, bound) in given.iter_mut().zip(bounds) {
                    let bound = bound.as_ref().map(|bound| self.value(bound)).transpose()?;
                    *given = bound.filter(|bound| !matches!(bound, Value::None));
                }
                methods::slice(&self.meter, &value, &given).map_err(at)
            }
            Kind::Call(..) => self.call(expression, None),
            Kind::Filter(value, name, arguments) => {
                let (value, given) = (self.value(value)?, self.arguments(arguments)?);
                filters::filter(self, name, &value, given).map_err(at)
            }
            Kind::Test(value, name, arguments, negated) => {
                let (value, given) = (self.value(value)?, self.arguments(arguments)?);
                let holds = checks::test(&self.meter, name, &value, given).map_err(at)?;
                Ok(Value::Bool(holds != *negated))
            }
        }
    }

    fn values(&mut self, expressions: &[Expression]) -> Done<Vec<Value>> {
        expressions.iter().map(|expression| self.value(expression)).collect()
    }

    pub(super) fn arguments(&mut self, arguments: &Arguments) -> Done<Given> {
        let mut positional = self.values(&arguments.positional)?;
        if let Some(more) = &arguments.star {
            let at = |trouble| Error { trouble, line: more.line };
            positional.extend(self.value(more)?.walk(&self.meter).map_err(at)?);
        }
        let named = arguments.named.iter().map(|(name, value)| Ok((name.clone(), self.value(value)?)));
        let mut named = named.collect::<Done<Vec<_>>>()?;
        if let Some(more) = &arguments.stars {
            let at = |trouble| Error { trouble, line: more.line };
            let Value::Map(items) = self.value(more)? else {
                return Trouble::failed("** needs a dictionary of arguments").map_err(at);
            };
            for (name, value) in items.iter() {
                let name = name.text("the name of an argument").map_err(at)?;
                if named.iter().any(|(known, _)| known == name) {
                    return Trouble::failed(format!("the argument {} is given twice", super::brief(name))).map_err(at);
                }
                named.push((name.to_owned(), value.clone()));
            }
        }
        Ok(Given { positional, named })
    }

    fn compare(&mut self, first: &Expression, rest: &[(Comparison, Expression)]) -> Done<Value> {
        let mut left = self.value(first)?;
        for (comparison, right) in rest {
            let line = right.line;
            let right = self.value(right)?;
            let meter = &*self.meter;
            let holds = match comparison {
                Comparison::Equal => equal(&left, &right, meter),
                Comparison::NotEqual => equal(&left, &right, meter).map(|same| !same),
                Comparison::Less => order(&left, &right, meter).map(std::cmp::Ordering::is_lt),
                Comparison::LessOrEqual => order(&left, &right, meter).map(std::cmp::Ordering::is_le),
                Comparison::Greater => order(&left, &right, meter).map(std::cmp::Ordering::is_gt),
                Comparison::GreaterOrEqual => order(&left, &right, meter).map(std::cmp::Ordering::is_ge),
                Comparison::In => contains(&right, &left, meter),
                Comparison::NotIn => contains(&right, &left, meter).map(|found| !found),
            };
            if !holds.map_err(|trouble| Error { trouble, line })? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn attribute(&self, value: &Value, name: &str) -> Result<Value, Trouble> {
        match value {
            Value::Undefined => Trouble::failed(format!("{name} is asked of what is not defined")),
            Value::Map(items) => {
                self.meter.step(items.len() / 16)?;
                let found = items.iter().find(|(key, _)| key.as_text() == Some(name));
                Ok(found.map_or(Value::Undefined, |(_, value)| value.clone()))
            }
            Value::Namespace(place) => {
                let attributes = &self.namespaces[*place];
                self.meter.step(attributes.len() / 16)?;
                let found = attributes.iter().find(|(known, _)| known == name);
                Ok(found.map_or(Value::Undefined, |(_, value)| value.clone()))
            }
            Value::Loop(state) => Ok(methods::of_loop(state, name)),
            Value::Macro(closure) => super::calls::of_macro(&self.meter, &closure.definition, name),
            _ => Ok(Value::Undefined),
        }
    }

    pub(super) fn item(&self, value: &Value, index: &Value) -> Result<Value, Trouble> {
        match value {
            Value::Undefined => Trouble::failed("an item is asked of what is not defined"),
            Value::Map(_) => Ok(value.get(index, &self.meter)?.unwrap_or(Value::Undefined)),
            Value::List(items) | Value::Tuple(items) => {
                let Some(index) = index.as_int() else { return Ok(Value::Undefined) };
                Ok(methods::place(index, items.len()).map_or(Value::Undefined, |place| items[place].clone()))
            }
            Value::Text(text) => {
                let Some(index) = index.as_int() else { return Ok(Value::Undefined) };
                self.meter.step(text.len() / 1024)?;
                let place = methods::place(index, text.chars().count());
                let found = place.and_then(|place| text.chars().nth(place));
                found.map_or(Ok(Value::Undefined), |character| self.meter.text(character.to_string()))
            }
            other => match index.as_text() {
                Some(name) => self.attribute(other, name),
                None => Ok(Value::Undefined),
            },
        }
    }
}

impl Finds for Evaluator {
    fn attribute(&self, value: &Value, name: &str) -> Result<Value, Trouble> {
        Self::attribute(self, value, name)
    }

    fn item(&self, value: &Value, index: &Value) -> Result<Value, Trouble> {
        Self::item(self, value, index)
    }
}

/// A map of which the last value of each key stays.
pub(super) fn dictionary(meter: &Rc<Meter>, items: Vec<(Value, Value)>) -> Result<Value, Trouble> {
    let mut kept: Vec<(Value, Value)> = Vec::new();
    for (key, value) in items {
        let mut place = None;
        for (index, (known, _)) in kept.iter().enumerate() {
            if equal(known, &key, meter)? {
                place = Some(index);
                break;
            }
        }
        match place {
            Some(place) => kept[place].1 = value,
            None => kept.push((key, value)),
        }
    }
    meter.map(kept)
}
