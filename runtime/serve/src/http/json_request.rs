//! A request for inference as JSON, with the bytes of tensors behind it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::api_error::{ApiError, ErrorKind};
use crate::elements::Elements;
use crate::request::{Content, GivenInput, GivenOutput, GivenRequest};
use crate::shared_memory::RegionRange;

/// The header with the length of the JSON before the bytes of tensors.
pub const JSON_LENGTH_HEADER: &str = "inference-header-content-length";
/// The most bytes of JSON: while it is read, its numbers take up to eight times as many.
const JSON_BYTES_MAX: usize = 16 << 20;

/// An object of JSON. Without it, serde accepts an array of the values, too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

impl<T: Default> Default for Object<T> {
    fn default() -> Self {
        Object(T::default())
    }
}

#[derive(Deserialize)]
struct JsonRequest {
    id: Option<String>,
    inputs: Vec<Object<JsonInput>>,
    #[serde(default)]
    outputs: Vec<Object<JsonOutput>>,
    #[serde(default)]
    parameters: Object<Parameters>,
}

#[derive(Deserialize)]
struct JsonInput {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: Object<Parameters>,
    data: Option<Elements>,
}

#[derive(Deserialize)]
struct JsonOutput {
    name: String,
    #[serde(default)]
    parameters: Object<Parameters>,
}

/// The parameters that flagperf reads. Others, such as those of sequences, are for other servers.
#[derive(Default, Deserialize)]
struct Parameters {
    binary_data_size: Option<u64>,
    binary_data: Option<bool>,
    binary_data_output: Option<bool>,
    classification: Option<u64>,
    timeout: Option<u64>,
    shared_memory_region: Option<String>,
    shared_memory_offset: Option<u64>,
    shared_memory_byte_size: Option<u64>,
}

impl Parameters {
    /// Returns the part of shared memory that is named.
    fn region(&self) -> Result<Option<RegionRange>, String> {
        let Some(region) = self.shared_memory_region.clone() else { return Ok(None) };
        let bytes = self.shared_memory_byte_size.ok_or("`shared_memory_byte_size` is missing")?;
        Ok(Some(RegionRange { region, offset: self.shared_memory_offset.unwrap_or(0), bytes }))
    }
}

/// Reads the body of a request. `json_length` is the length of its JSON, if bytes of tensors follow.
///
/// # Errors
/// When it is malformed; the message says what is wrong.
pub fn json_request(body: &Bytes, json_length: Option<&str>) -> Result<GivenRequest, ApiError> {
    let (json, mut binary) = split_body(body, json_length)?;
    if json.len() > JSON_BYTES_MAX {
        let message =
            format!("the JSON has {} bytes (at most {JSON_BYTES_MAX}): send tensors as binary data", json.len());
        return Err(ApiError::new(ErrorKind::TooLarge, message));
    }
    let Object(request) = serde_json::from_slice::<Object<JsonRequest>>(&json)
        .map_err(|error| ApiError::bad_request(format!("the request is not valid: {error}")))?;
    let inputs = request.inputs.into_iter().map(|Object(input)| input.given(&mut binary)).collect::<Result<_, _>>();
    let inputs = inputs.map_err(ApiError::bad_request)?;
    if !binary.is_empty() {
        let rest = binary.len();
        return Err(ApiError::bad_request(format!("{rest} bytes follow the binary data of the last input")));
    }
    let outputs = request.outputs.into_iter().map(|Object(output)| output.given()).collect::<Result<_, _>>();
    let parameters = request.parameters.0;
    Ok(GivenRequest {
        id: request.id,
        inputs,
        outputs: outputs.map_err(ApiError::bad_request)?,
        is_binary: parameters.binary_data_output.unwrap_or(false),
        deadline: parameters.timeout.filter(|micros| *micros > 0).map(Duration::from_micros),
    })
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
    /// Returns the input. Its bytes are taken from the front of `binary` unless they are elsewhere.
    fn given(self, binary: &mut Bytes) -> Result<GivenInput, String> {
        let JsonInput { name, shape, datatype, parameters: Object(parameters), data } = self;
        let region = parameters.region().map_err(|reason| format!("input `{name}`: {reason}"))?;
        let content = match (data, parameters.binary_data_size, region) {
            (Some(data), None, None) => Content::Elements(data),
            (None, None, Some(region)) => Content::Region(region),
            (None, Some(stated), None) => {
                let size = usize::try_from(stated).ok().filter(|size| *size <= binary.len());
                let size = size.ok_or_else(|| {
                    let rest = binary.len();
                    format!("input `{name}`: {stated} bytes of binary data were announced, {rest} are there")
                })?;
                Content::Bytes(binary.split_to(size))
            }
            (None, None, None) => {
                return Err(format!("input `{name}` has neither `data` nor `binary_data_size`"));
            }
            _ => {
                return Err(format!(
                    "input `{name}` has more than one of `data`, `binary_data_size` and `shared_memory_region`"
                ));
            }
        };
        Ok(GivenInput { name, datatype, shape, content })
    }
}

impl JsonOutput {
    fn given(self) -> Result<GivenOutput, String> {
        let JsonOutput { name, parameters: Object(parameters) } = self;
        let region = parameters.region().map_err(|reason| format!("output `{name}`: {reason}"))?;
        let (is_binary, class_count) = (parameters.binary_data, parameters.classification.unwrap_or(0));
        Ok(GivenOutput { name, is_binary, class_count, region })
    }
}

#[cfg(test)]
#[path = "json_request_tests.rs"]
mod tests;
