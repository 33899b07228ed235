//! What the derivative of an operator reads and returns, and the sums over broadcast dimensions.

use crate::lower::NodeList;
use crate::{Attribute, DType, Dim, Node, TensorSpec};

/// The derivative of an operator: from the gradients of a node's outputs, adds nodes that compute those of its inputs.
pub(crate) type Derivative = fn(&mut Backward<'_, '_>, &Node) -> Result<(), String>;

/// The gradients at one node.
pub(crate) struct Backward<'a, 'list> {
    /// Where the derivative adds its nodes.
    pub nodes: &'a mut NodeList<'list>,
    outputs: Vec<Option<String>>,
    needed: Vec<bool>,
    inputs: Vec<Option<String>>,
}

impl<'a, 'list> Backward<'a, 'list> {
    pub(super) fn new(nodes: &'a mut NodeList<'list>, outputs: Vec<Option<String>>, needed: Vec<bool>) -> Self {
        let inputs = vec![None; needed.len()];
        Backward { nodes, outputs, needed, inputs }
    }

    /// Returns the gradients of the inputs, as far as they were needed.
    pub(super) fn finish(self) -> Vec<Option<String>> {
        self.inputs
    }

    /// Returns the gradient of an output; `None` if the loss does not depend on it.
    pub fn output(&self, i: usize) -> Option<String> {
        self.outputs.get(i).cloned().flatten()
    }

    /// Returns the gradient of the first output, for an operator whose other outputs have none.
    pub fn first(&self) -> Result<String, String> {
        if self.outputs.iter().skip(1).any(Option::is_some) {
            return Err("the loss depends on an output other than the first".to_owned());
        }
        self.output(0).ok_or_else(|| "the loss does not depend on the first output".to_owned())
    }

    /// Returns whether the gradient of an input is needed.
    pub fn needs(&self, i: usize) -> bool {
        self.needed.get(i).copied().unwrap_or(false)
    }

    /// Sets the gradient of an input, which has the input's shape.
    pub fn set(&mut self, i: usize, gradient: String) {
        if self.needs(i) {
            self.inputs[i] = Some(gradient);
        }
    }

    /// Sets the gradient of an input that was broadcast to the shape `from`, which the gradient has.
    pub fn set_broadcast(&mut self, node: &Node, i: usize, gradient: &str, from: &[Dim]) -> Result<(), String> {
        if self.needs(i) {
            let to = self.spec(node, i)?.dims.clone();
            let sum = sum_to(self.nodes, gradient, from, &to)?;
            self.set(i, sum);
        }
        Ok(())
    }

    /// Returns the shape and type of an input.
    pub fn spec(&self, node: &Node, i: usize) -> Result<&'list TensorSpec, String> {
        self.nodes.spec(node.inputs.get(i).ok_or_else(|| format!("input {i} is missing"))?)
    }

    /// Returns the element type of the first input.
    pub fn dtype(&self, node: &Node) -> Result<DType, String> {
        Ok(self.spec(node, 0)?.dtype)
    }

    /// Returns the shape of the first output.
    pub fn output_dims(&self, node: &Node) -> Result<&'list [Dim], String> {
        Ok(&self.nodes.spec(&node.outputs[0])?.dims)
    }

    /// Returns the sizes of an input, all of which must be known.
    pub fn sizes(&self, node: &Node, i: usize) -> Result<Vec<i64>, String> {
        let spec = self.spec(node, i)?;
        let sizes =
            spec.fixed_shape().ok_or_else(|| format!("not every size of `{}` (`{spec}`) is known", node.inputs[i]))?;
        Ok(sizes.into_iter().map(|size| size as i64).collect())
    }

    /// Adds a tensor of zeros with the shape and type of an input.
    pub fn zeros(&mut self, node: &Node, i: usize) -> Result<String, String> {
        let (sizes, dtype) = (self.sizes(node, i)?, self.spec(node, i)?.dtype);
        Ok(self.zeros_of(&sizes, dtype))
    }

    /// Adds a tensor of zeros.
    pub fn zeros_of(&mut self, sizes: &[i64], dtype: DType) -> String {
        let (zero, shape) = (self.nodes.number(0.0, dtype), self.nodes.ints(sizes));
        self.nodes.add("Expand", &[&zero, &shape])
    }

    /// Adds a reshape to the shape of an input.
    pub fn reshape_to_input(&mut self, node: &Node, i: usize, x: &str) -> Result<String, String> {
        let sizes = self.sizes(node, i)?;
        Ok(self.nodes.reshape(x, &sizes))
    }
}

/// Adds the sum of a gradient of shape `from` over the dimensions along which a value of shape `to` was broadcast.
pub(super) fn sum_to(nodes: &mut NodeList<'_>, gradient: &str, from: &[Dim], to: &[Dim]) -> Result<String, String> {
    let Some(added) = from.len().checked_sub(to.len()) else {
        return Err("an input has more dimensions than the output".to_owned());
    };
    let leading: Vec<i64> = (0..added as i64).collect();
    let mut repeated = Vec::new();
    for (axis, (from, to)) in from[added..].iter().zip(to).enumerate() {
        match (from, to) {
            _ if from == to => (),
            (_, Dim::Fixed(1)) => repeated.push((added + axis) as i64),
            _ => return Err(format!("whether dimension {axis} was broadcast is not known")),
        }
    }
    let mut gradient = gradient.to_owned();
    if !repeated.is_empty() {
        gradient = sum(nodes, &gradient, &repeated, true);
    }
    if !leading.is_empty() {
        gradient = sum(nodes, &gradient, &leading, false);
    }
    Ok(gradient)
}

/// Adds a sum over axes.
pub(super) fn sum(nodes: &mut NodeList<'_>, x: &str, axes: &[i64], keep: bool) -> String {
    let axes = nodes.ints(axes);
    nodes.add_with("ReduceSum", &[x, &axes], [("keepdims", Attribute::Int(i64::from(keep)))])
}
