//! The executor's tests, and functions that build the small graphs for them.

#[cfg(feature = "cpu")]
mod apply;
#[cfg(feature = "cpu")]
mod attention;
mod control;
#[cfg(feature = "cpu")]
mod dropout;
mod executor;
mod gradient;
#[cfg(feature = "cpu")]
mod fused;
#[cfg(feature = "cpu")]
mod int8;
#[cfg(feature = "cpu")]
mod mixed_precision;
#[cfg(feature = "cpu")]
mod multi_head_attention;
#[cfg(feature = "cpu")]
mod operators;
mod proof;
mod reference;
mod refusals;
mod rewrite;
#[cfg(feature = "cpu")]
mod sync_batch_norm;
mod training;
mod vectors;

use indexmap::IndexMap;

use flagperf_onnx::{Attribute, DType, Graph, Node, Tensor, TensorSpec, ValueInfo, Weight, WeightRole, WeightSource};

/// Builds a graph line by line, without shape inference: `y = op(x, …)`.
#[derive(Default)]
pub(super) struct Sketch(Graph);

impl Sketch {
    pub fn new() -> Self {
        Sketch(Graph { opset: 20, ..Graph::default() })
    }

    pub fn input(mut self, name: &str, spec: &str) -> Self {
        self.0.inputs.push(ValueInfo { name: name.into(), spec: spec.parse().unwrap() });
        self
    }

    pub fn weight(mut self, name: &str, tensor: Tensor) -> Self {
        let weight = Weight { spec: tensor.spec(), role: WeightRole::Parameter, source: WeightSource::Value(tensor) };
        self.0.weights.insert(name.into(), weight);
        self
    }

    /// Adds a node, named after its first output.
    pub fn node(self, op: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(op, inputs, outputs, [])
    }

    pub fn node_with<const N: usize>(
        mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: [(&str, Attribute); N],
    ) -> Self {
        self.0.nodes.push(Node {
            name: outputs[0].into(),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|name| (*name).into()).collect(),
            outputs: outputs.iter().map(|name| (*name).into()).collect(),
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect::<IndexMap<_, _>>(),
        });
        self
    }

    /// Declares the specification of a value, as shape inference would.
    pub fn value(mut self, name: &str, spec: &str) -> Self {
        self.0.values.insert(name.into(), spec.parse().unwrap());
        self
    }

    pub fn output(mut self, name: &str, spec: &str) -> Graph {
        self.0.outputs.push(ValueInfo { name: name.into(), spec: spec.parse().unwrap() });
        self.0
    }
}

pub(super) fn ints(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}

pub(super) fn int_list(values: &[i64]) -> Tensor {
    Tensor::from_vec([values.len()], values.to_vec()).unwrap()
}

/// Returns numbers between -2 and 2 that differ from tensor to tensor and do not repeat with the period of a row.
pub(super) fn noise(spec: &str, seed: u64) -> Tensor {
    let spec: TensorSpec = spec.parse().unwrap();
    let shape = spec.fixed_shape().unwrap();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / (1 << 22) as f64 - 2.0
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
    let floats = Tensor::from_vec(shape, values).unwrap();
    match spec.dtype {
        DType::Bool => {
            let bools: Vec<bool> = floats.to_f64().iter().map(|x| *x > 0.0).collect();
            Tensor::from_bools(floats.shape(), &bools).unwrap()
        }
        dtype => floats.cast(dtype),
    }
}

/// Asserts that the specifications are equal and that no number differs from the expected one by more than `bound`,
/// absolutely or relatively.
#[track_caller]
pub(super) fn assert_close(label: &str, actual: &Tensor, expected: &Tensor, bound: f64) {
    assert_eq!(actual.spec(), expected.spec(), "{label}");
    for (i, (a, e)) in actual.to_f64().into_iter().zip(expected.to_f64()).enumerate() {
        let close = a == e || (a - e).abs() <= bound * e.abs().max(1.0) || (a.is_nan() && e.is_nan());
        assert!(close, "{label}: element {i} is {a}, expected {e}");
    }
}
