//! How far parameters can move: no farther than learning rates, gradients and the optimizer allow. An engine that returns parameters of
//! another training, in a step that is not computed again, usually moves them farther.

use flagperf_core::tensor::Tensor;
use flagperf_onnx::{Moments, Optimizer, OptimizerKind, State, StateKind};

/// Factor by which a distance may exceed what follows from the gradients, which the engine rounds.
const TOLERANCE: f64 = 1.1;

/// What the updates of a training so far can add up to at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reach {
    /// The sum of the learning rates.
    rates: f64,
    /// The sum of the norms of the updates by SGD, without weight decay.
    sgd: f64,
}

impl Reach {
    /// Returns the reach after an update with gradients of this norm; `mean` bounds the norm of the momentum after it.
    #[must_use]
    pub fn after(self, kind: &OptimizerKind, learning_rate: f64, norm: f64, mean: f64) -> Self {
        let update = match kind {
            OptimizerKind::Sgd { momentum, nesterov: true } => norm + momentum * mean,
            OptimizerKind::Sgd { .. } => mean,
            _ => 0.0,
        };
        Reach { rates: self.rates + learning_rate, sgd: self.sgd + learning_rate * update }
    }

    /// Returns the distance between the parameters `from` and `to`, which are states of a training with the reach `earlier` and this
    /// one, and the largest possible one, if it is larger than that.
    pub fn exceeded(
        self,
        optimizer: &Optimizer,
        states: &[State],
        (earlier, from): (Reach, &[Tensor]),
        to: &[Tensor],
    ) -> Option<[f64; 2]> {
        let (mut count, mut moved, mut sizes) = (0.0, 0.0, [0.0; 2]);
        let parameters = states.iter().zip(from.iter().zip(to)).filter(|(state, _)| state.kind == StateKind::Parameter);
        for (from, to) in parameters.flat_map(|(_, (from, to))| from.to_f64().into_iter().zip(to.to_f64())) {
            count += 1.0;
            moved += (to - from) * (to - from);
            sizes[0] += from * from;
            sizes[1] += to * to;
        }
        let (moved, size) = (f64::sqrt(moved), f64::max(sizes[0], sizes[1]).sqrt());
        let rates = self.rates - earlier.rates;
        let decays = [Some(optimizer.weight_decay), optimizer.norm_weight_decay, optimizer.bias_weight_decay];
        let decay = decays.into_iter().flatten().fold(0.0, f64::max);
        let most = match optimizer.kind {
            // A momentum repeats the decay.
            OptimizerKind::Sgd { momentum, .. } => self.sgd - earlier.sgd + rates * decay * size / (1.0 - momentum),
            OptimizerKind::Adam(moments) => rates * largest_ratio(&moments) * f64::sqrt(count),
            OptimizerKind::AdamW(moments) => rates * (largest_ratio(&moments) * f64::sqrt(count) + decay * size),
            // The norm of an update is that of the parameter, or that of Adam where the trust ratio does not apply.
            OptimizerKind::Lamb(moments) => rates * (largest_ratio(&moments) * f64::sqrt(count) + size),
            OptimizerKind::RmsProp { alpha, momentum, .. } => {
                rates * f64::sqrt(count) / (1.0 - alpha).sqrt() / (1.0 - momentum)
            }
        };
        // Rounding of each value, and a distance that is NaN exceeds every limit.
        let most = TOLERANCE * most + size * f64::from(f32::EPSILON);
        (moved.is_nan() || moved > most).then_some([moved, most])
    }
}

/// Returns the largest ratio of a mean of gradients to the root of their mean square, by the inequality of Cauchy and Schwarz:
/// (1 - β₁) / √((1 - β₂) (1 - β₁² / β₂)). The corrections of the first steps only make it smaller.
fn largest_ratio(Moments { beta1, beta2, .. }: &Moments) -> f64 {
    (1.0 - beta1) / ((1.0 - beta2) * (1.0 - beta1 * beta1 / beta2)).max(f64::MIN_POSITIVE).sqrt()
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::{Weight, WeightRole, WeightSource};

    use super::*;

    fn exceeded(kind: OptimizerKind, updates: u32, to: [f32; 2]) -> bool {
        let optimizer = Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None };
        let tensor = |values: [f32; 2]| Tensor::from_vec([2], values.to_vec()).unwrap();
        let from = tensor([1.0, 1.0]);
        let initial =
            Weight { spec: from.spec(), role: WeightRole::Parameter, source: WeightSource::Value(from.clone()) };
        let state = State { name: "w".to_owned(), kind: StateKind::Parameter, next: String::new(), initial };
        // Gradients of the norm 1; the momentum is at most 10.
        let reach = (0..updates).fold(Reach::default(), |reach, _| reach.after(&kind, 0.1, 1.0, 10.0));
        reach.exceeded(&optimizer, &[state], (Reach::default(), &[from]), &[tensor(to)]).is_some()
    }

    #[test]
    fn parameters_that_no_update_can_have_moved_so_far_are_found() {
        let sgd = |nesterov| OptimizerKind::Sgd { momentum: 0.9, nesterov };
        assert!(!exceeded(sgd(false), 2, [3.0, 1.0]), "two updates of 0.1 times 10");
        assert!(exceeded(sgd(false), 2, [3.3, 1.0]));
        assert!(exceeded(sgd(false), 2, [f32::NAN, 1.0]));
        assert!(!exceeded(sgd(true), 2, [3.0, 1.0]), "two updates of 0.1 times (1 + 0.9 times 10)");
        let adam = OptimizerKind::AdamW(Moments::default());
        assert!((largest_ratio(&Moments::default()) - 7.27).abs() < 0.01);
        assert!(!exceeded(adam, 1, [1.7, 1.7]) && exceeded(adam, 1, [1.9, 1.9]));
        let rms = OptimizerKind::RmsProp { alpha: 0.99, eps: 1e-8, momentum: 0.0 };
        assert!(!exceeded(rms, 1, [2.0, 2.0]) && exceeded(rms, 1, [2.2, 2.2]));
        let lamb = OptimizerKind::Lamb(Moments::default());
        assert!(!exceeded(lamb, 1, [1.8, 1.8]) && exceeded(lamb, 1, [3.0, 3.0]));
    }
}
