//! Calls of macros, functions, methods and recursive loops, and the loops themselves.

use std::{cell::RefCell, rc::Rc};

use super::{
    DEEPEST, Error, Trouble,
    evaluate::{Done, Evaluator, Flow},
    filters, functions,
    given::Given,
    meter::Meter,
    methods,
    tree::{Expression, ExpressionKind as Kind, For, Macro},
    value::{Closure, Loop, Value},
    write::Writer,
};

/// Loops within themselves, with what they share.
struct Turn {
    depth: usize,
    /// The scope around the loop.
    scope: usize,
}

impl Evaluator {
    /// Calls what an expression names; `caller` is what a call block hands to its macro.
    pub(super) fn call(&mut self, call: &Expression, caller: Option<Value>) -> Done<Value> {
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
            let given = self.given(arguments, caller)?;
            return match held {
                Value::Macro(_) | Value::Function(_) | Value::Loop(_) => self.call_value(&held, given, call.line),
                _ => methods::call(&self.meter, &*self, &owner, name, given).map_err(at),
            };
        }
        let value = self.value(called)?;
        let given = self.given(arguments, caller)?;
        if let (Value::Undefined, Kind::Name(name)) = (&value, &*called.kind) {
            return Trouble::failed(format!("{name} is not defined")).map_err(at);
        }
        self.call_value(&value, given, call.line)
    }

    fn given(&mut self, arguments: &super::tree::Arguments, caller: Option<Value>) -> Done<Given> {
        let mut given = self.arguments(arguments)?;
        given.named.extend(caller.map(|caller| ("caller".to_owned(), caller)));
        Ok(given)
    }

    fn call_value(&mut self, called: &Value, given: Given, line: usize) -> Done<Value> {
        let at = |trouble| Error { trouble, line };
        match called {
            Value::Macro(closure) => self.deeper(line, |evaluator| evaluator.call_macro(closure, given, line)),
            Value::Function(name) => functions::call(self, name, given).map_err(at),
            Value::Loop(state) => {
                let items = given.one("loop", "iterable").and_then(|items| items.walk(&self.meter)).map_err(at)?;
                if !state.each.recursive {
                    return Trouble::failed("only a recursive loop can be called").map_err(at);
                }
                let (each, turn) = (Rc::clone(&state.each), Turn { depth: state.depth + 1, scope: state.scope });
                self.deeper(line, |evaluator| evaluator.written(line, |it| it.run_loop(&each, items, &turn, line)))
            }
            Value::Undefined => Trouble::failed("what is called is not defined").map_err(at),
            other => Trouble::failed(format!("{} cannot be called", other.kind())).map_err(at),
        }
    }

    /// Runs what may call itself, unless it is too deep.
    fn deeper<T>(&mut self, line: usize, work: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        if self.depth == DEEPEST / 4 {
            let trouble = Trouble::Failed(format!("calls macros more than {} deep", DEEPEST / 4));
            return Err(Error { trouble, line });
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    /// The output of something as a value.
    fn written<T>(&mut self, line: usize, work: impl FnOnce(&mut Self) -> Done<T>) -> Done<Value> {
        self.outputs.push(Writer::new(&self.meter));
        let result = work(self);
        let output = self.outputs.pop();
        result?;
        output.map_or(Ok(Value::Undefined), Writer::into_value).map_err(|trouble| Error { trouble, line })
    }

    fn call_macro(&mut self, closure: &Closure, given: Given, line: usize) -> Done<Value> {
        let called = &*closure.definition;
        self.written(line, |evaluator| {
            // It sees the variables of the place where it is defined.
            evaluator.scoped_in(closure.scope, |evaluator| {
                evaluator.bind(called, given, line)?;
                evaluator.statements(&called.body)
            })
        })
    }

    /// Sets the parameters of a macro, in their order: a default may use those in front of it.
    fn bind(&mut self, called: &Macro, given: Given, line: usize) -> Done<()> {
        let at = |trouble| Error { trouble, line };
        let Given { positional, mut named } = given;
        let mut positional = positional.into_iter();
        let take = |named: &mut Vec<(String, Value)>, name: &str| {
            let place = named.iter().position(|(given, _)| given == name);
            place.map(|place| named.remove(place).1)
        };
        for (name, default) in &called.parameters {
            let given = match positional.next() {
                Some(value) => Some(value),
                None => take(&mut named, name),
            };
            let value = match (given, default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.value(default)?,
                (None, None) => Value::Undefined,
            };
            self.define(name, value).map_err(at)?;
        }
        let own = |name: &str| called.parameters.iter().any(|(known, _)| known == name);
        if called.uses.caller && !own("caller") {
            let caller = take(&mut named, "caller").unwrap_or(Value::Undefined);
            self.define("caller", caller).map_err(at)?;
        }
        if called.uses.kwargs && !own("kwargs") {
            let rest = filters::named(&self.meter, std::mem::take(&mut named)).map_err(at)?;
            self.define("kwargs", rest).map_err(at)?;
        }
        if let Some((name, _)) = named.first() {
            return Trouble::failed(format!("{} knows no argument {name}", called.name)).map_err(at);
        }
        let rest: Vec<Value> = positional.collect();
        if called.uses.varargs && !own("varargs") {
            let rest = self.meter.tuple(rest).map_err(at)?;
            return self.define("varargs", rest).map_err(at);
        }
        if !rest.is_empty() {
            let (most, found) = (called.parameters.len(), called.parameters.len() + rest.len());
            let name = &called.name;
            return Trouble::failed(format!("{name} takes at most {most} arguments, found {found}")).map_err(at);
        }
        Ok(())
    }

    pub(super) fn for_loop(&mut self, each: &Rc<For>, line: usize) -> Done<()> {
        let items = self.value(&each.items)?.walk(&self.meter).map_err(|trouble| Error { trouble, line })?;
        self.run_loop(each, items, &Turn { depth: 0, scope: self.scope }, line)
    }

    fn run_loop(&mut self, each: &Rc<For>, items: Vec<Value>, turn: &Turn, line: usize) -> Done<()> {
        let bytes = items.len() * size_of::<Value>() * 2;
        self.meter.claim(bytes).map_err(|trouble| Error { trouble, line })?;
        let result = self.iterate(each, items, turn, line);
        self.meter.release(bytes);
        result
    }

    fn iterate(&mut self, each: &Rc<For>, items: Vec<Value>, turn: &Turn, line: usize) -> Done<()> {
        let at = |trouble| Error { trouble, line };
        let scope = turn.scope;
        let items = match &each.condition {
            None => items,
            Some(condition) => {
                let mut kept = Vec::new();
                for item in items {
                    let keeps = self.scoped_in(scope, |evaluator| {
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
            return self.scoped_in(scope, |evaluator| evaluator.statements(&each.otherwise)).map(|_| ());
        }
        let items: Rc<[Value]> = items.into();
        let last = Rc::new(RefCell::new(None));
        for index in 0..items.len() {
            let (items, last, each) = (Rc::clone(&items), Rc::clone(&last), Rc::clone(each));
            let item = items[index].clone();
            let state = Loop { index, items, depth: turn.depth, each: Rc::clone(&each), scope, last };
            let flow = self.scoped_in(scope, |evaluator| {
                evaluator.meter.step(1).map_err(at)?;
                evaluator.define("loop", Value::Loop(Rc::new(state))).map_err(at)?;
                evaluator.assign(&each.target, item).map_err(at)?;
                evaluator.statements(&each.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }
}

/// An attribute of a macro.
pub(super) fn of_macro(meter: &Rc<Meter>, called: &Macro, name: &str) -> Result<Value, Trouble> {
    match name {
        "name" => meter.text(called.name.clone()),
        "arguments" => {
            let names = called.parameters.iter().map(|(name, _)| meter.text(name.clone()));
            meter.tuple(names.collect::<Result<_, _>>()?)
        }
        "caller" => Ok(Value::Bool(called.uses.caller)),
        "catch_kwargs" => Ok(Value::Bool(called.uses.kwargs)),
        "catch_varargs" => Ok(Value::Bool(called.uses.varargs)),
        _ => Ok(Value::Undefined),
    }
}
