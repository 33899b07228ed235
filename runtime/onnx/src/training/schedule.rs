//! Learning rate schedules, with the definitions of `torch.optim.lr_scheduler`.

/// How the learning rate changes: a factor of the learning rate of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The change after the warm-up.
    pub decay: Decay,
    /// The warm-up, before which the decay does not begin.
    pub warm_up: Option<WarmUp>,
    /// Whether lengths are in steps; otherwise they are in epochs, and the rate changes only between epochs.
    pub per_step: bool,
}

/// How the learning rate falls.
#[derive(Clone, Debug, PartialEq)]
pub enum Decay {
    /// It does not.
    Constant,
    /// `StepLR`: multiplied by `gamma` after every `length`.
    Step {
        /// Steps or epochs between two changes.
        length: u64,
        /// The factor of a change.
        gamma: f64,
    },
    /// `MultiStepLR`: multiplied by `gamma` at each milestone.
    MultiStep {
        /// The steps or epochs at which the rate changes.
        milestones: Vec<u64>,
        /// The factor of a change.
        gamma: f64,
    },
    /// `CosineAnnealingLR`: to `end` along half a cosine.
    Cosine {
        /// Steps or epochs of the fall.
        length: u64,
        /// The factor at the end.
        end: f64,
    },
    /// From 1 to `end` along `(1 - t / length)^power`; `PolynomialLR` if `end` is 0.
    Polynomial {
        /// Steps or epochs of the fall.
        length: u64,
        /// The exponent; 1 falls along a line.
        power: f64,
        /// The factor at the end.
        end: f64,
    },
}

/// `LinearLR`: from `start` to 1 along a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    /// Steps or epochs of the warm-up.
    pub length: u64,
    /// The factor at its beginning.
    pub start: f64,
}

impl Schedule {
    /// Returns the factor of a batch, counted from 0. An epoch has `per_epoch` batches, an update `per_update`.
    pub fn factor(&self, batch: u64, per_epoch: u64, per_update: u64) -> f64 {
        let time = batch / if self.per_step { per_update } else { per_epoch }.max(1);
        let Some(warm_up) = self.warm_up.filter(|warm_up| time < warm_up.length) else {
            return self.decay.factor(time - self.warm_up.map_or(0, |warm_up| warm_up.length));
        };
        warm_up.start + (1.0 - warm_up.start) * time as f64 / warm_up.length as f64
    }
}

impl Decay {
    fn factor(&self, time: u64) -> f64 {
        let share = |length: u64| if length == 0 { 1.0 } else { time.min(length) as f64 / length as f64 };
        match self {
            Decay::Constant => 1.0,
            Decay::Step { length, gamma } => gamma.powf((time / (*length).max(1)) as f64),
            Decay::MultiStep { milestones, gamma } => {
                gamma.powf(milestones.iter().filter(|milestone| **milestone <= time).count() as f64)
            }
            Decay::Cosine { length, end } => {
                end + (1.0 - end) * (1.0 + (std::f64::consts::PI * share(*length)).cos()) / 2.0
            }
            Decay::Polynomial { length, power, end } => end + (1.0 - end) * (1.0 - share(*length)).powf(*power),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors that PyTorch 2.11 gives in epochs 0, 1, 2, 5 and 9 (`scheduler.get_last_lr()` with a rate of 1).
    #[test]
    fn factors_are_those_of_pytorch() {
        let cases = [
            (Decay::Step { length: 2, gamma: 0.5 }, None, [1.0, 1.0, 0.5, 0.25, 0.0625]),
            (Decay::MultiStep { milestones: vec![1, 5], gamma: 0.1 }, None, [1.0, 0.1, 0.1, 0.01, 0.01]),
            (Decay::Cosine { length: 10, end: 0.1 }, None, [1.0, 0.977_975_43, 0.914_057_65, 0.55, 0.122_024_57]),
            (Decay::Polynomial { length: 10, power: 2.0, end: 0.0 }, None, [1.0, 0.81, 0.64, 0.25, 0.01]),
            (Decay::Cosine { length: 8, end: 0.0 }, Some((2, 0.1)), [0.1, 0.55, 1.0, 0.691_341_72, 0.038_060_23]),
        ];
        for (decay, warm_up, expected) in cases {
            let warm_up = warm_up.map(|(length, start)| WarmUp { length, start });
            let schedule = Schedule { decay, warm_up, per_step: false };
            for (epoch, expected) in [0, 1, 2, 5, 9].into_iter().zip(expected) {
                let factor = schedule.factor(epoch * 7 + 3, 7, 1);
                assert!((factor - expected).abs() < 2e-8, "{schedule:?} in epoch {epoch}: {factor}, not {expected}");
            }
            let per_step = Schedule { per_step: true, ..schedule.clone() };
            assert_eq!(per_step.factor(5, 7, 1), schedule.factor(35, 7, 1));
        }
    }
}
