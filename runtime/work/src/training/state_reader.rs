//! Reads the states of a training back from the engine, also those that other processes have.

use flagperf_core::event::Failure;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_engine::Value;
use flagperf_onnx::StateExchange;
use flagperf_plan::Job;
use flagperf_script::Sessions;

use super::super::phase::failure;
use super::super::step::read_values;
use super::model::{TrainingModel, load_graph, with_group};
use super::transfer::with_own_stream;

/// Reads states. If the processes that train together do not all have the same ones, all of them must read at the same time.
#[derive(Default)]
pub struct StateReader {
    /// The indices of the states that the step of this process has.
    kept: Vec<usize>,
    exchanges: Vec<(StateExchange, Sessions)>,
}

impl StateReader {
    /// Loads what is needed to read the states of a model's step.
    ///
    /// # Errors
    /// When the engine cannot load it.
    pub fn load(model: &TrainingModel, job: &Job, role: EngineRole) -> Result<Self, Failure> {
        let job = with_own_stream(job)?.unwrap_or_else(|| job.clone());
        let load = |exchange: StateExchange| {
            let sessions = load_graph(&exchange.graph, "exchange", &with_group(&job), role)?;
            Ok((exchange, sessions))
        };
        let exchanges = model.step.exchanges.iter().cloned().map(load).collect::<Result<_, Failure>>()?;
        Ok(StateReader { kept: model.step.kept.clone(), exchanges })
    }

    /// Returns whether all processes must read at the same time.
    pub fn reads_together(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// Returns all states, of which `values` are those of the step of this process.
    ///
    /// # Errors
    /// When a state cannot be read, or another process cannot be reached.
    pub fn read(&self, values: &[Value]) -> Result<Vec<Tensor>, Failure> {
        if !self.reads_together() {
            return read_values(&values.iter().collect::<Vec<_>>());
        }
        let others = self.exchanges.iter().flat_map(|(exchange, _)| &exchange.outputs);
        let count = self.kept.iter().chain(others).max().map_or(0, |last| last + 1);
        let mut own: Vec<Option<&Value>> = vec![None; count];
        self.kept.iter().zip(values).for_each(|(index, value)| own[*index] = Some(value));
        let mut states: Vec<Option<Tensor>> = vec![None; count];
        for (exchange, sessions) in &self.exchanges {
            let given: Vec<Value> = exchange.inputs.iter().filter_map(|index| own[*index].cloned()).collect();
            let session = sessions.values().next().expect("an exchange is one graph");
            let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
            let outputs = session.submit(&given).map_err(|e| failure(&e, ""))?;
            session.sync().map_err(|e| failure(&e, ""))?;
            let read = read_values(&outputs.iter().collect::<Vec<_>>())?;
            exchange.outputs.iter().zip(read).for_each(|(index, state)| states[*index] = Some(state));
        }
        let missing = states.iter().zip(own).filter(|(state, _)| state.is_none());
        let missing: Vec<&Value> =
            missing.map(|(_, own)| own.expect("a state that nobody has alone is here")).collect();
        let mut read = read_values(&missing)?.into_iter();
        Ok(states.into_iter().map(|state| state.or_else(|| read.next()).expect("all were read")).collect())
    }
}
