//! What the processes of a training decide together: each computes the same mean with its engine.

use std::sync::Mutex;

use flagperf_core::event::Failure;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_onnx::all_reduce_model;
use flagperf_plan::Job;
use flagperf_script::Sessions;

use super::super::phase::failure;
use super::model::{load_graph, with_group};
use super::step_parts::compute;

/// The processes that train together; one of them if a device trains alone.
pub struct Group {
    pub rank: u32,
    pub size: u32,
    /// Computes the mean of a number; empty for one process.
    sessions: Mutex<Sessions>,
}

impl Group {
    /// Joins the group of a job.
    ///
    /// # Errors
    /// When the others do not join in time.
    pub fn join(job: &Job, role: EngineRole) -> Result<Self, Failure> {
        let Some(ProcessGroup { rank, size, .. }) = job.process_group else {
            return Ok(Group { rank: 0, size: 1, sessions: Mutex::default() });
        };
        let sessions = load_graph(&all_reduce_model(1), "all_reduce", &with_group(job), role)?;
        Ok(Group { rank, size, sessions: Mutex::new(sessions) })
    }

    /// Returns whether a condition holds in every process. All of them must ask at the same time.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn is_true_everywhere(&self, own: bool) -> Result<bool, Failure> {
        let sessions = self.sessions.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
        if sessions.is_empty() {
            return Ok(own);
        }
        let own = Tensor::from_vec([1], vec![f32::from(u8::from(own))]).expect("one number");
        let means = compute(&sessions, vec![own])?;
        // Where one process disagrees, the mean is less than 1 by its share.
        let share = 1.0 / f64::from(self.size);
        Ok(means.first().is_some_and(|mean| mean.to_f64()[0] > 1.0 - share / 2.0))
    }
}
