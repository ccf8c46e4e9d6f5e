//! Any bytes as the stream of events that `demask bench serve` reads: the same messages, however the bytes are torn.
#![no_main]

#[path = "../../crates/cli/src/commands/bench/serve/sse.rs"]
#[allow(dead_code)]
mod sse;

use libfuzzer_sys::fuzz_target;
use sse::{Malformed, Message, Parser};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Message>, Malformed> {
    let (mut parser, mut messages) = (Parser::default(), Vec::new());
    for piece in pieces {
        parser.push(piece, &mut messages)?;
    }
    Ok(messages)
}

fuzz_target!(|input: &[u8]| {
    let Some((size, bytes)) = input.split_first() else { return };
    let whole = read(std::iter::once(bytes));
    assert_eq!(whole, read(bytes.chunks(1 + *size as usize % 32)));
    for message in whole.unwrap_or_default() {
        // A message is what a server would write of it: one line of data for each of its own.
        let written: String = message.data.split('\n').map(|line| format!("data: {line}\n")).collect();
        let again = read(std::iter::once(format!("{written}\n").as_bytes()));
        assert_eq!(again.map(|all| all[0].data.clone()), Ok(message.data));
    }
});
