//! Optimizers with PyTorch's definitions and defaults, as nodes that update a parameter.

use crate::lower::NodeList;
use crate::{Attribute, DType};

/// An optimizer with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The update rule.
    pub kind: OptimizerKind,
    /// Weight of the parameters in their own decay. Adam, SGD and RMSprop add it to the gradient (an L2 penalty), AdamW and
    /// LAMB decay the parameter itself.
    pub weight_decay: f64,
    /// The weight decay of the scales and biases of normalizations; `None` if they have no own one.
    pub norm_weight_decay: Option<f64>,
    /// The weight decay of other biases: parameters whose name ends in `bias`; `None` if they have no own one.
    pub bias_weight_decay: Option<f64>,
}

/// An update rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimizerKind {
    /// `torch.optim.SGD` without dampening.
    Sgd {
        /// Weight of the earlier updates; 0 needs no state.
        momentum: f64,
        /// Whether the momentum is Nesterov's.
        nesterov: bool,
    },
    /// `torch.optim.Adam`.
    Adam(Moments),
    /// `torch.optim.AdamW`.
    AdamW(Moments),
    /// LAMB (You et al. 2020) as in NVIDIA's `FusedLAMB`: with bias correction, and the trust ratio for parameters with a
    /// weight decay only.
    Lamb(Moments),
    /// `torch.optim.RMSprop`, not centred.
    RmsProp {
        /// Weight of the earlier squares.
        alpha: f64,
        /// Added to the root.
        eps: f64,
        /// Weight of the earlier updates; 0 needs no state.
        momentum: f64,
    },
}

/// The settings of the optimizers that remember the mean and the mean square of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// Weight of the earlier means.
    pub beta1: f64,
    /// Weight of the earlier mean squares.
    pub beta2: f64,
    /// Added to the root.
    pub eps: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

/// The numbers that change with each step, which the caller computes in f64 as PyTorch does: a power of 0.999 in f32 would be
/// off by 10⁻⁴.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepScalars {
    /// The learning rate.
    pub learning_rate: f32,
    /// `1 - β₁ᵗ` in update t.
    pub mean_correction: f32,
    /// `√(1 - β₂ᵗ)`.
    pub square_correction: f32,
    /// The number of the update, from 1; 0 if the step only adds its gradients to the sum of an update.
    pub update: f32,
    /// The seed of dropout masks, less than 2²⁴.
    pub mask_seed: f32,
    /// The number of the step from which dropout masks are drawn, less than 2²⁴.
    pub mask_step: f32,
}

impl StepScalars {
    /// The names of the inputs, in the order of [`StepScalars::values`].
    pub const NAMES: [&str; 6] =
        ["learning_rate", "mean_correction", "square_correction", "update", "mask_seed", "mask_step"];

    /// Returns the values in the order of their names.
    pub fn values(&self) -> [f32; 6] {
        let StepScalars { learning_rate, mean_correction, square_correction, update, mask_seed, mask_step } = *self;
        [learning_rate, mean_correction, square_correction, update, mask_seed, mask_step]
    }

    /// Returns the numbers of a step that does not update yet.
    pub fn without_update(self) -> Self {
        StepScalars { update: 0.0, ..self }
    }

    /// Returns the numbers with dropout masks that depend on a seed and the number of a step. An f32 is exact up to 24 bits: the
    /// bits of a longer seed are combined, and the masks of a longer training repeat.
    pub fn with_masks(self, seed: u64, step: u64) -> Self {
        let [mask_seed, mask_step] = StepScalars::masks(seed, step);
        StepScalars { mask_seed, mask_step, ..self }
    }

    /// Returns the last two numbers, from which the masks are drawn.
    pub fn masks(seed: u64, step: u64) -> [f32; 2] {
        const LAST: u64 = (1 << 24) - 1;
        let seed = (seed ^ (seed >> 24) ^ (seed >> 48)) & LAST;
        [seed as f32, (step & LAST) as f32]
    }
}

impl OptimizerKind {
    /// Returns the names of what the rule remembers of each parameter, which begins with zeros.
    pub fn memory(&self) -> &'static [&'static str] {
        match self {
            OptimizerKind::Sgd { momentum: 0.0, .. } => &[],
            OptimizerKind::Sgd { .. } => &["momentum_buffer"],
            OptimizerKind::Adam(_) | OptimizerKind::AdamW(_) | OptimizerKind::Lamb(_) => &["exp_avg", "exp_avg_sq"],
            OptimizerKind::RmsProp { momentum: 0.0, .. } => &["square_avg"],
            OptimizerKind::RmsProp { .. } => &["square_avg", "momentum_buffer"],
        }
    }
}

impl Optimizer {
    /// Returns the numbers of an update, counted from 1, with the dropout masks of seed 0.
    pub fn scalars(&self, update: u64, learning_rate: f64) -> StepScalars {
        let (beta1, beta2) = match self.kind {
            OptimizerKind::Adam(moments) | OptimizerKind::AdamW(moments) | OptimizerKind::Lamb(moments) => {
                (moments.beta1, moments.beta2)
            }
            _ => (0.0, 0.0),
        };
        let rest = |beta: f64| 1.0 - beta.powf(update as f64);
        StepScalars {
            learning_rate: learning_rate as f32,
            mean_correction: rest(beta1) as f32,
            square_correction: rest(beta2).sqrt() as f32,
            update: update as f32,
            mask_seed: 0.0,
            mask_step: 0.0,
        }
        .with_masks(0, update)
    }

    /// Adds the update of one f32 parameter. `memory` is what the rule remembers of it, in the order of
    /// [`OptimizerKind::memory`], and becomes the names of the next values. Returns the next value of the parameter.
    pub(super) fn update(
        &self,
        n: &mut NodeList<'_>,
        [parameter, gradient]: [&str; 2],
        decay: f64,
        memory: &mut [String],
    ) -> String {
        let rate = "learning_rate";
        match self.kind {
            OptimizerKind::Sgd { momentum, nesterov } => {
                let mut step = penalized(n, [parameter, gradient], decay);
                if let [buffer] = memory {
                    let gradient = step;
                    *buffer = weighted(n, buffer, momentum, &gradient, 1.0);
                    step = if nesterov { weighted(n, buffer, momentum, &gradient, 1.0) } else { buffer.clone() };
                }
                descend(n, parameter, rate, &step)
            }
            OptimizerKind::Adam(moments) => {
                let gradient = penalized(n, [parameter, gradient], decay);
                let step = normalized(n, &gradient, moments, memory);
                descend(n, parameter, rate, &step)
            }
            OptimizerKind::AdamW(moments) => {
                let step = normalized(n, gradient, moments, memory);
                let parameter = decayed(n, parameter, rate, decay);
                descend(n, &parameter, rate, &step)
            }
            OptimizerKind::Lamb(moments) => {
                let step = normalized(n, gradient, moments, memory);
                if decay == 0.0 {
                    return descend(n, parameter, rate, &step);
                }
                let step = weighted(n, parameter, decay, &step, 1.0);
                let ratio = trust_ratio(n, parameter, &step);
                let step = n.add("Mul", &[&step, &ratio]);
                descend(n, parameter, rate, &step)
            }
            OptimizerKind::RmsProp { alpha, eps, .. } => {
                let gradient = penalized(n, [parameter, gradient], decay);
                let square = n.add("Mul", &[&gradient, &gradient]);
                memory[0] = weighted(n, &memory[0], alpha, &square, 1.0 - alpha);
                let (root, eps) = (n.add("Sqrt", &[&memory[0]]), n.number(eps, DType::F32));
                let root = n.add("Add", &[&root, &eps]);
                let mut step = n.add("Div", &[&gradient, &root]);
                if let (OptimizerKind::RmsProp { momentum, .. }, [_, buffer]) = (self.kind, memory) {
                    *buffer = weighted(n, buffer, momentum, &step, 1.0);
                    step.clone_from(buffer);
                }
                descend(n, parameter, rate, &step)
            }
        }
    }
}

/// Adds `a · x + b · y`.
fn weighted(n: &mut NodeList<'_>, x: &str, a: f64, y: &str, b: f64) -> String {
    let x = if a == 1.0 { x.to_owned() } else { n.scale(x, a, DType::F32) };
    let y = if b == 1.0 { y.to_owned() } else { n.scale(y, b, DType::F32) };
    n.add("Add", &[&x, &y])
}

/// Adds the gradient of the L2 penalty.
fn penalized(n: &mut NodeList<'_>, [parameter, gradient]: [&str; 2], decay: f64) -> String {
    if decay == 0.0 { gradient.to_owned() } else { weighted(n, gradient, 1.0, parameter, decay) }
}

/// Adds `parameter - rate · step`.
fn descend(n: &mut NodeList<'_>, parameter: &str, rate: &str, step: &str) -> String {
    let change = n.add("Mul", &[step, rate]);
    n.add("Sub", &[parameter, &change])
}

/// Adds `parameter · (1 - rate · decay)`.
fn decayed(n: &mut NodeList<'_>, parameter: &str, rate: &str, decay: f64) -> String {
    if decay == 0.0 {
        return parameter.to_owned();
    }
    let (one, share) = (n.number(1.0, DType::F32), n.scale(rate, decay, DType::F32));
    let factor = n.add("Sub", &[&one, &share]);
    n.add("Mul", &[parameter, &factor])
}

/// Adds Adam's step: the mean of the gradients over the root of their mean square, both without the bias of their start.
fn normalized(n: &mut NodeList<'_>, gradient: &str, moments: Moments, memory: &mut [String]) -> String {
    let Moments { beta1, beta2, eps } = moments;
    let square = n.add("Mul", &[gradient, gradient]);
    memory[0] = weighted(n, &memory[0], beta1, gradient, 1.0 - beta1);
    memory[1] = weighted(n, &memory[1], beta2, &square, 1.0 - beta2);
    let root = n.add("Sqrt", &[&memory[1]]);
    let (root, eps) = (n.add("Div", &[&root, "square_correction"]), n.number(eps, DType::F32));
    let root = n.add("Add", &[&root, &eps]);
    let mean = n.add("Div", &[&memory[0], "mean_correction"]);
    n.add("Div", &[&mean, &root])
}

/// Adds the norm of the parameter over that of the step, or 1 if one of them is 0.
fn trust_ratio(n: &mut NodeList<'_>, parameter: &str, step: &str) -> String {
    let [parameter, step] = [parameter, step].map(|x| n.add_with("ReduceL2", &[x], [("keepdims", Attribute::Int(0))]));
    let (zero, one) = (n.number(0.0, DType::F32), n.number(1.0, DType::F32));
    let [has_parameter, has_step] = [&parameter, &step].map(|norm| n.add("Greater", &[norm, &zero]));
    let both = n.add("And", &[&has_parameter, &has_step]);
    let ratio = n.add("Div", &[&parameter, &step]);
    n.add("Where", &[&both, &ratio, &one])
}
