//! Tables: parquet and CSV, a row an entry.

use demask_checkpoint::guarded;
use parquet::{
    errors::ParquetError,
    file::{reader::FileReader, serialized_reader::SerializedFileReader},
};
use serde_json::{Map, Value};

use super::{DataError, entries::broken};

/// Rows of a parquet file: groups are objects, lists are lists. The codecs are those that the hub writes: none, snappy,
/// gzip.
pub(super) fn parquet(bytes: Vec<u8>, path: &str) -> Result<Vec<Value>, DataError> {
    let read = || -> Result<Vec<Value>, ParquetError> {
        let file = SerializedFileReader::new(bytes::Bytes::from(bytes))?;
        file.get_row_iter(None)?.map(|row| row.map(|row| row.to_json_value())).collect()
    };
    match guarded(read) {
        Some(rows) => rows.map_err(|error| broken(path, "parquet", &error)),
        None => Err(broken(path, "parquet", &"its reader gave up")),
    }
}

/// Rows of a CSV file by the names in its first row.
pub(super) fn csv(bytes: &[u8], path: &str) -> Result<Vec<Value>, DataError> {
    let mut reader = csv::Reader::from_reader(bytes);
    let names = reader.headers().map_err(|error| broken(path, "CSV", &error))?.clone();
    let entry = |row: Result<csv::StringRecord, csv::Error>| {
        let row = row.map_err(|error| broken(path, "CSV", &error))?;
        let fields = names.iter().zip(&row).map(|(name, field)| (name.to_owned(), Value::from(field)));
        Ok(Value::Object(fields.collect::<Map<_, _>>()))
    };
    reader.records().map(entry).collect()
}
