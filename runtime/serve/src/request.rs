//! A request for inference as every protocol states it, and its comparison with the model.

use std::time::Duration;

use axum::body::Bytes;
use flagperf_config::list_known;
use flagperf_core::tensor::DType;
use tokio::sync::OwnedSemaphorePermit;

use super::api_error::ApiError;
use super::elements::Elements;
use super::frame::TensorHead;
use super::queue::Tensors;
use super::shared_memory::{RegionRange, SharedRegions};
use super::signature::{Port, Signature};

/// The most dimensions of an input.
const DIMENSIONS_MAX: usize = 64;

/// A request as the client states it.
#[derive(Debug, Default)]
pub struct GivenRequest {
    /// The id, which the answer repeats.
    pub id: Option<String>,
    /// The inputs in the client's order.
    pub inputs: Vec<GivenInput>,
    /// The outputs that the client wants; all of them if there are none.
    pub outputs: Vec<GivenOutput>,
    /// Whether the bytes of outputs follow the JSON unless an output says otherwise.
    pub is_binary: bool,
    /// How long the client waits.
    pub deadline: Option<Duration>,
}

/// An input as the client states it.
#[derive(Debug)]
pub struct GivenInput {
    /// The name.
    pub name: String,
    /// The name of the type in the protocol.
    pub datatype: String,
    /// The sizes.
    pub shape: Vec<i64>,
    /// Where its elements are.
    pub content: Content,
}

/// Where the elements of an input are.
#[derive(Debug)]
pub enum Content {
    /// In these bytes.
    Bytes(Bytes),
    /// In these elements.
    Elements(Elements),
    /// In a region of shared memory.
    Region(RegionRange),
}

/// An output as the client wants it.
#[derive(Clone, Debug, Default)]
pub struct GivenOutput {
    /// The name.
    pub name: String,
    /// Whether its bytes follow the JSON.
    pub is_binary: Option<bool>,
    /// The number of largest values that it consists of, instead of all; 0 for all.
    pub class_count: u64,
    /// Where it is written to, instead of the answer.
    pub region: Option<RegionRange>,
}

/// A request that fits a model.
#[derive(Debug)]
pub struct InferRequest {
    /// The inputs in the engine's order.
    pub inputs: Tensors,
    /// What the answer contains, in order.
    pub outputs: Vec<WantedOutput>,
    /// The memory of the inputs that were read from regions.
    pub memory: Vec<OwnedSemaphorePermit>,
}

/// An output that the answer contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedOutput {
    /// The index among the outputs of the model.
    pub index: usize,
    /// Whether its bytes follow the JSON.
    pub is_binary: bool,
    /// The number of largest values that it consists of, instead of all; 0 for all.
    pub class_count: usize,
    /// Where it is written to, instead of the answer.
    pub region: Option<RegionRange>,
}

impl InferRequest {
    /// Compares a request with a model, and reads inputs from shared memory.
    ///
    /// # Errors
    /// When it does not fit the model; the message says what is wrong.
    pub fn new(given: &GivenRequest, signature: &Signature, regions: Option<&SharedRegions>) -> Result<Self, ApiError> {
        let ordered = order_inputs(&given.inputs, signature).map_err(ApiError::bad_request)?;
        let heads = ordered.iter().map(|input| input.head()).collect::<Result<Vec<_>, _>>();
        let heads = heads.map_err(ApiError::bad_request)?;
        signature.check_inputs(&heads).map_err(ApiError::bad_request)?;
        let outputs = wanted_outputs(given, signature).map_err(ApiError::bad_request)?;
        for range in outputs.iter().filter_map(|output| output.region.as_ref()) {
            allowed(regions)?.check(range)?;
        }
        let mut memory = Vec::new();
        let mut inputs = Vec::with_capacity(heads.len());
        for (input, head) in ordered.into_iter().zip(heads) {
            let content = input.content(&head, regions, &mut memory)?;
            inputs.push((head, content));
        }
        Ok(InferRequest { inputs, outputs, memory })
    }
}

/// Returns the regions of shared memory.
///
/// # Errors
/// When the server was started without.
pub fn allowed(regions: Option<&SharedRegions>) -> Result<&SharedRegions, ApiError> {
    let off = "this server does not use shared memory: start it with `--shared-memory`";
    regions.ok_or_else(|| ApiError::bad_request(off))
}

impl GivenInput {
    /// Returns the type and the shape.
    fn head(&self) -> Result<TensorHead, String> {
        let (name, datatype) = (&self.name, &self.datatype);
        let dtype = DType::with_kserve_name(datatype).ok_or_else(|| {
            let known = DType::ALL.map(DType::kserve_name).join(", ");
            format!("input `{name}`: unknown datatype `{datatype}` (known: {known})")
        })?;
        if self.shape.len() > DIMENSIONS_MAX {
            return Err(format!("input `{name}` has {} dimensions (at most {DIMENSIONS_MAX})", self.shape.len()));
        }
        let shape = self.shape.iter().map(|size| usize::try_from(*size)).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| format!("input `{name}`: its shape {:?} has a negative size", self.shape))?;
        let head = TensorHead { shape, dtype };
        match head.bytes() {
            Some(_) => Ok(head),
            None => Err(format!("input `{name}`: its shape stands for more than 4 GiB")),
        }
    }

    /// Returns the bytes of the tensor. Those of a region are read, and their memory is added to `memory`.
    fn content(
        &self,
        head: &TensorHead,
        regions: Option<&SharedRegions>,
        memory: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<Bytes, ApiError> {
        let name = &self.name;
        let failed = |error: ApiError| ApiError { message: format!("input `{name}`: {}", error.message), ..error };
        let given = match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Region(range) => range.bytes,
            Content::Elements(elements) => return elements_of(name, head, elements).map_err(ApiError::bad_request),
        };
        let needed = head.bytes().unwrap_or(usize::MAX) as u64;
        if given != needed {
            let (shape, dtype) = (&head.shape, head.dtype.kserve_name());
            return Err(ApiError::bad_request(format!(
                "input `{name}` has {given} bytes, but {shape:?} of {dtype} needs {needed}"
            )));
        }
        let bytes = match &self.content {
            Content::Region(range) => {
                let (bytes, permit) = allowed(regions).and_then(|regions| regions.read(range)).map_err(failed)?;
                memory.push(permit);
                bytes
            }
            Content::Bytes(bytes) => bytes.clone(),
            Content::Elements(_) => Bytes::new(),
        };
        if head.dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
            return Err(ApiError::bad_request(format!("input `{name}`: a byte of BOOL is neither 0 nor 1")));
        }
        Ok(bytes)
    }
}

fn elements_of(name: &str, head: &TensorHead, elements: &Elements) -> Result<Bytes, String> {
    let (given, needed) = (elements.len(), head.bytes().unwrap_or(usize::MAX) / head.dtype.size());
    if given != needed {
        let shape = &head.shape;
        return Err(format!("input `{name}` has {given} elements, but its shape {shape:?} needs {needed}"));
    }
    let bytes = elements.to_bytes(head.dtype).map_err(|reason| format!("input `{name}`: {reason}"))?;
    Ok(Bytes::from(bytes))
}

/// Brings the inputs into the engine's order.
fn order_inputs<'g>(given: &'g [GivenInput], signature: &Signature) -> Result<Vec<&'g GivenInput>, String> {
    let is_known = |name: &str| signature.inputs.iter().any(|port| port.name == name);
    if let Some(GivenInput { name, .. }) = given.iter().find(|input| !is_known(&input.name)) {
        let known = list_known(name, signature.inputs.iter().map(|port| port.name.as_str()));
        return Err(format!("unknown input `{name}` (known: {known})"));
    }
    let input = |port: &Port| {
        let mut found = given.iter().filter(|input| input.name == port.name);
        match (found.next(), found.next()) {
            (Some(input), None) => Ok(input),
            (Some(_), Some(_)) => Err(format!("input `{}` is given twice", port.name)),
            (None, _) => Err(format!("input `{}` is missing", port.name)),
        }
    };
    signature.inputs.iter().map(input).collect()
}

/// Returns the outputs that the answer contains: without any in the request, all of them.
fn wanted_outputs(given: &GivenRequest, signature: &Signature) -> Result<Vec<WantedOutput>, String> {
    if given.outputs.is_empty() {
        let all = |index| WantedOutput { index, is_binary: given.is_binary, class_count: 0, region: None };
        return Ok((0..signature.outputs.len()).map(all).collect());
    }
    let mut wanted: Vec<WantedOutput> = Vec::new();
    for GivenOutput { name, is_binary, class_count, region } in &given.outputs {
        let index = signature.outputs.iter().position(|port| port.name == *name);
        let index = index.ok_or_else(|| {
            let known = list_known(name, signature.outputs.iter().map(|port| port.name.as_str()));
            format!("unknown output `{name}` (known: {known})")
        })?;
        if wanted.iter().any(|other| other.index == index) {
            return Err(format!("output `{name}` is requested twice"));
        }
        wanted.push(WantedOutput {
            index,
            is_binary: is_binary.unwrap_or(given.is_binary),
            class_count: usize::try_from(*class_count).unwrap_or(usize::MAX),
            region: region.clone(),
        });
    }
    Ok(wanted)
}
