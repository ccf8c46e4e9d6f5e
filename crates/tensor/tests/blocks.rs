//! Block formats against ggml's own definition: blocks and numbers are made by `tools/gguf/make_fixture.py` with the
//! reference package of the format.

use demask_tensor::{BlockFormat, BlockParts, Dtype, TensorView};

/// Expected numbers, by format: its name in 8 bytes, the number of blocks, the blocks, their numbers.
const FIXTURE: &[u8] = include_bytes!("data/blocks.bin");

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, behind) = rest.split_at(count);
    *rest = behind;
    taken
}

/// Each format with its blocks and their numbers.
fn fixture() -> Vec<(BlockFormat, &'static [u8], Vec<f32>)> {
    let (mut rest, mut all) = (FIXTURE, Vec::new());
    while !rest.is_empty() {
        let name = String::from_utf8_lossy(take(&mut rest, 8)).trim_end().to_owned();
        let format = BlockFormat::ALL.into_iter().find(|format| format.to_string() == name).unwrap();
        let count = u32::from_le_bytes(take(&mut rest, 4).try_into().unwrap()) as usize;
        let blocks = take(&mut rest, count * format.bytes());
        let numbers = take(&mut rest, count * format.elements() * 4).chunks(4);
        all.push((format, blocks, numbers.map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()));
    }
    all
}

#[test]
fn every_format_widens_as_ggml_does_to_the_bit() {
    for (format, blocks, expected) in fixture() {
        // Two blocks in each row.
        let rows = blocks.len() / format.bytes() / 2;
        let view = TensorView::new(Dtype::Block(format), rows, 2 * format.elements(), blocks);
        for (index, (found, expected)) in view.to_f32().into_iter().zip(expected).enumerate() {
            assert_eq!(found.to_bits(), expected.to_bits(), "{format} {index}: {found}, not {expected}");
        }
    }
    assert_eq!(fixture().iter().map(|(format, ..)| *format).collect::<Vec<_>>(), BlockFormat::ALL);
}

/// The number `index` of a block by its parts.
fn number(format: BlockFormat, parts: &BlockParts, index: usize) -> f32 {
    let [scale, minimum] = parts.halves.map(|bits| half::f16::from_bits(bits).to_f32());
    let (integer, part) = (f32::from(parts.integers[index]), index / 32);
    let signed = f32::from(parts.integers[index] as i8);
    match format {
        BlockFormat::Q4_1 | BlockFormat::Q5_1 => scale * integer - minimum,
        BlockFormat::Iq4Xs => scale * f32::from(parts.scales[index / 16] as i8) * signed,
        BlockFormat::Q8_0 => scale * signed,
        BlockFormat::Q4_0 => scale * (integer - 8.0),
        BlockFormat::Q5_0 => scale * (integer - 16.0),
        BlockFormat::Q6K => scale * f32::from(parts.scales[index / 16] as i8) * (integer - 32.0),
        _ => scale * f32::from(parts.scales[part]) * integer - minimum * f32::from(parts.minima[part]),
    }
}

#[test]
fn parts_make_the_same_numbers_to_the_bit() {
    for (format, blocks, _) in fixture() {
        // Two formats have room in none, and are widened.
        let Some(kept) = format.parts_as() else {
            assert!(matches!(format, BlockFormat::Q2K | BlockFormat::Mxfp4));
            continue;
        };
        assert_eq!((kept.elements(), kept.parts_as()), (format.elements(), Some(kept)));
        let (mut parts, mut wide) = (BlockParts::ZERO, vec![0.0; format.elements()]);
        for block in blocks.chunks(format.bytes()) {
            format.widen(block, &mut wide);
            format.take_apart(block, &mut parts);
            for (index, value) in wide.iter().enumerate() {
                assert_eq!(value.to_bits(), number(kept, &parts, index).to_bits(), "{format} {index}");
            }
        }
    }
}
