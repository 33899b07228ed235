//! `optim`: optimizers and learning rate schedules, with the names and defaults of `torch.optim`.
//!
//! Knows nothing about graphs: the host adds the update of each parameter.

use std::ops::Bound;

use flagperf_onnx::{Decay, LossScale, Moments, Optimizer as Rule, OptimizerKind, Schedule as Change, WarmUp};
use rhai::plugin::*;
use rhai::{Array, Map, Module};

use super::options::{FunctionOptions, Number, finite_number, number, sizes};
use crate::sandbox::Fallible;

/// An optimizer with the limit of the gradients' norm.
#[derive(Clone)]
pub(crate) struct Optimizer {
    pub(crate) rule: Rule,
    pub(crate) clip_norm: Option<f64>,
}

/// A learning rate schedule.
#[derive(Clone)]
pub(crate) struct Schedule(pub(crate) Change);

/// The dynamic scale of a loss in fp16.
#[derive(Clone)]
pub(crate) struct GradScaler(pub(crate) LossScale);

pub(super) fn module() -> Module {
    let mut module = rhai::exported_module!(functions);
    module.set_custom_type::<Optimizer>("Optimizer");
    module.set_custom_type::<Schedule>("Schedule");
    module.set_custom_type::<GradScaler>("GradScaler");
    module
}

/// Reads a number that must be in a range.
fn bounded(
    options: &mut FunctionOptions,
    key: &'static str,
    default: f64,
    range: impl std::ops::RangeBounds<f64>,
) -> Fallible<f64> {
    let number = options.number(key)?.unwrap_or(default);
    if range.contains(&number) {
        return Ok(number);
    }
    let limit = |bound: Bound<&f64>, closed: &str, open: &str| match bound {
        Bound::Included(limit) => Some(format!("{closed} {limit}")),
        Bound::Excluded(limit) => Some(format!("{open} {limit}")),
        Bound::Unbounded => None,
    };
    let limits = [limit(range.start_bound(), "at least", "above"), limit(range.end_bound(), "at most", "below")];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    Err(format!("`{key}` is {number}, but must be {limits}").into())
}

/// Reads the options that every optimizer has, and refuses unknown ones.
fn finish(mut options: FunctionOptions, kind: OptimizerKind, default_decay: f64) -> Fallible<Optimizer> {
    let rule = Rule {
        kind,
        weight_decay: bounded(&mut options, "weight_decay", default_decay, 0.0..)?,
        norm_weight_decay: options.number("norm_weight_decay")?,
        bias_weight_decay: options.number("bias_weight_decay")?,
    };
    let clip_norm = options.number("clip_norm")?;
    let decays = [rule.norm_weight_decay, rule.bias_weight_decay];
    if decays.into_iter().flatten().any(|decay| decay.is_nan() || decay < 0.0) {
        return Err("a weight decay must not be negative".into());
    }
    if clip_norm.is_some_and(|norm| norm.is_nan() || norm <= 0.0) {
        return Err("`clip_norm` must be positive".into());
    }
    options.finish()?;
    Ok(Optimizer { rule, clip_norm })
}

/// Reads the options of the optimizers that remember means and mean squares.
fn moments(options: &mut FunctionOptions, eps: f64) -> Fallible<Moments> {
    let default = Moments { eps, ..Moments::default() };
    let betas = match options.value("betas") {
        None => [default.beta1, default.beta2],
        Some(value) => {
            let pair = value.read_lock::<Array>().and_then(|array| match &array[..] {
                [first, second] => Some([number(first)?, number(second)?]),
                _ => None,
            });
            pair.ok_or("`betas` must be two numbers, such as [0.9, 0.999]")?
        }
    };
    if !betas.iter().all(|beta| (0.0..1.0).contains(beta)) {
        return Err(format!("`betas` are {betas:?}, but must be at least 0 and below 1").into());
    }
    let eps = bounded(options, "eps", eps, 0.0..)?;
    Ok(Moments { beta1: betas[0], beta2: betas[1], eps })
}

/// Returns a schedule in epochs without a warm-up.
fn schedule(decay: Decay) -> Schedule {
    Schedule(Change { decay, warm_up: None, per_step: false })
}

/// Reads a length in steps or epochs, of at least 1.
fn length(options: &mut FunctionOptions, key: &'static str) -> Fallible<u64> {
    match options.required_size(key)? {
        0 => Err(format!("`{key}` must be at least 1").into()),
        length => Ok(length as u64),
    }
}

#[export_module]
mod functions {
    /// Stochastic gradient descent with the options `momentum` (0), `nesterov` (false), `weight_decay` (0),
    /// `norm_weight_decay` and `bias_weight_decay` (of the scales and biases of normalizations, and of other biases; as
    /// `weight_decay`), and `clip_norm` (the largest norm of all gradients together; no limit).
    ///
    /// ```rhai
    /// optim::sgd(#{momentum: 0.9, weight_decay: 1e-4})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn sgd(options: Map) -> Fallible<Optimizer> {
        let mut options = FunctionOptions::new("sgd", options);
        let momentum = bounded(&mut options, "momentum", 0.0, 0.0..1.0)?;
        let nesterov = options.flag("nesterov", false)?;
        // A misspelled `momentum` is an unknown option first.
        let optimizer = finish(options, OptimizerKind::Sgd { momentum, nesterov }, 0.0)?;
        match nesterov && momentum == 0.0 {
            true => Err("`nesterov` needs a `momentum`".into()),
            false => Ok(optimizer),
        }
    }

    /// Adam with the options `betas` ([0.9, 0.999]), `eps` (1e-8), and those of `sgd` from `weight_decay` on.
    ///
    /// ```rhai
    /// optim::adam(#{clip_norm: 1.0})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn adam(options: Map) -> Fallible<Optimizer> {
        let mut options = FunctionOptions::new("adam", options);
        let moments = moments(&mut options, 1e-8)?;
        finish(options, OptimizerKind::Adam(moments), 0.0)
    }

    /// AdamW with the options of `adam`; `weight_decay` is 0.01 by default.
    ///
    /// ```rhai
    /// optim::adamw(#{weight_decay: 0.3, norm_weight_decay: 0.0})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn adamw(options: Map) -> Fallible<Optimizer> {
        let mut options = FunctionOptions::new("adamw", options);
        let moments = moments(&mut options, 1e-8)?;
        finish(options, OptimizerKind::AdamW(moments), 0.01)
    }

    /// LAMB with the options of `adam`; `eps` is 1e-6 and `weight_decay` 0.01 by default.
    ///
    /// ```rhai
    /// optim::lamb(#{norm_weight_decay: 0.0, bias_weight_decay: 0.0})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn lamb(options: Map) -> Fallible<Optimizer> {
        let mut options = FunctionOptions::new("lamb", options);
        let moments = moments(&mut options, 1e-6)?;
        finish(options, OptimizerKind::Lamb(moments), 0.01)
    }

    /// RMSprop with the options `alpha` (0.99), `eps` (1e-8), `momentum` (0), and those of `sgd` from `weight_decay` on.
    ///
    /// ```rhai
    /// optim::rmsprop(#{alpha: 0.9, momentum: 0.9})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn rmsprop(options: Map) -> Fallible<Optimizer> {
        let mut options = FunctionOptions::new("rmsprop", options);
        let alpha = bounded(&mut options, "alpha", 0.99, 0.0..1.0)?;
        let eps = bounded(&mut options, "eps", 1e-8, 0.0..)?;
        let momentum = bounded(&mut options, "momentum", 0.0, 0.0..1.0)?;
        finish(options, OptimizerKind::RmsProp { alpha, eps, momentum }, 0.0)
    }

    /// The learning rate of the configuration in every epoch.
    ///
    /// ```rhai
    /// optim::constant()
    /// ```
    pub fn constant() -> Schedule {
        schedule(Decay::Constant)
    }

    /// A rate that is multiplied by `gamma` (0.1) after every `step_size` epochs.
    ///
    /// ```rhai
    /// optim::step(#{step_size: 30})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn step(options: Map) -> Fallible<Schedule> {
        let mut options = FunctionOptions::new("step", options);
        let decay = Decay::Step {
            length: length(&mut options, "step_size")?,
            gamma: bounded(&mut options, "gamma", 0.1, 0.0..=1.0)?,
        };
        options.finish()?;
        Ok(schedule(decay))
    }

    /// A rate that is multiplied by `gamma` (0.1) at each of the epochs `milestones`.
    ///
    /// ```rhai
    /// optim::multi_step([16, 22], 0.1)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn multi_step(milestones: Array, gamma: Number) -> Fallible<Schedule> {
        let gamma = finite_number("`gamma`", &gamma)?;
        let milestones: Vec<u64> =
            sizes("the milestones", &milestones)?.into_iter().map(|epoch| epoch as u64).collect();
        if !milestones.is_sorted() || !(0.0..=1.0).contains(&gamma) {
            return Err(format!("the milestones must rise, and `gamma`, {gamma}, must be in 0..=1").into());
        }
        Ok(schedule(Decay::MultiStep { milestones, gamma }))
    }

    /// A rate that falls within `length` epochs along half a cosine to `end` (0) times the first.
    ///
    /// ```rhai
    /// optim::cosine(#{length: 300}).warm_up(30, 0.033)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn cosine(options: Map) -> Fallible<Schedule> {
        let mut options = FunctionOptions::new("cosine", options);
        let decay = Decay::Cosine {
            length: length(&mut options, "length")?,
            end: bounded(&mut options, "end", 0.0, 0.0..=1.0)?,
        };
        options.finish()?;
        Ok(schedule(decay))
    }

    /// A rate that falls within `length` epochs to `end` (0) times the first, along a power of the remaining time (1: a
    /// line).
    ///
    /// ```rhai
    /// optim::polynomial(#{length: 30000, power: 1.0}).per_step()
    /// ```
    #[rhai_fn(return_raw)]
    pub fn polynomial(options: Map) -> Fallible<Schedule> {
        let mut options = FunctionOptions::new("polynomial", options);
        let decay = Decay::Polynomial {
            length: length(&mut options, "length")?,
            power: bounded(&mut options, "power", 1.0, 0.0..)?,
            end: bounded(&mut options, "end", 0.0, 0.0..=1.0)?,
        };
        options.finish()?;
        Ok(schedule(decay))
    }

    /// The schedule after a warm-up of `length` epochs, in which the rate rises along a line from `start` times the first. The
    /// lengths of the schedule begin after the warm-up.
    ///
    /// ```rhai
    /// optim::constant().warm_up(5, 0.01)
    /// ```
    #[rhai_fn(global, return_raw)]
    pub fn warm_up(schedule: Schedule, length: i64, start: Number) -> Fallible<Schedule> {
        let start = finite_number("the start of a warm-up", &start)?;
        let length = u64::try_from(length).map_err(|_| format!("a warm-up of {length} epochs"))?;
        if !(0.0..=1.0).contains(&start) {
            return Err(format!("a warm-up rises from {start} times the rate, which is not between 0 and 1").into());
        }
        Ok(Schedule(Change { warm_up: Some(WarmUp { length, start }), ..schedule.0 }))
    }

    /// The dynamic scale of the loss in fp16, as `torch.amp.GradScaler`: `init_scale` is the first scale, which is doubled after
    /// `growth_interval` updates with finite gradients and halved after one without.
    ///
    /// ```rhai
    /// optim::grad_scaler(#{init_scale: 1024.0, growth_interval: 100})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn grad_scaler(options: Map) -> Fallible<GradScaler> {
        let mut options = FunctionOptions::new("grad_scaler", options);
        let default = LossScale::default();
        let initial =
            bounded(&mut options, "init_scale", f64::from(default.initial), 1.0..=f64::from(1u32 << 24))? as f32;
        let interval = options.number("growth_interval")?.unwrap_or(f64::from(default.growth_interval));
        if interval.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&interval) {
            return Err(format!("`growth_interval` is {interval}, not a number of updates").into());
        }
        options.finish()?;
        Ok(GradScaler(LossScale { initial, growth_interval: interval as u32 }))
    }

    /// The schedule with its lengths in steps in place of epochs; the rate then changes with every step.
    ///
    /// ```rhai
    /// optim::cosine(#{length: 23070, end: 0.0667}).warm_up(231, 0.0).per_step()
    /// ```
    #[rhai_fn(global)]
    pub fn per_step(schedule: Schedule) -> Schedule {
        Schedule(Change { per_step: true, ..schedule.0 })
    }
}
