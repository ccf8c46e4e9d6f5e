//! GGUF files cut into parts, as llama.cpp's `gguf-split` writes them.

use std::ops::Range;

/// Returns a whole file in parts: the first has the metadata, and each some of the tensors.
///
/// # Panics
/// If the file is no sound one.
pub fn split(file: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut cursor = Cursor { file, at: 8 };
    let (tensors, keys) = (cursor.number(8), cursor.number(8));
    let first = cursor.at;
    (0..keys).for_each(|_| cursor.key());
    let metadata = &file[first..cursor.at];
    let infos: Vec<Info> = (0..tensors).map(|_| cursor.tensor()).collect();
    let base = cursor.at.next_multiple_of(32);
    let end_of = |offset| infos.iter().map(|info| info.offset).filter(|&next| next > offset).min();
    let data = |info: &Info| &file[base + info.offset..end_of(info.offset).map_or(file.len(), |end| base + end)];
    let share = infos.len().div_ceil(count);
    let part = |(number, infos): (usize, &[Info])| {
        let own = if number == 0 { (keys, metadata) } else { (0, &[][..]) };
        let mut out = file[..8].to_vec();
        out.extend((infos.len() as u64).to_le_bytes());
        out.extend((own.0 as u64 + 3).to_le_bytes());
        out.extend(own.1);
        key(&mut out, "split.no", 2, &(number as u16).to_le_bytes());
        key(&mut out, "split.count", 2, &(count as u16).to_le_bytes());
        key(&mut out, "split.tensors.count", 5, &(tensors as i32).to_le_bytes());
        let mut offset = 0u64;
        for info in infos {
            out.extend(&file[info.head.clone()]);
            out.extend(offset.to_le_bytes());
            offset = (offset + data(info).len() as u64).next_multiple_of(32);
        }
        for info in infos {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(data(info));
        }
        out
    };
    infos.chunks(share).enumerate().map(part).collect()
}

fn key(out: &mut Vec<u8>, name: &str, kind: u32, value: &[u8]) {
    out.extend((name.len() as u64).to_le_bytes());
    out.extend(name.as_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(value);
}

/// The description of a tensor.
struct Info {
    /// Bytes before its offset.
    head: Range<usize>,
    offset: usize,
}

struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn number(&mut self, bytes: usize) -> usize {
        let taken = &self.file[self.at..self.at + bytes];
        self.at += bytes;
        taken.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
    }

    fn text(&mut self) {
        let length = self.number(8);
        self.at += length;
    }

    fn key(&mut self) {
        self.text();
        let kind = self.number(4);
        self.value(kind);
    }

    fn value(&mut self, kind: usize) {
        match kind {
            8 => self.text(),
            9 => {
                let (kind, count) = (self.number(4), self.number(8));
                (0..count).for_each(|_| self.value(kind));
            }
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            10..=12 => self.at += 8,
            _ => self.at += 4,
        }
    }

    fn tensor(&mut self) -> Info {
        let first = self.at;
        self.text();
        let dimensions = self.number(4);
        self.at += 8 * dimensions + 4;
        Info { head: first..self.at, offset: self.number(8) }
    }
}
