//! Functions of several tensors, element by element, which a library may compute in one pass over the memory.

use super::OpError;
use super::evaluate::scalar;
use super::ops::{Binary, TensorOps, Unary};

/// An operation on elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Elementwise {
    /// A function of one operand.
    Unary(Unary),
    /// A function of two operands.
    Binary(Binary),
    /// Operand 0 plus the product of operands 1 and 2, or minus it.
    MultiplyAdd {
        /// Whether the product is subtracted.
        subtract: bool,
    },
    /// The product of the SiLU of operand 0 and operand 1.
    SiluProduct,
}

/// What an operation reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementwiseOperand {
    /// The element of the input with this index.
    Input(usize),
    /// The result of the step with this index, which is an earlier one.
    Step(usize),
    /// A finite number.
    Number(f64),
}

/// A step of an [`ElementwiseFunction`].
#[derive(Clone, Debug, PartialEq)]
pub struct ElementwiseStep {
    /// What is computed.
    pub operation: Elementwise,
    /// As many as the operation has.
    pub operands: Vec<ElementwiseOperand>,
}

/// A function of the elements of tensors of one floating-point type, which broadcast. The result is that of the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElementwiseFunction {
    /// In the order of execution.
    pub steps: Vec<ElementwiseStep>,
}

impl ElementwiseFunction {
    /// Returns the function with a further step.
    pub fn then(mut self, operation: Elementwise, operands: &[ElementwiseOperand]) -> Self {
        self.steps.push(ElementwiseStep { operation, operands: operands.to_vec() });
        self
    }

    /// Applies the function, one step after the other.
    ///
    /// # Errors
    /// Those of the tensor library.
    pub fn apply<O: TensorOps + ?Sized>(&self, ops: &O, inputs: &[O::Tensor]) -> Result<O::Tensor, OpError> {
        let none = || OpError::invalid_operands("a function of elements without an operand");
        let mut results: Vec<O::Tensor> = Vec::new();
        for ElementwiseStep { operation, operands } in &self.steps {
            let operand = |operand: &ElementwiseOperand| match operand {
                ElementwiseOperand::Input(index) => inputs.get(*index).cloned().ok_or_else(none),
                ElementwiseOperand::Step(index) => results.get(*index).cloned().ok_or_else(none),
                ElementwiseOperand::Number(number) => scalar(ops, *number, inputs.first().ok_or_else(none)?),
            };
            let operands = operands.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
            results.push(match (operation, &operands[..]) {
                (Elementwise::Unary(kind), [x]) => ops.unary(*kind, x)?,
                (Elementwise::Binary(kind), [a, b]) => ops.binary(*kind, a, b)?,
                (Elementwise::MultiplyAdd { subtract }, [a, b, c]) => ops.multiply_add(a, b, c, *subtract)?,
                (Elementwise::SiluProduct, [gate, x]) => ops.silu_product(gate, x)?,
                _ => return Err(none()),
            });
        }
        results.pop().ok_or_else(none)
    }
}
