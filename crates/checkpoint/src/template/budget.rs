//! Steps that a template spends on the values that it writes.

use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

/// Most levels of a value that is written.
const DEEPEST: usize = 100;
/// Bytes that one step may write.
const BYTES_OF_A_STEP: usize = 64;

/// Spends the steps of writing a value.
pub(super) fn afford(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        let words = format!("nests values more than {DEEPEST} deep");
        return Err(Error::new(ErrorKind::InvalidOperation, words));
    }
    match value.kind() {
        ValueKind::String => state.consume_fuel((value.as_str().map_or(0, str::len) / BYTES_OF_A_STEP) as u64),
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| {
            state.consume_fuel(1)?;
            afford(state, &item, depth + 1)
        }),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            state.consume_fuel(1)?;
            afford(state, &key, depth + 1)?;
            afford(state, &value.get_item(&key)?, depth + 1)
        }),
        _ => Ok(()),
    }
}
