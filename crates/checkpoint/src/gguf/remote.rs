//! Descriptions of a GGUF file that is elsewhere, read piece by piece.

use super::{
    names::ROPE_FACTORS,
    reader::{self, LARGEST_DESCRIPTIONS, Refusal},
};

/// Bytes of the first piece.
pub(crate) const FIRST: usize = 1 << 16;

/// Number of the next bytes that a file's descriptions need, after `bytes` of its beginning; nothing if there are enough, or
/// more would not help. With each piece there are 4 times as many.
pub(crate) fn more(bytes: &[u8], size: u64) -> Option<usize> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let most = size.min(LARGEST_DESCRIPTIONS);
    let is_gguf = bytes.starts_with(&b"GGUF"[..bytes.len().min(4)]);
    let enough = || match reader::read(bytes, size) {
        Ok(_) | Err(Refusal::Unsupported(_)) => true,
        Err(Refusal::Damaged(_)) => false,
    };
    (is_gguf && bytes.len() < most && !enough()).then(|| (bytes.len() * 4).min(most) - bytes.len())
}

/// Bytes of tensors that the architecture itself is read from: start and length.
pub(crate) fn wanted(bytes: &[u8], size: u64) -> Option<(usize, usize)> {
    let contents = reader::read(bytes, usize::try_from(size).ok()?).ok()?;
    let tensor = contents.tensors.get(ROPE_FACTORS)?;
    // Half a head has a factor each: more is no such tensor.
    let length = (tensor.end - tensor.start).min(1 << 16);
    (tensor.end > bytes.len()).then_some((tensor.start, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_until_the_descriptions_are_whole() {
        let file = include_bytes!("../../tests/data/tiny.gguf");
        let size = file.len() as u64;
        assert_eq!(more(&file[..1000], size), Some(3000));
        assert_eq!(more(file, size), None);
        // What is no GGUF file is not read to its end.
        assert_eq!(more(b"<!DOCTYPE html>", 1 << 40), None);
        let endless = [b"GGUF\x03\0\0\0".as_slice(), &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        let endless = [endless, (1u64 << 50).to_le_bytes().to_vec()].concat();
        assert_eq!(more(&vec![0; LARGEST_DESCRIPTIONS], 1 << 40), None);
        assert!(more(&endless, 1 << 40).is_some());
    }
}
