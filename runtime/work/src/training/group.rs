//! What the processes of a training decide together: each computes the same mean with its engine.

use std::collections::BTreeSet;
use std::sync::Mutex;

use flagperf_core::event::Failure;
use flagperf_core::process_group::{LOST_PROCESS, ProcessGroup};
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::Tensor;
use flagperf_onnx::{State, all_reduce_model};
use flagperf_plan::Job;
use flagperf_script::Sessions;
use indexmap::IndexMap;

use super::super::phase::failure;
use super::checkpoint::{Checkpoint, Checkpoints};
use super::model::{load_graph, with_group};
use super::step_parts::compute;

/// The processes that train together; one of them if a device trains alone.
pub struct Group {
    pub rank: u32,
    pub size: u32,
    /// Whether this process writes checkpoints: all have the same states.
    pub writes_checkpoints: bool,
    /// Computes the mean of a number; empty for one process.
    sessions: Mutex<Sessions>,
}

impl Group {
    /// Joins the group of a job.
    ///
    /// # Errors
    /// When the others do not join in time.
    pub fn join(job: &Job, role: EngineRole) -> Result<Self, Failure> {
        let Some(ProcessGroup { rank, size: size @ 2.., writes_checkpoints, .. }) = job.process_group else {
            return Ok(Group { rank: 0, size: 1, writes_checkpoints: true, sessions: Mutex::default() });
        };
        let sessions = load_graph(&all_reduce_model(&[1]), "all_reduce", &with_group(job), role)?;
        Ok(Group { rank, size, writes_checkpoints, sessions: Mutex::new(sessions) })
    }

    /// Returns this process without the others: it takes its own samples, and exchanges nothing.
    pub fn alone(&self) -> Self {
        let Group { rank, size, .. } = *self;
        Group { rank, size, writes_checkpoints: false, sessions: Mutex::default() }
    }

    /// Returns the newest checkpoint that every process can use, and why newer ones were not used; `None` without checkpoints. `hashes`
    /// has the same names in every process.
    ///
    /// # Errors
    /// When no checkpoint can be used by every process, or the engine fails.
    pub fn common_checkpoint(
        &self,
        checkpoints: &Checkpoints<'_>,
        states: &[State],
        hashes: &IndexMap<String, String>,
    ) -> Result<(Option<Checkpoint>, Vec<String>), Failure> {
        let names: BTreeSet<&String> = hashes.keys().collect();
        let (mut unusable, mut is_usable_here) = (Vec::new(), false);
        for name in names.into_iter().rev() {
            let own = checkpoints.read(name, states, hashes.get(name));
            match (self.is_true_everywhere(own.is_ok())?, own) {
                (true, Ok(checkpoint)) => return Ok((Some(checkpoint), unusable)),
                (_, Err(error)) => unusable.push(format!("the checkpoint `{name}` cannot be used: {error}")),
                (false, Ok(_)) => {
                    is_usable_here = true;
                    unusable.push(format!("another process cannot use the checkpoint `{name}`"));
                }
            }
        }
        match unusable.is_empty() {
            true => Ok((None, unusable)),
            false => {
                let reason = format!("rank {} cannot go on with the others: {}", self.rank, unusable.join("; "));
                // The record names the process that has none.
                let reason = if is_usable_here { format!("{LOST_PROCESS}: {reason}") } else { reason };
                Err(failure(&reason, "start a new run: the training then begins again"))
            }
        }
    }

    /// Returns the smallest number of all processes, each of which has one of at most `most`. All of them must ask at the same time.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn smallest(&self, own: usize, most: usize) -> Result<usize, Failure> {
        for number in (1..=most).rev() {
            if self.is_true_everywhere(own >= number)? {
                return Ok(number);
            }
        }
        Ok(0)
    }

    /// Waits for all processes, which must call this at the same time: what they wait for is then no part of a step.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn wait(&self) -> Result<(), Failure> {
        self.is_true_everywhere(true).map(drop)
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
