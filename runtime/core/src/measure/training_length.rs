//! When a training evaluates, writes checkpoints and ends: the settings of a case, and what they are in steps.

use serde::{Deserialize, Serialize};

/// How long a training lasts and when it evaluates, by the keys of training.yaml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingLength {
    /// Epochs after which the training ends without having reached its target.
    pub max_epochs: u32,
    /// Steps after which it ends, if that is earlier.
    #[serde(default)]
    pub max_steps: Option<u32>,
    /// Epochs from one evaluation to the next.
    pub eval_interval: u32,
    /// Steps from one evaluation to the next, in place of `eval_interval`.
    #[serde(default)]
    pub eval_steps: Option<u32>,
}

impl TrainingLength {
    /// Returns the length in steps, of which an epoch has `per_epoch`.
    pub fn in_steps(self, per_epoch: u64) -> TrainingSteps {
        let all = per_epoch.saturating_mul(self.max_epochs.into());
        let max = self.max_steps.map_or(u64::MAX, u64::from);
        let interval = per_epoch.saturating_mul(self.eval_interval.into());
        TrainingSteps {
            per_epoch: per_epoch.max(1),
            all: all.min(max),
            interval: self.eval_steps.map_or(interval, u64::from).max(1),
            has_checkpoint_after_epoch: self.eval_steps.is_none(),
        }
    }
}

/// The steps of a training at which something is due. A step is that of one batch; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingSteps {
    /// Steps of an epoch, at least 1.
    pub per_epoch: u64,
    /// Steps of a training that does not reach its target.
    pub all: u64,
    /// Steps from one evaluation to the next.
    interval: u64,
    /// Whether a checkpoint follows each epoch, and not only each evaluation.
    has_checkpoint_after_epoch: bool,
}

impl TrainingSteps {
    /// Returns the number of epochs that have begun with this many steps.
    pub fn epochs_begun(&self, steps: u64) -> u64 {
        steps.div_ceil(self.per_epoch)
    }

    /// Returns the number of epochs of a training that does not reach its target.
    pub fn epochs(&self) -> u64 {
        self.epochs_begun(self.all)
    }

    /// Returns whether an evaluation follows this step. One follows the last.
    pub fn is_evaluated(&self, step: u64) -> bool {
        step == self.all || step.is_multiple_of(self.interval)
    }

    /// Returns whether a checkpoint follows this step, unless the training ends with it.
    pub fn has_checkpoint(&self, step: u64) -> bool {
        self.is_evaluated(step) || self.has_checkpoint_after_epoch && step.is_multiple_of(self.per_epoch)
    }

    /// Returns the last step of the pass that begins after `steps` steps: a pass ends with its epoch or before an evaluation.
    pub fn pass_end(&self, steps: u64) -> u64 {
        let next = |interval: u64| (steps / interval).saturating_add(1).saturating_mul(interval);
        next(self.per_epoch).min(next(self.interval)).min(self.all)
    }

    /// Returns the last step of each pass of a training that ended after `steps` steps.
    pub fn pass_ends(&self, steps: u64) -> impl Iterator<Item = u64> {
        let next = move |end: &u64| (*end < steps).then(|| self.pass_end(*end)).filter(|next| next > end);
        std::iter::successors(Some(0), next).skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCHS: TrainingLength =
        TrainingLength { max_epochs: 5, max_steps: None, eval_interval: 2, eval_steps: None };

    fn evaluated(steps: TrainingSteps) -> (Vec<u64>, Vec<u64>) {
        let of = |is_due: &dyn Fn(u64) -> bool| steps.pass_ends(steps.all).filter(|end| is_due(*end)).collect();
        (of(&|end| steps.is_evaluated(end)), of(&|end| steps.has_checkpoint(end)))
    }

    #[test]
    fn without_numbers_of_steps_a_pass_is_an_epoch_and_the_last_is_evaluated() {
        let steps = EPOCHS.in_steps(10);
        assert_eq!(steps.pass_ends(steps.all).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
        assert_eq!(evaluated(steps), (vec![20, 40, 50], vec![10, 20, 30, 40, 50]));
    }

    #[test]
    fn passes_end_at_epochs_and_at_evaluations_within_them() {
        let steps = TrainingLength { max_steps: Some(33), eval_steps: Some(8), ..EPOCHS }.in_steps(10);
        assert_eq!(steps.pass_ends(steps.all).collect::<Vec<_>>(), [8, 10, 16, 20, 24, 30, 32, 33]);
        assert_eq!(evaluated(steps), (vec![8, 16, 24, 32, 33], vec![8, 16, 24, 32, 33]));
        assert_eq!((steps.epochs(), steps.epochs_begun(30), steps.epochs_begun(31)), (4, 3, 4));
        let longer = TrainingLength { max_steps: Some(100), ..EPOCHS }.in_steps(10);
        assert_eq!((longer.all, longer.pass_end(49)), (50, 50));
    }

    #[test]
    fn no_steps_and_very_many_have_an_end() {
        assert_eq!(EPOCHS.in_steps(0).pass_ends(7).count(), 0);
        let all = TrainingLength { max_epochs: u32::MAX, eval_interval: u32::MAX, ..EPOCHS }.in_steps(u64::MAX);
        assert_eq!((all.pass_end(3), all.is_evaluated(3)), (u64::MAX, false));
    }
}
