//! Converts attributes between the graph and the file.
//!
//! Knows nothing about operators.

use prost::Message;

use super::initializer;
use super::proto::{AttributeProto, GraphProto, kind};
use crate::Attribute;

/// Converts an attribute to its protobuf message.
pub(super) fn encode(name: &str, attribute: &Attribute) -> AttributeProto {
    if let Attribute::Encoded(bytes) = attribute {
        return AttributeProto::decode(bytes.as_slice()).unwrap_or_default();
    }
    let mut proto = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
    proto.kind = Some(match attribute {
        Attribute::Int(value) => {
            proto.i = Some(*value);
            kind::INT
        }
        Attribute::Float(value) => {
            proto.f = Some(*value);
            kind::FLOAT
        }
        Attribute::String(value) => {
            proto.s = Some(value.clone().into_bytes());
            kind::STRING
        }
        Attribute::Ints(values) => {
            proto.ints.clone_from(values);
            kind::INTS
        }
        Attribute::Floats(values) => {
            proto.floats.clone_from(values);
            kind::FLOATS
        }
        Attribute::Strings(values) => {
            proto.strings = values.iter().map(|value| value.clone().into_bytes()).collect();
            kind::STRINGS
        }
        Attribute::Tensor(tensor) => {
            proto.t = Some(initializer::encode_tensor("", tensor));
            kind::TENSOR
        }
        Attribute::Encoded(_) => return proto,
    });
    proto
}

/// Converts a protobuf message to an attribute. An attribute of an unsupported kind stays encoded.
///
/// # Errors
/// When a tensor in it is malformed.
pub(super) fn decode(proto: &AttributeProto) -> Result<Attribute, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let attribute = match proto.kind {
        Some(kind::INT) => proto.i.map(Attribute::Int),
        Some(kind::FLOAT) => proto.f.map(Attribute::Float),
        Some(kind::STRING) => proto.s.as_deref().and_then(text).map(Attribute::String),
        Some(kind::INTS) => Some(Attribute::Ints(proto.ints.clone())),
        Some(kind::FLOATS) => Some(Attribute::Floats(proto.floats.clone())),
        Some(kind::STRINGS) => {
            proto.strings.iter().map(|bytes| text(bytes)).collect::<Option<_>>().map(Attribute::Strings)
        }
        Some(kind::TENSOR) => match &proto.t {
            Some(tensor) => initializer::decode_tensor(tensor)?.map(Attribute::Tensor),
            None => None,
        },
        _ => None,
    };
    Ok(attribute.unwrap_or_else(|| Attribute::Encoded(proto.encode_to_vec())))
}

/// Returns those attributes of the nodes in an encoded attribute's subgraphs that contain subgraphs themselves, still
/// encoded. An attribute that cannot be decoded has none.
pub(crate) fn subgraphs(attribute: &[u8]) -> Vec<Vec<u8>> {
    let attribute = AttributeProto::decode(attribute).unwrap_or_default();
    let graphs = attribute.g.iter().chain(&attribute.graphs).filter_map(|graph| GraphProto::decode(&graph[..]).ok());
    let attributes = graphs.flat_map(|graph| graph.node).flat_map(|node| node.attribute);
    attributes
        .filter(|inner| inner.g.is_some() || !inner.graphs.is_empty())
        .map(|inner| inner.encode_to_vec())
        .collect()
}
