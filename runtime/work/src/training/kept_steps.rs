//! The steps of a training that another engine computes again, with the batches of all processes that computed them.

use std::sync::Arc;

use flagperf_core::event::Failure;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Bytes;
use flagperf_data::{Field, Loader, TrainingSampler};
use flagperf_engine::{HeapMemory, LentMemory};
use flagperf_onnx::StepScalars;
use flagperf_plan::Job;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use super::super::measured_loop::loader_options;
use super::super::phase::failure;
use super::super::step::read_value;
use super::drawn_steps::{BatchPlace, DrawnStep};
use super::training_loop::TrainingLoop;

/// Returns for how many pairs of steps there is memory: a quarter of the worker's.
pub fn pairs_max(job: &Job, states: Bytes) -> usize {
    let limit = Some(job.limits.worker_memory_bytes.0).filter(|limit| *limit > 0);
    let wanted = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let machine = || System::new_with_specifics(wanted).map_or(0, |system| system.total_memory());
    // A pair consists of the states before, between and after its steps.
    (limit.unwrap_or_else(machine) / 4 / (3 * states.0).max(1)) as usize
}

impl TrainingLoop<'_> {
    /// Returns at most `max` steps that another engine computes again, with all their inputs: their batches are read again.
    ///
    /// # Errors
    /// When a batch cannot be read.
    pub fn kept_steps(&self, max: usize) -> Result<Vec<DrawnStep>, Failure> {
        let mut allocate =
            |_: &Field, bytes| HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>);
        let loader = Loader::new(Arc::clone(&self.dataset), loader_options(self.job), &mut allocate);
        let mut loader = loader.map_err(|e| failure(&e, e.hint()))?;
        let mut fields = |kept: &DrawnStep, rank: usize| {
            let BatchPlace { seed, epoch, batch } = kept.place;
            loader.start_epoch(&TrainingSampler { seed, rank, ..self.sampler }, epoch, batch..batch + 1);
            let batch = loader.next().expect("the batch was read before").map_err(|e| failure(&e, e.hint()))?;
            let fields = self.batch_inputs(&batch)?.iter().map(read_value).collect::<Result<Vec<_>, Failure>>()?;
            loader.recycle(batch).map_err(|e| failure(&e, ""))?;
            Ok(fields)
        };
        let mut complete = |kept: &DrawnStep| {
            let own = fields(kept, self.sampler.rank)?;
            let others = (0..self.sampler.world).filter(|rank| *rank != self.sampler.rank).map(|rank| {
                let masks = StepScalars::masks(kept.place.seed, self.mask_step(kept.step, rank)).map(Tensor::scalar);
                let numbers = &kept.inputs[..StepScalars::NAMES.len() - masks.len()];
                Ok(fields(kept, rank)?.into_iter().chain(numbers.iter().cloned()).chain(masks).collect())
            });
            let others = others.collect::<Result<_, Failure>>()?;
            let inputs = own.into_iter().chain(kept.inputs.iter().cloned()).collect();
            Ok(DrawnStep { inputs, others, ..kept.clone() })
        };
        self.drawn.kept().into_iter().take(max).map(&mut complete).collect()
    }

    /// Returns the number from which a process draws the dropout masks of a step: that of its batch among those of all processes.
    pub(super) fn mask_step(&self, step: u64, rank: usize) -> u64 {
        (step - 1) * self.sampler.world as u64 + rank as u64 + 1
    }
}
