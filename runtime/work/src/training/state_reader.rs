//! Reads the states of a training back from the engine, also those that other processes have.

use flagperf_core::event::Failure;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_engine::Value;
use flagperf_onnx::Shard;
use flagperf_plan::Job;
use flagperf_script::Sessions;

use super::super::phase::failure;
use super::super::step::read_value;
use super::model::{TrainingModel, load_graph, with_group};

/// Reads states. If the memory of the optimizer is divided among processes, all of them must read at the same time.
#[derive(Default)]
pub struct StateReader {
    gather: Option<(Shard, Sessions)>,
}

impl StateReader {
    /// Loads what is needed to read the states of a model's step.
    ///
    /// # Errors
    /// When the engine cannot load it.
    pub fn load(model: &TrainingModel, job: &Job, role: EngineRole) -> Result<Self, Failure> {
        let Some(shard) = &model.step.shard else { return Ok(StateReader::default()) };
        let sessions = load_graph(&shard.gather_model(&model.step.states), "gather", &with_group(job), role)?;
        Ok(StateReader { gather: Some((shard.clone(), sessions)) })
    }

    /// Returns all states, of which `values` are those of the step of this process.
    ///
    /// # Errors
    /// When a state cannot be read, or another process cannot be reached.
    pub fn read(&self, values: &[Value]) -> Result<Vec<Tensor>, Failure> {
        let Some((shard, sessions)) = &self.gather else { return values.iter().map(read_value).collect() };
        let own = shard.kept().zip(values).filter(|(index, _)| shard.owners[*index].is_some());
        let own: Vec<Value> = own.map(|(_, value)| value.clone()).collect();
        let session = sessions.values().next().expect("the exchange of states is one graph");
        let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
        let gathered = session.submit(&own).map_err(|e| failure(&e, ""))?;
        session.sync().map_err(|e| failure(&e, ""))?;
        let common = shard.kept().zip(values).filter(|(index, _)| shard.owners[*index].is_none());
        let (mut gathered, mut common) = (gathered.iter(), common.map(|(_, value)| value));
        let states = shard.owners.iter().map(|owner| {
            let value = if owner.is_some() { gathered.next() } else { common.next() };
            read_value(value.expect("there is a value for each state"))
        });
        states.collect()
    }
}
