//! Fuses steps of a plan for speed: a batch normalization, a sum or an activation into the preceding convolution, a
//! bias into a matrix product, and the products and the softmax of an attention.
//!
//! Changes only the executor's own plan, not the graph.

mod all_reduce;
mod attention;
mod cache;
mod elementwise;
mod masks;
mod products;

use super::execution_plan::{ExecutionPlan, Slot, Step};
use super::op::Op;
use super::ops::{Binary, Unary};
use flagperf_onnx::{DType, Tensor};

impl ExecutionPlan {
    /// Fuses steps where the same result can be computed with fewer memory accesses.
    pub fn fuse(&mut self) {
        self.apply_rule(ExecutionPlan::fold_clip_bounds);
        self.apply_rule(ExecutionPlan::fuse_gated_activation);
        self.apply_rule(ExecutionPlan::fuse_silu_product);
        self.apply_rule(ExecutionPlan::fold_batch_normalization);
        self.apply_rule(ExecutionPlan::fuse_residual);
        self.apply_rule(ExecutionPlan::fuse_integer_product);
        self.apply_rule(ExecutionPlan::fuse_linear);
        self.apply_rule(ExecutionPlan::fuse_activation);
        self.apply_rule(ExecutionPlan::fuse_linear_relu);
        self.apply_rule(ExecutionPlan::fuse_attention);
        self.apply_rule(ExecutionPlan::fuse_multiply_add);
        self.apply_rule(ExecutionPlan::overwrite_cache);
        self.apply_rule(ExecutionPlan::find_finite_mask);
        self.share_masks();
        self.apply_rule(ExecutionPlan::fuse_all_reduce);
    }

    /// Applies a rule to each step. A rule returns the steps that it merged into this step, or this step if it was
    /// merged into another one.
    fn apply_rule<Merged: IntoIterator<Item = usize>>(
        &mut self,
        rule: impl Fn(&mut ExecutionPlan, usize, &[usize]) -> Merged,
    ) {
        let mut removed = vec![false; self.steps.len()];
        let mut uses = self.use_counts();
        for i in 0..self.steps.len() {
            let mut changed = false;
            for merged in rule(self, i, &uses) {
                removed[merged] = true;
                self.steps[merged].inputs.clear();
                self.steps[merged].outputs.clear();
                changed = true;
            }
            if changed {
                uses = self.use_counts();
            }
        }
        let mut removed = removed.into_iter();
        self.steps.retain(|_| removed.next() == Some(false));
    }

    /// Returns the step before `i` that writes `slot`, if `slot` has only one reader.
    fn sole_producer(&self, i: usize, slot: Slot, uses: &[usize]) -> Option<usize> {
        let writes_slot = |step: &Step| step.outputs == [slot];
        if uses[slot] == 1 { self.steps[..i].iter().rposition(writes_slot) } else { None }
    }

    /// Returns the unfused convolution before `i` that writes input `input` of step `i`, if that has only one reader.
    fn sole_conv_producer(&self, i: usize, input: usize, uses: &[usize]) -> Option<usize> {
        let slot = (*self.steps[i].inputs.get(input)?)?;
        let plain = |at: &usize| matches!(self.steps[*at].op, Op::Conv { residual: false, activation: None, .. });
        self.sole_producer(i, slot, uses).filter(plain)
    }

    /// Moves the constant bounds of a Clip from its inputs to the operator.
    fn fold_clip_bounds(&mut self, i: usize, _: &[usize]) -> Option<usize> {
        let step = &self.steps[i];
        let Op::Clip = step.op else { return None };
        let bound = |input: usize, default: f64| match step.inputs.get(input) {
            None | Some(None) => Some(default),
            Some(Some(slot)) => self.constants.get(slot).and_then(|bound| bound.to_f64().first().copied()),
        };
        let (min, max) = (bound(1, f64::NEG_INFINITY)?, bound(2, f64::INFINITY)?);
        let step = &mut self.steps[i];
        step.op = Op::Unary(Unary::Clip { min, max });
        step.inputs.truncate(1);
        None
    }

    /// Fuses x * Sigmoid(x) and x * HardSigmoid(x).
    fn fuse_gated_activation(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let (Op::Binary(Binary::Mul), &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return None;
        };
        let (gate, kind) = [(a, b), (b, a)].into_iter().find_map(|(x, gated)| {
            let gate = self.sole_producer(i, gated, uses)?;
            let kind = match self.steps[gate].op {
                Op::Unary(Unary::Sigmoid) => Unary::Silu,
                Op::Unary(Unary::HardSigmoid { alpha, beta }) if is_sixth(alpha) && beta == 0.5 => Unary::HardSwish,
                _ => return None,
            };
            (self.steps[gate].inputs == [Some(x)]).then_some((gate, kind))
        })?;
        self.steps[i].op = Op::Unary(kind);
        self.steps[i].inputs = self.steps[gate].inputs.clone();
        Some(gate)
    }

    /// Fuses Silu(gate) * x.
    fn fuse_silu_product(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let (Op::Binary(Binary::Mul), &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return None;
        };
        let (silu, x) = [(a, b), (b, a)].into_iter().find_map(|(gated, x)| {
            let at = self.sole_producer(i, gated, uses)?;
            matches!(self.steps[at].op, Op::Unary(Unary::Silu)).then_some((at, x))
        })?;
        self.steps[i].op = Op::SiluProduct;
        self.steps[i].inputs = vec![self.steps[silu].inputs[0], Some(x)];
        Some(silu)
    }

    /// Scales the filters and shifts the bias of a convolution by the batch normalization that follows it.
    fn fold_batch_normalization(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let Op::BatchNormalization { epsilon } = self.steps[i].op else { return None };
        let conv = self.sole_conv_producer(i, 0, uses)?;
        let constant = |slot: Option<Slot>| self.constants.get(&slot?);
        let statistic = |input: usize| constant(*self.steps[i].inputs.get(input)?).map(Tensor::to_f64);
        let (scale, shift, mean, variance) = (statistic(1)?, statistic(2)?, statistic(3)?, statistic(4)?);
        let weight = constant(self.steps[conv].inputs[1])?;
        let filters = *weight.shape().first()?;
        let bias = match self.steps[conv].inputs.get(2).copied().flatten() {
            Some(slot) => constant(Some(slot))?.to_f64(),
            None => vec![0.0; filters],
        };
        if [&scale, &shift, &mean, &variance, &bias].iter().any(|values| values.len() != filters) {
            return None;
        }
        let factor: Vec<f64> = scale.iter().zip(&variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
        let bias: Vec<f64> = (0..filters).map(|f| (bias[f] - mean[f]) * factor[f] + shift[f]).collect();
        let mut filter_values = weight.to_f64();
        for (filter, factor) in filter_values.chunks_exact_mut((weight.len() / filters).max(1)).zip(&factor) {
            filter.iter_mut().for_each(|value| *value *= factor);
        }
        let (shape, dtype) = (weight.shape().to_vec(), weight.dtype());
        let folded = Tensor::from_vec(shape, filter_values).ok()?.cast(dtype);
        let bias = Tensor::from_vec([filters], bias).ok()?.cast(dtype);
        let x = self.steps[conv].inputs[0];
        self.steps[conv].inputs = vec![x, Some(self.add_constant(folded)), Some(self.add_constant(bias))];
        self.steps[conv].outputs = self.steps[i].outputs.clone();
        Some(i)
    }

    /// Fuses a convolution into the sum of which it is an operand, if both operands have the same known shape.
    fn fuse_residual(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let (Op::Binary(Binary::Add), &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return None;
        };
        let known =
            |slot: Slot| self.specs[slot].as_ref().filter(|spec| !spec.dims.contains(&flagperf_onnx::Dim::Unknown));
        if a == b || known(a).is_none() || known(a) != known(b) {
            return None;
        }
        let last = [(0, b), (1, a)]
            .into_iter()
            .filter_map(|(input, other)| self.sole_conv_producer(i, input, uses).map(|conv| (conv, other)));
        let (conv, other) = last.max_by_key(|(conv, _)| *conv)?;
        let mut merged = self.steps[conv].clone();
        let Op::Conv { residual, .. } = &mut merged.op else { return None };
        *residual = true;
        merged.inputs.resize(3, None);
        merged.inputs.push(Some(other));
        merged.outputs = self.steps[i].outputs.clone();
        self.steps[i] = merged;
        self.steps[conv].outputs.clear();
        Some(conv)
    }

    /// Fuses the product of two matrices of i8 that are converted to i32, as in MatMulInteger without zero points.
    fn fuse_integer_product(&mut self, i: usize, uses: &[usize]) -> Vec<usize> {
        let (Op::MatMul, &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return Vec::new();
        };
        let converted = [a, b].map(|factor| {
            let at = self.sole_producer(i, factor, uses)?;
            let (Op::Cast { to: Some(DType::I32) }, &[Some(x)]) = (&self.steps[at].op, &self.steps[at].inputs[..])
            else {
                return None;
            };
            let is_matrix = self.specs[x].as_ref().is_some_and(|spec| spec.dtype == DType::I8 && spec.dims.len() == 2);
            is_matrix.then_some((at, x))
        });
        let [Some((first, a)), Some((second, b))] = converted else { return Vec::new() };
        self.steps[i].op = Op::IntegerProduct;
        self.steps[i].inputs = vec![Some(a), Some(b)];
        vec![first, second]
    }

    /// Fuses the sum of a product and a bias for each column.
    fn fuse_linear(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let (Op::Binary(Binary::Add), &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else {
            return None;
        };
        let is_vector = |slot: Slot| self.specs[slot].as_ref().is_some_and(|spec| spec.dims.len() == 1);
        let (product, bias) = [(a, b), (b, a)].into_iter().find(|(_, bias)| is_vector(*bias))?;
        let matmul = self.sole_producer(i, product, uses)?;
        let (Op::MatMul, &[Some(x), Some(weight)]) = (&self.steps[matmul].op, &self.steps[matmul].inputs[..]) else {
            return None;
        };
        let spec = |slot: Slot| self.specs[slot].as_ref();
        let columns = match &spec(weight)?.dims[..] {
            [_, columns] => columns.fixed()?,
            _ => return None,
        };
        if spec(x)?.dims.len() < 2 || spec(bias)?.dims != [flagperf_onnx::Dim::Fixed(columns)] {
            return None;
        }
        self.steps[i].op = Op::Linear { relu: false };
        self.steps[i].inputs = vec![Some(x), Some(weight), Some(bias)];
        Some(matmul)
    }

    /// Fuses a product of floating point into the sum or difference that it is the last operand of.
    fn fuse_multiply_add(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let (kind, &[Some(a), Some(b)]) = (&self.steps[i].op, &self.steps[i].inputs[..]) else { return None };
        let subtract = match kind {
            Op::Binary(Binary::Add) => false,
            Op::Binary(Binary::Sub) => true,
            _ => return None,
        };
        let is_float = |slot: Slot| self.specs[slot].as_ref().is_some_and(|spec| spec.dtype.is_float());
        let orders = if subtract { &[(a, b)][..] } else { &[(a, b), (b, a)] };
        let (summand, product, factors) = orders.iter().find_map(|(summand, product)| {
            let at = self.sole_producer(i, *product, uses).filter(|_| is_float(*product))?;
            let step = &self.steps[at];
            let is_product = matches!(step.op, Op::Binary(Binary::Mul)) && step.inputs.len() == 2;
            is_product.then(|| (*summand, at, step.inputs.clone()))
        })?;
        self.steps[i].op = Op::MultiplyAdd { subtract };
        self.steps[i].inputs = [vec![Some(summand)], factors].concat();
        Some(product)
    }

    fn fuse_activation(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let Op::Unary(kind) = self.steps[i].op else { return None };
        let conv = self.sole_producer(i, self.steps[i].inputs[0]?, uses)?;
        let Op::Conv { activation: activation @ None, .. } = &mut self.steps[conv].op else { return None };
        *activation = Some(kind);
        self.steps[conv].outputs = self.steps[i].outputs.clone();
        Some(i)
    }

    /// Fuses a ReLU into the product and sum before it.
    fn fuse_linear_relu(&mut self, i: usize, uses: &[usize]) -> Option<usize> {
        let Op::Unary(Unary::Relu) = self.steps[i].op else { return None };
        let linear = self.sole_producer(i, self.steps[i].inputs[0]?, uses)?;
        let Op::Linear { relu: relu @ false } = &mut self.steps[linear].op else { return None };
        *relu = true;
        self.steps[linear].outputs = self.steps[i].outputs.clone();
        Some(i)
    }
}

/// Returns whether a number is 1/6, to the precision of an f32 attribute.
fn is_sixth(alpha: f64) -> bool {
    (alpha - 1.0 / 6.0).abs() < 1e-7
}
