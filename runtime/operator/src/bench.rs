//! Measures an operator in chains of nodes, beside the standard operators that mean the same and beside a copy.
//!
//! The time of a node is the difference between chains of two lengths, divided by the difference of the lengths: what a run costs
//! beside its nodes is in both.

use flagperf_config::OperatorDescription;
use flagperf_core::measure::Clock;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_core::units::Seconds;
use flagperf_engine::{EngineError, Session, Value};
use flagperf_onnx::rewrite::expand_operators;
use flagperf_onnx::{Graph, Init, Node, ValueInfo, Weight, WeightRole, WeightSource};
use serde::{Deserialize, Serialize};

use super::node::{CaseError, case_dtypes, node_graph};
use super::target::Target;

/// The numbers of nodes in the chains.
const NODES: [usize; 2] = [8, 24];
/// The rounds, in each of which every chain runs once in turn.
const ROUNDS: usize = 15;
/// The name of the input, a number that is added to the first constant.
const SEED: &str = "seed";

/// The time of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The element type of the inputs that state none.
    pub dtype: String,
    /// The time of the operator.
    pub operator_s: Seconds,
    /// The time of the engine's own operators that compute the same.
    pub standard_s: Seconds,
    /// The time of an elementwise operator, which reads the input and writes the output once.
    pub copy_s: Seconds,
}

/// Measures a case of `benchmarks` with each of its types.
///
/// # Errors
/// When the case is not possible: the output must have the shape and type of the first input, so that nodes form a chain.
pub fn measure(
    operator: &OperatorDescription,
    case: usize,
    target: &Target,
    clock: &dyn Clock,
    report: &mut dyn FnMut(Measured),
) -> Result<(), CaseError> {
    let missing = || CaseError::Case(format!("there is no case {case}"));
    let description = operator.benchmarks.get(case).ok_or_else(missing)?;
    for dtype in case_dtypes(operator, description)? {
        let node = node_graph(operator, description, dtype)?;
        let dtype = node.inputs[0].spec.dtype;
        let [input, output] = [&node.inputs[0].spec, &node.outputs[0].spec];
        if input != output {
            let reason = format!("a chain of nodes is not possible: the input is `{input}`, the output `{output}`");
            return Err(CaseError::Case(reason));
        }
        let mut sessions = Vec::new();
        for make in [operator_chain, standard_chain, copy_chain] {
            for nodes in NODES {
                let graph = make(&node, nodes)?;
                sessions.push(Chain::load(operator, &graph, dtype, target)?);
            }
        }
        let times = run_in_turns(&mut sessions, clock)?;
        let of_node = |pair: &[f64]| Seconds((pair[1] - pair[0]) / (NODES[1] - NODES[0]) as f64);
        let [operator_s, standard_s, copy_s] = [0, 2, 4].map(|at| of_node(&times[at..at + 2]));
        report(Measured { dtype: dtype.to_string(), operator_s, standard_s, copy_s });
    }
    Ok(())
}

/// A loaded chain of nodes.
struct Chain {
    session: Box<dyn Session>,
    seed: Value,
    /// The folder of the model.
    _scratch: tempfile::TempDir,
}

impl Chain {
    fn load(operator: &OperatorDescription, graph: &Graph, dtype: DType, target: &Target) -> Result<Self, CaseError> {
        let failed = |error: std::io::Error| CaseError::Case(format!("the temporary folder: {error}"));
        let scratch = tempfile::tempdir().map_err(failed)?;
        let captures = target.device_kind() != "cpu" && target.memories().len() > 1;
        let options: &[(&str, serde_json::Value)] = if captures { &[("cuda_graph", true.into())] } else { &[] };
        let session = target.load(operator, graph, dtype, options, scratch.path())?;
        let seed =
            Value::Host(Tensor::from_vec([1], vec![0.0f64]).map_err(CaseError::case)?.cast(graph.inputs[0].spec.dtype));
        let mut chain = Chain { session, seed, _scratch: scratch };
        // The first runs select algorithms and capture the graph.
        for _ in 0..3 {
            chain.run()?;
        }
        Ok(chain)
    }

    fn run(&mut self) -> Result<(), EngineError> {
        let outputs = self.session.submit(std::slice::from_ref(&self.seed))?;
        self.session.sync()?;
        drop(outputs);
        Ok(())
    }
}

/// Returns the median time of each chain.
fn run_in_turns(chains: &mut [Chain], clock: &dyn Clock) -> Result<Vec<f64>, CaseError> {
    let mut times = vec![Vec::new(); chains.len()];
    for _ in 0..ROUNDS {
        for (chain, times) in chains.iter_mut().zip(&mut times) {
            let start = clock.now();
            chain.run()?;
            times.push(clock.now().since(start).0);
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        times[ROUNDS / 2]
    };
    Ok(times.iter_mut().map(median).collect())
}

fn operator_chain(node: &Graph, count: usize) -> Result<Graph, CaseError> {
    let Some(first) = node.nodes.first() else { return Err(CaseError::Case("there is no node".to_owned())) };
    Ok(chain(node, count, |input, output| {
        let mut next = Node { name: output.to_owned(), outputs: vec![output.to_owned()], ..first.clone() };
        let place = first.inputs.iter().position(|name| *name == node.inputs[0].name);
        place.into_iter().for_each(|place| input.clone_into(&mut next.inputs[place]));
        next
    }))
}

fn standard_chain(node: &Graph, count: usize) -> Result<Graph, CaseError> {
    expand_operators(&operator_chain(node, count)?).map_err(|error| CaseError::Case(error.to_string()))
}

fn copy_chain(node: &Graph, count: usize) -> Result<Graph, CaseError> {
    Ok(chain(node, count, |input, output| Node {
        name: output.to_owned(),
        op: "Neg".to_owned(),
        inputs: vec![input.to_owned()],
        outputs: vec![output.to_owned()],
        ..Node::default()
    }))
}

/// Returns nodes one after the other. The inputs are constants on the device; a number is added to the first, so that nothing is
/// computed before the run.
fn chain(node: &Graph, count: usize, next: impl Fn(&str, &str) -> Node) -> Graph {
    let first = &node.inputs[0];
    let weight = |input: &ValueInfo| {
        let source = WeightSource::Seed { seed: 0, init: Init::Normal { std: 1.0 } };
        let name = if input.name == first.name { format!("{}.values", input.name) } else { input.name.clone() };
        (name, Weight { spec: input.spec.clone(), role: WeightRole::Parameter, source })
    };
    let seed = flagperf_onnx::TensorSpec::new(vec![1], first.spec.dtype);
    let mut graph = Graph {
        inputs: vec![ValueInfo { name: SEED.to_owned(), spec: seed }],
        weights: node.inputs.iter().map(weight).collect(),
        nodes: vec![Node {
            name: "begin".to_owned(),
            op: "Add".to_owned(),
            inputs: vec![format!("{}.values", first.name), SEED.to_owned()],
            outputs: vec!["begin".to_owned()],
            ..Node::default()
        }],
        ..node.clone()
    };
    let mut value = "begin".to_owned();
    graph.values.insert(value.clone(), first.spec.clone());
    for number in 0..count {
        let output = format!("node{number}");
        graph.nodes.push(next(&value, &output));
        graph.values.insert(output.clone(), first.spec.clone());
        value = output;
    }
    graph.outputs = vec![ValueInfo { name: value, spec: first.spec.clone() }];
    graph
}
