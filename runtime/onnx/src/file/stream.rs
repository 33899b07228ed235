//! The bytes of a model, written as they are made: one weight in memory at a time.
//!
//! A protobuf message is preceded by its length, so lengths are added up first, without any weight's bytes.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::proto::{GRAPH, GraphProto, INITIALIZER, ModelProto, RAW_DATA, TensorProto};

/// An initializer on its way: all but its bytes, and how many those are (`None`: they are elsewhere).
pub(super) struct Pending {
    pub(super) header: TensorProto,
    pub(super) raw: Option<usize>,
}

impl Pending {
    pub(super) fn name(&self) -> &str {
        self.header.name.as_deref().unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.header.encoded_len() + self.raw.map_or(0, |raw| delimited(RAW_DATA, raw))
    }
}

/// Writes the model around its initializers; `elements` gives those of the one of a name.
///
/// # Errors
/// When writing fails or `elements` does.
pub(super) fn write<E: From<io::Error>>(
    out: &mut impl Write,
    model: &ModelProto,
    graph: &GraphProto,
    initializers: &[Pending],
    mut elements: impl FnMut(&str) -> Result<crate::Tensor, E>,
) -> Result<(), E> {
    out.write_all(&model.encode_to_vec())?;
    let initializer_bytes: usize = initializers.iter().map(|pending| delimited(INITIALIZER, pending.len())).sum();
    begin(out, GRAPH, graph.encoded_len() + initializer_bytes)?;
    out.write_all(&graph.encode_to_vec())?;
    for pending in initializers {
        begin(out, INITIALIZER, pending.len())?;
        out.write_all(&pending.header.encode_to_vec())?;
        if let Some(raw) = pending.raw {
            begin(out, RAW_DATA, raw)?;
            out.write_all(elements(pending.name())?.bytes())?;
        }
    }
    Ok(())
}

/// Bytes of a field of `length` bytes with its key and length.
fn delimited(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

fn begin(out: &mut impl Write, field: u32, length: usize) -> io::Result<()> {
    let mut start = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut start);
    encode_varint(length as u64, &mut start);
    out.write_all(&start)
}
