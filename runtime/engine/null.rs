//! The null row: takes any model, computes nothing, and so measures the host's own overhead.
//!
//! Knows the shapes of a model, none of its operators.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flagperf_onnx::ValueInfo;
use indexmap::IndexMap;
use serde_json::Value as Json;

use super::options::Asked;
use super::{
    Artifact, Engine, EngineError, Facts, HeapMemory, Options, Session, Unavailable, Value, check_inputs, model,
};
use crate::tensor::{DType, Dim, Tensor, TensorSpec, byte_count};

/// Time that each submit keeps the pretended device busy, in milliseconds; spent in `sync`.
const SLEEP_MS: &str = "sleep_ms";
/// The longest time that it takes: an hour.
const SLEEP_MS_MAX: f64 = 3.6e6;
/// Inputs by name, as specifications; instead of what the model says. Likewise outputs.
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";

/// The engine that computes nothing: outputs are zeros.
///
/// Dimensions of an output that carry the name of an input's dimension have its size; an unknown first dimension has
/// the first input's rows, any other unknown one is 1.
#[derive(Debug)]
pub struct Null;

impl Null {
    /// Version of this crate.
    pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
}

impl Engine for Null {
    fn facts(&self) -> Facts {
        Facts::widest("null", "computes nothing and gives zeros: measures the overhead of the host itself")
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(Null::VERSION.to_owned())
    }

    fn check_options(&self, options: &Options) -> Result<(), EngineError> {
        let (_, asked) = read_options(self, options)?;
        asked.specs(INPUTS).and(asked.specs(OUTPUTS)).map(drop)
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let (sleep, asked) = read_options(self, options)?;
        let (inputs, outputs) = signature(artifact, &asked)?;
        Ok(Box::new(NullSession { inputs, outputs, sleep, submitted: 0, last: None }))
    }
}

fn read_options<'o>(engine: &Null, options: &'o Options) -> Result<(Duration, Asked<'o>), EngineError> {
    let asked = Asked::check(engine, options, &[SLEEP_MS, INPUTS, OUTPUTS])?;
    let milliseconds = asked.number(SLEEP_MS)?.unwrap_or(0.0);
    let sleep = sleep(milliseconds).map_err(|reason| asked.refuse(SLEEP_MS, reason))?;
    Ok((sleep, asked))
}

/// Milliseconds as a time, or why they are refused.
fn sleep(milliseconds: f64) -> Result<Duration, String> {
    if milliseconds > SLEEP_MS_MAX {
        return Err(format!("`{milliseconds:?}` is more than {SLEEP_MS_MAX}, an hour"));
    }
    Duration::try_from_secs_f64(milliseconds / 1e3).map_err(|error| error.to_string())
}

type Signature = (Vec<ValueInfo>, Vec<ValueInfo>);

/// Inputs and outputs: from the options, else from the model.
fn signature(artifact: Artifact<'_>, asked: &Asked<'_>) -> Result<Signature, EngineError> {
    match (asked.specs(INPUTS)?, asked.specs(OUTPUTS)?) {
        (Some(inputs), Some(outputs)) => Ok((inputs, outputs)),
        (None, None) => read(artifact),
        (Some(_), None) => Err(asked.refuse(OUTPUTS, "must be given beside `inputs`".to_owned())),
        (None, Some(_)) => Err(asked.refuse(INPUTS, "must be given beside `outputs`".to_owned())),
    }
}

fn read(artifact: Artifact<'_>) -> Result<Signature, EngineError> {
    match artifact {
        Artifact::Graph(graph) => Ok((graph.inputs.clone(), graph.outputs.clone())),
        Artifact::Onnx(path) => model::read(path).map(|graph| (graph.inputs, graph.outputs)),
        Artifact::Compiled(path) => Err(nothing_to_read(path)),
    }
}

fn nothing_to_read(path: &Path) -> EngineError {
    EngineError::Artifact {
        engine: "null",
        takes: "the model's inputs and outputs from a graph, an ONNX file or the options `inputs` and `outputs`",
        given: format!("`{}`", path.display()),
    }
}

struct NullSession {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    sleep: Duration,
    submitted: u32,
    last: Option<Last>,
}

/// The inputs of the last submit, and the zeros that answer them: as long as they stay the same, nothing is allocated
/// or checked again.
struct Last {
    inputs: Vec<(Vec<usize>, DType)>,
    zeros: Vec<Value>,
}

impl Last {
    fn answers(&self, inputs: &[Value]) -> bool {
        let same = |((shape, dtype), value): (&(Vec<usize>, DType), &Value)| match value {
            Value::Host(tensor) => tensor.shape() == shape && tensor.dtype() == *dtype,
            Value::Device(_) => false,
        };
        self.inputs.len() == inputs.len() && self.inputs.iter().zip(inputs).all(same)
    }
}

impl Session for NullSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        self.submitted += 1;
        if let Some(last) = self.last.as_ref().filter(|last| last.answers(inputs)) {
            return Ok(last.zeros.clone());
        }
        check_inputs(&self.inputs, inputs)?;
        let given: Vec<TensorSpec> = inputs.iter().map(Value::spec).collect();
        let shapes: Vec<Vec<usize>> = given.iter().filter_map(TensorSpec::fixed_shape).collect();
        let sizes = sizes_by_name(&self.inputs, &shapes);
        let rows = shapes.first().and_then(|shape| shape.first()).copied().unwrap_or(1);
        let zeros = self
            .outputs
            .iter()
            .map(|output| zeros(&shape_of(&output.spec, &sizes, rows), output.spec.dtype).map(Value::Host))
            .collect::<Result<Vec<_>, _>>()?;
        let inputs = shapes.into_iter().zip(given.iter().map(|spec| spec.dtype)).collect();
        self.last = Some(Last { inputs, zeros: zeros.clone() });
        Ok(zeros)
    }

    fn device(&self) -> String {
        "null".to_owned()
    }

    fn ask(&mut self, question: &str, _: &Json) -> Result<Json, EngineError> {
        if question == SLEEP_MS {
            return Ok((self.sleep.as_secs_f64() * 1e3).into());
        }
        let (engine, reason) = (Some("null"), format!("unknown (known: {SLEEP_MS})"));
        Err(EngineError::Question { engine, question: question.to_owned(), reason })
    }

    fn tune(&mut self, setting: &str, value: &Json) -> Result<(), EngineError> {
        let refused = |reason| EngineError::Setting { engine: Some("null"), setting: setting.to_owned(), reason };
        if setting != SLEEP_MS {
            return Err(refused(format!("unknown (known: {SLEEP_MS})")));
        }
        let milliseconds = value.as_f64().filter(|given| *given >= 0.0);
        let milliseconds =
            milliseconds.ok_or_else(|| refused(format!("`{value}` is not a number that is not negative")))?;
        self.sleep = sleep(milliseconds).map_err(refused)?;
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

fn sizes_by_name<'a>(inputs: &'a [ValueInfo], shapes: &[Vec<usize>]) -> IndexMap<&'a str, usize> {
    let dims = inputs.iter().flat_map(|info| &info.spec.dims);
    let sized = dims.zip(shapes.iter().flatten());
    sized
        .filter_map(|(dim, size)| if let Dim::Named(name) = dim { Some((name.as_str(), *size)) } else { None })
        .collect()
}

fn shape_of(spec: &TensorSpec, sizes: &IndexMap<&str, usize>, rows: usize) -> Vec<usize> {
    let size = |(axis, dim): (usize, &Dim)| match dim {
        Dim::Fixed(size) => *size,
        Dim::Named(name) if sizes.contains_key(name.as_str()) => sizes[name.as_str()],
        _ if axis == 0 => rows,
        _ => 1,
    };
    spec.dims.iter().enumerate().map(size).collect()
}

fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor, EngineError> {
    let bytes = byte_count(shape, dtype).ok_or(EngineError::OutOfMemory { bytes: u64::MAX })?;
    let memory = Arc::new(HeapMemory::zeroed(bytes)?);
    Ok(Tensor::from_memory(shape, dtype, memory, 0).expect("the memory was made for this shape and type"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn load(extra: serde_json::Value) -> Result<Box<dyn Session>, EngineError> {
        let extra = serde_json::from_value(extra).unwrap();
        let options = Options { batch_size: 2, extra, ..Options::default() };
        Null.load(Artifact::Compiled(Path::new("foo")), &options)
    }

    fn two_by_three() -> Value {
        Value::Host(Tensor::from_vec([2, 3], vec![1.0f32; 6]).unwrap())
    }

    #[test]
    fn a_placeholder_file_takes_its_shapes_from_the_options() {
        let mut session = load(json!({"inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,1000,f16"}})).unwrap();
        let outputs = session.submit(&[two_by_three()]).unwrap();
        assert_eq!(outputs[0].spec().to_string(), "2,1000,f16");
        assert!(outputs[0].to_host().unwrap().bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_same_zeros_answer_every_batch_of_one_shape() {
        let mut session = load(json!({"inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,4,f32"}})).unwrap();
        let [first, second] = [0, 1].map(|_| session.submit(&[two_by_three()]).unwrap()[0].to_host().unwrap());
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
    }

    #[test]
    fn a_placeholder_without_shapes_is_refused_by_its_name() {
        let error = load(json!({})).err().unwrap().to_string();
        assert!(error.contains("`inputs`") && error.contains("`foo`"), "{error}");
    }

    #[test]
    fn inputs_without_outputs_name_what_is_missing() {
        let error = load(json!({"inputs": {"x": "N,3,f32"}})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `outputs`: must be given beside `inputs`");
    }

    #[test]
    fn an_option_that_is_null_is_left_to_the_engine() {
        load(json!({"sleep_ms": null, "inputs": {"x": "N,3,f32"}, "outputs": {"y": "N,4,f32"}})).unwrap();
    }

    #[test]
    fn a_negative_sleep_is_refused() {
        let error = load(json!({"sleep_ms": -1})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `sleep_ms`: `-1` is not a number that is not negative");
    }

    #[test]
    fn a_sleep_beyond_an_hour_is_refused_when_it_is_loaded_and_when_it_is_tuned() {
        let error = load(json!({"sleep_ms": 1e308})).err().unwrap();
        assert_eq!(error.to_string(), "engine `null`: option `sleep_ms`: `1e308` is more than 3600000, an hour");
        let mut session = load(json!({"sleep_ms": 3.6e6, "inputs": {"x": "f32"}, "outputs": {"y": "f32"}})).unwrap();
        let error = session.tune("sleep_ms", &json!(1e308)).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: setting `sleep_ms`: `1e308` is more than 3600000, an hour");
    }

    #[test]
    fn a_setting_is_answered_as_it_was_tuned() {
        let mut session = load(json!({"sleep_ms": 2, "inputs": {"x": "f32"}, "outputs": {"y": "f32"}})).unwrap();
        assert_eq!(session.ask("sleep_ms", &Json::Null).unwrap(), 2.0);
        session.tune("sleep_ms", &json!(0.5)).unwrap();
        assert_eq!(session.ask("sleep_ms", &Json::Null).unwrap(), 0.5);
        let error = session.tune("sleep_ms", &json!(-1)).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: setting `sleep_ms`: `-1` is not a number that is not negative");
        let error = session.ask("layers", &Json::Null).unwrap_err().to_string();
        assert_eq!(error, "engine `null`: question `layers`: unknown (known: sleep_ms)");
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let error = load(json!({"sleepms": 1})).err().unwrap();
        let reason = "unknown (known: sleep_ms, inputs, outputs; nearest: sleep_ms)";
        assert_eq!(error.to_string(), format!("engine `null`: option `sleepms`: {reason}"));
    }
}
