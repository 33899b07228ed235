//! Elementwise functions as source text, which libtorch compiles for the device when it first uses them. They compute in f32 and round
//! once.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use flagperf_onnx_exec::{
    Binary, Conv, ConvEpilogue, Elementwise, ElementwiseFunction, ElementwiseOperand, TensorOps, Unary,
};
use tch::{Device, Kind, Tensor};

use super::{OpResult, TorchOps, wrap};
use crate::capture::{self, DeviceFunctions};
use crate::tensor::{TorchTensor, torch_error};

impl TorchOps {
    /// Returns the functions that are compiled for the device, if they can compute with tensors: of one type with at most 32 bits, from
    /// which no gradients are computed.
    pub(super) fn compiled_functions(&self, tensors: &[&Tensor]) -> Option<&'static DeviceFunctions> {
        let kind = tensors.first()?.kind();
        let fits = |x: &&Tensor| x.kind() == kind && x.device() == self.device && !x.requires_grad();
        let is_known = matches!(kind, Kind::Float | Kind::Half | Kind::BFloat16) && self.device != Device::Cpu;
        (is_known && tensors.iter().all(fits)).then(capture::functions)?.ok()
    }

    /// Applies a function that is compiled for the device; `None` if it cannot be.
    pub(super) fn compiled(&self, function: &ElementwiseFunction, inputs: &[&Tensor]) -> Option<OpResult> {
        let functions = self.compiled_functions(inputs)?;
        Some(wrap(functions.elementwise(&source(function, inputs.len())?, inputs)))
    }

    /// Computes a convolution without its bias, and the bias and all that follows in one function; `None` if that is one operation
    /// or cannot be compiled.
    pub(super) fn compiled_epilogue(
        &self,
        x: &TorchTensor,
        weight: &TorchTensor,
        bias: Option<&TorchTensor>,
        conv: &Conv,
        after: &ConvEpilogue<'_, TorchTensor>,
    ) -> Option<OpResult> {
        let summands: Vec<&Tensor> = bias.into_iter().chain(after.residual).map(|summand| &summand.0).collect();
        let functions = self.compiled_functions(&[&[&x.0, &weight.0], &summands[..]].concat())?;
        let mut function = ElementwiseFunction::default();
        let mut last = ElementwiseOperand::Input(0);
        for index in 0..summands.len() {
            function = function.then(Elementwise::Binary(Binary::Add), &[last, ElementwiseOperand::Input(index + 1)]);
            last = ElementwiseOperand::Step(index);
        }
        if let Some(activation) = after.activation {
            function = function.then(Elementwise::Unary(activation), &[last]);
        }
        let is_worthwhile = self.fused_elementwise && function.steps.len() > 1;
        let source = source(&function, summands.len() + 1).filter(|_| is_worthwhile)?;
        let fused = || {
            let y = self.conv(x, weight, None, conv)?.0;
            // A bias has one number for each channel.
            let bias = bias.map(|bias| bias.0.f_view([1, -1, 1, 1])).transpose().map_err(torch_error)?;
            let residual = after.residual.map(|residual| &residual.0);
            let inputs: Vec<&Tensor> = [Some(&y), bias.as_ref(), residual].into_iter().flatten().collect();
            wrap(functions.elementwise(&source, &inputs))
        };
        Some(fused())
    }
}

/// The text of a function, as libtorch's `CompileAndLaunchKernel` expects it.
pub struct Source {
    /// The name, which no function with another text has.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// Returns the text of a function of `inputs` tensors; `None` if it has an operation without a text.
pub fn source(function: &ElementwiseFunction, inputs: usize) -> Option<Source> {
    let mut body = String::new();
    for input in 0..inputs {
        writeln!(body, "    float x{input} = static_cast<float>(t{input});").ok()?;
    }
    for (index, step) in function.steps.iter().enumerate() {
        let operands: Vec<String> = step.operands.iter().map(operand).collect();
        writeln!(body, "    float s{index} = {};", expression(step.operation, &operands)?).ok()?;
    }
    let mut hasher = DefaultHasher::new();
    (inputs, &body).hash(&mut hasher);
    let name = format!("elementwise_{:016x}", hasher.finish());
    let parameters: Vec<String> = (0..inputs).map(|input| format!("T t{input}")).collect();
    let last = function.steps.len().checked_sub(1)?;
    let text = format!(
        "template <typename T> T {name}({}) {{\n{body}    return static_cast<T>(s{last});\n}}\n",
        parameters.join(", ")
    );
    Some(Source { name, text })
}

/// Returns whether there is a text for an operation.
pub fn has_expression(operation: Elementwise) -> bool {
    let operands = ["a", "b", "c"].map(str::to_owned);
    expression(operation, &operands).is_some()
}

fn operand(operand: &ElementwiseOperand) -> String {
    match operand {
        ElementwiseOperand::Input(index) => format!("x{index}"),
        ElementwiseOperand::Step(index) => format!("s{index}"),
        ElementwiseOperand::Number(number) => literal(*number),
    }
}

/// Returns a number as C++ writes it.
fn literal(number: f64) -> String {
    format!("({:?}f)", number as f32)
}

/// Returns an operation as an expression of C++; `None` for those that no model needed yet.
fn expression(operation: Elementwise, operands: &[String]) -> Option<String> {
    Some(match (operation, operands) {
        (Elementwise::Unary(kind), [x, ..]) => unary(kind, x)?,
        (Elementwise::Binary(kind), [a, b, ..]) => match kind {
            Binary::Add => format!("{a} + {b}"),
            Binary::Sub => format!("{a} - {b}"),
            Binary::Mul => format!("{a} * {b}"),
            Binary::Div => format!("{a} / {b}"),
            // A number that is none is the result.
            Binary::Min => format!("{a} < {b} || {a} != {a} ? {a} : {b}"),
            Binary::Max => format!("{a} > {b} || {a} != {a} ? {a} : {b}"),
            _ => return None,
        },
        (Elementwise::MultiplyAdd { subtract: false }, [a, b, c]) => format!("{a} + {b} * {c}"),
        (Elementwise::MultiplyAdd { subtract: true }, [a, b, c]) => format!("{a} - {b} * {c}"),
        (Elementwise::SiluProduct, [gate, x, ..]) => format!("{} * {x}", unary(Unary::Silu, gate)?),
        _ => return None,
    })
}

fn unary(kind: Unary, x: &str) -> Option<String> {
    Some(match kind {
        Unary::Relu => format!("({x} < 0.0f ? 0.0f : {x})"),
        Unary::Clip { min, max } => {
            let above = if max.is_finite() { format!("{x} > {0} ? {0} : {x}", literal(max)) } else { x.to_owned() };
            if min.is_finite() { format!("({x} < {0} ? {0} : {above})", literal(min)) } else { format!("({above})") }
        }
        Unary::Sigmoid => format!("1.0f / (1.0f + expf(-{x}))"),
        Unary::Silu => format!("{x} / (1.0f + expf(-{x}))"),
        Unary::Tanh => format!("tanhf({x})"),
        Unary::Erf => format!("erff({x})"),
        Unary::Gelu => format!("0.5f * {x} * (1.0f + erff({x} * 0.70710678f))"),
        Unary::GeluTanh => {
            format!("0.5f * {x} * (1.0f + tanhf(0.79788456f * ({x} + 0.044715f * {x} * {x} * {x})))")
        }
        Unary::Exp => format!("expf({x})"),
        Unary::Log => format!("logf({x})"),
        Unary::Sqrt => format!("sqrtf({x})"),
        Unary::Reciprocal => format!("1.0f / {x}"),
        Unary::Neg => format!("-{x}"),
        Unary::Abs => format!("fabsf({x})"),
        Unary::Sin => format!("sinf({x})"),
        Unary::Cos => format!("cosf({x})"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers at which functions change, and others.
    const NUMBERS: [f32; 12] = [-40.0, -4.5, -3.0, -1.0, -0.3, 0.0, 1e-6, 0.2, 1.0, 2.5, 6.0, 40.0];

    fn operations() -> Vec<Elementwise> {
        let unary = [
            Unary::Relu,
            Unary::Clip { min: -1.5, max: 2.0 },
            Unary::Clip { min: f64::NEG_INFINITY, max: 2.0 },
            Unary::Clip { min: 1e-5, max: f64::INFINITY },
            Unary::Sigmoid,
            Unary::Silu,
            Unary::Tanh,
            Unary::Erf,
            Unary::Gelu,
            Unary::GeluTanh,
            Unary::Exp,
            Unary::Log,
            Unary::Sqrt,
            Unary::Reciprocal,
            Unary::Neg,
            Unary::Abs,
            Unary::Sin,
            Unary::Cos,
        ];
        let binary = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Min, Binary::Max];
        let others = [true, false].map(|subtract| Elementwise::MultiplyAdd { subtract });
        let others = others.into_iter().chain([Elementwise::SiluProduct]);
        unary.map(Elementwise::Unary).into_iter().chain(binary.map(Elementwise::Binary)).chain(others).collect()
    }

    /// The function of an operation on the inputs x, y and x again, followed by the sum with a number.
    fn function(operation: Elementwise) -> ElementwiseFunction {
        let x = ElementwiseOperand::Input;
        let operands = match operation {
            Elementwise::Unary(_) => vec![x(0)],
            Elementwise::Binary(_) | Elementwise::SiluProduct => vec![x(0), x(1)],
            Elementwise::MultiplyAdd { .. } => vec![x(0), x(1), x(0)],
        };
        let sum = [ElementwiseOperand::Step(0), ElementwiseOperand::Number(-0.25)];
        ElementwiseFunction::default().then(operation, &operands).then(Elementwise::Binary(Binary::Add), &sum)
    }

    /// The texts are compiled by the compiler of the processor here, and compared with libtorch's operators.
    #[allow(clippy::disallowed_methods)]
    #[test]
    fn the_texts_compute_what_the_operators_of_libtorch_compute() {
        let pairs: Vec<(f32, f32)> = [&NUMBERS[..], &[f32::NAN]]
            .concat()
            .iter()
            .zip(NUMBERS.iter().rev().cycle())
            .map(|(x, y)| (*x, *y))
            .collect();
        let sources: Vec<Source> =
            operations().into_iter().map(|operation| source(&function(operation), 2).expect("it has a text")).collect();
        let mut program = "#include <cmath>\n#include <cstdio>\n".to_owned();
        sources.iter().for_each(|source| program.push_str(&source.text));
        program.push_str("int main() {\n");
        for Source { name, .. } in &sources {
            for (x, y) in &pairs {
                let number = |number: f32| if number.is_nan() { "NAN".to_owned() } else { literal(number.into()) };
                writeln!(program, "std::printf(\"%.9g\\n\", {name}<float>({}, {}));", number(*x), number(*y)).unwrap();
            }
        }
        program.push_str("}\n");
        let folder = tempfile::tempdir().unwrap();
        let (text, binary) = (folder.path().join("functions.cpp"), folder.path().join("functions"));
        std::fs::write(&text, program).unwrap();
        let compiled = std::process::Command::new("c++").arg(&text).arg("-o").arg(&binary).status().unwrap();
        assert!(compiled.success());
        let printed = String::from_utf8(std::process::Command::new(&binary).output().unwrap().stdout).unwrap();
        let actual: Vec<f64> = printed.lines().map(|line| line.parse().unwrap()).collect();
        let (xs, ys): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
        let inputs = [xs, ys].map(|numbers| TorchTensor(Tensor::from_slice(&numbers)));
        let ops = TorchOps::on(Device::Cpu);
        for (operation, actual) in operations().into_iter().zip(actual.chunks(pairs.len())) {
            let expected = function(operation).apply(&ops, &inputs).unwrap();
            let expected: Vec<f32> = Vec::try_from(expected.0).unwrap();
            for ((pair, actual), expected) in pairs.iter().zip(actual).zip(expected) {
                let expected = f64::from(expected);
                let is_same = (actual.is_nan() && expected.is_nan())
                    || *actual == expected
                    || (actual - expected).abs() <= 2e-6 * expected.abs().max(1.0);
                assert!(is_same, "{operation:?} of {pair:?}: {actual} instead of {expected}");
            }
        }
    }

    #[test]
    fn functions_with_other_texts_have_other_names() {
        let names: std::collections::HashSet<String> =
            operations().into_iter().map(|operation| source(&function(operation), 2).unwrap().name).collect();
        assert_eq!(names.len(), operations().len());
        assert!(source(&function(Elementwise::Unary(Unary::Round)), 2).is_none());
    }
}
