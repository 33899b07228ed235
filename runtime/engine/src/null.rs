//! The engine `null`: accepts any model and computes nothing, to measure the host's own overhead.
//!
//! Reads the shapes of a model, and none of its operators.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flagperf_onnx::ValueInfo;
use serde_json::Value as Json;

use super::options::EngineOptions;
use super::value::row_count;
use super::{
    Artifact, Engine, EngineError, HeapMemory, LoadOptions, Session, SessionFacts, Unavailable, Value, check_inputs,
    model,
};
use flagperf_core::description::{EngineDescription, EngineOption, OptionKind};
use flagperf_core::tensor::{Dim, HostMemory, NamedSizes, Tensor, TensorSpec, byte_count};

const SLEEP_MS: &str = "sleep_ms";
/// The largest accepted `sleep_ms`: one hour.
const SLEEP_MS_MAX: f64 = 3.6e6;
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";

const OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: SLEEP_MS,
        kind: OptionKind::Number { min: Some(0.0), max: Some(SLEEP_MS_MAX) },
        default: "0",
        about: "the time that each submit keeps the simulated device busy, in milliseconds",
    },
    EngineOption {
        name: INPUTS,
        kind: OptionKind::Map,
        default: "those of the model",
        about: "inputs by name with shape and type, such as `{x: \"N,3,224,224,f32\"}`; needs `outputs`",
    },
    EngineOption {
        name: OUTPUTS,
        kind: OptionKind::Map,
        default: "those of the model",
        about: "outputs by name with shape and type; needs `inputs`",
    },
];

/// The engine that computes nothing and returns zeros.
///
/// An output's dimension with the same name as an input's dimension has the same size. An unknown first dimension is
/// the number of rows of the first input, and any other unknown dimension is 1.
#[derive(Debug)]
pub struct Null;

impl Null {
    /// Version of this crate.
    pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
}

impl Engine for Null {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            uses_threads: false,
            options: Some(OPTIONS),
            ..EngineDescription::unrestricted(
                "null",
                "computes nothing and returns zeros: measures the host's own overhead",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Null::VERSION.to_owned())
    }

    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        engine_options.value_infos(INPUTS).and(engine_options.value_infos(OUTPUTS)).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let sleep = milliseconds(engine_options.number(SLEEP_MS).unwrap_or(0.0));
        let (inputs, outputs) = signature(artifact, &engine_options)?;
        Ok(Box::new(NullSession {
            inputs,
            outputs,
            sleep,
            submitted: 0,
            last: None,
            zeros: Arc::new(HeapMemory::zeroed(0)?),
        }))
    }
}

/// Checks the value of the setting `sleep_ms` by the option of this name.
fn parse_sleep(value: &Json) -> Result<Duration, String> {
    let option = OPTIONS.iter().find(|option| option.name == SLEEP_MS).expect("the option is listed");
    option.check(value)?;
    Ok(milliseconds(value.as_f64().unwrap_or(0.0)))
}

/// Converts milliseconds from 0 to [`SLEEP_MS_MAX`].
fn milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}

type Signature = (Vec<ValueInfo>, Vec<ValueInfo>);

/// Returns the inputs and outputs from the options, or from the model when the options do not contain them.
fn signature(artifact: Artifact<'_>, engine_options: &EngineOptions<'_>) -> Result<Signature, EngineError> {
    match (engine_options.value_infos(INPUTS)?, engine_options.value_infos(OUTPUTS)?) {
        (Some(inputs), Some(outputs)) => Ok((inputs, outputs)),
        (None, None) => read_signature(artifact),
        (Some(_), None) => Err(engine_options.option_error(OUTPUTS, "required when `inputs` is set".to_owned())),
        (None, Some(_)) => Err(engine_options.option_error(INPUTS, "required when `outputs` is set".to_owned())),
    }
}

fn read_signature(artifact: Artifact<'_>) -> Result<Signature, EngineError> {
    match artifact {
        Artifact::Graph(graph) => Ok((graph.inputs.clone(), graph.outputs.clone())),
        Artifact::Onnx(path) => model::read(path).map(|graph| (graph.inputs, graph.outputs)),
        Artifact::Compiled(path) => Err(no_signature(path)),
    }
}

fn no_signature(path: &Path) -> EngineError {
    EngineError::Artifact {
        engine: "null",
        accepts: "a graph, an ONNX file, or any file together with the options `inputs` and `outputs`",
        given: format!("`{}` alone", path.display()),
    }
}

struct NullSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    sleep: Duration,
    submitted: u32,
    last: Option<LastSubmit>,
    /// The memory that all outputs share.
    zeros: Arc<HeapMemory>,
}

/// The sizes of the inputs of the last submit and the zeros returned for them. As long as the sizes stay the same, nothing
/// is allocated or checked again.
struct LastSubmit {
    /// The dimensions of all inputs, one input after the other.
    sizes: Vec<usize>,
    zeros: Vec<Value>,
}

impl LastSubmit {
    fn matches(&self, infos: &[ValueInfo], inputs: &[Value]) -> bool {
        let declared = |(info, value): (&ValueInfo, &Value)| match value {
            Value::Host(tensor) => tensor.shape().len() == info.spec.dims.len() && tensor.dtype() == info.spec.dtype,
            Value::Device(_) => false,
        };
        inputs.len() == infos.len()
            && infos.iter().zip(inputs).all(declared)
            && sizes(inputs).eq(self.sizes.iter().copied())
    }
}

/// Returns the dimensions of all inputs on the host, one input after the other.
fn sizes(inputs: &[Value]) -> impl Iterator<Item = usize> {
    let tensors = inputs.iter().filter_map(|value| if let Value::Host(tensor) = value { Some(tensor) } else { None });
    tensors.flat_map(|tensor| tensor.shape().iter().copied())
}

impl NullSession {
    /// Returns zeros for the outputs, of these shapes.
    fn zeros(&mut self, shapes: Vec<Vec<usize>>) -> Result<Vec<Value>, EngineError> {
        let too_large = EngineError::OutOfMemory { bytes: u64::MAX };
        let sizes = shapes.iter().zip(&self.outputs).map(|(shape, output)| byte_count(shape, output.spec.dtype));
        let bytes = sizes.collect::<Option<Vec<_>>>().ok_or(too_large)?.into_iter().max().unwrap_or(0);
        let available = self.zeros.bytes().len();
        if bytes > available {
            self.zeros = Arc::new(HeapMemory::zeroed(bytes.max(available.saturating_mul(2)))?);
        }
        let zeros = |(shape, output): (Vec<usize>, &ValueInfo)| {
            let tensor = Tensor::from_memory(shape, output.spec.dtype, self.zeros.clone(), 0);
            Value::Host(tensor.expect("the memory is long enough"))
        };
        Ok(shapes.into_iter().zip(&self.outputs).map(zeros).collect())
    }
}

impl Session for NullSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        self.submitted += 1;
        if let Some(last) = self.last.as_ref().filter(|last| last.matches(&self.inputs, inputs)) {
            return Ok(last.zeros.clone());
        }
        let named = check_inputs(&self.inputs, inputs)?;
        let rows = row_count(inputs);
        let shapes: Vec<_> = self.outputs.iter().map(|output| shape_of(&output.spec, &named, rows)).collect();
        let zeros = self.zeros(shapes)?;
        self.last = Some(LastSubmit { sizes: sizes(inputs).collect(), zeros: zeros.clone() });
        Ok(zeros)
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts { device: "null".to_owned(), ..SessionFacts::default() }
    }

    fn ask(&mut self, question: &str, _: &Json) -> Result<Json, EngineError> {
        if question == SLEEP_MS {
            return Ok((self.sleep.as_secs_f64() * 1e3).into());
        }
        let (engine, reason) = (Some("null"), format!("unknown (known: {SLEEP_MS})"));
        Err(EngineError::Question { engine, question: question.to_owned(), reason })
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        let setting_error = |reason| EngineError::Setting { engine: Some("null"), setting: setting.to_owned(), reason };
        if setting != SLEEP_MS {
            return Err(setting_error(format!("unknown (known: {SLEEP_MS})")));
        }
        self.sleep = parse_sleep(value).map_err(setting_error)?;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        let busy = self.sleep * std::mem::take(&mut self.submitted);
        if !busy.is_zero() {
            thread::sleep(busy);
        }
        Ok(())
    }
}

/// Returns the shape of an output: sizes that the inputs do not determine are `rows` in the first dimension, else 1.
fn shape_of(spec: &TensorSpec, sizes: &NamedSizes<'_>, rows: usize) -> Vec<usize> {
    let size = |(axis, dim): (usize, &Dim)| sizes.size(dim).unwrap_or(if axis == 0 { rows } else { 1 });
    spec.dims.iter().enumerate().map(size).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn load(extra: serde_json::Value) -> Result<Box<dyn Session>, EngineError> {
        let extra = serde_json::from_value(extra).unwrap();
        let options = LoadOptions { batch_size: 2, extra, ..LoadOptions::default() };
        Null.load(Artifact::Compiled(Path::new("foo")), &options)
    }

    fn two_by_three() -> Value {
        Value::Host(Tensor::from_vec([2, 3], vec![1.0f32; 6]).unwrap())
    }

    #[test]
    fn the_options_give_a_placeholder_file_its_shapes() {
        let mut session = load(json!({"inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,1000,f16"}})).unwrap();
        let outputs = session.submit(&[two_by_three()]).unwrap();
        assert_eq!(outputs[0].spec().to_string(), "2,1000,f16");
        assert!(outputs[0].to_host().unwrap().bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn every_batch_of_one_shape_returns_the_same_zeros() {
        let mut session = load(json!({"inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,4,f32"}})).unwrap();
        let [first, second] = [0, 1].map(|_| session.submit(&[two_by_three()]).unwrap()[0].to_host().unwrap());
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
    }

    #[test]
    fn the_error_for_a_placeholder_without_shapes_contains_its_path() {
        let error = load(json!({})).err().unwrap().to_string();
        assert!(error.contains("`inputs`") && error.contains("`foo`"), "{error}");
    }

    #[test]
    fn inputs_without_outputs_are_rejected() {
        let error = load(json!({"inputs": {"x": "N,3,f32"}})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `outputs`: required when `inputs` is set");
    }

    #[test]
    fn a_null_option_means_the_default() {
        load(json!({"sleep_ms": null, "inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,4,f32"}})).unwrap();
    }

    #[test]
    fn a_negative_sleep_is_rejected() {
        let error = load(json!({"sleep_ms": -1})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `sleep_ms`: `-1` is not a number from 0 to 3600000");
    }

    #[test]
    fn loading_and_tuning_reject_a_sleep_of_more_than_an_hour() {
        let error = load(json!({"sleep_ms": 1e308})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `sleep_ms`: `1e+308` is not a number from 0 to 3600000");
        let mut session = load(json!({"sleep_ms": 3.6e6, "inputs": {"x": "f32"}, "outputs": {"y": "f32"}})).unwrap();
        let error = session.tune("sleep_ms", &json!(1e308)).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: setting `sleep_ms`: `1e+308` is not a number from 0 to 3600000");
    }

    #[test]
    fn a_question_returns_the_tuned_setting() {
        let mut session = load(json!({"sleep_ms": 2, "inputs": {"x": "f32"}, "outputs": {"y": "f32"}})).unwrap();
        assert_eq!(session.ask("sleep_ms", &Json::Null).unwrap(), 2.0);
        session.tune("sleep_ms", &json!(0.5)).unwrap();
        assert_eq!(session.ask("sleep_ms", &Json::Null).unwrap(), 0.5);
        let error = session.tune("sleep_ms", &json!(-1)).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: setting `sleep_ms`: `-1` is not a number from 0 to 3600000");
        let error = session.ask("layers", &Json::Null).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: question `layers`: unknown (known: sleep_ms)");
    }

    #[test]
    fn an_unknown_option_lists_the_nearest_known_one() {
        let error = load(json!({"sleepms": 1})).err().unwrap();
        let reason = "unknown (known: sleep_ms, inputs, outputs, threads; nearest: sleep_ms)";
        assert_eq!(error.to_string(), format!("engine `null`: option `sleepms`: {reason}"));
    }
}
