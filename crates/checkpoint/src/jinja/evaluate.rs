//! Runs a tree: what its statements do, and what its expressions are worth.

use std::{collections::HashMap, rc::Rc, time::SystemTime};

use super::{
    DEEPEST, Error, Trouble, builtins,
    meter::Meter,
    methods,
    tree::{
        Arguments, Comparison, Expression, ExpressionKind as Kind, Filters, For, Macro, Operator, Statement,
        StatementKind, Target,
    },
    value::{Loop, Value, contains, equal, order},
    write::Writer,
};

/// Arguments of a call, evaluated.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(String, Value)>,
}

impl Given {
    /// Takes an argument by its place or its name.
    pub(super) fn take(&mut self, place: usize, name: &str) -> Option<Value> {
        if let Some(found) = self.named.iter().position(|(given, _)| given == name) {
            return Some(self.named.swap_remove(found).1);
        }
        self.positional.get(place).cloned()
    }

    /// Refuses more arguments than are known: those by name have been taken.
    pub(super) fn check(&self, what: &str, most: usize) -> Result<(), Trouble> {
        if let Some((name, _)) = self.named.first() {
            return Trouble::failed(format!("{what} knows no argument {name}"));
        }
        let found = self.positional.len();
        if found > most {
            return Trouble::failed(format!("{what} takes at most {most} arguments, found {found}"));
        }
        Ok(())
    }
}

/// Outcome of a statement.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// The state of a rendering.
pub(super) struct Evaluator {
    pub(super) meter: Rc<Meter>,
    pub(super) now: SystemTime,
    /// Variables, innermost last. The first are those of the whole template.
    scopes: Vec<HashMap<String, Value>>,
    /// Attributes of namespaces.
    namespaces: Vec<Vec<(String, Value)>>,
    /// Outputs that are being written, innermost capture last.
    outputs: Vec<Writer>,
    depth: usize,
    loops: usize,
}

type Done<T> = Result<T, Error>;

impl Evaluator {
    pub(super) fn new(meter: Rc<Meter>, now: SystemTime) -> Self {
        let outputs = vec![Writer::new(&meter)];
        let (scopes, namespaces) = (vec![HashMap::new()], Vec::new());
        Self { meter, now, scopes, namespaces, outputs, depth: 0, loops: 0 }
    }

    /// Sets a variable of the innermost scope.
    pub(super) fn define(&mut self, name: &str, value: Value) -> Result<(), Trouble> {
        let scope = self.scopes.len() - 1;
        if !self.scopes[scope].contains_key(name) {
            self.meter.claim(name.len() + 96)?;
        }
        self.scopes[scope].insert(name.to_owned(), value);
        Ok(())
    }

    /// Runs a whole template.
    pub(super) fn run(mut self, tree: &[Statement]) -> Done<String> {
        self.statements(tree)?;
        Ok(self.outputs.swap_remove(0).into_text())
    }

    fn statements(&mut self, statements: &[Statement]) -> Done<Flow> {
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
                self.define(&definition.name, Value::Macro(Rc::clone(definition))).map_err(at)?;
            }
            StatementKind::Call(call, body) => {
                let value = self.call(call, Some(body))?;
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
    fn scoped<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(HashMap::new());
        let result = work(self);
        for name in self.scopes.pop().unwrap_or_default().into_keys() {
            self.meter.release(name.len() + 96);
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
            value = builtins::filter(self, name, &value, given).map_err(at)?;
        }
        Ok(value)
    }

    fn for_loop(&mut self, each: &For, line: usize) -> Done<()> {
        let at = |trouble| Error { trouble, line };
        let items = self.value(&each.items)?.walk(&self.meter).map_err(at)?;
        let bytes = items.len() * size_of::<Value>() * 2;
        self.meter.claim(bytes).map_err(at)?;
        let result = self.iterate(each, items, line);
        self.meter.release(bytes);
        result
    }

    fn iterate(&mut self, each: &For, items: Vec<Value>, line: usize) -> Done<()> {
        let at = |trouble| Error { trouble, line };
        let items = match &each.condition {
            None => items,
            Some(condition) => {
                let mut kept = Vec::new();
                for item in items {
                    let keeps = self.scoped(|evaluator| {
                        evaluator.assign(&each.target, item.clone()).map_err(at)?;
                        Ok(evaluator.value(condition)?.is_true())
                    })?;
                    if keeps {
                        kept.push(item);
                    }
                }
                kept
            }
        };
        if items.is_empty() {
            self.statements(&each.otherwise)?;
            return Ok(());
        }
        let items: Rc<[Value]> = items.into();
        self.loops += 1;
        let (depth, mut result) = (self.loops, Ok(()));
        for index in 0..items.len() {
            let state = Loop { index, items: Rc::clone(&items), depth };
            let flow = self.scoped(|evaluator| {
                evaluator.meter.step(1).map_err(at)?;
                evaluator.define("loop", Value::Loop(Rc::new(state))).map_err(at)?;
                evaluator.assign(&each.target, items[index].clone()).map_err(at)?;
                evaluator.statements(&each.body)
            });
            match flow {
                Ok(Flow::Break) => break,
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.loops -= 1;
        result
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<(), Trouble> {
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
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name).cloned());
        found.or_else(|| builtins::function(name)).unwrap_or(Value::Undefined)
    }

    // Expressions.

    fn value(&mut self, expression: &Expression) -> Done<Value> {
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
            Kind::Negative(value) => negative(&self.value(value)?).map_err(at),
            Kind::Positive(value) => self.value(value),
            Kind::Binary(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.binary(*operator, &a, &b).map_err(at)
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
                builtins::filter(self, name, &value, given).map_err(at)
            }
            Kind::Test(value, name, arguments, negated) => {
                let (value, given) = (self.value(value)?, self.arguments(arguments)?);
                let holds = builtins::test(&self.meter, name, &value, &given.positional).map_err(at)?;
                Ok(Value::Bool(holds != *negated))
            }
        }
    }

    fn values(&mut self, expressions: &[Expression]) -> Done<Vec<Value>> {
        expressions.iter().map(|expression| self.value(expression)).collect()
    }

    fn arguments(&mut self, arguments: &Arguments) -> Done<Given> {
        let positional = self.values(&arguments.positional)?;
        let named = arguments.named.iter().map(|(name, value)| Ok((name.clone(), self.value(value)?)));
        Ok(Given { positional, named: named.collect::<Done<_>>()? })
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

    fn binary(&self, operator: Operator, a: &Value, b: &Value) -> Result<Value, Trouble> {
        match (operator, a, b) {
            (Operator::Join, a, b) => {
                let mut joined = Writer::new(&self.meter);
                joined.value(a)?;
                joined.value(b)?;
                joined.into_value()
            }
            (Operator::Add, Value::Text(a), Value::Text(b)) => {
                let mut joined = Writer::new(&self.meter);
                joined.push(a)?;
                joined.push(b)?;
                joined.into_value()
            }
            (Operator::Add, Value::List(a), Value::List(b)) => self.meter.list(self.both(a, b)?),
            (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => self.meter.tuple(self.both(a, b)?),
            (Operator::Multiply, Value::Text(text), count) | (Operator::Multiply, count, Value::Text(text)) => {
                let count = usize::try_from(count.int("the number of copies")?).unwrap_or(0);
                self.meter.room(text.len().checked_mul(count))?;
                self.meter.text(text.repeat(count))
            }
            (Operator::Multiply, Value::List(items), count) => {
                let count = usize::try_from(count.int("the number of copies")?).unwrap_or(0);
                self.meter.room(items.len().checked_mul(count).and_then(|all| all.checked_mul(size_of::<Value>())))?;
                self.meter.list(std::iter::repeat_n(items.iter(), count).flatten().cloned().collect())
            }
            (operator, a, b) => arithmetic(operator, a, b),
        }
    }

    fn both(&self, a: &[Value], b: &[Value]) -> Result<Vec<Value>, Trouble> {
        let count = a.len() + b.len();
        self.meter.room(count.checked_mul(size_of::<Value>()))?;
        self.meter.step(count / 16)?;
        Ok(a.iter().chain(b).cloned().collect())
    }

    fn attribute(&self, value: &Value, name: &str) -> Result<Value, Trouble> {
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
            Value::Loop(state) => methods::of_loop(state, name),
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

    /// Calls a macro, a function or a method; `body` is what a `call` block hands to its macro.
    fn call(&mut self, call: &Expression, body: Option<&Rc<Macro>>) -> Done<Value> {
        let at = |trouble| Error { trouble, line: call.line };
        let Kind::Call(called, arguments) = &*call.kind else {
            return Err(at(Trouble::Failed("nothing is called".to_owned())));
        };
        if let Kind::Attribute(owner, name) = &*called.kind {
            let owner = self.value(owner)?;
            let held = match &owner {
                Value::Map(_) | Value::Namespace(_) => self.attribute(&owner, name).map_err(at)?,
                _ => Value::Undefined,
            };
            let given = self.arguments(arguments)?;
            return match held {
                Value::Macro(definition) => self.call_macro(&definition, given, body, call.line),
                _ => methods::call(&self.meter, &owner, name, given).map_err(at),
            };
        }
        let called_value = self.value(called)?;
        let given = self.arguments(arguments)?;
        match called_value {
            Value::Macro(definition) => self.call_macro(&definition, given, body, call.line),
            Value::Function(name) => builtins::call(self, name, given).map_err(at),
            Value::Undefined => {
                let name = if let Kind::Name(name) = &*called.kind { name } else { "what is called" };
                Trouble::failed(format!("{name} is not defined")).map_err(at)
            }
            other => Trouble::failed(format!("{} cannot be called", other.kind())).map_err(at),
        }
    }

    fn call_macro(&mut self, called: &Macro, mut given: Given, body: Option<&Rc<Macro>>, line: usize) -> Done<Value> {
        let at = |trouble| Error { trouble, line };
        if self.depth == DEEPEST / 4 {
            return Trouble::failed(format!("calls macros more than {} deep", DEEPEST / 4)).map_err(at);
        }
        self.depth += 1;
        // It sees the variables of the template, and not those of its caller. The body of a call block sees those of the
        // macro that calls it back.
        let hidden = if called.name == "caller" { Vec::new() } else { self.scopes.split_off(1) };
        self.outputs.push(Writer::new(&self.meter));
        let result = self.scoped(|evaluator| {
            for (place, (name, default)) in called.parameters.iter().enumerate() {
                let value = match (given.take(place, name), default) {
                    (Some(value), _) => value,
                    (None, Some(default)) => evaluator.value(default)?,
                    (None, None) => Value::Undefined,
                };
                evaluator.define(name, value).map_err(at)?;
            }
            if let Some(body) = body {
                evaluator.define("caller", Value::Macro(Rc::clone(body))).map_err(at)?;
            }
            given.check(&called.name, called.parameters.len()).map_err(at)?;
            evaluator.statements(&called.body)
        });
        let output = self.outputs.pop();
        self.scopes.extend(hidden);
        self.depth -= 1;
        result?;
        output.map_or(Ok(Value::Undefined), Writer::into_value).map_err(at)
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

fn negative(value: &Value) -> Result<Value, Trouble> {
    match (value.as_int(), value.as_float()) {
        (Some(number), _) => number
            .checked_neg()
            .map_or_else(|| Trouble::failed("a number is too large"), |number| Ok(Value::Int(number))),
        (None, Some(number)) => Ok(Value::Float(-number)),
        _ => Trouble::failed(format!("- needs a number, found {}", value.kind())),
    }
}

fn arithmetic(operator: Operator, a: &Value, b: &Value) -> Result<Value, Trouble> {
    let numbers = a.as_float().zip(b.as_float());
    let Some((x, y)) = numbers else {
        return Trouble::failed(format!("{operator:?} is not for {} and {}", a.kind(), b.kind()).to_lowercase());
    };
    let zero = matches!(operator, Operator::Divide | Operator::Floor | Operator::Remainder) && y == 0.0;
    if zero {
        return Trouble::failed("a number is divided by zero");
    }
    if operator == Operator::Divide {
        return Ok(Value::Float(x / y));
    }
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        let whole = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Floor => a.checked_div(b).map(|q| if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }),
            Operator::Remainder => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
            Operator::Power if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            _ => return Ok(Value::Float(x.powf(y))),
        };
        return whole.map_or_else(|| Trouble::failed("a number is too large"), |number| Ok(Value::Int(number)));
    }
    Ok(Value::Float(match operator {
        Operator::Add => x + y,
        Operator::Subtract => x - y,
        Operator::Multiply => x * y,
        Operator::Floor => (x / y).floor(),
        Operator::Remainder => x - y * (x / y).floor(),
        _ => x.powf(y),
    }))
}
