//! Block formats against ggml's own definition: blocks and numbers are made by `tools/gguf/make_fixture.py` with the
//! reference package of the format.

use demask_tensor::{BlockFormat, Dtype, TensorView};

/// For each format: its name in 8 bytes, the number of blocks, the blocks, their numbers.
const FIXTURE: &[u8] = include_bytes!("data/blocks.bin");

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, behind) = rest.split_at(count);
    *rest = behind;
    taken
}

#[test]
fn every_format_widens_as_ggml_does() {
    let (mut rest, mut seen) = (FIXTURE, Vec::new());
    while !rest.is_empty() {
        let name = String::from_utf8_lossy(take(&mut rest, 8)).trim_end().to_owned();
        let format = BlockFormat::ALL.into_iter().find(|format| format.to_string() == name).unwrap();
        let count = u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap()) as usize;
        let blocks = take(&mut rest, count * format.bytes());
        let numbers = take(&mut rest, count * format.elements() * 4);
        let expected: Vec<f32> = numbers.chunks(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect();
        // Two blocks in each row.
        let view = TensorView::new(Dtype::Block(format), count / 2, 2 * format.elements(), blocks);
        for (found, expected) in view.to_f32().into_iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{name}: {found}, not {expected}");
        }
        seen.push(format);
    }
    assert_eq!(seen, BlockFormat::ALL);
}
