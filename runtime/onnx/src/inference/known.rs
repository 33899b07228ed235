//! What is known of the values of a graph, and how a node adds to it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rten_shape_inference::{SymTensor, SymbolGen};

use super::{Attributes, InferError, agreement, dtypes, shapes, symbols};
use crate::{Attribute, DType, Dim, Node, Tensor, TensorSpec};

/// What is known of a value: its type, and its shape or (for small integer tensors) its elements.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(super) dtype: Option<DType>,
    pub(super) shape: SymTensor,
}

impl Known {
    pub(super) fn unknown() -> Self {
        Known { dtype: None, shape: SymTensor::unknown("not inferred") }
    }

    pub(super) fn dims(&self) -> Option<Vec<Dim>> {
        symbols::dims(&self.shape)
    }

    pub(super) fn spec(&self) -> Option<TensorSpec> {
        Some(TensorSpec { dims: self.dims()?, dtype: self.dtype? })
    }
}

/// The values of a graph as far as they are known.
#[derive(Default)]
pub(crate) struct Inference {
    symbols: SymbolGen,
    known: HashMap<String, Known>,
}

impl Inference {
    /// Takes note of an input or a weight.
    pub(crate) fn declare(&mut self, name: &str, spec: &TensorSpec) {
        let shape = symbols::shape(&spec.dims, &mut self.symbols);
        self.known.insert(name.to_owned(), Known { dtype: Some(spec.dtype), shape });
    }

    /// Takes note of a value whose elements are known.
    pub(crate) fn constant(&mut self, name: &str, tensor: &Tensor) {
        let shape = symbols::value(tensor, &mut self.symbols);
        self.known.insert(name.to_owned(), Known { dtype: Some(tensor.dtype()), shape });
    }

    /// Infers the outputs of a node whose inputs were noted before, and notes them.
    /// An output is `None` when an input is too little known to tell.
    pub(crate) fn node(&mut self, node: &Node) -> Result<Vec<Option<TensorSpec>>, InferError> {
        let outputs = self.outputs(node);
        let count = node.outputs.len();
        let noted = match &outputs {
            Ok(outputs) => outputs.iter().cloned().chain(std::iter::repeat_with(Known::unknown)).take(count).collect(),
            Err(_) => vec![Known::unknown(); count],
        };
        let specs = noted.iter().map(Known::spec).collect();
        self.known.extend(node.outputs.iter().cloned().zip(noted));
        outputs.map(|_| specs)
    }

    fn outputs(&mut self, node: &Node) -> Result<Vec<Known>, InferError> {
        if !node.domain.is_empty() && node.domain != "ai.onnx" {
            return Err(InferError::UnknownOperator(format!("{}.{}", node.domain, node.op)));
        }
        let attributes = Attributes(&node.attributes);
        if node.op == "Constant" {
            let tensor = constant_value(attributes)?;
            return Ok(vec![Known { dtype: Some(tensor.dtype()), shape: symbols::value(&tensor, &mut self.symbols) }]);
        }
        let inputs: Vec<Option<Known>> = node.inputs.iter().map(|name| self.input(name)).collect();
        let dtypes = dtypes::outputs(&node.op, attributes, &inputs, node.outputs.len())?;
        agreement::check(&node.op, attributes, &inputs)?;
        let shapes: Vec<Option<SymTensor>> = inputs.into_iter().map(|known| known.map(|k| k.shape)).collect();
        let count = node.outputs.len();
        // The rules panic on some values that no model should have.
        let shapes =
            catch_unwind(AssertUnwindSafe(|| shapes::outputs(&node.op, attributes, &shapes, count, &mut self.symbols)));
        shapes
            .map_err(|_| InferError::Value)??
            .into_iter()
            .zip(dtypes)
            .map(|(shape, dtype)| Ok(Known { dtype, shape: symbols::checked(shape)? }))
            .collect()
    }

    fn input(&self, name: &str) -> Option<Known> {
        (!name.is_empty()).then(|| self.known.get(name).cloned().unwrap_or_else(Known::unknown))
    }
}

/// The tensor that a `Constant` node stands for.
pub(crate) fn constant_value(attributes: Attributes<'_>) -> Result<Tensor, InferError> {
    let vector = |length: usize| vec![length];
    let tensor = match attributes.0.first() {
        Some((_, Attribute::Tensor(tensor))) => Ok(tensor.clone()),
        Some((_, Attribute::Int(value))) => Ok(Tensor::scalar(*value)),
        Some((_, Attribute::Float(value))) => Ok(Tensor::scalar(*value)),
        Some((_, Attribute::Ints(values))) => Tensor::from_vec(vector(values.len()), values.clone()),
        Some((_, Attribute::Floats(values))) => Tensor::from_vec(vector(values.len()), values.clone()),
        _ => return Err(InferError::MissingAttribute("value")),
    };
    Ok(tensor.expect("a vector is as long as it is"))
}
