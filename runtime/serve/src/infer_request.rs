//! A request for inference: JSON, and the bytes of tensors behind it.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde::Deserialize;

use super::api_error::ApiError;
use super::datatype::protocol_name;
use super::elements::Elements;
use super::frame::TensorHead;
use super::queue::Tensors;
use super::signature::{Port, Signature};
use flagperf_config::list_known;
use flagperf_core::tensor::DType;

/// The header with the length of the JSON before the bytes of tensors.
pub const JSON_LENGTH_HEADER: &str = "inference-header-content-length";
/// The most bytes of JSON: while it is read, its numbers take up to eight times as many.
const JSON_BYTES_MAX: usize = 16 << 20;
/// The most dimensions of an input.
const DIMENSIONS_MAX: usize = 64;

/// A request that fits a model.
#[derive(Debug)]
pub struct InferRequest {
    /// The id, which the answer repeats.
    pub id: Option<String>,
    /// The inputs in the engine's order.
    pub inputs: Tensors,
    /// What the answer contains, in order.
    pub outputs: Vec<WantedOutput>,
    /// How long the client waits.
    pub deadline: Option<Duration>,
}

/// An output that the answer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedOutput {
    /// The index among the outputs of the model.
    pub index: usize,
    /// Whether its bytes follow the JSON.
    pub is_binary: bool,
    /// The number of largest values that it consists of, instead of all; 0 for all.
    pub class_count: usize,
}

#[derive(Deserialize)]
struct JsonRequest {
    id: Option<String>,
    inputs: Vec<JsonInput>,
    #[serde(default)]
    outputs: Vec<JsonOutput>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize)]
struct JsonInput {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Elements>,
}

#[derive(Deserialize)]
struct JsonOutput {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// The parameters that flagperf reads. Others, such as those of sequences, are for other servers.
#[derive(Default, Deserialize)]
struct Parameters {
    binary_data_size: Option<u64>,
    binary_data: Option<bool>,
    binary_data_output: Option<bool>,
    classification: Option<u64>,
    timeout: Option<u64>,
    shared_memory_region: Option<serde::de::IgnoredAny>,
}

impl InferRequest {
    /// Reads the body of a request. `json_length` is the length of its JSON, if bytes of tensors follow.
    ///
    /// # Errors
    /// When it is malformed or does not fit the model; the message says what is wrong.
    pub fn parse(body: &Bytes, json_length: Option<&str>, signature: &Signature) -> Result<Self, ApiError> {
        let (json, mut binary) = split_body(body, json_length)?;
        if json.len() > JSON_BYTES_MAX {
            let message =
                format!("the JSON has {} bytes (at most {JSON_BYTES_MAX}): send tensors as binary data", json.len());
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let request: JsonRequest = serde_json::from_slice(&json)
            .map_err(|error| ApiError::bad_request(format!("the request is not valid: {error}")))?;
        let given = request.inputs.iter().map(|input| input.tensor(&mut binary)).collect::<Result<Vec<_>, _>>();
        let given = given.map_err(ApiError::bad_request)?;
        if !binary.is_empty() {
            let rest = binary.len();
            return Err(ApiError::bad_request(format!("{rest} bytes follow the binary data of the last input")));
        }
        let names: Vec<&str> = request.inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = order_inputs(&names, given, signature).map_err(ApiError::bad_request)?;
        let heads: Vec<TensorHead> = inputs.iter().map(|(head, _)| head.clone()).collect();
        signature.check_inputs(&heads).map_err(ApiError::bad_request)?;
        let outputs = wanted_outputs(&request, signature).map_err(ApiError::bad_request)?;
        let deadline = request.parameters.timeout.filter(|micros| *micros > 0).map(Duration::from_micros);
        Ok(InferRequest { id: request.id, inputs, outputs, deadline })
    }
}

/// Returns the JSON of a body and the bytes behind it.
fn split_body(body: &Bytes, json_length: Option<&str>) -> Result<(Bytes, Bytes), ApiError> {
    let Some(stated) = json_length else { return Ok((body.clone(), Bytes::new())) };
    let length = stated.trim().parse::<usize>().ok().filter(|length| *length <= body.len());
    let length = length.ok_or_else(|| {
        let bytes = body.len();
        ApiError::bad_request(format!("{JSON_LENGTH_HEADER} is `{stated}`, but the body has {bytes} bytes"))
    })?;
    Ok((body.slice(..length), body.slice(length..)))
}

impl JsonInput {
    /// Returns the tensor. Its bytes are taken from the front of `binary` unless they are in the JSON.
    fn tensor(&self, binary: &mut Bytes) -> Result<(TensorHead, Bytes), String> {
        let name = &self.name;
        if self.parameters.shared_memory_region.is_some() {
            return Err(format!("input `{name}`: this server has no shared memory"));
        }
        let head = self.head()?;
        let bytes = head.bytes().ok_or_else(|| format!("input `{name}`: its shape stands for more than 4 GiB"))?;
        let content = match (&self.data, self.parameters.binary_data_size) {
            (Some(_), Some(_)) => return Err(format!("input `{name}` has both `data` and `binary_data_size`")),
            (None, None) => return Err(format!("input `{name}` has neither `data` nor `binary_data_size`")),
            (Some(data), None) => {
                let (given, needed) = (data.len(), bytes / head.dtype.size());
                if given != needed {
                    let shape = &head.shape;
                    return Err(format!("input `{name}` has {given} elements, but its shape {shape:?} needs {needed}"));
                }
                Bytes::from(data.to_bytes(head.dtype).map_err(|reason| format!("input `{name}`: {reason}"))?)
            }
            (None, Some(stated)) => {
                if stated != bytes as u64 {
                    let (shape, dtype) = (&head.shape, protocol_name(head.dtype));
                    return Err(format!(
                        "input `{name}`: `binary_data_size` is {stated}, but {shape:?} of {dtype} needs {bytes}"
                    ));
                }
                if binary.len() < bytes {
                    let rest = binary.len();
                    return Err(format!(
                        "input `{name}`: {bytes} bytes of binary data were announced, {rest} are there"
                    ));
                }
                binary.split_to(bytes)
            }
        };
        if head.dtype == DType::Bool && content.iter().any(|byte| *byte > 1) {
            return Err(format!("input `{name}`: a byte of BOOL is neither 0 nor 1"));
        }
        Ok((head, content))
    }

    fn head(&self) -> Result<TensorHead, String> {
        let (name, datatype) = (&self.name, &self.datatype);
        let dtype = DType::ALL.into_iter().find(|dtype| protocol_name(*dtype) == datatype);
        let dtype = dtype.ok_or_else(|| {
            let known = DType::ALL.map(protocol_name).join(", ");
            format!("input `{name}`: unknown datatype `{datatype}` (known: {known})")
        })?;
        if self.shape.len() > DIMENSIONS_MAX {
            return Err(format!("input `{name}` has {} dimensions (at most {DIMENSIONS_MAX})", self.shape.len()));
        }
        let shape = self.shape.iter().map(|size| usize::try_from(*size)).collect::<Result<_, _>>();
        Ok(TensorHead { shape: shape.map_err(|_| format!("input `{name}`: a dimension is too large"))?, dtype })
    }
}

/// Brings the inputs into the engine's order.
fn order_inputs(names: &[&str], given: Tensors, signature: &Signature) -> Result<Tensors, String> {
    let known = || signature.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>();
    if let Some(name) = names.iter().find(|name| !known().contains(name)) {
        return Err(format!("unknown input `{name}` (known: {})", list_known(name, known())));
    }
    let tensor = |port: &Port| {
        let mut found = names.iter().zip(&given).filter(|(name, _)| **name == port.name);
        match (found.next(), found.next()) {
            (Some((_, tensor)), None) => Ok(tensor.clone()),
            (Some(_), Some(_)) => Err(format!("input `{}` is given twice", port.name)),
            (None, _) => Err(format!("input `{}` is missing", port.name)),
        }
    };
    signature.inputs.iter().map(tensor).collect()
}

/// Returns the outputs that the answer contains: without any in the request, all of them.
fn wanted_outputs(request: &JsonRequest, signature: &Signature) -> Result<Vec<WantedOutput>, String> {
    let all_binary = request.parameters.binary_data_output.unwrap_or(false);
    if request.outputs.is_empty() {
        let all = |index| WantedOutput { index, is_binary: all_binary, class_count: 0 };
        return Ok((0..signature.outputs.len()).map(all).collect());
    }
    let mut wanted: Vec<WantedOutput> = Vec::new();
    for JsonOutput { name, parameters } in &request.outputs {
        let index = signature.outputs.iter().position(|port| port.name == *name);
        let index = index.ok_or_else(|| {
            let known = signature.outputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>();
            format!("unknown output `{name}` (known: {})", list_known(name, known))
        })?;
        if wanted.iter().any(|other| other.index == index) {
            return Err(format!("output `{name}` is requested twice"));
        }
        if parameters.shared_memory_region.is_some() {
            return Err(format!("output `{name}`: this server has no shared memory"));
        }
        let is_binary = parameters.binary_data.unwrap_or(all_binary);
        let class_count = parameters.classification.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX));
        wanted.push(WantedOutput { index, is_binary, class_count });
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests;
