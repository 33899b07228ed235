//! Proves that a graph computes what another one computes: what differs in them is executed by the reference library, in f64,
//! on drawn inputs.

mod draw;
mod merged;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use self::draw::{check_work, draw_inputs, drawn_sizes};
use self::merged::{Joins, Merged, Pair, merge};
use super::{Executor, ReferenceOps};
use flagperf_onnx::rewrite::{Replaced, describe_call, expand_operators, prepare, with_version};
use flagperf_onnx::{DType, Graph, Tensor};

/// The largest difference, relative to the largest output, that constants rounded to f32 and to 16 bits explain.
const LIMIT_F32: f64 = 1e-5;
const LIMIT_HALF: f64 = 5e-3;
/// By how many times the limit other inputs have to change the outputs.
const SENSITIVITY: f64 = 10.0;
/// How often values that other inputs hardly change are left out of a comparison.
const ATTEMPTS: usize = 3;

/// What a comparison accepts beyond the errors of rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProofLimits {
    /// The largest relative L2 error of an approximation; `None` if none is accepted.
    pub approximation: Option<f64>,
}

/// What a comparison of two graphs found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// The largest difference of an output, relative to the largest absolute value of that output.
    pub error: f64,
    /// The largest difference that rounding explains.
    pub limit: f64,
    /// The elements that were compared.
    pub elements: u64,
    /// The outputs that the same nodes compute from the same values, which were not executed.
    pub same_outputs: u64,
    /// The largest relative L2 error of an output that differs by more than rounding explains, but not by more than the limit of
    /// approximations.
    pub approximation: Option<f64>,
}

/// Why two graphs were not shown to compute the same.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProofError {
    /// The results differ.
    #[error("output `{output}` differs by {error:.2e} of its largest value (at most {limit:.0e}){}", first_node(.node))]
    Differs {
        output: String,
        error: f64,
        limit: f64,
        /// The first node that differs, if it is not that of the output.
        node: Option<String>,
    },
    /// The results differ by more than an approximation may.
    #[error("output `{output}` has a relative L2 error of {error:.2e} (the case accepts {limit:.0e}){}", first_node(.node))]
    TooCoarse {
        output: String,
        error: f64,
        limit: f64,
        /// The first node that differs, if it is not that of the output.
        node: Option<String>,
    },
    /// The changed graph cannot be executed, although the other one can.
    #[error("it cannot be computed: {0}")]
    Fails(String),
    /// The comparison shows nothing.
    #[error("{0}")]
    Unproved(String),
}

fn first_node(node: &Option<String>) -> String {
    node.as_ref().map(|node| format!("; the first node that differs is `{node}`")).unwrap_or_default()
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
    /// The largest relative L2 error of a place that is an approximation.
    pub approximation: Option<f64>,
    /// The places that could not be executed, each with the reason.
    pub unproved: Vec<(String, String)>,
    /// The first place that computes something else, and by how much.
    pub differs: Option<(String, ProofError)>,
}

/// Compares every replaced place with what replaces it. Places with the same nodes, attributes and shapes are compared once.
pub fn prove_regions(replaced: &[Replaced], seed: u64, limits: ProofLimits) -> RegionsProof {
    let mut proof = RegionsProof { places: replaced.len(), ..RegionsProof::default() };
    let mut known: HashMap<String, Result<Compared, ProofError>> = HashMap::new();
    for Replaced { node, region, .. } in replaced {
        let key = format!("{}\n{}", structure(&region.before), structure(&region.after));
        let compared = known.entry(key).or_insert_with(|| {
            proof.distinct += 1;
            compare(&region.before, &region.after, seed, limits)
        });
        match compared {
            Ok(compared) => {
                proof.error = proof.error.max(compared.error);
                proof.approximation = larger(proof.approximation, compared.approximation);
            }
            Err(ProofError::Unproved(reason)) => proof.unproved.push((node.clone(), reason.clone())),
            Err(differs) => {
                proof.differs.get_or_insert((node.clone(), differs.clone()));
            }
        }
    }
    proof
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// Compares the outputs that both graphs have. What the same nodes compute from the same values is the same; the rest is executed
/// on two sets of drawn inputs. Each change is executed on the values that reach it in the first graph; if a change is an
/// approximation, the second graph is also executed with the errors that reach its outputs.
///
/// # Errors
/// When an output differs, or the comparison would show nothing: an operator that the executor lacks, too much work, or
/// outputs that do not depend on the inputs.
pub fn compare(before: &Graph, after: &Graph, seed: u64, limits: ProofLimits) -> Result<Compared, ProofError> {
    let [before, after] = same_version([before, after]).map_err(ProofError::Unproved)?;
    let (before, after) = (&before, &after);
    let is_known = |name: &String| before.inputs.iter().any(|other| other.name == *name);
    if let Some(input) = after.inputs.iter().find(|input| !before.inputs.contains(input)) {
        let what = if is_known(&input.name) { "not the same in both graphs" } else { "not in the graph before" };
        return Err(ProofError::Unproved(format!("the input `{}` is {what}", input.name)));
    }
    let sizes = drawn_sizes(before);
    let limit = if has_half(before) || has_half(after) { LIMIT_HALF } else { LIMIT_F32 };
    let mut judge = Judge { limit, limits, first: None };
    let mut left_out = HashSet::new();
    for _ in 0..ATTEMPTS {
        let merged = merge(before, after, &sizes, &Joins::Except(&left_out)).map_err(ProofError::Unproved)?;
        let judged = execute(before, &merged, &sizes, seed, limit)?;
        let inner = || judged.iter().filter(|judged| !judged.pair.is_output);
        if inner().any(|judged| !judge.is_same(judged)) {
            break;
        }
        let insensitive: Vec<String> =
            inner().filter(|judged| !judged.is_sensitive).map(|judged| judged.pair.name.clone()).collect();
        if insensitive.is_empty() {
            match judge.conclude(&merged, &judged) {
                Err(ProofError::Differs { .. } | ProofError::TooCoarse { .. }) => break,
                // Its error may reach other outputs.
                Ok(Compared { approximation: Some(_), .. }) => break,
                concluded => return concluded,
            }
        }
        left_out.extend(insensitive);
    }
    // The outputs decide: a value between may be another one of the same name.
    let merged = merge(before, after, &sizes, &Joins::Nowhere).map_err(ProofError::Unproved)?;
    let judged = execute(before, &merged, &sizes, seed, limit)?;
    judge.conclude(&merged, &judged)
}

/// Returns both graphs in standard operators of the same version.
fn same_version(graphs: [&Graph; 2]) -> Result<[Graph; 2], String> {
    let [before, after] = graphs.map(|graph| {
        let expanded = expand_operators(graph).map_err(|error| error.to_string())?;
        prepare(&expanded).map_err(|error| error.to_string())
    });
    let (before, after) = (before?, after?);
    let version = before.opset.max(after.opset);
    Ok([with_version(before, version)?, with_version(after, version)?])
}

/// A pair of values after both were executed.
struct Judged<'p> {
    pair: &'p Pair,
    elements: u64,
    /// The largest difference, relative to the largest absolute value, or why there is none.
    error: Result<f64, String>,
    /// The relative L2 error; `None` for values that are no floating-point numbers.
    relative_l2: Option<f64>,
    /// Whether other inputs change the values by more than the limit, or do not have to.
    is_sensitive: bool,
}

/// Executes a merged graph on two sets of drawn inputs.
fn execute<'p>(
    before: &Graph,
    merged: &'p Merged,
    sizes: &[(String, usize)],
    seed: u64,
    limit: f64,
) -> Result<Vec<Judged<'p>>, ProofError> {
    if merged.pairs.is_empty() {
        return Ok(Vec::new());
    }
    check_work(&merged.graph, sizes)?;
    let draw = |number| draw_inputs(&merged.graph, sizes, seed.wrapping_add(number)).map_err(ProofError::Unproved);
    let draws = [draw(0)?, draw(1)?];
    let [first, second] = match run(&merged.graph, &draws) {
        Ok(outputs) => outputs,
        // It is the second graph that fails if the first one can be computed alone.
        Err(reason) => {
            let draw = |number| draw_inputs(before, sizes, seed.wrapping_add(number)).map_err(ProofError::Unproved);
            run(before, &[draw(0)?, draw(1)?]).map_err(ProofError::Unproved)?;
            return Err(ProofError::Fails(reason));
        }
    };
    let places: HashMap<&str, usize> =
        merged.graph.outputs.iter().enumerate().map(|(place, output)| (output.name.as_str(), place)).collect();
    let judged = merged.pairs.iter().map(|pair| {
        let [old, new] = pair.values.each_ref().map(|name| places[name.as_str()]);
        let errors = [&first, &second].map(|outputs| difference(&outputs[old], &outputs[new]));
        let error = errors.into_iter().try_fold(0.0f64, |largest, error| error.map(|error| largest.max(error)));
        let errors = [&first, &second].map(|outputs| relative_l2(&outputs[old], &outputs[new]));
        let change = difference(&first[old], &second[old]);
        Judged {
            pair,
            elements: 2 * first[old].len() as u64,
            error,
            relative_l2: errors[0].zip(errors[1]).map(|(a, b)| a.max(b)),
            is_sensitive: !pair.depends_on_inputs || change.is_ok_and(|change| change > SENSITIVITY * limit),
        }
    });
    Ok(judged.collect())
}

/// Returns the outputs for each set of inputs.
fn run(graph: &Graph, draws: &[Vec<Tensor>; 2]) -> Result<[Vec<Tensor>; 2], String> {
    let executor = Executor::load(graph, ReferenceOps).map_err(|error| error.to_string())?;
    let run = |inputs: &Vec<Tensor>| executor.run_host(inputs).map_err(|error| error.to_string());
    Ok([run(&draws[0])?, run(&draws[1])?])
}

/// Decides on what was executed.
struct Judge {
    limit: f64,
    limits: ProofLimits,
    /// The first node that differs.
    first: Option<String>,
}

impl Judge {
    /// Returns whether a pair differs by no more than rounding explains, and otherwise remembers the first node that does.
    fn is_same(&mut self, judged: &Judged<'_>) -> bool {
        let is_same = judged.error.as_ref().is_ok_and(|error| *error <= self.limit);
        if !is_same && self.first.is_none() {
            self.first.clone_from(&judged.pair.node);
        }
        is_same
    }

    /// Decides on the outputs.
    fn conclude(&mut self, merged: &Merged, judged: &[Judged<'_>]) -> Result<Compared, ProofError> {
        let same_outputs = merged.same_outputs as u64;
        let mut compared = Compared { limit: self.limit, same_outputs, ..Compared::default() };
        for judged in judged {
            let unproved = |reason: &str| ProofError::Unproved(format!("output `{}`: {reason}", judged.pair.name));
            let error = *judged.error.as_ref().map_err(|reason| unproved(reason))?;
            if !self.is_same(judged) {
                self.accept(judged, error)?;
                compared.approximation = larger(compared.approximation, judged.relative_l2);
            }
            if !judged.is_sensitive {
                let reason = format!("other inputs hardly change the output `{}`", judged.pair.name);
                return Err(ProofError::Unproved(reason));
            }
            compared.error = compared.error.max(error);
            compared.elements += judged.elements;
        }
        if judged.is_empty() && same_outputs == 0 {
            return Err(ProofError::Unproved("the graphs have no output of the same name".to_owned()));
        }
        Ok(compared)
    }

    /// Accepts an approximation within the limit.
    fn accept(&self, judged: &Judged<'_>, error: f64) -> Result<(), ProofError> {
        let (output, first) = (judged.pair.name.clone(), self.first.clone());
        let node = first.filter(|first| Some(first) != judged.pair.node.as_ref());
        match self.limits.approximation.zip(judged.relative_l2) {
            Some((limit, error)) if error <= limit => Ok(()),
            Some((limit, error)) => Err(ProofError::TooCoarse { output, error, limit, node }),
            None => Err(ProofError::Differs { output, error, limit: self.limit, node }),
        }
    }
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

/// Returns the norm of the difference, relative to that of the first tensor; `None` unless both are floating-point numbers.
fn relative_l2(expected: &Tensor, actual: &Tensor) -> Option<f64> {
    if expected.shape() != actual.shape() || !expected.dtype().is_float() || !actual.dtype().is_float() {
        return None;
    }
    let (mut error, mut norm) = (0.0, 0.0);
    for (expected, actual) in expected.to_f64().into_iter().zip(actual.to_f64()) {
        if expected == actual || expected.is_nan() && actual.is_nan() {
            norm += if expected.is_finite() { expected * expected } else { 0.0 };
        } else {
            error += (expected - actual) * (expected - actual);
            norm += expected * expected;
        }
    }
    let relative: f64 = (error / norm.max(f64::MIN_POSITIVE)).sqrt();
    Some(if relative.is_nan() { f64::INFINITY } else { relative })
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
