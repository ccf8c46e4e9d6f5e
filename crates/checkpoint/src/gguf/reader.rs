//! The container: keys with values, descriptions of tensors, then the data. Everything is checked against the size of
//! the file before it is used, and nothing is allocated because the file says so.

use std::{collections::HashMap, str};

use demask_tensor::{BlockFormat, Dtype};

use crate::error::quoted;

const MAGIC: &[u8] = b"GGUF";

/// Alignment of tensors where the file does not say.
const ALIGNMENT: u64 = 32;

// Limits that no file of a model comes near; beyond them a file is damaged.
const MOST_KEYS: u64 = 1 << 16;
pub(super) const MOST_TENSORS: u64 = 1 << 16;
const LONGEST_NAME: usize = 1 << 16;
const MOST_DIMENSIONS: u32 = 4;
const DEEPEST_ARRAY: usize = 4;
const LARGEST_ALIGNMENT: u64 = 1 << 20;
/// Bytes of everything before the tensors' data. All copies of texts and lists come from there.
pub(super) const LARGEST_DESCRIPTIONS: usize = 64 << 20;

/// Number of texts among the types of values.
const TEXT: u32 = 8;
/// Numbers of those that are whole numbers.
const WHOLE: [u32; 8] = [0, 1, 2, 3, 4, 5, 10, 11];

/// A value of the metadata.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(&'a str),
    Array(Array<'a>),
}

/// A list of the metadata, checked and not decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Array<'a> {
    kind: u32,
    count: u64,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// The elements in order, if all are texts; none is copied.
    pub(super) fn texts(self) -> Option<impl Iterator<Item = &'a str>> {
        let text = |value| if let Value::Text(text) = value { Some(text) } else { None };
        (self.kind == TEXT).then(|| self.values().filter_map(text))
    }

    /// The elements in order, if all are whole numbers; signs are dropped.
    pub(super) fn magnitudes(self) -> Option<impl Iterator<Item = u64>> {
        let magnitude = |value| match value {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => Some(number.unsigned_abs()),
            _ => None,
        };
        WHOLE.contains(&self.kind).then(|| self.values().filter_map(magnitude))
    }

    /// The list was walked when it was read, so that none is missing.
    fn values(self) -> impl Iterator<Item = Value<'a>> {
        let (mut cursor, kind) = (Cursor { bytes: self.bytes, size: self.bytes.len(), at: 0 }, self.kind);
        (0..self.count).map_while(move |_| cursor.value(kind, 0).ok())
    }
}

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub dtype: Dtype,
    /// Dimensions, slowest first.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
    /// Number of the file among those of the model.
    pub part: usize,
}

/// Description of a whole file.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    pub values: HashMap<&'a str, Value<'a>>,
    pub tensors: HashMap<&'a str, Tensor>,
}

/// Reason that a file is not read.
pub(super) enum Refusal {
    /// It is not whole, or not in the format: the finding and the expectation.
    Damaged(String),
    /// It is sound, and has something that is not computed here.
    Unsupported(String),
}

impl From<String> for Refusal {
    fn from(detail: String) -> Self {
        Self::Damaged(detail)
    }
}

/// Reads and checks the descriptions of a file of a size, which begins with these bytes.
pub(super) fn read(bytes: &[u8], size: usize) -> Result<Contents<'_>, Refusal> {
    let mut cursor = Cursor { bytes, size, at: 0 };
    let (tensors, keys) = cursor.head()?;
    let values = cursor.values(keys)?;
    let alignment = alignment(&values)?;
    let infos = (0..tensors).map(|_| cursor.tensor()).collect::<Result<Vec<_>, Refusal>>()?;
    // Padding behind the descriptions; a file without tensors may end before it.
    let base = (cursor.at as u64).next_multiple_of(alignment);
    let tensors = place(infos, base, alignment, size as u64)?;
    refuse_overlaps(&tensors)?;
    Ok(Contents { values, tensors })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    /// Bytes of the whole file.
    size: usize,
    at: usize,
}

/// A description as it stands in the file.
struct Info<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: Vec<u64>,
    offset: u64,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        // The file can be of any size; what is described must not.
        let left = self.bytes.len().min(LARGEST_DESCRIPTIONS) - self.at;
        if count > left as u64 && self.size > LARGEST_DESCRIPTIONS {
            return Err(format!("its descriptions are longer than {LARGEST_DESCRIPTIONS} bytes"));
        }
        let count = usize::try_from(count).ok().filter(|&count| count <= left).ok_or_else(|| {
            format!("it is cut off: at byte {} something of {count} bytes should follow, {left} do", self.at)
        })?;
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let at = self.at;
        let length = self.u64()?;
        str::from_utf8(self.take(length)?).map_err(|_| format!("the text at byte {at} is not UTF-8"))
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let at = self.at;
        let name = self.text()?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            let length = name.len();
            return Err(format!("the name at byte {at} has {length} bytes, expected 1 to {LONGEST_NAME}"));
        }
        Ok(name)
    }

    /// Counts of tensors and of keys.
    fn head(&mut self) -> Result<(u64, u64), String> {
        let magic = self.take(4)?;
        if magic != MAGIC {
            return Err(format!("it starts with the bytes {magic:02x?}, expected the letters GGUF"));
        }
        let version = self.u32()?;
        if !matches!(version, 2 | 3) {
            let order = if version.swap_bytes() <= 3 { ", which is one of a big-endian machine" } else { "" };
            return Err(format!("its version is {version}{order}, expected 2 or 3"));
        }
        let (tensors, keys) = (self.u64()?, self.u64()?);
        if tensors > MOST_TENSORS || keys > MOST_KEYS {
            return Err(format!(
                "it claims {tensors} tensors and {keys} keys, expected at most {MOST_TENSORS} and {MOST_KEYS}"
            ));
        }
        Ok((tensors, keys))
    }

    fn values(&mut self, count: u64) -> Result<HashMap<&'a str, Value<'a>>, String> {
        let mut values = HashMap::new();
        for _ in 0..count {
            let name = self.name()?;
            let kind = self.u32()?;
            let value = self.value(kind, 0).map_err(|error| format!("the key {}: {error}", quoted(name)))?;
            if values.insert(name, value).is_some() {
                return Err(format!("the key {} is there twice", quoted(name)));
            }
        }
        Ok(values)
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value<'a>, String> {
        Ok(match kind {
            0 => Value::Unsigned(self.array::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => Value::Flag(self.flag()?),
            TEXT => Value::Text(self.text()?),
            9 => Value::Array(self.list(depth)?),
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("its value has the type {other}, expected 0 to 12")),
        })
    }

    fn flag(&mut self) -> Result<bool, String> {
        match self.array::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("its value is {other}, expected 0 or 1")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Array<'a>, String> {
        if depth == DEEPEST_ARRAY {
            return Err(format!("its lists are nested, expected at most {DEEPEST_ARRAY} deep"));
        }
        let (kind, count) = (self.u32()?, self.u64()?);
        let start = self.at;
        if let Some(size) = fixed_size(kind) {
            let bytes = count.checked_mul(size).ok_or_else(|| format!("its list claims {count} elements"))?;
            self.take(bytes)?;
        }
        // Flags, texts and lists are walked, for not every byte is one: each takes a byte at least, so that a count
        // beyond the file ends with it.
        if fixed_size(kind).is_none() {
            for _ in 0..count {
                self.value(kind, depth + 1)?;
            }
        }
        Ok(Array { kind, count, bytes: &self.bytes[start..self.at] })
    }

    fn tensor(&mut self) -> Result<Info<'a>, Refusal> {
        let name = self.name()?;
        let dimensions = self.u32()?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            let name = quoted(name);
            let found = format!("the tensor {name} has {dimensions} dimensions, expected 1 to {MOST_DIMENSIONS}");
            return Err(found.into());
        }
        let mut shape = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<_>, String>>()?;
        // The file lists the fastest first.
        shape.reverse();
        let kind = self.u32()?;
        let dtype = dtype(kind).map_err(|refusal| refusal.of_tensor(name))?;
        Ok(Info { name, dtype, shape, offset: self.u64()? })
    }
}

/// Bytes of an element whose every bit pattern is a value.
fn fixed_size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Types of tensors by their numbers in files.
const TYPES: [(u32, Dtype); 18] = [
    (0, Dtype::F32),
    (1, Dtype::F16),
    (30, Dtype::Bf16),
    (2, Dtype::Block(BlockFormat::Q4_0)),
    (3, Dtype::Block(BlockFormat::Q4_1)),
    (6, Dtype::Block(BlockFormat::Q5_0)),
    (7, Dtype::Block(BlockFormat::Q5_1)),
    (8, Dtype::Block(BlockFormat::Q8_0)),
    (10, Dtype::Block(BlockFormat::Q2K)),
    (11, Dtype::Block(BlockFormat::Q3K)),
    (12, Dtype::Block(BlockFormat::Q4K)),
    (13, Dtype::Block(BlockFormat::Q5K)),
    (14, Dtype::Block(BlockFormat::Q6K)),
    (20, Dtype::Block(BlockFormat::Iq4Nl)),
    (23, Dtype::Block(BlockFormat::Iq4Xs)),
    (34, Dtype::Block(BlockFormat::Tq1_0)),
    (35, Dtype::Block(BlockFormat::Tq2_0)),
    (39, Dtype::Block(BlockFormat::Mxfp4)),
];

/// Names of the types that are not read: codebooks, what programs use on the way, orders of one processor, numbers that are no
/// weights.
const UNREAD: [(u32, &str); 22] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

/// Largest number that a type may have one day; beyond it a file is damaged.
const LAST_TYPE: u32 = 255;

/// Type of a tensor by its number, or why it is not read.
fn dtype(kind: u32) -> Result<Dtype, Refusal> {
    if let Some((_, dtype)) = TYPES.iter().find(|(known, _)| *known == kind) {
        return Ok(*dtype);
    }
    let name = UNREAD.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
    match name {
        Some(name) => Err(Refusal::Unsupported(format!("the type {name}"))),
        None if kind <= LAST_TYPE => Err(Refusal::Unsupported(format!("the type with the number {kind}"))),
        None => Err(Refusal::Damaged(format!("has the type {kind}, expected at most {LAST_TYPE}"))),
    }
}

impl Refusal {
    /// The same, of a tensor.
    fn of_tensor(self, name: &str) -> Self {
        match self {
            Self::Damaged(detail) => Self::Damaged(format!("the tensor {} {detail}", quoted(name))),
            Self::Unsupported(what) => Self::Unsupported(format!("{what} of the tensor {}", quoted(name))),
        }
    }
}

fn alignment(values: &HashMap<&str, Value<'_>>) -> Result<u64, String> {
    match values.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Value::Unsigned(found)) if found.is_power_of_two() && *found <= LARGEST_ALIGNMENT => Ok(*found),
        Some(_) => Err(format!("\"general.alignment\" is not a power of two up to {LARGEST_ALIGNMENT}")),
    }
}

fn place(infos: Vec<Info<'_>>, base: u64, alignment: u64, size: u64) -> Result<HashMap<&str, Tensor>, String> {
    let mut tensors = HashMap::new();
    for info in infos {
        let name = info.name;
        let tensor = placed(info, base, alignment, size)?;
        if tensors.insert(name, tensor).is_some() {
            return Err(format!("the tensor {} is there twice", quoted(name)));
        }
    }
    Ok(tensors)
}

fn placed(info: Info<'_>, base: u64, alignment: u64, size: u64) -> Result<Tensor, String> {
    let Info { name, dtype, shape, offset } = info;
    if !offset.is_multiple_of(alignment) {
        return Err(format!("the tensor {} starts at {offset}, expected a multiple of {alignment}", quoted(name)));
    }
    let columns = shape.last().copied().unwrap_or_default();
    let row = usize::try_from(columns).ok().and_then(|columns| dtype.row_bytes(columns)).ok_or_else(|| {
        let granularity = dtype.granularity();
        format!("the tensor {} has rows of {columns} in {dtype}, expected a multiple of {granularity}", quoted(name))
    })?;
    let rows = shape.iter().rev().skip(1).try_fold(1u64, |product, &dimension| product.checked_mul(dimension));
    let length = rows.and_then(|rows| rows.checked_mul(row as u64));
    let start = base.checked_add(offset);
    let end = start.zip(length).and_then(|(start, length)| start.checked_add(length));
    let (Some(start), Some(end)) = (start, end) else {
        return Err(format!("the tensor {} is larger than any file", quoted(name)));
    };
    if end > size {
        let name = quoted(name);
        return Err(format!("it is cut off: the tensor {name} ends at byte {end}, the file has {size}"));
    }
    // Both fit: they are at most the length of the file.
    Ok(Tensor { dtype, shape, start: start as usize, end: end as usize, part: 0 })
}

fn refuse_overlaps(tensors: &HashMap<&str, Tensor>) -> Result<(), String> {
    let mut order: Vec<_> = tensors.iter().filter(|(_, tensor)| tensor.start < tensor.end).collect();
    order.sort_by_key(|(name, tensor)| (tensor.start, tensor.end, **name));
    for pair in order.windows(2) {
        if pair[1].1.start < pair[0].1.end {
            return Err(format!("the tensors {} and {} overlap", quoted(pair[0].0), quoted(pair[1].0)));
        }
    }
    Ok(())
}
