//! Opens files in the data directory.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::marker::PhantomData;
use std::path::Path;

use flagperf_core::regular_file::open_regular;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::{DataError, DataRoot};

/// Opens a regular file in the data directory.
///
/// # Errors
/// When `path` leads out of the directory, or the file cannot be read.
pub fn open_file(root: &DataRoot, path: &Path) -> Result<File, DataError> {
    open_regular(&root.resolve(path)?).map_err(|error| DataError::unreadable(path, &error))
}

/// Opens a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open_file`], and when the file is larger.
pub fn open_bounded(root: &DataRoot, path: &Path, bytes_max: u64) -> Result<File, DataError> {
    let file = open_file(root, path)?;
    if file.metadata().map_err(|error| DataError::unreadable(path, &error))?.len() > bytes_max {
        return Err(DataError::Invalid { path: path.to_owned(), reason: format!("is larger than {bytes_max} bytes") });
    }
    Ok(file)
}

/// A JSON object. Without this, a struct can also be read from an array, with errors that show the name of the struct.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Parses a JSON file of at most `bytes_max` bytes as a stream: one object. `what` describes the format in errors.
///
/// # Errors
/// As [`open_bounded`], and when the file is not of the format.
pub fn read_json<T: DeserializeOwned>(
    root: &DataRoot,
    path: &Path,
    bytes_max: u64,
    what: &str,
) -> Result<T, DataError> {
    let file = open_bounded(root, path, bytes_max)?;
    let reader = BufReader::with_capacity(1 << 18, file.take(bytes_max));
    let invalid = |error| DataError::Invalid { path: path.to_owned(), reason: format!("is not {what}: {error}") };
    serde_json::from_reader(reader).map(|Object(value)| value).map_err(invalid)
}
