//! Applies one operator of the newest operator set to host tensors, with the tensor library of the processor.
//!
//! Scripts compute with it, so that an operator has one implementation. Knows nothing about graphs.

use indexmap::IndexMap;

use super::cpu::{CpuOps, into_host};
use super::evaluate::evaluate;
use super::op::Op;
use super::operands::{Operands, Value};
use super::resolve::resolve;
use super::result_bound::elements_max;
use super::{ExecError, OpError, TensorOps};
use flagperf_onnx::{Attribute, DType, Node, OPSET, Tensor};
use flagperf_onnx::{Attributes, output_dtypes};

/// An operator with its attributes, ready to be applied to tensors.
#[derive(Clone, Debug)]
pub struct Operation {
    op: Op,
    node: Node,
}

impl Operation {
    /// Returns the operation of a node of the newest operator set. `inputs` states for each input whether it is
    /// present, `outputs` is the number of outputs.
    ///
    /// # Errors
    /// When the executor does not support the operator or an attribute.
    pub fn new(
        op: &str,
        attributes: IndexMap<String, Attribute>,
        inputs: &[bool],
        outputs: usize,
    ) -> Result<Self, OpError> {
        let name = |is_present: &bool| if *is_present { "x".to_owned() } else { String::new() };
        let node = Node {
            op: op.to_owned(),
            inputs: inputs.iter().map(name).collect(),
            outputs: vec!["y".to_owned(); outputs],
            attributes,
            ..Node::default()
        };
        let op = resolve(&node, OPSET).map_err(|error| match error {
            ExecError::Node { reason, .. } => reason,
            _ => OpError::unsupported(format!("the operator `{op}`")),
        })?;
        Ok(Operation { op, node })
    }

    /// Returns an upper bound of the bytes of all outputs together; it saturates. It is exact for operators whose result
    /// can be larger than their largest input.
    ///
    /// # Errors
    /// When the inputs are incompatible, or the size of the result is known only after it is computed.
    pub fn bytes_max(&self, inputs: &[Option<&Tensor>]) -> Result<u64, OpError> {
        let widths = self.output_dtypes(inputs)?.into_iter().flatten().map(DType::size);
        Ok(elements_max(&self.node.op, &self.op, inputs)?
            .saturating_mul(widths.max().unwrap_or(size_of::<f64>()) as u64))
    }

    /// Applies the operation. An output that has the elements of an input shares its memory.
    ///
    /// # Errors
    /// When the inputs are incompatible, or the library does not support their element types.
    pub fn apply(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let dtypes = self.output_dtypes(inputs)?;
        let upload = |input: &Option<&Tensor>| input.map(|tensor| CpuOps.upload(tensor).map(Value::Library));
        let values = inputs.iter().map(|input| upload(input).transpose()).collect::<Result<_, OpError>>()?;
        let operands = Operands { ops: &CpuOps, values };
        let outputs = evaluate(&self.op, &operands)?;
        drop(operands);
        let to_host = |(output, dtype): (_, Option<DType>)| {
            let output = shared_or_own(output, inputs);
            if dtype == Some(DType::Bool) { output.bytes_as_bools() } else { output }
        };
        Ok(outputs.into_iter().zip(dtypes).map(to_host).collect())
    }

    fn output_dtypes(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Option<DType>>, OpError> {
        let dtypes: Vec<Option<DType>> = inputs.iter().map(|input| input.map(Tensor::dtype)).collect();
        let (attributes, outputs) = (Attributes(&self.node.attributes), self.node.outputs.len());
        output_dtypes(&self.node.op, attributes, &dtypes, outputs)
            .map_err(|error| OpError::invalid_operands(error.to_string()))
    }
}

/// Converts an output to a host tensor. If its elements are those of an input, it shares the input's memory.
fn shared_or_own(output: <CpuOps as TensorOps>::Tensor, inputs: &[Option<&Tensor>]) -> Tensor {
    let address = output.dense_address();
    let same = inputs.iter().flatten().find(|input| {
        Some(input.bytes().as_ptr()) == address && input.len() == output.shape().iter().product::<usize>()
    });
    let reshaped = same.and_then(|input| input.reshape(output.shape()).ok());
    reshaped.unwrap_or_else(|| into_host(output))
}

/// Applies an operator of the newest operator set to host tensors; see [`Operation`].
///
/// # Errors
/// As [`Operation::new`] and [`Operation::apply`].
pub fn apply(
    op: &str,
    attributes: IndexMap<String, Attribute>,
    inputs: &[Option<&Tensor>],
    outputs: usize,
) -> Result<Vec<Tensor>, OpError> {
    let present: Vec<bool> = inputs.iter().map(Option::is_some).collect();
    Operation::new(op, attributes, &present, outputs)?.apply(inputs)
}
