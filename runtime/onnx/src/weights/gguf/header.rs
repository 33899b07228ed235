//! The header of a GGUF file: its metadata, and the description of each tensor.
//!
//! Every number is checked before it is used. Knows nothing about the bytes of tensors.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::{MAGIC, names};

/// Limits of a header: that of a vocabulary of 256,000 tokens has about 15 MiB.
const HEADER_BYTES: usize = 64 << 20;
const TENSORS_MAX: u64 = 1 << 20;
const ENTRIES_MAX: u64 = 1 << 20;
const NAME_BYTES: usize = 1024;
/// The most dimensions of a tensor, which is ggml's own limit.
const RANK: u32 = 4;

/// Numbers of the types of metadata: floating-point numbers, and those that are more than a number.
pub(super) const F32: u32 = 6;
pub(super) const F64: u32 = 12;
pub(super) const TEXT: u32 = 8;
pub(super) const LIST: u32 = 9;

/// For keys of transformers' `config.json`, the name and the value of the metadata with the same meaning.
pub(super) type Configuration = HashMap<&'static str, (&'static str, Json)>;

/// The metadata that the tensors depend on.
pub(super) struct Metadata<'a> {
    pub architecture: &'a [u8],
    pub alignment: u64,
    pub configuration: Configuration,
}

impl Metadata<'_> {
    /// Returns the number of heads under a key of transformers.
    pub(super) fn heads(&self, key: &str) -> Option<u64> {
        self.configuration.get(key)?.1.as_u64()
    }
}

/// A value of the metadata.
enum Value<'a> {
    Integer(u64),
    Float(f64),
    Text(&'a [u8]),
    Other,
}

impl Value<'_> {
    /// Returns the value as `config.json` would have it, if it is a number or text.
    fn to_json(&self) -> Option<Json> {
        match self {
            Value::Integer(number) => Some(Json::from(*number)),
            Value::Float(number) => serde_json::Number::from_f64(*number).map(Json::Number),
            Value::Text(b"none") => Some(Json::Null),
            Value::Text(text) => Some(Json::from(String::from_utf8_lossy(text))),
            Value::Other => None,
        }
    }
}

/// The description of a tensor.
pub(super) struct Description<'a> {
    pub name: &'a str,
    pub shape: Vec<usize>,
    pub kind: u32,
    pub offset: u64,
}

/// Reads the header of a file up to the descriptions of its tensors, and returns the number of these.
pub(super) fn read_metadata(file: &[u8]) -> Result<(Header<'_>, u64, Metadata<'_>), String> {
    let mut header = Header { bytes: &file[..file.len().min(HEADER_BYTES)], at: MAGIC.len() };
    check_version(header.u32()?)?;
    let (count, entries) = (header.u64()?, header.u64()?);
    for (what, count, most) in [("tensors", count, TENSORS_MAX), ("entries of metadata", entries, ENTRIES_MAX)] {
        if count > most {
            return Err(format!("it has {count} {what} by its header (at most {most})"));
        }
    }
    let metadata = header.metadata(entries)?;
    Ok((header, count, metadata))
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        2 | 3 => Ok(()),
        _ if matches!(version.swap_bytes(), 1..=3) => Err("it is big-endian (supported: little-endian)".to_owned()),
        _ => Err(format!("its version is {version} (supported: 2 and 3)")),
    }
}

/// Reads the header from the beginning to its end.
pub(super) struct Header<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Header<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            let (at, length) = (self.at, self.bytes.len());
            let limit = if length == HEADER_BYTES { " or the limit" } else { "" };
            format!("its header needs {count} bytes at {at}, beyond the end of the file{limit} at {length}")
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(little_endian(self.take(4)?) as u32)
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(little_endian(self.take(8)?))
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let length = self.u64()?;
        self.take(length)
    }

    fn metadata(&mut self, entries: u64) -> Result<Metadata<'a>, String> {
        let mut metadata = Metadata { architecture: b"", alignment: 32, configuration: HashMap::new() };
        for _ in 0..entries {
            let key = self.text()?;
            let name = || String::from_utf8_lossy(&key[..key.len().min(NAME_BYTES)]);
            let kind = self.u32()?;
            let value = self.value(kind).map_err(|reason| format!("metadata `{}`: {reason}", name()))?;
            let unsupported = || format!("metadata `{}` has an unsupported value", name());
            if let Some((name, meaning)) = names::CONFIGURATION.iter().find(|(name, _)| name.as_bytes() == key) {
                metadata.configuration.insert(meaning, (name, value.to_json().ok_or_else(unsupported)?));
            }
            match (key, value) {
                (b"general.architecture", Value::Text(text)) => metadata.architecture = text,
                (b"general.alignment", Value::Integer(bytes)) if bytes.is_power_of_two() && bytes <= 1 << 31 => {
                    metadata.alignment = bytes;
                }
                (b"split.count", Value::Integer(0 | 1)) => {}
                (b"split.count", Value::Integer(parts)) => {
                    return Err(format!("it is one of {parts} parts of a model (join them with `llama-gguf-split`)"));
                }
                (b"general.architecture" | b"general.alignment" | b"split.count", _) => return Err(unsupported()),
                _ => {}
            }
        }
        Ok(metadata)
    }

    fn value(&mut self, kind: u32) -> Result<Value<'a>, String> {
        match kind {
            TEXT => return Ok(Value::Text(self.text()?)),
            LIST => {
                let (kind, count) = (self.u32()?, self.u64()?);
                match kind {
                    TEXT => (0..count).try_for_each(|_| self.text().map(drop))?,
                    LIST => return Err("a list of lists is not supported".to_owned()),
                    kind => drop(self.take(count.saturating_mul(number_size(kind)?))?),
                }
                return Ok(Value::Other);
            }
            _ => {}
        }
        let bytes = self.take(number_size(kind)?)?;
        let bits = little_endian(bytes);
        Ok(match kind {
            F32 => Value::Float(decimal(f32::from_bits(bits as u32))),
            F64 => Value::Float(f64::from_bits(bits)),
            kind if is_integer(kind) => Value::Integer(bits),
            _ => Value::Other,
        })
    }

    pub(super) fn description(&mut self) -> Result<Description<'a>, String> {
        let name = self.text()?;
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES);
        let name =
            name.ok_or_else(|| format!("the name of a tensor is not UTF-8 text of at most {NAME_BYTES} bytes"))?;
        let rank = self.u32()?;
        if rank > RANK {
            return Err(format!("tensor `{name}`: it has {rank} dimensions (at most {RANK})"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            let size = self.u64()?;
            shape.push(usize::try_from(size).map_err(|_| format!("tensor `{name}`: its size {size} is too large"))?);
        }
        shape.reverse();
        Ok(Description { name, shape, kind: self.u32()?, offset: self.u64()? })
    }
}

/// Returns the size of a number of the metadata.
fn number_size(kind: u32) -> Result<u64, String> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(format!("unknown type {kind} of a value")),
    }
}

/// Returns the shortest decimal number that becomes `number` in f32: the file has 1e-5 as 9.99999974737875e-6.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::NAN)
}

fn is_integer(kind: u32) -> bool {
    matches!(kind, 0..=5 | 10 | 11)
}

/// Returns the number of up to eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
