//! Small graphs, with values for their weights and inputs.

use flagperf_core::tensor::{DType, Dim, Tensor, TensorSpec, byte_count};
use flagperf_onnx::{BuildError, Graph, GraphBuilder, Var, WeightRole, WeightSource};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Parses a tensor specification such as `N,3,f32`.
pub fn spec(text: &str) -> TensorSpec {
    text.parse().unwrap()
}

/// Builds a graph with `make` and fills its weights.
pub fn build(name: &str, make: impl FnOnce(&mut GraphBuilder) -> Result<(), BuildError>) -> Graph {
    let mut builder = GraphBuilder::new(name);
    make(&mut builder).unwrap_or_else(|error| panic!("{error}"));
    let mut graph = builder.finish().unwrap();
    fill(&mut graph);
    graph
}

/// Builds a graph with the input `x` and the output `y`.
pub fn unary(input: &str, make: impl FnOnce(&mut GraphBuilder, &Var) -> Result<Var, BuildError>) -> Graph {
    build("unary", |builder| {
        let x = builder.input("x", spec(input))?;
        let y = make(builder, &x)?;
        builder.output("y", &y)
    })
}

/// Builds a graph with the inputs `a` and `b` and the output `y`.
pub fn binary(inputs: [&str; 2], make: impl FnOnce(&mut GraphBuilder, &Var, &Var) -> Result<Var, BuildError>) -> Graph {
    build("binary", |builder| {
        let a = builder.input("a", spec(inputs[0]))?;
        let b = builder.input("b", spec(inputs[1]))?;
        let y = make(builder, &a, &b)?;
        builder.output("y", &y)
    })
}

/// Fills every learned weight and statistic with values that reveal mistakes: no zeros, no ones, no symmetry.
fn fill(graph: &mut Graph) {
    for (index, (name, weight)) in graph.weights.iter_mut().enumerate() {
        if weight.role != WeightRole::Constant && weight.spec.dtype.is_float() {
            let shape = weight.spec.fixed_shape().unwrap();
            let fan_in: usize = shape.iter().skip(1).product();
            let scale = (fan_in as f32).sqrt().recip();
            let values = if name.ends_with("running_var") {
                numbers(&shape, index, 0.5, 1.5)
            } else {
                numbers(&shape, index, -scale, scale)
            };
            weight.source = WeightSource::Value(values.cast(weight.spec.dtype));
        }
    }
}

/// Returns fp32 numbers between two bounds; the same seed gives the same numbers on every machine.
pub fn numbers(shape: &[usize], seed: usize, low: f32, high: f32) -> Tensor {
    let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
    let unit = |random: &mut ChaCha8Rng| random.next_u32() as f32 / u32::MAX as f32;
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| low + (high - low) * unit(&mut random)).collect();
    Tensor::from_vec(shape, values).unwrap()
}

/// Returns a tensor for each input of a graph, with `rows` in each named dimension: floats in ±2, integers 0 to 6,
/// bools.
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
