//! The messages of KServe's protocol, version 2, with tensors as bytes behind the JSON text.

use serde::{Deserialize, Serialize};

use crate::http_server::excerpt;
use flagperf_core::tensor::{DType, Dim, Tensor, TensorSpec};
use flagperf_onnx::ValueInfo;

/// The header that has the number of bytes of JSON before the bytes of the tensors.
pub(super) const HEADER_LENGTH: &str = "Inference-Header-Content-Length";
/// Most inputs or outputs of a model.
const INPUTS_MAX: usize = 1000;

/// What a server says about a model.
pub(super) struct ModelDescription {
    pub(super) name: String,
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
}

#[derive(Deserialize)]
struct ModelMetadata {
    name: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

#[derive(Deserialize)]
struct Port {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

impl ModelDescription {
    /// Reads the reply about a model.
    ///
    /// # Errors
    /// When it is no description, or has a type of elements that is no tensor's, such as text.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let found: ModelMetadata = serde_json::from_slice(body)
            .map_err(|error| format!("not a description of a model: {error}: `{}`", excerpt(body)))?;
        if found.inputs.len().max(found.outputs.len()) > INPUTS_MAX {
            return Err(format!("the model has more than {INPUTS_MAX} inputs or outputs"));
        }
        let ports = |ports: Vec<Port>| ports.into_iter().map(Port::info).collect::<Result<Vec<_>, String>>();
        Ok(ModelDescription { name: found.name, inputs: ports(found.inputs)?, outputs: ports(found.outputs)? })
    }
}

impl Port {
    fn info(self) -> Result<ValueInfo, String> {
        let dtype = DType::with_kserve_name(&self.datatype).ok_or_else(|| {
            format!(
                "`{}` has elements of the type `{}`, which is not supported",
                shown(&self.name),
                shown(&self.datatype)
            )
        })?;
        let dim = |size: i64| usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed);
        Ok(ValueInfo { spec: TensorSpec::new(self.shape.into_iter().map(dim), dtype), name: self.name })
    }
}

/// Returns name and version of the server from its reply about itself.
pub(super) fn server_version(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Server {
        name: String,
        #[serde(default)]
        version: String,
    }
    let server: Server = serde_json::from_slice(body).ok()?;
    Some(format!("{} {}", server.name, server.version).trim_end().to_owned())
}

#[derive(Serialize)]
struct Request<'a> {
    inputs: Vec<RequestInput<'a>>,
    outputs: Vec<RequestOutput<'a>>,
}

#[derive(Serialize)]
struct RequestInput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    parameters: Parameters,
}

#[derive(Serialize)]
struct RequestOutput<'a> {
    name: &'a str,
    parameters: Parameters,
}

#[derive(Default, Serialize, Deserialize)]
struct Parameters {
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data: Option<bool>,
}

/// Writes a request for outputs. Returns the number of bytes of its JSON, and all its bytes.
pub(super) fn write_request(names: &[String], inputs: &[Tensor], outputs: &[String]) -> (usize, Vec<u8>) {
    let inputs_of = names.iter().zip(inputs).map(|(name, tensor)| RequestInput {
        name,
        datatype: tensor.dtype().kserve_name(),
        shape: tensor.shape(),
        parameters: Parameters { binary_data_size: Some(tensor.bytes().len()), ..Parameters::default() },
    });
    let outputs_of = outputs.iter().map(|name| RequestOutput {
        name,
        parameters: Parameters { binary_data: Some(true), ..Parameters::default() },
    });
    let request = Request { inputs: inputs_of.collect(), outputs: outputs_of.collect() };
    let mut body = serde_json::to_vec(&request).expect("a request is plain data");
    let json = body.len();
    inputs.iter().for_each(|tensor| body.extend_from_slice(tensor.bytes()));
    (json, body)
}

#[derive(Deserialize)]
struct Answer {
    outputs: Vec<AnswerOutput>,
}

#[derive(Deserialize)]
struct AnswerOutput {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Parameters,
}

/// Reads the outputs of these names from an answer that begins with so many bytes of JSON.
///
/// # Errors
/// When the answer is none, an output is missing or was not sent as bytes, or sizes do not fit each other.
pub(super) fn read_outputs(body: &[u8], json: Option<usize>, names: &[String]) -> Result<Vec<Tensor>, String> {
    let json = json.filter(|json| *json <= body.len()).ok_or_else(|| {
        format!("the answer has no header `{HEADER_LENGTH}` that states the size of its JSON: `{}`", excerpt(body))
    })?;
    let (text, mut bytes) = body.split_at(json);
    let answer: Answer = serde_json::from_slice(text)
        .map_err(|error| format!("the answer cannot be read: {error}: `{}`", excerpt(text)))?;
    let mut found: Vec<(String, Tensor)> = Vec::new();
    for output in answer.outputs {
        let failed = |reason: String| format!("output `{}`: {reason}", shown(&output.name));
        let size = output.parameters.binary_data_size;
        let size = size.ok_or_else(|| failed("it was not sent as bytes (`binary_data_size`)".to_owned()))?;
        let (own, rest) = bytes.split_at_checked(size).ok_or_else(|| failed(format!("{size} bytes are not there")))?;
        let dtype = DType::with_kserve_name(&output.datatype)
            .ok_or_else(|| failed(format!("unknown type `{}`", shown(&output.datatype))))?;
        if dtype == DType::Bool && own.iter().any(|byte| *byte > 1) {
            return Err(failed("a byte of BOOL is neither 0 nor 1".to_owned()));
        }
        let tensor = Tensor::from_bytes(output.shape, dtype, own).map_err(|error| failed(error.to_string()))?;
        found.push((output.name, tensor));
        bytes = rest;
    }
    if !bytes.is_empty() {
        return Err(format!("the answer has {} bytes that belong to no output", bytes.len()));
    }
    let named = |name: &String| {
        let output = found.iter().find(|(found, _)| found == name);
        output.map(|(_, tensor)| tensor.clone()).ok_or_else(|| format!("the answer has no output `{name}`"))
    };
    names.iter().map(named).collect()
}

/// Returns a name that a server sent, for a message.
fn shown(name: &str) -> String {
    excerpt(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor() -> Tensor {
        Tensor::from_vec([1, 2], vec![1.5f32, -2.0]).unwrap()
    }

    #[test]
    fn a_request_has_its_tensors_behind_the_json() {
        let (json, body) = write_request(&["x".to_owned()], &[tensor()], &["y".to_owned()]);
        assert_eq!(
            std::str::from_utf8(&body[..json]).unwrap(),
            r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}"#
        );
        assert_eq!(&body[json..], tensor().bytes());
    }

    #[test]
    fn what_is_no_answer_is_named() {
        let json = |size: usize| {
            format!(
                r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":[1,2],"parameters":{{"binary_data_size":{size}}}}}]}}"#
            )
        };
        let body = |json: &str, bytes: &[u8]| [json.as_bytes(), bytes].concat();
        let read = |json: &str, bytes: &[u8]| read_outputs(&body(json, bytes), Some(json.len()), &["y".to_owned()]);
        assert_eq!(read(&json(8), tensor().bytes()).unwrap()[0].as_slice::<f32>().unwrap(), [1.5, -2.0]);
        let plain = r#"{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[1.0]}]}"#;
        let text = json(1).replace("FP32", "BYTES");
        let truth = json(2).replace("FP32", "BOOL");
        for (found, part) in [
            (read(&json(8), &[0; 7]), "output `y`: 8 bytes are not there"),
            (read(&json(4), &[0; 4]), "output `y`: "),
            (read(&json(8), &[0; 9]), "the answer has 1 bytes that belong to no output"),
            (read(plain, &[]), "output `y`: it was not sent as bytes (`binary_data_size`)"),
            (read(&text, &[0; 1]), "output `y`: unknown type `BYTES`"),
            (read(&truth, &[1, 2]), "output `y`: a byte of BOOL is neither 0 nor 1"),
            (read(r#"{"outputs":[]}"#, &[]), "the answer has no output `y`"),
            (read("<html>", &[]), "the answer cannot be read: "),
            (read_outputs(b"{}", None, &[]), "the answer has no header `Inference-Header-Content-Length`"),
            (read_outputs(b"{}", Some(3), &[]), "the answer has no header `Inference-Header-Content-Length`"),
        ] {
            let error = found.unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
        let huge = json(8).replace("[1,2]", "[9223372036854775807,4]");
        assert!(read(&huge, &[0; 8]).is_err());
    }

    #[test]
    fn sizes_that_a_server_does_not_know_may_be_any() {
        let text = r#"{"name":"m","versions":["1"],"platform":"x","inputs":[{"name":"x","datatype":"INT64","shape":[-1,3]}],"outputs":[]}"#;
        let found = ModelDescription::read(text.as_bytes()).unwrap();
        assert_eq!(found.inputs[0].spec.to_string(), "?,3,i64");
        let error = ModelDescription::read(text.replace("INT64", "BYTES").as_bytes()).err().unwrap();
        assert_eq!(error, "`x` has elements of the type `BYTES`, which is not supported");
    }
}
