//! Counts the runs of a model: the rows of a step, and how often the model ran on inputs of which sizes.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::budget::Budget;
use flagperf_core::tensor::Dim;
use flagperf_engine::{Session, Value};

/// The most different sizes of a model's inputs that are counted.
const SIZES_MAX: usize = 4096;

/// Counts the runs of one model.
pub(crate) struct RunCounter {
    /// The inputs' dimensions that are not fixed: the index of the input and of the dimension.
    dims: Vec<(usize, usize)>,
    /// The names of the inputs.
    names: Vec<String>,
    rows: u64,
    /// The sizes of the run that is being counted, in the order of `dims`.
    sizes: Vec<usize>,
    runs: HashMap<Vec<usize>, u64, RandomState>,
    is_complete: bool,
}

/// The runs of a model by the sizes of its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRuns {
    /// The dimensions that are not fixed: the name of the input and the index of the dimension.
    pub dims: Vec<(String, usize)>,
    /// The sizes of these dimensions, and the number of runs with them.
    pub runs: Vec<(Vec<usize>, u64)>,
    /// Whether all runs are counted; otherwise there were too many different sizes.
    pub is_complete: bool,
}

impl RunCounter {
    pub(super) fn new(session: &dyn Session) -> Self {
        let inputs = session.inputs();
        let dims = inputs.iter().enumerate().flat_map(|(index, input)| {
            let open = input.spec.dims.iter().enumerate().filter(|(_, dim)| dim.fixed().is_none());
            open.map(move |(axis, _)| (index, axis))
        });
        RunCounter {
            dims: dims.collect(),
            names: inputs.iter().map(|input| input.name.clone()).collect(),
            rows: 0,
            sizes: Vec::new(),
            runs: HashMap::default(),
            is_complete: true,
        }
    }

    /// Counts a run of `rows` rows on `inputs` in the model's order.
    pub(super) fn count(&mut self, inputs: &[Value], rows: usize) {
        self.rows += rows as u64;
        self.sizes.clear();
        self.sizes.extend(self.dims.iter().map(|(index, axis)| inputs.get(*index).map_or(0, |v| size(v, *axis))));
        if let Some(runs) = self.runs.get_mut(&self.sizes) {
            *runs += 1;
        } else if self.runs.len() < SIZES_MAX {
            // Not counted as the script's memory, because the host keeps the sizes after the call.
            Budget::uncounted(|| self.runs.insert(self.sizes.clone(), 1));
        } else {
            self.is_complete = false;
        }
    }

    /// Returns the rows of the runs since the last call of this function.
    pub(crate) fn take_rows(&mut self) -> u64 {
        std::mem::take(&mut self.rows)
    }

    /// Returns the runs since the last call of this function.
    pub(crate) fn take_runs(&mut self) -> ModelRuns {
        ModelRuns {
            dims: self.dims.iter().map(|(index, axis)| (self.names[*index].clone(), *axis)).collect(),
            runs: self.runs.drain().collect(),
            is_complete: std::mem::replace(&mut self.is_complete, true),
        }
    }
}

/// Returns the size of a dimension, or 0 if the tensor has fewer dimensions: the engine then refuses it.
fn size(value: &Value, axis: usize) -> usize {
    match value {
        Value::Host(tensor) => tensor.shape().get(axis).copied().unwrap_or(0),
        Value::Device(tensor) => tensor.spec().dims.get(axis).and_then(Dim::fixed).unwrap_or(0),
    }
}
