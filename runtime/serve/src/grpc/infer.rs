//! Requests for inference and their answers as messages.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use flagperf_core::measure::Nanos;
use flagperf_core::tensor::DType;
use prost::Message;

use super::contents::contents_bytes;
use super::message_limits::check_message;
use super::replies::{Reply, named_version, with_record};
use crate::answer::{AnswerContent, AnswerOutput, InferAnswer, text_bytes};
use crate::api_error::ApiError;
use crate::body::LimitedBody;
use crate::messages::infer_parameter::ParameterChoice;
use crate::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::messages::model_infer_response::InferOutputTensor;
use crate::messages::{InferParameter, ModelInferRequest, ModelInferResponse};
use crate::request::{Content, GivenInput, GivenOutput, GivenRequest};
use crate::service::Service;
use crate::shared_memory::RegionRange;

/// The parameters of a request, an input or an output.
type Parameters = BTreeMap<String, InferParameter>;

const REGION: &str = "shared_memory_region";
const REGION_OFFSET: &str = "shared_memory_offset";
const REGION_BYTES: &str = "shared_memory_byte_size";

/// Answers a request that arrived at `arrived` and whose client waits until `deadline`.
pub async fn infer(service: &Service, message: &LimitedBody, deadline: Option<Duration>, arrived: Nanos) -> Reply {
    let (id, answer) = run(service, message, deadline, arrived).await?;
    with_record(&infer_response(id, &answer), &answer.model)
}

/// Runs the model on a request. Returns the id of the request, and the answer.
///
/// # Errors
/// When the request is malformed or does not fit the model, or the model cannot answer.
pub async fn run(
    service: &Service,
    message: &LimitedBody,
    deadline: Option<Duration>,
    arrived: Nanos,
) -> Result<(String, InferAnswer), ApiError> {
    let AddressedRequest { name, version, mut given } = read_request(&message.bytes)?;
    given.deadline = given.deadline.into_iter().chain(deadline).min();
    let answer = service.infer(&name, named_version(&version), &given, arrived).await?;
    Ok((given.id.unwrap_or_default(), answer))
}

/// A request, and the model that it is for.
#[derive(Debug)]
pub struct AddressedRequest {
    /// The name of the model.
    pub name: String,
    /// The version; empty for the highest.
    pub version: String,
    /// What is asked for.
    pub given: GivenRequest,
}

/// Reads a request.
///
/// # Errors
/// When it is malformed, stands for too much, or contradicts itself; the message says what is wrong.
pub fn read_request(message: &Bytes) -> Result<AddressedRequest, ApiError> {
    check_message(message)?;
    let request = ModelInferRequest::decode(message.clone());
    let request = request.map_err(|error| ApiError::bad_request(format!("the message is not valid: {error}")))?;
    let (name, version) = (request.model_name.clone(), request.model_version.clone());
    let given = infer_request(request).map_err(ApiError::bad_request)?;
    Ok(AddressedRequest { name, version, given })
}

fn infer_request(request: ModelInferRequest) -> Result<GivenRequest, String> {
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents, .. } = request;
    let mut raw = (!raw_input_contents.is_empty()).then(|| raw_input_contents.into_iter());
    let inputs = inputs.into_iter().map(|input| given_input(input, raw.as_mut())).collect::<Result<_, _>>()?;
    if raw.is_some_and(|mut raw| raw.next().is_some()) {
        return Err("`raw_input_contents` has more parts than there are inputs".to_owned());
    }
    let timeout = number(&parameters, "timeout")?.filter(|micros| *micros > 0);
    Ok(GivenRequest {
        id: Some(id),
        inputs,
        outputs: outputs.into_iter().map(given_output).collect::<Result<_, _>>()?,
        is_binary: true,
        deadline: timeout.map(Duration::from_micros),
    })
}

/// Reads an input. Its bytes are the next of the raw contents, if there are some, unless they are in shared memory.
fn given_input(input: InferInputTensor, raw: Option<&mut std::vec::IntoIter<Bytes>>) -> Result<GivenInput, String> {
    let InferInputTensor { name, datatype, shape, parameters, contents } = input;
    let failed = |reason: String| format!("input `{name}`: {reason}");
    let content = match (region(&parameters).map_err(failed)?, raw, contents) {
        (Some(range), _, None) => Content::Region(range),
        (None, Some(raw), None) => match raw.next() {
            Some(bytes) => Content::Bytes(bytes),
            None => return Err(failed("`raw_input_contents` has no part for it".to_owned())),
        },
        (None, None, Some(contents)) => match DType::with_kserve_name(&datatype) {
            Some(dtype) => Content::Bytes(contents_bytes(&contents, dtype).map_err(failed)?),
            // The comparison with the model names the types that are known.
            None => Content::Bytes(Bytes::new()),
        },
        (None, None, None) => return Err(failed("it has neither `contents` nor `raw_input_contents`".to_owned())),
        (Some(_), _, Some(_)) => return Err(failed(format!("it has both `contents` and `{REGION}`"))),
        (None, Some(_), Some(_)) => {
            return Err(failed("it has `contents` although the request has `raw_input_contents`".to_owned()));
        }
    };
    Ok(GivenInput { name, datatype, shape, content })
}

fn given_output(output: InferRequestedOutputTensor) -> Result<GivenOutput, String> {
    let InferRequestedOutputTensor { name, parameters } = output;
    let failed = |reason: String| format!("output `{name}`: {reason}");
    let class_count = number(&parameters, "classification").map_err(failed)?.unwrap_or(0);
    let region = region(&parameters).map_err(failed)?;
    Ok(GivenOutput { name, is_binary: None, class_count, region })
}

/// Returns the part of shared memory that is named.
fn region(parameters: &Parameters) -> Result<Option<RegionRange>, String> {
    let Some(value) = parameters.get(REGION) else { return Ok(None) };
    let Some(ParameterChoice::StringParam(region)) = &value.parameter_choice else {
        return Err(format!("`{REGION}` is not a string"));
    };
    let bytes = number(parameters, REGION_BYTES)?.ok_or_else(|| format!("`{REGION_BYTES}` is missing"))?;
    let offset = number(parameters, REGION_OFFSET)?.unwrap_or(0);
    Ok(Some(RegionRange { region: region.clone(), offset, bytes }))
}

fn number(parameters: &Parameters, name: &str) -> Result<Option<u64>, String> {
    let Some(value) = parameters.get(name) else { return Ok(None) };
    let number = match value.parameter_choice {
        Some(ParameterChoice::Int64Param(number)) => u64::try_from(number).ok(),
        Some(ParameterChoice::Uint64Param(number)) => Some(number),
        _ => None,
    };
    number.map(Some).ok_or_else(|| format!("parameter `{name}` is not a whole number of 0 or more"))
}

/// Returns an answer as a message. Every output has a part in the raw contents, which is empty for one in shared memory.
pub fn infer_response(id: String, answer: &InferAnswer) -> ModelInferResponse {
    let source = answer.model.source();
    ModelInferResponse {
        model_name: source.name.clone(),
        model_version: source.version.to_string(),
        id,
        parameters: Parameters::new(),
        outputs: answer.outputs.iter().map(|output| output_head(answer.name(output), output)).collect(),
        raw_output_contents: answer.outputs.iter().map(output_bytes).collect(),
    }
}

fn output_head(name: &str, output: &AnswerOutput) -> InferOutputTensor {
    let mut parameters = Parameters::new();
    if let AnswerContent::Region(_, range, size) = &output.content {
        let size = i64::try_from(*size).unwrap_or(i64::MAX);
        let mut add = |name: &str, choice| {
            parameters.insert(name.to_owned(), InferParameter { parameter_choice: Some(choice) });
        };
        add(REGION, ParameterChoice::StringParam(range.region.clone()));
        add(REGION_BYTES, ParameterChoice::Int64Param(size));
        if let Ok(offset @ 1..) = i64::try_from(range.offset) {
            add(REGION_OFFSET, ParameterChoice::Int64Param(offset));
        }
    }
    InferOutputTensor {
        name: name.to_owned(),
        datatype: output.datatype().to_owned(),
        shape: output.shape.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect(),
        parameters,
    }
}

fn output_bytes(output: &AnswerOutput) -> Bytes {
    match &output.content {
        AnswerContent::Tensor(_, bytes) => bytes.clone(),
        AnswerContent::Texts(texts) => text_bytes(texts),
        AnswerContent::Region(..) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: ModelInferRequest) -> Result<GivenRequest, String> {
        let read = read_request(&Bytes::from(request.encode_to_vec()));
        read.map(|request| request.given).map_err(|error| error.message)
    }

    fn parameter(choice: ParameterChoice) -> InferParameter {
        InferParameter { parameter_choice: Some(choice) }
    }

    fn input(name: &str) -> InferInputTensor {
        InferInputTensor { name: name.to_owned(), datatype: "UINT8".to_owned(), shape: vec![1], ..Default::default() }
    }

    #[test]
    fn raw_contents_belong_to_the_inputs_that_are_not_in_shared_memory() {
        let mut shared = input("a");
        shared.parameters.insert(REGION.to_owned(), parameter(ParameterChoice::StringParam("r".to_owned())));
        shared.parameters.insert(REGION_BYTES.to_owned(), parameter(ParameterChoice::Int64Param(1)));
        let request = ModelInferRequest {
            inputs: vec![shared, input("b")],
            raw_input_contents: vec![Bytes::from_static(&[7])],
            ..Default::default()
        };
        let given = read(request.clone()).unwrap();
        assert!(matches!(&given.inputs[0].content, Content::Region(range) if range.bytes == 1 && range.offset == 0));
        assert!(matches!(&given.inputs[1].content, Content::Bytes(bytes) if **bytes == [7]));
        let more = ModelInferRequest { raw_input_contents: vec![Bytes::new(); 2], ..request.clone() };
        assert_eq!(read(more).unwrap_err(), "`raw_input_contents` has more parts than there are inputs");
        let fewer = ModelInferRequest { inputs: vec![input("b"), input("c")], ..request.clone() };
        assert_eq!(read(fewer).unwrap_err(), "input `c`: `raw_input_contents` has no part for it");
        let none = ModelInferRequest { raw_input_contents: Vec::new(), ..request };
        assert_eq!(read(none).unwrap_err(), "input `b`: it has neither `contents` nor `raw_input_contents`");
    }

    #[test]
    fn parameters_of_another_type_are_errors() {
        for (choice, expected) in [
            (ParameterChoice::Int64Param(-1), Err("parameter `timeout` is not a whole number of 0 or more".to_owned())),
            (
                ParameterChoice::BoolParam(true),
                Err("parameter `timeout` is not a whole number of 0 or more".to_owned()),
            ),
            (ParameterChoice::Uint64Param(5), Ok(Some(Duration::from_micros(5)))),
            (ParameterChoice::Int64Param(0), Ok(None)),
        ] {
            let parameters = Parameters::from([("timeout".to_owned(), parameter(choice))]);
            let given = read(ModelInferRequest { parameters, ..Default::default() });
            assert_eq!(given.map(|given| given.deadline), expected);
        }
    }
}
