//! The values of a graph as far as they are known, and the inference of a node's outputs from them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rten_shape_inference::{SymTensor, SymbolGen};

use super::{Attributes, InferError, dtypes, input_checks, shapes, symbols};
use crate::{DType, Dim, Node, Tensor, TensorSpec};

/// A value as far as it is known: its type, and its shape or (for small integer tensors) its elements.
#[derive(Clone, Debug)]
pub(crate) struct KnownValue {
    pub(super) dtype: Option<DType>,
    pub(super) shape: SymTensor,
}

impl KnownValue {
    pub(super) fn unknown() -> Self {
        KnownValue { dtype: None, shape: SymTensor::unknown("not inferred") }
    }

    pub(super) fn dims(&self) -> Option<Vec<Dim>> {
        symbols::dims(&self.shape)
    }

    pub(super) fn spec(&self) -> Option<TensorSpec> {
        Some(TensorSpec { dims: self.dims()?, dtype: self.dtype? })
    }
}

/// The shape inference of one graph: its values as far as they are known.
#[derive(Default)]
pub(crate) struct ShapeInference {
    symbols: SymbolGen,
    known: HashMap<String, KnownValue>,
}

impl ShapeInference {
    /// Declares an input or a weight.
    pub(crate) fn declare(&mut self, name: &str, spec: &TensorSpec) {
        let shape = symbols::symbolic_shape(&spec.dims, &mut self.symbols);
        self.known.insert(name.to_owned(), KnownValue { dtype: Some(spec.dtype), shape });
    }

    /// Declares a value whose elements are known.
    pub(crate) fn constant(&mut self, name: &str, tensor: &Tensor) {
        let shape = symbols::symbolic_value(tensor, &mut self.symbols);
        self.known.insert(name.to_owned(), KnownValue { dtype: Some(tensor.dtype()), shape });
    }

    /// Infers the outputs of a node from its inputs, which were declared or inferred before, and records them.
    /// An output is `None` when too little is known about an input.
    pub(crate) fn node(&mut self, node: &Node) -> Result<Vec<Option<TensorSpec>>, InferError> {
        let outputs = self.infer_outputs(node);
        let count = node.outputs.len();
        let recorded = match &outputs {
            Ok(outputs) => {
                outputs.iter().cloned().chain(std::iter::repeat_with(KnownValue::unknown)).take(count).collect()
            }
            Err(_) => vec![KnownValue::unknown(); count],
        };
        let specs = recorded.iter().map(KnownValue::spec).collect();
        self.known.extend(node.outputs.iter().cloned().zip(recorded));
        outputs.map(|_| specs)
    }

    fn infer_outputs(&mut self, node: &Node) -> Result<Vec<KnownValue>, InferError> {
        if !node.domain.is_empty() && node.domain != "ai.onnx" {
            return Err(InferError::UnknownOperator(format!("{}.{}", node.domain, node.op)));
        }
        let attributes = Attributes(&node.attributes);
        if node.op == "Constant" {
            let tensor = node.constant().ok_or(InferError::MissingAttribute("value"))?;
            return Ok(vec![KnownValue {
                dtype: Some(tensor.dtype()),
                shape: symbols::symbolic_value(&tensor, &mut self.symbols),
            }]);
        }
        let inputs: Vec<Option<KnownValue>> = node.inputs.iter().map(|name| self.input(name)).collect();
        let dtypes = dtypes::output_dtypes(&node.op, attributes, &inputs, node.outputs.len())?;
        input_checks::check_inputs(&node.op, attributes, &inputs)?;
        let shapes: Vec<Option<SymTensor>> = inputs.into_iter().map(|known| known.map(|k| k.shape)).collect();
        let count = node.outputs.len();
        // The rules panic on some invalid values.
        let shapes = catch_unwind(AssertUnwindSafe(|| {
            shapes::output_shapes(&node.op, attributes, &shapes, count, &mut self.symbols)
        }));
        shapes
            .map_err(|_| InferError::Value)??
            .into_iter()
            .zip(dtypes)
            .map(|(shape, dtype)| Ok(KnownValue { dtype, shape: symbols::check_sizes(shape)? }))
            .collect()
    }

    fn input(&self, name: &str) -> Option<KnownValue> {
        (!name.is_empty()).then(|| self.known.get(name).cloned().unwrap_or_else(KnownValue::unknown))
    }
}
