//! Small graphs, and numbers to fill and feed them with.

use flagperf::tensor::{DType, Dim, Tensor, TensorSpec, byte_count};
use flagperf_onnx::{BuildError, Graph, GraphBuilder, Role, Source, Var};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A specification from its text.
pub fn spec(text: &str) -> TensorSpec {
    text.parse().unwrap()
}

/// A graph from the one function that says what is in it.
pub fn build(name: &str, make: impl FnOnce(&mut GraphBuilder) -> Result<(), BuildError>) -> Graph {
    let mut builder = GraphBuilder::new(name);
    make(&mut builder).unwrap_or_else(|error| panic!("{error}"));
    let mut graph = builder.finish().unwrap();
    fill(&mut graph);
    graph
}

/// A graph of one input `x` and one output `y`.
pub fn unary(input: &str, make: impl FnOnce(&mut GraphBuilder, &Var) -> Result<Var, BuildError>) -> Graph {
    build("unary", |builder| {
        let x = builder.input("x", spec(input))?;
        let y = make(builder, &x)?;
        builder.output("y", &y)
    })
}

/// A graph of two inputs `a` and `b` and one output `y`.
pub fn binary(inputs: [&str; 2], make: impl FnOnce(&mut GraphBuilder, &Var, &Var) -> Result<Var, BuildError>) -> Graph {
    build("binary", |builder| {
        let a = builder.input("a", spec(inputs[0]))?;
        let b = builder.input("b", spec(inputs[1]))?;
        let y = make(builder, &a, &b)?;
        builder.output("y", &y)
    })
}

/// Gives every learned weight and statistic values that a mistake would not survive: no zeros, no ones, no symmetry.
fn fill(graph: &mut Graph) {
    for (index, (name, weight)) in graph.weights.iter_mut().enumerate() {
        if weight.role != Role::Constant && weight.spec.dtype.is_float() {
            let shape = weight.spec.fixed_shape().unwrap();
            let fan_in: usize = shape.iter().skip(1).product();
            let scale = (fan_in as f32).sqrt().recip();
            let values = if name.ends_with("running_var") {
                numbers(&shape, index, 0.5, 1.5)
            } else {
                numbers(&shape, index, -scale, scale)
            };
            weight.source = Source::Value(values.cast(weight.spec.dtype));
        }
    }
}

/// Numbers between two bounds in f32, the same for the same seed everywhere.
pub fn numbers(shape: &[usize], seed: usize, low: f32, high: f32) -> Tensor {
    let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
    let unit = |random: &mut ChaCha8Rng| random.next_u32() as f32 / u32::MAX as f32;
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| low + (high - low) * unit(&mut random)).collect();
    Tensor::from_vec(shape, values).unwrap()
}

/// A tensor for each input of a graph, `rows` in each named dimension: floats in ±2, integers 0 to 6, bools.
pub fn feed(graph: &Graph, rows: usize) -> Vec<Tensor> {
    let tensor = |(index, spec): (usize, &TensorSpec)| {
        let shape: Vec<usize> = spec.dims.iter().map(|dim: &Dim| dim.fixed().unwrap_or(rows)).collect();
        assert!(byte_count(&shape, spec.dtype).is_some());
        match spec.dtype {
            dtype if dtype.is_float() => numbers(&shape, 100 + index, -2.0, 2.0).cast(dtype),
            DType::Bool => numbers(&shape, 100 + index, 0.0, 2.0).cast(DType::I64).cast(DType::Bool),
            dtype => numbers(&shape, 100 + index, 0.0, 6.9).cast(DType::I64).cast(dtype),
        }
    };
    graph.inputs.iter().map(|info| &info.spec).enumerate().map(tensor).collect()
}
