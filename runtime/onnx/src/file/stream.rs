//! Writes the bytes of a model as a stream, with one weight in memory at a time.
//!
//! The length of a protobuf message precedes it, so lengths are summed first, without the bytes of weights.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::proto::{GRAPH, GraphProto, INITIALIZER, ModelProto, RAW_DATA, TensorProto};

/// An initializer whose bytes are not yet written: its message without the bytes, and their number (`None` when they
/// are stored in a data file).
pub(super) struct PendingInitializer {
    pub(super) header: TensorProto,
    pub(super) raw: Option<usize>,
}

impl PendingInitializer {
    pub(super) fn name(&self) -> &str {
        self.header.name.as_deref().unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.header.encoded_len() + self.raw.map_or(0, |raw| delimited_len(RAW_DATA, raw))
    }
}

/// Writes the model and its initializers. `elements` returns the tensor of the initializer with a given name.
///
/// # Errors
/// When writing or `elements` fails.
pub(super) fn write<E: From<io::Error>>(
    out: &mut impl Write,
    model: &ModelProto,
    graph: &GraphProto,
    initializers: &[PendingInitializer],
    mut elements: impl FnMut(&str) -> Result<crate::Tensor, E>,
) -> Result<(), E> {
    out.write_all(&model.encode_to_vec())?;
    let initializer_bytes: usize = initializers.iter().map(|pending| delimited_len(INITIALIZER, pending.len())).sum();
    write_field_header(out, GRAPH, graph.encoded_len() + initializer_bytes)?;
    out.write_all(&graph.encode_to_vec())?;
    for pending in initializers {
        write_field_header(out, INITIALIZER, pending.len())?;
        out.write_all(&pending.header.encode_to_vec())?;
        if let Some(raw) = pending.raw {
            write_field_header(out, RAW_DATA, raw)?;
            out.write_all(elements(pending.name())?.bytes())?;
        }
    }
    Ok(())
}

/// Returns the number of bytes of a field with a value of `length` bytes, including its key and length.
fn delimited_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

fn write_field_header(out: &mut impl Write, field: u32, length: usize) -> io::Result<()> {
    let mut start = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut start);
    encode_varint(length as u64, &mut start);
    out.write_all(&start)
}
