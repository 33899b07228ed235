//! The values of a graph as far as they are known, and the inference of a node's outputs from them.

use std::collections::HashMap;

use rten_shape_inference::{SymExpr, SymTensor, SymbolGen};

use super::shapes::{ShapedNode, output_shapes};
use super::silent::catch_silently;
use super::{Attributes, InferError, dtypes, symbols};
use crate::{ALL_REDUCE, BROADCAST, DType, Dim, FLOAT8_PRODUCT, Node, OWN_DOMAIN, Tensor, TensorSpec, find_operator};

/// A value as far as it is known: its type, and its shape or (for small integer tensors) its elements.
#[derive(Clone, Debug)]
pub(super) struct KnownValue {
    pub(super) dtype: Option<DType>,
    pub(super) shape: SymTensor,
    /// The numbers of a short list of floats, such as the scales of a resize.
    pub(super) numbers: Option<Vec<f64>>,
}

/// The most floats of a constant that are tracked by value.
const NUMBERS_MAX: usize = 16;

impl KnownValue {
    pub(super) fn unknown() -> Self {
        KnownValue { dtype: None, shape: SymTensor::unknown("not inferred"), numbers: None }
    }

    /// Returns a value whose elements are known.
    fn constant(tensor: &Tensor, symbols: &mut SymbolGen) -> Self {
        let is_short = tensor.dtype().is_float() && tensor.shape().len() == 1 && tensor.len() <= NUMBERS_MAX;
        KnownValue {
            dtype: Some(tensor.dtype()),
            shape: symbols::symbolic_value(tensor, symbols),
            numbers: is_short.then(|| tensor.to_f64()),
        }
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
        self.known.insert(name.to_owned(), KnownValue { dtype: Some(spec.dtype), shape, numbers: None });
    }

    /// Declares a value whose elements are known.
    pub(crate) fn constant(&mut self, name: &str, tensor: &Tensor) {
        let known = KnownValue::constant(tensor, &mut self.symbols);
        self.known.insert(name.to_owned(), known);
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

    /// Returns a value whose elements are all known integers.
    pub(crate) fn integers(&self, name: &str) -> Option<Tensor> {
        let known = self.known.get(name)?;
        // The largest number stands for every larger one.
        let number = |size: &SymExpr| match size {
            SymExpr::Value(number) if ![i32::MIN, i32::MAX].contains(number) => Some(i64::from(*number)),
            _ => None,
        };
        let numbers: Vec<i64> = known.shape.values()?.iter().map(number).collect::<Option<_>>()?;
        let tensor = match known.shape.as_scalar() {
            Some(_) => Tensor::scalar(*numbers.first()?),
            None => Tensor::from_vec([numbers.len()], numbers).ok()?,
        };
        let dtype = known.dtype.filter(|dtype| matches!(dtype, DType::I64 | DType::I32))?;
        Some(tensor.cast(dtype))
    }

    fn infer_outputs(&mut self, node: &Node) -> Result<Vec<KnownValue>, InferError> {
        if node.domain == OWN_DOMAIN && [ALL_REDUCE, BROADCAST].contains(&node.op.as_str()) {
            let exchanged = |name| self.input(name).map(|known| KnownValue { numbers: None, ..known });
            return Ok(node.inputs.iter().map(|name| exchanged(name).unwrap_or_else(KnownValue::unknown)).collect());
        }
        if node.domain == OWN_DOMAIN && node.op == FLOAT8_PRODUCT {
            let rows = |name: &String| self.input(name)?.dims()?.first().cloned();
            let dims: Option<Vec<Dim>> = node.inputs.iter().map(rows).collect();
            let shape = dims.map(|dims| symbols::symbolic_shape(&dims, &mut self.symbols));
            let known = |shape| KnownValue { dtype: Some(DType::BF16), shape, numbers: None };
            return Ok(vec![shape.map_or_else(KnownValue::unknown, known)]);
        }
        if !node.domain.is_empty() && node.domain != "ai.onnx" {
            return Err(InferError::UnknownOperator(format!("{}.{}", node.domain, node.op)));
        }
        let attributes = Attributes(&node.attributes);
        if node.op == "Constant" {
            let tensor = node.constant().ok_or(InferError::MissingAttribute("value"))?;
            return Ok(vec![KnownValue::constant(&tensor, &mut self.symbols)]);
        }
        let inputs: Vec<Option<KnownValue>> = node.inputs.iter().map(|name| self.input(name)).collect();
        let input_dtypes: Vec<_> = inputs.iter().map(|known| known.as_ref().and_then(|known| known.dtype)).collect();
        let dtypes = dtypes::output_dtypes(&node.op, attributes, &input_dtypes, node.outputs.len())?;
        let rule = find_operator(&node.op).and_then(|operator| operator.shape);
        let rule = rule.ok_or_else(|| InferError::UnknownOperator(node.op.clone()))?;
        let shapes: Vec<_> = inputs.iter().map(|known| known.as_ref().map(|known| known.shape.clone())).collect();
        let (outputs, symbols) = (node.outputs.len(), &mut self.symbols);
        let shaped = ShapedNode { attributes, inputs: &shapes, values: &inputs, outputs, symbols };
        // The rules panic on some invalid values.
        let shapes = catch_silently(|| output_shapes(rule, shaped));
        shapes
            .ok_or(InferError::Value)??
            .into_iter()
            .zip(dtypes)
            .map(|(shape, dtype)| Ok(KnownValue { dtype, shape: symbols::check_sizes(shape)?, numbers: None }))
            .collect()
    }

    fn input(&self, name: &str) -> Option<KnownValue> {
        (!name.is_empty()).then(|| self.known.get(name).cloned().unwrap_or_else(KnownValue::unknown))
    }
}
