//! The header of a safetensors file: 8 bytes of length, that many bytes of JSON, then the data. Everything in it is
//! checked against the size of the file before a byte of data is touched.

use std::{collections::HashMap, fmt};

use demask_tensor::Bytes;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::{
    CheckpointError,
    error::{one_line, quoted},
};

/// Largest header that is read, as in the format's own library.
const LARGEST_HEADER: u64 = 100_000_000;

/// Most tensors of a checkpoint, over all of its files: as for GGUF files, 50 times those of the largest dense models.
pub(crate) const MOST_TENSORS: usize = 1 << 16;

// What is kept of each tensor is small, whatever its header says.
const LONGEST_NAME: usize = 1024;
const LONGEST_TYPE: usize = 64;
const MOST_DIMENSIONS: usize = 8;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    /// Type, in the words of the format.
    pub dtype: String,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// First byte in the file.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
}

#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Dimensions,
    data_offsets: [u64; 2],
}

/// A shape; more dimensions than any tensor has are an error before they are kept.
struct Dimensions(Vec<u64>);

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Dimensions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST_DIMENSIONS} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Dimensions, A::Error> {
                let mut shape = Vec::new();
                while let Some(dimension) = list.next_element()? {
                    if shape.len() == MOST_DIMENSIONS {
                        return Err(de::Error::invalid_length(shape.len() + 1, &self));
                    }
                    shape.push(dimension);
                }
                Ok(Dimensions(shape))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

/// The header's object; a name that occurs twice is an error, for either could be meant.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries: Vec<(String, Entry)> = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let wrong =
                        |what: &dyn fmt::Display| de::Error::custom(format_args!("tensor {}: {what}", quoted(&name)));
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else if entries.len() == MOST_TENSORS {
                        return Err(wrong(&format_args!("it is one of more than {MOST_TENSORS}")));
                    } else if name.len() > LONGEST_NAME {
                        return Err(wrong(&format_args!("its name has more than {LONGEST_NAME} bytes")));
                    } else {
                        let entry: Entry = map.next_value().map_err(|error| wrong(&error))?;
                        if entry.dtype.len() > LONGEST_TYPE {
                            return Err(wrong(&format_args!("its type has more than {LONGEST_TYPE} bytes")));
                        }
                        entries.push((name, entry));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Checks the header of a whole safetensors file and returns the number of its tensors; `file` is its name for
/// messages.
pub fn check_safetensors(bytes: &[u8], file: &str) -> Result<usize, CheckpointError> {
    read(&Bytes::owned(bytes.to_vec()), file).map(|tensors| tensors.len())
}

/// Reads and checks the header of a whole file.
pub(crate) fn read(bytes: &Bytes, file: &str) -> Result<HashMap<String, TensorInfo>, CheckpointError> {
    let broken = |detail| CheckpointError::Safetensors { file: file.to_owned(), detail };
    let size = bytes.len() as u64;
    let length = header_length(&bytes.get(0..8.min(bytes.len()))?, size).map_err(broken)?;
    let header = bytes.get(8..8 + length as usize)?;
    read_header(&header, size).map_err(broken)
}

/// Length of the header of a file of a size, by the first bytes of the file.
pub(crate) fn header_length(first: &[u8], size: u64) -> Result<u64, String> {
    let prefix = first
        .first_chunk::<8>()
        .ok_or_else(|| format!("it has {size} bytes, expected at least the 8 of the header's length"))?;
    let length = u64::from_le_bytes(*prefix);
    if length > LARGEST_HEADER {
        return Err(format!("its header claims {length} bytes, expected at most {LARGEST_HEADER}"));
    }
    if length > size - 8 {
        return Err(format!("its header claims {length} bytes, but the file has only {size}"));
    }
    Ok(length)
}

fn read_header(header: &[u8], size: u64) -> Result<HashMap<String, TensorInfo>, String> {
    let length = header.len() as u64;
    let entries: Entries = serde_json::from_slice(header)
        .map_err(|error| format!("its header is not the JSON that was expected ({})", one_line(error)))?;
    let data = size - 8 - length;
    let mut tensors = HashMap::with_capacity(entries.0.len());
    for (name, entry) in entries.0 {
        let info = locate(&name, entry, 8 + length, data)?;
        if tensors.insert(name.clone(), info).is_some() {
            return Err(format!("the tensor {} occurs twice", quoted(&name)));
        }
    }
    refuse_overlaps(&tensors)?;
    Ok(tensors)
}

/// Checks one tensor against the data section, which starts at `base` and has `data` bytes.
fn locate(name: &str, entry: Entry, base: u64, data: u64) -> Result<TensorInfo, String> {
    let [start, end] = entry.data_offsets;
    if start > end {
        return Err(format!("the tensor {} starts at {start} and ends before, at {end}", quoted(name)));
    }
    if end > data {
        return Err(format!("it is cut off: the tensor {} ends at byte {end}, the data at {data}", quoted(name)));
    }
    if let Some(bits) = bits(&entry.dtype) {
        let elements = entry.shape.0.iter().try_fold(1u64, |product, &dimension| product.checked_mul(dimension));
        let expected = elements.and_then(|count| count.checked_mul(bits)).map(|bits| bits.div_ceil(8));
        if expected != Some(end - start) {
            let found = end - start;
            return Err(format!("the tensor {} has {found} bytes, which is not what its shape needs", quoted(name)));
        }
    }
    // Both fit: they are at most the length of the file.
    Ok(TensorInfo {
        dtype: entry.dtype,
        shape: entry.shape.0,
        start: (base + start) as usize,
        end: (base + end) as usize,
    })
}

fn refuse_overlaps(tensors: &HashMap<String, TensorInfo>) -> Result<(), String> {
    let mut order: Vec<_> = tensors.iter().filter(|(_, info)| info.start < info.end).collect();
    order.sort_by_key(|(name, info)| (info.start, info.end, *name));
    for pair in order.windows(2) {
        if pair[1].1.start < pair[0].1.end {
            return Err(format!("the tensors {} and {} overlap", quoted(pair[0].0), quoted(pair[1].0)));
        }
    }
    Ok(())
}

/// Bits of one element; nothing for types newer than this program, whose size cannot be checked.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}
