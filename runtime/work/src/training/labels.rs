//! Checks the classes of a batch: an engine takes a negative class for one counted from the end, or computes nothing sensible.

use flagperf_core::event::Failure;
use flagperf_data::Batch;
use flagperf_onnx::{Attribute, Graph};

use super::super::phase::failure;

/// The classes that a loss admits for an input of the training step.
pub struct ClassRange {
    /// The input with the classes.
    input: String,
    classes: i64,
    ignored: Option<i64>,
}

impl ClassRange {
    /// Returns the range of each input that a loss over classes reads.
    pub fn of(graph: &Graph) -> Vec<Self> {
        let is_input = |name: &str| graph.inputs.iter().any(|input| input.name == name);
        let losses = graph.nodes.iter().filter(|node| {
            ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"].contains(&node.op.as_str())
                && node.inputs.get(1).is_some_and(|labels| is_input(labels))
        });
        let range = |node: &flagperf_onnx::Node| {
            let classes = graph.values.get(&node.inputs[0])?.dims.get(1)?.fixed()?;
            let ignored = match node.attributes.get("ignore_index") {
                Some(Attribute::Int(class)) => Some(*class),
                _ => None,
            };
            Some(ClassRange { input: node.inputs[1].clone(), classes: classes as i64, ignored })
        };
        losses.filter_map(range).collect()
    }

    /// Checks the classes of a batch.
    ///
    /// # Errors
    /// When a class is outside the range.
    pub fn check(&self, batch: &Batch) -> Result<(), Failure> {
        let Some(labels) = batch.truth.get(&self.input).or_else(|| batch.inputs.get(&self.input)) else {
            return Ok(());
        };
        let is_outside = |class: &f64| {
            let class = *class as i64;
            Some(class) != self.ignored && !(0..self.classes).contains(&class)
        };
        match labels.to_f64().into_iter().find(is_outside) {
            None => Ok(()),
            Some(class) => {
                let (input, classes, last) = (&self.input, self.classes, self.classes - 1);
                let reason =
                    format!("label {class} of `{input}` is out of range: the loss has {classes} classes, 0 to {last}");
                Err(failure(&reason, "`ignore_index` of the loss names a class that does not count"))
            }
        }
    }
}
