//! Proves that a graph computes what another one computes: what differs in them is executed by the reference library, in f64,
//! on drawn inputs.

mod draw;
mod merged;
mod reached;

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use self::draw::{Draw, check_work, draw_inputs, drawn_sizes, wide_draws};
use self::merged::{Joins, Merged, Pair, merge};
use self::reached::half_values;
use super::{Executor, ReferenceOps};
use flagperf_onnx::rewrite::{Replaced, describe_call, expand_operators, prepare, with_version};
use flagperf_onnx::{Graph, Tensor};

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
    /// An output has another shape.
    #[error("output `{output}`: {reason}{}", first_node(.node))]
    Shape {
        output: String,
        reason: String,
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
    // What only the second graph rounds to 16 bits is an approximation.
    let half = half_values(before);
    let limit_of = |pair: &Pair| if half.contains(pair.name.as_str()) { LIMIT_HALF } else { LIMIT_F32 };
    let mut judge = Judge { limits, first: None };
    let mut left_out = HashSet::new();
    for _ in 0..ATTEMPTS {
        let merged = merge(before, after, &sizes, &Joins::Except(&left_out)).map_err(ProofError::Unproved)?;
        let judged = execute(before, &merged, &sizes, seed, &limit_of)?;
        let inner = || judged.iter().filter(|judged| !judged.pair.is_output);
        if inner().any(|judged| !judge.is_same(judged)) {
            break;
        }
        let insensitive: Vec<String> =
            inner().filter(|judged| !judged.is_sensitive).map(|judged| judged.pair.name.clone()).collect();
        if insensitive.is_empty() {
            match judge.conclude(&merged, &judged) {
                Err(ProofError::Differs { .. } | ProofError::Shape { .. } | ProofError::TooCoarse { .. }) => break,
                // Its error may reach other outputs.
                Ok(Compared { approximation: Some(_), .. }) => break,
                concluded => return concluded,
            }
        }
        left_out.extend(insensitive);
    }
    // The outputs decide: a value between may be another one of the same name.
    let merged = merge(before, after, &sizes, &Joins::Nowhere).map_err(ProofError::Unproved)?;
    let judged = execute(before, &merged, &sizes, seed, &limit_of)?;
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
    /// The largest difference that rounding explains.
    limit: f64,
    /// The relative L2 error; `None` for values that are no floating-point numbers.
    relative_l2: Option<f64>,
    /// Whether other inputs change the values by more than the limit, or do not have to.
    is_sensitive: bool,
}

/// Executes a merged graph on two sets of drawn inputs, and on a third with further integers if it has integers as inputs.
fn execute<'p>(
    before: &Graph,
    merged: &'p Merged,
    sizes: &[(String, usize)],
    seed: u64,
    limit_of: &dyn Fn(&Pair) -> f64,
) -> Result<Vec<Judged<'p>>, ProofError> {
    if merged.pairs.is_empty() {
        return Ok(Vec::new());
    }
    check_work(&merged.graph, sizes)?;
    let load = |graph| Executor::load(graph, ReferenceOps).map_err(|error| error.to_string());
    let of_merged = load(&merged.graph);
    let of_before = LazyCell::new(|| load(before));
    let run = |executor: &Result<Executor<ReferenceOps>, String>, graph, number, drawn| {
        let inputs = draw_inputs(graph, sizes, seed.wrapping_add(number), drawn)?;
        executor.as_ref().map_err(String::clone)?.run_host(&inputs).map_err(|error| error.to_string())
    };
    let run_merged = |number, drawn| {
        run(&of_merged, &merged.graph, number, drawn).or_else(|reason| {
            // It is the second graph that fails if the first one can be computed alone.
            run(&of_before, before, number, drawn).map_err(ProofError::Unproved)?;
            Err(ProofError::Fails(reason))
        })
    };
    let (first, second) = (run_merged(0, Draw::Bits)?, run_merged(1, Draw::Bits)?);
    // The first graph shows which integers are possible: those that select rows of a table have a range.
    let possible = |drawn: &Draw| run(&of_before, before, 2, *drawn).is_ok();
    let wide = wide_draws(&merged.graph).into_iter().find(possible);
    let third = wide.map(|drawn| run_merged(2, drawn)).transpose()?;
    let places: HashMap<&str, usize> =
        merged.graph.outputs.iter().enumerate().map(|(place, output)| (output.name.as_str(), place)).collect();
    let judged = merged.pairs.iter().map(|pair| {
        let [old, new] = pair.values.each_ref().map(|name| places[name.as_str()]);
        let runs = || [&first, &second].into_iter().chain(&third);
        let differs = if pair.is_weight { difference_of_weights } else { difference };
        let errors = runs().map(|outputs| differs(&outputs[old], &outputs[new]));
        let error = errors.into_iter().try_fold(0.0f64, |largest, error| error.map(|error| largest.max(error)));
        let errors = runs().map(|outputs| relative_l2(&outputs[old], &outputs[new]));
        let change = difference(&first[old], &second[old]);
        let limit = limit_of(pair);
        Judged {
            pair,
            elements: runs().map(|outputs| outputs[old].len() as u64).sum(),
            error,
            limit,
            relative_l2: errors.reduce(|a, b| Some(a?.max(b?))).flatten(),
            is_sensitive: !pair.depends_on_inputs || change.is_ok_and(|change| change > SENSITIVITY * limit),
        }
    });
    Ok(judged.collect())
}

/// Decides on what was executed.
struct Judge {
    limits: ProofLimits,
    /// The first node that differs.
    first: Option<String>,
}

impl Judge {
    /// Returns whether a pair differs by no more than rounding explains, and otherwise remembers the first node that does.
    fn is_same(&mut self, judged: &Judged<'_>) -> bool {
        let is_same = judged.error.as_ref().is_ok_and(|error| *error <= judged.limit);
        if !is_same && self.first.is_none() {
            self.first.clone_from(&judged.pair.node);
        }
        is_same
    }

    /// Decides on the outputs.
    fn conclude(&mut self, merged: &Merged, judged: &[Judged<'_>]) -> Result<Compared, ProofError> {
        let same_outputs = merged.same_outputs as u64;
        let mut compared = Compared { limit: LIMIT_F32, same_outputs, ..Compared::default() };
        for judged in judged {
            let error = match &judged.error {
                Ok(error) => *error,
                Err(reason) => {
                    let (output, reason) = (judged.pair.name.clone(), reason.clone());
                    return Err(ProofError::Shape { output, reason, node: self.first_before(judged) });
                }
            };
            compared.limit = compared.limit.max(judged.limit);
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

    /// Returns the first node that differs, if it is not that of a value.
    fn first_before(&self, judged: &Judged<'_>) -> Option<String> {
        self.first.clone().filter(|first| Some(first) != judged.pair.node.as_ref())
    }

    /// Accepts an approximation within the limit.
    fn accept(&self, judged: &Judged<'_>, error: f64) -> Result<(), ProofError> {
        let (output, node) = (judged.pair.name.clone(), self.first_before(judged));
        match self.limits.approximation.zip(judged.relative_l2) {
            Some((limit, error)) if error <= limit => Ok(()),
            Some((limit, error)) => Err(ProofError::TooCoarse { output, error, limit, node }),
            None => Err(ProofError::Differs { output, error, limit: judged.limit, node }),
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

/// Returns the largest difference of an element of a weight, relative to that element: what is computed from a weight may depend on its
/// smallest element as much as on its largest, on the sign of a zero, and on each integer.
fn difference_of_weights(expected: &Tensor, actual: &Tensor) -> Result<f64, String> {
    let error = difference(expected, actual)?;
    let is_float = expected.dtype().is_float();
    let elements = expected.to_f64().into_iter().zip(actual.to_f64());
    let of_elements =
        elements.map(|(expected, actual)| match expected == actual || expected.is_nan() && actual.is_nan() {
            true if expected == 0.0 && expected.is_sign_positive() != actual.is_sign_positive() => f64::INFINITY,
            true => 0.0,
            false if is_float && expected != 0.0 => ((expected - actual) / expected).abs(),
            false => f64::INFINITY,
        });
    Ok(of_elements.fold(error, f64::max))
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
