//! What an optimizer can remember: the norms of its means and squares follow from the norms of the gradients. An engine that puts
//! other numbers there once, in a step that is not computed again, would otherwise have every later step carry the parameters to a
//! model that it knows.

use super::reach::Reach;
use flagperf_core::tensor::Tensor;
use flagperf_onnx::{Optimizer, OptimizerKind, State, StateKind};

/// Factor by which a norm may exceed what follows from the gradients, which the engine rounds.
const TOLERANCE: f64 = 1.1;
/// A norm below which nothing is remembered.
const NOTHING: f64 = 1e-6;

/// The norms of what the optimizer remembers of all parameters together, as the norms of the gradients of a training bound them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RememberedNorms {
    /// The largest norm of the means, such as a momentum.
    mean: f64,
    /// The sum of the mean squares.
    square: f64,
    /// How far the parameters can have moved.
    pub reach: Reach,
}

/// The weights of the earlier and of the new value, in the mean and in the mean square; `None` for what is not remembered.
type Weights = [Option<[f64; 2]>; 2];

fn weights(kind: &OptimizerKind) -> Weights {
    match kind {
        OptimizerKind::Sgd { momentum, .. } => [Some([*momentum, 1.0]), None],
        OptimizerKind::Adam(moments) | OptimizerKind::AdamW(moments) | OptimizerKind::Lamb(moments) => {
            [moments.beta1, moments.beta2].map(|beta| Some([beta, 1.0 - beta]))
        }
        OptimizerKind::RmsProp { alpha, .. } => [None, Some([*alpha, 1.0 - alpha])],
    }
}

impl RememberedNorms {
    /// Returns the norms after a step whose gradients have this norm before it is limited. A step that mixed precision skips
    /// changes nothing.
    #[must_use]
    pub fn after(self, kind: &OptimizerKind, learning_rate: f64, norm: f64) -> Self {
        if !norm.is_finite() {
            return self;
        }
        let [mean, square] = weights(kind);
        let next = |weights: Option<[f64; 2]>, before: f64, new: f64| {
            weights.map_or(0.0, |[earlier, own]| earlier * before + own * new)
        };
        let (mean, square) = (next(mean, self.mean, norm), next(square, self.square, norm * norm));
        RememberedNorms { mean, square, reach: self.reach.after(kind, learning_rate, norm, mean) }
    }

    /// Returns the norm of the means among `values`, and the largest possible one, if they contain more than the gradients allow.
    /// `values` are those of `states`.
    pub fn exceeded(self, optimizer: &Optimizer, states: &[State], values: &[Tensor]) -> Option<[f64; 2]> {
        let sum_of = |name: &str, power: i32| -> f64 {
            let of_name = states.iter().zip(values).filter(|(state, _)| {
                state.kind == StateKind::Memory && state.name.rsplit_once(':').is_some_and(|(_, own)| own == name)
            });
            of_name.flat_map(|(_, value)| value.to_f64()).map(|x| x.powi(power).abs()).sum()
        };
        let parameters = states.iter().zip(values).filter(|(state, _)| state.kind == StateKind::Parameter);
        let size = parameters.flat_map(|(_, value)| value.to_f64()).map(|x| x * x).sum::<f64>().sqrt();
        let [mean, square] = weights(&optimizer.kind);
        let decays = [Some(optimizer.weight_decay), optimizer.norm_weight_decay, optimizer.bias_weight_decay];
        let decay = decays.into_iter().flatten().fold(0.0, f64::max);
        // These add the decay of the parameters to the gradients; a momentum remembers it of many steps.
        let added = match optimizer.kind {
            OptimizerKind::Sgd { momentum, .. } => decay * size / (1.0 - momentum),
            OptimizerKind::Adam(_) | OptimizerKind::RmsProp { .. } => decay * size,
            OptimizerKind::AdamW(_) | OptimizerKind::Lamb(_) => 0.0,
        };
        let names = optimizer.kind.memory();
        let name_of = |found: Option<[f64; 2]>, wanted: [&str; 2]| {
            names.iter().find(|name| found.is_some() && wanted.contains(*name))
        };
        let mean =
            name_of(mean, ["momentum_buffer", "exp_avg"]).map(|name| [sum_of(name, 2).sqrt(), self.mean + added]);
        let square = name_of(square, ["exp_avg_sq", "square_avg"])
            .map(|name| [sum_of(name, 1).sqrt(), self.square.sqrt() + added]);
        let mut norms = [mean, square].into_iter().flatten();
        // A norm that is NaN exceeds every limit.
        norms.find(|[norm, most]| norm.is_nan() || *norm > TOLERANCE * most + NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use flagperf_onnx::{Moments, Weight, WeightRole, WeightSource};

    fn state(name: &str, kind: StateKind, values: [f32; 2]) -> (State, Tensor) {
        let tensor = Tensor::from_vec([2], values.to_vec()).unwrap();
        let initial =
            Weight { spec: tensor.spec(), role: WeightRole::Parameter, source: WeightSource::Value(tensor.clone()) };
        (State { name: name.to_owned(), kind, next: String::new(), initial }, tensor)
    }

    fn exceeded(kind: OptimizerKind, norms: &[f64], memory: &[(&str, [f32; 2])]) -> Option<[f64; 2]> {
        let optimizer = Optimizer { kind, weight_decay: 0.0, norm_weight_decay: None, bias_weight_decay: None };
        let after = norms.iter().fold(RememberedNorms::default(), |found, norm| found.after(&kind, 0.1, *norm));
        let own = memory.iter().map(|(name, values)| state(&format!("w:{name}"), StateKind::Memory, *values));
        let (states, values): (Vec<_>, Vec<_>) =
            std::iter::once(state("w", StateKind::Parameter, [100.0, 0.0])).chain(own).unzip();
        after.exceeded(&optimizer, &states, &values)
    }

    #[test]
    fn a_momentum_is_at_most_what_the_gradients_add_up_to() {
        let sgd = OptimizerKind::Sgd { momentum: 0.9, nesterov: false };
        // 1 + 0.9 in the direction of one axis.
        assert_eq!(exceeded(sgd, &[1.0, 1.0], &[("momentum_buffer", [1.9, 0.0])]), None);
        assert_eq!(exceeded(sgd, &[1.0, 1.0], &[("momentum_buffer", [15.0, 0.0])]), Some([15.0, 1.9]));
        assert!(exceeded(sgd, &[1.0, 1.0], &[("momentum_buffer", [f32::NAN, 0.0])]).is_some());
        assert_eq!(exceeded(sgd, &[1.0, f64::NAN], &[("momentum_buffer", [1.0, 0.0])]), None, "a skipped step");
    }

    #[test]
    fn the_means_and_squares_of_adam_are_bounded() {
        let adam = OptimizerKind::AdamW(Moments::default());
        let memory = |mean: f32, square: f32| [("exp_avg", [mean, 0.0]), ("exp_avg_sq", [square, 0.0])];
        assert_eq!(exceeded(adam, &[2.0], &memory(0.2, 0.004)), None);
        assert!(exceeded(adam, &[2.0], &memory(0.5, 0.004)).is_some());
        assert!(exceeded(adam, &[2.0], &memory(0.2, 0.01)).is_some());
    }
}
