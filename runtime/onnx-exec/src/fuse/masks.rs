//! Computes once what several attentions need of one mask.

use std::collections::HashMap;

use super::super::execution_plan::{ExecutionPlan, Slot, Step};
use super::super::multi_head_attention::HIDDEN_ROWS;
use super::super::op::{Op, ReduceDefault, Reduction};
use super::super::ops::{Binary, Reduce};
use flagperf_onnx::{DType, Tensor};

impl ExecutionPlan {
    /// Lets attentions read masks of numbers, to which one step converts a mask of bools, and the rows that a mask hides completely,
    /// which two steps find, in place of computing both themselves.
    pub(super) fn share_masks(&mut self) {
        let mut additive: HashMap<(Slot, DType), Slot> = HashMap::new();
        let mut hidden: HashMap<Slot, Slot> = HashMap::new();
        for mut step in std::mem::take(&mut self.steps) {
            if let Some((mask, dtype)) = self.mask_of(&step) {
                let is_bool = self.specs[mask].as_ref().is_some_and(|spec| spec.dtype == DType::Bool);
                let mask = match is_bool {
                    true => {
                        *additive.entry((mask, dtype)).or_insert_with(|| self.add_additive_mask(mask, dtype, &step))
                    }
                    false => mask,
                };
                step.inputs[3] = Some(mask);
                if let Op::MultiHeadAttention(attention) = &mut step.op
                    && !attention.has_finite_mask
                {
                    attention.reads_hidden_rows = true;
                    let rows = *hidden.entry(mask).or_insert_with(|| self.add_hidden_rows(mask, dtype, &step));
                    step.inputs.resize(HIDDEN_ROWS, None);
                    step.inputs.push(Some(rows));
                }
            }
            self.steps.push(step);
        }
    }

    /// Returns the mask of an attention that no other bound changes, and the type of its scores.
    fn mask_of(&self, step: &Step) -> Option<(Slot, DType)> {
        let Op::MultiHeadAttention(attention) = &step.op else { return None };
        let mask = (*step.inputs.get(3)?)?;
        let spec = self.specs[mask].as_ref()?;
        let dtype = self.specs[(*step.inputs.first()?)?].as_ref()?.dtype;
        let is_alone =
            !attention.causal && attention.window == [None; 2] && step.inputs.get(6).copied().flatten().is_none();
        let is_known = spec.dtype == DType::Bool || spec.dtype == dtype;
        (is_alone && is_known && !spec.dims.is_empty()).then_some((mask, dtype))
    }

    /// Adds the step that converts a mask of bools, which are true at visible positions, to numbers that are added.
    fn add_additive_mask(&mut self, mask: Slot, dtype: DType, reader: &Step) -> Slot {
        let numbers = [0.0, f64::NEG_INFINITY].map(|number| self.add_constant(Tensor::scalar(number).cast(dtype)));
        self.add_mask_step(reader, Op::Select, [&[mask], &numbers[..]].concat())
    }

    /// Adds the steps that find the rows in which all numbers of a mask are minus infinity.
    fn add_hidden_rows(&mut self, mask: Slot, dtype: DType, reader: &Step) -> Slot {
        let kind = Reduction::Plain(Reduce::Max);
        let largest = Op::Reduce { kind, axes: Some(vec![-1]), default: ReduceDefault::All, keep: true };
        let largest = self.add_mask_step(reader, largest, vec![mask]);
        let infinity = self.add_constant(Tensor::scalar(f64::NEG_INFINITY).cast(dtype));
        self.add_mask_step(reader, Op::Binary(Binary::Equal), vec![largest, infinity])
    }

    fn add_mask_step(&mut self, reader: &Step, op: Op, inputs: Vec<Slot>) -> Slot {
        let output = self.add_slot(None);
        self.steps.push(Step {
            name: reader.name.clone(),
            op_name: reader.op_name.clone(),
            op,
            inputs: inputs.into_iter().map(Some).collect(),
            outputs: vec![output],
            bodies: Vec::new(),
        });
        output
    }
}
