//! A decoder with its cache, in a worker: each run gets the tokens of every row and the place of the first one.

use std::sync::Arc;

use flagperf_core::tensor::{HostMemory, Tensor, byte_count};
use flagperf_engine::{EngineError, HeapMemory, LentMemory, Session, SessionFacts, Value};
use flagperf_onnx::ValueInfo;

use super::{ATTENTION_MASK, FIRST, INPUT_IDS, LOGITS, PAST, POSITION_IDS, PRESENT, TOKEN};

/// A session with the inputs `input_ids` and `first`, and the output `token` or `logits`. It keeps the cache of its rows.
pub struct DecoderSession {
    inner: Box<dyn Session>,
    inputs: [ValueInfo; 2],
    output: [ValueInfo; 1],
    /// Where each input of the engine comes from, in its order.
    sources: Vec<Source>,
    /// The index of the output among those of the engine.
    output_index: usize,
    mask: Value,
    /// The states by the engine's index of the output.
    states: Vec<Option<Value>>,
}

/// Where an input of the engine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Tokens,
    Positions,
    Mask,
    First,
    /// The output with this index, of the run before.
    State(usize),
}

impl DecoderSession {
    /// Wraps the session of a decoder, and runs it with the sizes that it will get: `rows` rows of `chunk` tokens, and of one.
    ///
    /// # Errors
    /// When the inputs and outputs are not those of a decoder, or a run fails.
    pub fn new(inner: Box<dyn Session>, rows: usize, chunk: usize) -> Result<Self, EngineError> {
        let find = |infos: &[ValueInfo], name: &str| infos.iter().position(|info| info.name == name);
        let missing = |name: &str| EngineError::Failed(format!("the decoder has no `{name}`"));
        let (infos, outputs) = (inner.inputs(), inner.outputs());
        let sources = infos.iter().map(|info| source(info, outputs).ok_or_else(|| missing(&info.name)));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let own = |name: &str| find(infos, name).map(|at| infos[at].clone()).ok_or_else(|| missing(name));
        let inputs = [own(INPUT_IDS)?, own(FIRST)?];
        let length = own(ATTENTION_MASK)?.spec.dims.get(1).and_then(flagperf_core::tensor::Dim::fixed);
        let length = length.ok_or_else(|| EngineError::Failed("the cache has no fixed length".to_owned()))?;
        let chunk = chunk.min(length);
        let output_index = find(outputs, LOGITS).or_else(|| find(outputs, TOKEN)).ok_or_else(|| missing(TOKEN))?;
        let output = [outputs[output_index].clone()];
        let mask = Value::Host(tensor([rows, length], vec![1i64; rows * length])?);
        let states = vec![None; outputs.len()];
        let mut session = DecoderSession { inner, inputs, output, sources, output_index, mask, states };
        // The first run begins without a cache, the second has the sizes of every later run.
        for size in [chunk, 1, chunk] {
            let tokens = Value::Host(tensor([rows, size], vec![0i64; rows * size])?);
            let first = Value::Host(tensor([rows], vec![0i64; rows])?);
            session.submit(&[tokens, first])?;
            session.sync()?;
        }
        Ok(session)
    }

    /// Returns the inputs of a run of the engine.
    fn engine_inputs(&self, tokens: &Value, first: &Value) -> Result<Vec<Value>, EngineError> {
        let infos = self.inner.inputs();
        let input = |(source, info): (&Source, &ValueInfo)| match source {
            Source::Tokens => Ok(tokens.clone()),
            Source::Positions => positions(tokens, first).map(Value::Host),
            Source::Mask => Ok(self.mask.clone()),
            Source::First => Ok(first.clone()),
            Source::State(output) => match &self.states[*output] {
                Some(state) => Ok(state.clone()),
                None => empty_state(info, tokens).map(Value::Host),
            },
        };
        self.sources.iter().zip(infos).map(input).collect()
    }
}

fn source(input: &ValueInfo, outputs: &[ValueInfo]) -> Option<Source> {
    match input.name.as_str() {
        INPUT_IDS => Some(Source::Tokens),
        POSITION_IDS => Some(Source::Positions),
        ATTENTION_MASK => Some(Source::Mask),
        FIRST => Some(Source::First),
        name => {
            let output = format!("{PRESENT}{}", name.strip_prefix(PAST)?);
            outputs.iter().position(|info| info.name == output).map(Source::State)
        }
    }
}

fn tensor<T: flagperf_core::tensor::Element>(
    shape: impl Into<Vec<usize>>,
    elements: Vec<T>,
) -> Result<Tensor, EngineError> {
    Tensor::from_vec(shape, elements).map_err(|error| EngineError::Failed(error.to_string()))
}

/// Returns the positions of the tokens: the place of the first one of the row, and those behind it.
fn positions(tokens: &Value, first: &Value) -> Result<Tensor, EngineError> {
    let (tokens, first) = (tokens.to_host()?, first.to_host()?);
    let failed = |error: flagperf_core::tensor::TensorError| EngineError::Failed(error.to_string());
    let count = tokens.shape().get(1).copied().unwrap_or(0) as i64;
    let places = first.as_slice::<i64>().map_err(failed)?.iter().flat_map(|first| (0..count).map(move |at| first + at));
    tensor(tokens.shape(), places.collect())
}

/// Returns the state before the first run: its dimensions that the file leaves open have size 0, except for the rows.
fn empty_state(info: &ValueInfo, tokens: &Value) -> Result<Tensor, EngineError> {
    let rows = tokens.to_host()?.shape().first().copied().unwrap_or(0);
    let size = |(axis, dim): (usize, &flagperf_core::tensor::Dim)| match dim.fixed() {
        Some(size) => size,
        None if axis == 0 => rows,
        None => 0,
    };
    let shape: Vec<usize> = info.spec.dims.iter().enumerate().map(size).collect();
    let failed = || EngineError::Failed(format!("the state `{}` of `{}` cannot be allocated", info.name, info.spec));
    let memory = HeapMemory::zeroed(byte_count(&shape, info.spec.dtype).ok_or_else(failed)?)?;
    let memory: Arc<dyn HostMemory> = Arc::new(memory);
    Tensor::from_memory(shape, info.spec.dtype, memory, 0).map_err(|_| failed())
}

impl Session for DecoderSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.output
    }

    fn lend(&mut self, index: usize, bytes: usize) -> Result<Box<dyn LentMemory>, EngineError> {
        let wanted = if index == 0 { Source::Tokens } else { Source::First };
        let inner = self.sources.iter().position(|source| *source == wanted).unwrap_or(index);
        self.inner.lend(inner, bytes)
    }

    /// Runs the decoder. After a failure the cache is that of the run before.
    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let [tokens, first] = inputs else {
            return Err(EngineError::InputCount { expected: 2, given: inputs.len() });
        };
        let values = self.engine_inputs(tokens, first)?;
        let mut outputs: Vec<Option<Value>> = self.inner.submit(&values)?.into_iter().map(Some).collect();
        for source in &self.sources {
            if let Source::State(output) = source {
                self.states[*output] = outputs.get_mut(*output).and_then(Option::take);
            }
        }
        Ok(outputs.get_mut(self.output_index).and_then(Option::take).into_iter().collect())
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn facts(&self) -> SessionFacts {
        self.inner.facts()
    }

    fn close(&mut self) -> Option<String> {
        self.states.fill(None);
        self.inner.close()
    }
}
