//! Numbers that differ where data differ: to notice a change, not to withstand an attack.

use demask_model::{WeightSource, expected_tensors};
use demask_step::random::mix;

use crate::Opened;

/// That of pieces of data, in order.
pub fn fingerprint(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
    let mut state = 0;
    for piece in pieces {
        let piece = piece.as_ref();
        for word in piece.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            state = mix(state ^ u64::from_le_bytes(bytes));
        }
        // Where a piece ends counts too.
        state = mix(state ^ piece.len() as u64);
    }
    state
}

impl Opened {
    /// That of its architecture and of the first row of every tensor: training changes them all, and nothing else of the
    /// weights has to be read.
    pub fn fingerprint(&self) -> u64 {
        let spec = self.prompter().spec();
        let tensors = expected_tensors(spec).into_iter().filter_map(|tensor| self.source().tensor(tensor.role).ok());
        let rows = tensors.map(|tensor| tensor.row_bytes(0).to_vec());
        fingerprint([format!("{spec:?}").into_bytes()].into_iter().chain(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_border_counts() {
        let whole = fingerprint(["abcdefgh", "i"]);
        for other in [&["abcdefgh", "j"][..], &["abcdefghi"], &["abcdefg", "hi"], &["abcdefgh", "i", ""], &["abcdefgh"]]
        {
            assert_ne!(whole, fingerprint(other));
        }
        assert_eq!(whole, fingerprint(["abcdefgh".to_owned(), "i".to_owned()]));
    }

    #[test]
    fn models_differ() {
        let demo = Opened::demo().unwrap();
        let tiny = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ckpt/tiny-llada");
        let tiny = Opened::open(demask_checkpoint::ModelFiles::directory(tiny).unwrap()).unwrap();
        assert_ne!(demo.fingerprint(), tiny.fingerprint());
        assert_eq!(demo.fingerprint(), Opened::demo().unwrap().fingerprint());
    }
}
