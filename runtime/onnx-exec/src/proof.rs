//! Proves that a graph computes what another one computes: both are executed by the reference library, in f64, on drawn
//! inputs.

use std::collections::HashMap;
use std::fmt::Write;

use super::{Executor, ReferenceOps};
use flagperf_onnx::rewrite::{Replaced, describe_call, expand_operators, remove_unused};
use flagperf_onnx::{
    DType, Dim, Graph, NamedSizes, RandomStream, Tensor, TensorSpec, ValueInfo, infer_shapes, multiply_adds,
};

/// The most multiply-adds of a comparison: about a minute of the reference library on one core.
const MULTIPLY_ADDS_MAX: u64 = 50_000_000_000;
/// The most bytes of the weights of a graph that is executed in f64.
const WEIGHT_BYTES_MAX: u64 = 2 << 30;
/// The largest difference, relative to the largest output, that constants rounded to f32 and to 16 bits explain.
const LIMIT_F32: f64 = 1e-5;
const LIMIT_HALF: f64 = 5e-3;
/// By how many times the limit other inputs have to change the outputs.
const SENSITIVITY: f64 = 10.0;

/// What a comparison of two graphs found.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The largest difference of an output, relative to the largest absolute value of that output.
    pub error: f64,
    /// The largest difference that rounding explains.
    pub limit: f64,
    /// The elements that were compared.
    pub elements: u64,
}

/// Why two graphs were not shown to compute the same.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProofError {
    /// The results differ.
    #[error("output `{output}` differs by {error:.2e} of its largest value (at most {limit:.0e})")]
    Differs { output: String, error: f64, limit: f64 },
    /// The changed graph cannot be executed, although the other one can.
    #[error("it cannot be computed: {0}")]
    Fails(String),
    /// The comparison shows nothing.
    #[error("{0}")]
    Unproved(String),
}

/// What is known about a rewrite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionsProof {
    /// The places that were replaced.
    pub places: usize,
    /// The places that differ from each other by more than their weights; one of each was executed.
    pub distinct: usize,
    /// The largest difference, relative to the largest output.
    pub error: f64,
    /// The places that could not be executed, each with the reason.
    pub unproved: Vec<(String, String)>,
    /// The first place that computes something else, and by how much.
    pub differs: Option<(String, ProofError)>,
}

/// Compares every replaced place with what replaces it. Places with the same nodes, attributes and shapes are compared once.
pub fn prove_regions(replaced: &[Replaced], seed: u64) -> RegionsProof {
    let mut proof = RegionsProof { places: replaced.len(), ..RegionsProof::default() };
    let mut known: HashMap<String, Result<Compared, ProofError>> = HashMap::new();
    for Replaced { node, region, .. } in replaced {
        let key = format!("{}\n{}", structure(&region.before), structure(&region.after));
        let compared = known.entry(key).or_insert_with(|| {
            proof.distinct += 1;
            compare(&region.before, &region.after, seed)
        });
        match compared {
            Ok(compared) => proof.error = proof.error.max(compared.error),
            Err(ProofError::Unproved(reason)) => proof.unproved.push((node.clone(), reason.clone())),
            Err(differs) => {
                proof.differs.get_or_insert((node.clone(), differs.clone()));
            }
        }
    }
    proof
}

/// Executes both graphs on two sets of drawn inputs and compares the outputs that both have.
///
/// # Errors
/// When an output differs, or the comparison would show nothing: an operator that the executor lacks, too much work, or
/// outputs that do not depend on the inputs.
pub fn compare(before: &Graph, after: &Graph, seed: u64) -> Result<Compared, ProofError> {
    let unproved = |reason: String| ProofError::Unproved(reason);
    let expand = |graph: &Graph| expand_operators(graph).map_err(|error| unproved(error.to_string()));
    let (before, after) = (&expand(before)?, &expand(after)?);
    check_inputs(before, after)?;
    let sizes = drawn_sizes(before);
    [before, after].into_iter().try_for_each(|graph| check_work(graph, &sizes))?;
    let mut draws = Vec::new();
    for number in 0..2 {
        draws.push(draw_inputs(before, &sizes, seed.wrapping_add(number)).map_err(unproved)?);
    }
    let expected = run(before, &draws).map_err(unproved)?;
    let actual = run(after, &draws).map_err(ProofError::Fails)?;
    let limit = if has_half(before) || has_half(after) { LIMIT_HALF } else { LIMIT_F32 };
    let mut compared = Compared { error: 0.0, limit, elements: 0 };
    let mut common = 0;
    for (place, output) in before.outputs.iter().enumerate() {
        let Some(other) = after.outputs.iter().position(|other| other.name == output.name) else { continue };
        common += 1;
        let name = &output.name;
        for draw in 0..draws.len() {
            let (expected, actual) = (&expected[draw][place], &actual[draw][other]);
            let error =
                difference(expected, actual).map_err(|reason| unproved(format!("output `{name}`: {reason}")))?;
            if error > limit {
                return Err(ProofError::Differs { output: name.clone(), error, limit });
            }
            compared.error = compared.error.max(error);
            compared.elements += expected.len() as u64;
        }
        let change = difference(&expected[0][place], &expected[1][place]);
        if !before.inputs.is_empty() && !change.is_ok_and(|change| change > SENSITIVITY * limit) {
            return Err(unproved(format!("other inputs hardly change the output `{name}`")));
        }
    }
    if common == 0 { Err(unproved("the graphs have no output of the same name".to_owned())) } else { Ok(compared) }
}

fn check_inputs(before: &Graph, after: &Graph) -> Result<(), ProofError> {
    let same = |input: &ValueInfo| after.inputs.iter().any(|other| other == input);
    match before.inputs.iter().find(|input| !same(input)) {
        Some(input) => Err(ProofError::Unproved(format!("the input `{}` is not the same in both graphs", input.name))),
        None if before.inputs.len() != after.inputs.len() => {
            Err(ProofError::Unproved("the graphs do not have the same inputs".to_owned()))
        }
        None => Ok(()),
    }
}

fn check_work(graph: &Graph, sizes: &[(String, usize)]) -> Result<(), ProofError> {
    let spec = TensorSpec { dims: sizes.iter().map(|(name, _)| Dim::Named(name.clone())).collect(), dtype: DType::F32 };
    let mut named = NamedSizes::default();
    let values: Vec<usize> = sizes.iter().map(|(_, size)| *size).collect();
    named.bind(&spec, &values).expect("each name is listed once");
    let work = multiply_adds(graph, &named).unwrap_or(0);
    if work > MULTIPLY_ADDS_MAX {
        let reason = format!(
            "{:.0}e9 multiply-adds take too long in f64 (at most {:.0}e9)",
            work as f64 / 1e9,
            MULTIPLY_ADDS_MAX as f64 / 1e9
        );
        return Err(ProofError::Unproved(reason));
    }
    let elements =
        graph.weights.values().filter_map(|weight| Some(weight.spec.fixed_shape()?.iter().product::<usize>()));
    let bytes = 8 * elements.map(|count| count as u64).sum::<u64>();
    if bytes > WEIGHT_BYTES_MAX {
        let reason = format!("its weights have {} MiB in f64 (at most {} MiB)", bytes >> 20, WEIGHT_BYTES_MAX >> 20);
        return Err(ProofError::Unproved(reason));
    }
    Ok(())
}

/// Returns a size for each named dimension: 2, 3, 4 and so on, so that no two are mistaken for each other.
fn drawn_sizes(graph: &Graph) -> Vec<(String, usize)> {
    let mut sizes: Vec<(String, usize)> = Vec::new();
    for dim in graph.inputs.iter().flat_map(|input| &input.spec.dims) {
        if let Dim::Named(name) = dim
            && !sizes.iter().any(|(known, _)| known == name)
        {
            sizes.push((name.clone(), sizes.len() + 2));
        }
    }
    sizes
}

fn draw_inputs(graph: &Graph, sizes: &[(String, usize)], seed: u64) -> Result<Vec<Tensor>, String> {
    graph.inputs.iter().map(|input| draw(input, sizes, seed)).collect()
}

/// Draws an input: normally distributed numbers, and integers and bools of 0 and 1.
fn draw(input: &ValueInfo, sizes: &[(String, usize)], seed: u64) -> Result<Tensor, String> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Ok(*size),
        Dim::Named(name) => {
            let known = sizes.iter().find(|(known, _)| known == name);
            known.map(|(_, size)| *size).ok_or_else(|| format!("the size of `{name}` is not known"))
        }
        Dim::Unknown => Err(format!("the shape of `{}` is not known", input.name)),
    };
    let shape: Vec<usize> = input.spec.dims.iter().map(size).collect::<Result<_, _>>()?;
    let count: usize = shape.iter().product();
    let mut random = RandomStream::new(seed, &input.name);
    let numbers: Vec<f64> = if input.spec.dtype.is_float() {
        (0..count.div_ceil(2)).flat_map(|_| random.normal_pair()).take(count).collect()
    } else {
        (0..count).map(|_| random.below(2) as f64).collect()
    };
    let tensor = Tensor::from_vec(shape, numbers).map_err(|error| error.to_string())?;
    Ok(tensor.cast(input.spec.dtype))
}

/// Returns the outputs for each set of inputs. The inputs are given to a graph by name.
fn run(graph: &Graph, draws: &[Vec<Tensor>]) -> Result<Vec<Vec<Tensor>>, String> {
    let executor = Executor::load(graph, ReferenceOps).map_err(|error| error.to_string())?;
    draws.iter().map(|inputs| executor.run_host(inputs).map_err(|error| error.to_string())).collect()
}

/// Returns the largest difference, relative to the largest absolute value of the first tensor.
fn difference(expected: &Tensor, actual: &Tensor) -> Result<f64, String> {
    if expected.shape() != actual.shape() {
        return Err(format!("its shape is {:?} instead of {:?}", actual.shape(), expected.shape()));
    }
    let (expected, actual) = (expected.to_f64(), actual.to_f64());
    let largest =
        expected.iter().filter(|value| value.is_finite()).fold(0.0f64, |largest, value| largest.max(value.abs()));
    let error = expected.iter().zip(&actual).map(|(expected, actual)| match (expected, actual) {
        (expected, actual) if expected == actual || expected.is_nan() && actual.is_nan() => 0.0,
        (expected, actual) if expected.is_finite() && actual.is_finite() => (expected - actual).abs(),
        _ => f64::INFINITY,
    });
    let error = error.fold(0.0f64, f64::max);
    Ok(if error == 0.0 { 0.0 } else { error / largest.max(f64::MIN_POSITIVE) })
}

fn has_half(graph: &Graph) -> bool {
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let inputs = graph.inputs.iter().map(|input| input.spec.dtype);
    let weights = graph.weights.values().map(|weight| weight.spec.dtype);
    inputs.chain(weights).chain(graph.values.values().map(|spec| spec.dtype)).any(is_half)
}

/// Describes a graph without the names of its values and without its larger weights.
fn structure(graph: &Graph) -> String {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut text = format!("{} ", graph.opset);
    for input in &graph.inputs {
        let next = numbers.len();
        numbers.insert(&input.name, next);
        write!(text, "{} ", input.spec).expect("a text accepts everything");
    }
    for node in &graph.nodes {
        for name in node.inputs.iter().chain(&node.outputs) {
            let next = numbers.len();
            let number = *numbers.entry(name).or_insert(next);
            if let Some(weight) = graph.weights.get(name).filter(|_| number == next) {
                write!(text, "{} ", weight.spec).expect("a text accepts everything");
                if let Some(tensor) = weight.tensor().filter(|tensor| tensor.len() <= SMALL_CONSTANT) {
                    write!(text, "{:?} ", tensor.to_f64()).expect("a text accepts everything");
                }
            }
            write!(text, "{number} ").expect("a text accepts everything");
        }
        writeln!(text, "{}", describe_call(node)).expect("a text accepts everything");
    }
    text
}

/// Elements of a constant whose values belong to the structure: sizes, axes, numbers.
const SMALL_CONSTANT: usize = 16;

/// The values that are compared at once.
const COMPARED_AT_ONCE: usize = 32;

/// Returns the first node whose output has the same name in both graphs, but other values. `None` if the graphs cannot be
/// executed, or all such values agree.
pub fn first_difference(before: &Graph, after: &Graph, seed: u64) -> Option<String> {
    let sizes = drawn_sizes(before);
    let inputs = draw_inputs(before, &sizes, seed).ok()?;
    let limit = if has_half(before) || has_half(after) { LIMIT_HALF } else { LIMIT_F32 };
    let [before, after] = [before, after].map(|graph| {
        let mut inferred = expand_operators(graph).unwrap_or_else(|_| graph.clone());
        infer_shapes(&mut inferred);
        inferred
    });
    let is_common = |name: &&String| {
        let specs = [&before, &after].map(|graph| graph.values.get(*name).filter(|spec| spec.dtype.is_float()));
        matches!(specs, [Some(before), Some(after)] if before == after)
    };
    let names: Vec<&String> = after.nodes.iter().flat_map(|node| &node.outputs).filter(is_common).collect();
    for names in names.chunks(COMPARED_AT_ONCE) {
        let [expected, actual] =
            [&before, &after].map(|graph| run(&with_outputs(graph, names), std::slice::from_ref(&inputs)));
        let (expected, actual) = (expected.ok()?.swap_remove(0), actual.ok()?.swap_remove(0));
        let differs = |place: &usize| difference(&expected[*place], &actual[*place]).is_ok_and(|error| error > limit);
        if let Some(place) = (0..names.len()).find(differs) {
            let node = after.nodes.iter().find(|node| node.outputs.contains(names[place]));
            return node.map(|node| format!("{} ({})", node.name, node.op));
        }
    }
    None
}

/// Returns the part of a graph that computes some of its values.
fn with_outputs(graph: &Graph, names: &[&String]) -> Graph {
    let output = |name: &&String| ValueInfo { name: (*name).clone(), spec: graph.values[*name].clone() };
    let mut part = Graph { outputs: names.iter().map(output).collect(), ..graph.clone() };
    remove_unused(&mut part);
    part
}
