//! The answer to a request for inference, before a protocol writes it.

use std::sync::Arc;

use axum::body::Bytes;
use flagperf_core::tensor::DType;

use super::api_error::ApiError;
use super::classification::classify;
use super::model::Model;
use super::queue::Tensors;
use super::request::{WantedOutput, allowed};
use super::shared_memory::{RegionRange, SharedRegions};

/// The type of outputs that consist of texts.
const TEXT_TYPE: &str = "BYTES";

/// The answer to a request for inference.
#[derive(Debug)]
pub struct InferAnswer {
    /// The model that computed it.
    pub model: Arc<Model>,
    /// The outputs in the order in which the client wants them.
    pub outputs: Vec<AnswerOutput>,
}

/// An output of an answer.
#[derive(Debug)]
pub struct AnswerOutput {
    /// The index among the outputs of the model.
    index: usize,
    /// The sizes.
    pub shape: Vec<usize>,
    /// Whether its bytes follow the JSON.
    pub is_binary: bool,
    /// The elements.
    pub content: AnswerContent,
}

/// The elements of an output.
#[derive(Debug)]
pub enum AnswerContent {
    /// Numbers.
    Tensor(DType, Bytes),
    /// Texts.
    Texts(Vec<String>),
    /// What was written to shared memory: the name of its type, the place, and the number of bytes.
    Region(&'static str, RegionRange, usize),
}

impl InferAnswer {
    /// Returns the answer with the outputs that the client wants. Those for shared memory are written there.
    ///
    /// # Errors
    /// When an output cannot be classified, or its part of a region is too small.
    pub fn new(
        model: Arc<Model>,
        outputs: &Tensors,
        wanted: &[WantedOutput],
        regions: Option<&SharedRegions>,
    ) -> Result<Self, ApiError> {
        let outputs = wanted.iter().map(|wanted| output(&model, outputs, wanted, regions)).collect::<Result<_, _>>()?;
        Ok(InferAnswer { model, outputs })
    }

    /// Returns the name of an output.
    pub fn name(&self, output: &AnswerOutput) -> &str {
        &self.model.signature().outputs[output.index].name
    }
}

impl AnswerOutput {
    /// Returns the name of the type in the protocol.
    pub fn datatype(&self) -> &'static str {
        match &self.content {
            AnswerContent::Tensor(dtype, _) => dtype.kserve_name(),
            AnswerContent::Texts(_) => TEXT_TYPE,
            AnswerContent::Region(datatype, ..) => datatype,
        }
    }
}

fn output(
    model: &Model,
    outputs: &Tensors,
    wanted: &WantedOutput,
    regions: Option<&SharedRegions>,
) -> Result<AnswerOutput, ApiError> {
    let WantedOutput { index, is_binary, class_count, region } = wanted;
    let (index, is_binary) = (*index, *is_binary);
    let (head, bytes) = &outputs[index];
    let failed =
        |reason: String| ApiError::bad_request(format!("output `{}`: {reason}", model.signature().outputs[index].name));
    let mut output = AnswerOutput {
        index,
        shape: head.shape.clone(),
        is_binary,
        content: AnswerContent::Tensor(head.dtype, bytes.clone()),
    };
    if *class_count > 0 {
        let has_rows = model.signature().rows_max > 0;
        let classes = classify(head, bytes, *class_count, has_rows, &model.source().labels);
        let classes = classes.map_err(|error| failed(error.to_string()))?;
        output.shape = classes.shape;
        output.content = AnswerContent::Texts(classes.texts);
    }
    if let Some(range) = region {
        let datatype = output.datatype();
        let content = match output.content {
            AnswerContent::Texts(texts) => text_bytes(&texts),
            _ => bytes.clone(),
        };
        let written = allowed(regions).and_then(|regions| regions.write(range, &content));
        written.map_err(|error| ApiError { message: failed(error.message.clone()).message, ..error })?;
        output.content = AnswerContent::Region(datatype, range.clone(), content.len());
    }
    Ok(output)
}

/// Returns texts as binary data: each with its length in four bytes before it.
pub fn text_bytes(texts: &[String]) -> Bytes {
    let length = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let bytes: Vec<u8> = texts.iter().flat_map(|text| length(text).into_iter().chain(text.bytes())).collect();
    Bytes::from(bytes)
}
