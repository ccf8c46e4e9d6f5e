//! The budget of a rendering, and the one place where texts, lists and maps are made.

use std::{cell::Cell, mem::size_of, rc::Rc};

use super::{
    DEEPEST, Trouble,
    value::{Held, Value},
    write::Writer,
};
use crate::said::Marks;

/// Bytes that take as long to make as one step takes.
const BYTES_OF_A_STEP: usize = 1024;
/// Bytes of a value beside its contents: its counters and the overhead of the allocator.
const OVERHEAD: usize = 80;

/// Budget of a rendering.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Steps: nodes of the tree that are evaluated, items that are walked, and every [`BYTES_OF_A_STEP`] that are made.
    pub(crate) steps: u64,
    /// Bytes of all texts, lists, maps and output that are held at the same time.
    pub(crate) bytes: usize,
}

/// Counts what a rendering spends. Nothing is allocated before it is claimed.
#[derive(Debug)]
pub(super) struct Meter {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    /// Marks of people's words, which every comparison and search looks through.
    pub(super) marks: Marks,
}

impl Meter {
    pub(super) fn new(budget: Budget, marks: Marks) -> Rc<Self> {
        Rc::new(Self { steps: Cell::new(budget.steps), bytes: Cell::new(budget.bytes), marks })
    }

    /// Spends steps.
    pub(super) fn step(&self, count: usize) -> Result<(), Trouble> {
        let left = self.steps.get().checked_sub(count as u64).ok_or(Trouble::Steps)?;
        self.steps.set(left);
        Ok(())
    }

    /// Takes bytes, and the steps of filling them.
    pub(super) fn claim(&self, bytes: usize) -> Result<(), Trouble> {
        self.bytes.set(self.bytes.get().checked_sub(bytes).ok_or(Trouble::Memory)?);
        self.step(bytes / BYTES_OF_A_STEP)
    }

    /// Gives bytes back.
    pub(super) fn release(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Refuses what could not be claimed, before it is made. Claims nothing.
    pub(super) fn room(&self, bytes: Option<usize>) -> Result<(), Trouble> {
        bytes.filter(|bytes| *bytes <= self.bytes.get()).map(|_| ()).ok_or(Trouble::Memory)
    }

    pub(super) fn text(self: &Rc<Self>, text: String) -> Result<Value, Trouble> {
        let bytes = text.len();
        self.hold(text.into_boxed_str(), bytes, 0).map(Value::Text)
    }

    /// A value as a text.
    pub(super) fn written(self: &Rc<Self>, value: &Value) -> Result<Value, Trouble> {
        if let Value::Text(_) = value {
            return Ok(value.clone());
        }
        let mut writer = Writer::new(self);
        writer.value(value)?;
        writer.into_value()
    }

    pub(super) fn list(self: &Rc<Self>, items: Vec<Value>) -> Result<Value, Trouble> {
        let depth = items.iter().map(Value::depth).max().unwrap_or(0);
        let bytes = items.capacity() * size_of::<Value>();
        self.hold(items, bytes, depth + 1).map(Value::List)
    }

    pub(super) fn tuple(self: &Rc<Self>, items: Vec<Value>) -> Result<Value, Trouble> {
        let Value::List(items) = self.list(items)? else { return Ok(Value::None) };
        Ok(Value::Tuple(items))
    }

    pub(super) fn map(self: &Rc<Self>, items: Vec<(Value, Value)>) -> Result<Value, Trouble> {
        let depth = items.iter().map(|(key, value)| key.depth().max(value.depth())).max().unwrap_or(0);
        let bytes = items.capacity() * size_of::<(Value, Value)>();
        self.hold(items, bytes, depth + 1).map(Value::Map)
    }

    fn hold<T: ?Sized>(
        self: &Rc<Self>,
        contents: impl Into<Box<T>>,
        bytes: usize,
        depth: usize,
    ) -> Result<Rc<Held<T>>, Trouble> {
        if depth > DEEPEST {
            return Trouble::failed(format!("nests values more than {DEEPEST} deep"));
        }
        let bytes = bytes + OVERHEAD;
        self.claim(bytes)?;
        Ok(Rc::new(Held { contents: contents.into(), depth, bytes, meter: Rc::clone(self) }))
    }
}
