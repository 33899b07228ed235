//! Fuses elementwise steps whose results have one shape and one reader into one function.

use super::super::elementwise::{Elementwise, ElementwiseFunction, ElementwiseOperand, ElementwiseStep};
use super::super::execution_plan::{ExecutionPlan, Slot, stays_on_host};
use super::super::op::Op;
use flagperf_onnx::Dim;

/// The most tensors that a function reads: libtorch's compiler accepts no more.
const INPUTS_MAX: usize = 8;

/// A function, and the values that it reads.
struct Fusion {
    function: ElementwiseFunction,
    inputs: Vec<Slot>,
}

impl ExecutionPlan {
    /// Fuses the operations that `compiles` accepts. What depends on constants alone is left to be computed once.
    pub fn fuse_elementwise(&mut self, compiles: &dyn Fn(Elementwise) -> bool) {
        let computed = self.computed_in_library();
        self.apply_rule(|plan, i, uses| plan.fuse_elementwise_step(i, uses, &computed, compiles));
    }

    /// Returns for each value whether the library computes it in every run.
    fn computed_in_library(&self) -> Vec<bool> {
        let on_host = self.values_on_host();
        let mut is_constant = vec![false; self.specs.len()];
        self.constants.keys().for_each(|slot| is_constant[*slot] = true);
        for step in &self.steps {
            let result = step.inputs.iter().flatten().all(|slot| is_constant[*slot]);
            step.outputs.iter().for_each(|slot| is_constant[*slot] = result);
        }
        is_constant.into_iter().zip(on_host).map(|(is_constant, on_host)| !is_constant && !on_host).collect()
    }

    fn fuse_elementwise_step(
        &mut self,
        i: usize,
        uses: &[usize],
        computed: &[bool],
        compiles: &dyn Fn(Elementwise) -> bool,
    ) -> Vec<usize> {
        let mut merged = Vec::new();
        let Some(mut fusion) = self.fusion(i, computed, compiles) else { return merged };
        let mut next = 0;
        while let Some(slot) = fusion.inputs.get(next).copied() {
            let readers = merged.iter().chain([&i]).flat_map(|at| &self.steps[*at].inputs);
            let is_inner = readers.filter(|input| **input == Some(slot)).count() == uses[slot]
                && self.specs[slot] == self.specs[self.steps[i].outputs[0]];
            let producer = self.steps[..i].iter().rposition(|step| step.outputs == [slot]).filter(|_| is_inner);
            let before = producer.and_then(|at| Some((at, self.fusion(at, computed, compiles)?)));
            match before.and_then(|(at, before)| Some((at, fusion.after(before, next)?))) {
                Some((at, longer)) => {
                    merged.push(at);
                    fusion = longer;
                    next = 0;
                }
                None => next += 1,
            }
        }
        if !merged.is_empty() {
            self.steps[i].op = Op::Fused(fusion.function);
            self.steps[i].inputs = fusion.inputs.into_iter().map(Some).collect();
        }
        merged
    }

    /// Returns what a step computes, if the library can compile it: of tensors of one floating-point type and numbers.
    fn fusion(&self, i: usize, computed: &[bool], compiles: &dyn Fn(Elementwise) -> bool) -> Option<Fusion> {
        let step = &self.steps[i];
        let operation = match &step.op {
            Op::Unary(kind) => Elementwise::Unary(*kind),
            Op::Binary(kind) if step.inputs.len() == 2 => Elementwise::Binary(*kind),
            Op::MultiplyAdd { subtract } => Elementwise::MultiplyAdd { subtract: *subtract },
            Op::SiluProduct => Elementwise::SiluProduct,
            Op::Fused(function) => {
                let inputs = step.inputs.iter().flatten().copied().collect();
                return Some(Fusion { function: function.clone(), inputs });
            }
            _ => return None,
        };
        let [output] = step.outputs[..] else { return None };
        let spec = self.specs[output].as_ref()?;
        if !compiles(operation) || !computed[output] || !spec.dtype.is_float() || spec.dims.contains(&Dim::Unknown) {
            return None;
        }
        let (mut inputs, mut operands) = (Vec::new(), Vec::new());
        for slot in &step.inputs {
            let slot = (*slot)?;
            if self.specs[slot].as_ref()?.dtype != spec.dtype {
                return None;
            }
            operands.push(match self.constants.get(&slot).filter(|constant| stays_on_host(constant)) {
                Some(constant) => {
                    let number = constant.to_f64().first().copied().filter(|number| number.is_finite());
                    // A number with more dimensions than the result adds dimensions to it.
                    let is_number = constant.shape().len() <= spec.dims.len();
                    ElementwiseOperand::Number(number.filter(|_| is_number)?)
                }
                None if computed[slot] || self.constants.contains_key(&slot) => {
                    ElementwiseOperand::Input(place_of(slot, &mut inputs))
                }
                None => return None,
            });
        }
        let function = ElementwiseFunction::default().then(operation, &operands);
        (!inputs.is_empty()).then_some(Fusion { function, inputs })
    }
}

impl Fusion {
    /// Returns this function with another one in place of input `place`; `None` if it would read too many tensors.
    fn after(&self, before: Fusion, place: usize) -> Option<Fusion> {
        let Fusion { function: ElementwiseFunction { mut steps }, mut inputs } = before;
        let (last, offset) = (steps.len() - 1, steps.len());
        let places: Vec<ElementwiseOperand> = (0..self.inputs.len())
            .map(|input| match input == place {
                true => ElementwiseOperand::Step(last),
                false => ElementwiseOperand::Input(place_of(self.inputs[input], &mut inputs)),
            })
            .collect();
        let moved = |operand: &ElementwiseOperand| match *operand {
            ElementwiseOperand::Input(input) => places[input],
            ElementwiseOperand::Step(step) => ElementwiseOperand::Step(step + offset),
            number => number,
        };
        steps.extend(self.function.steps.iter().map(|ElementwiseStep { operation, operands }| ElementwiseStep {
            operation: *operation,
            operands: operands.iter().map(moved).collect(),
        }));
        (inputs.len() <= INPUTS_MAX).then_some(Fusion { function: ElementwiseFunction { steps }, inputs })
    }
}

/// Returns the place of a value in a list, to which it is added if it is new.
fn place_of(slot: Slot, inputs: &mut Vec<Slot>) -> usize {
    inputs.iter().position(|input| *input == slot).unwrap_or_else(|| {
        inputs.push(slot);
        inputs.len() - 1
    })
}
