//! Compares the gradients of every operator that has a derivative with central differences, computed in f64 by the
//! reference library.

mod cases;
#[cfg(feature = "cpu")]
mod pytorch;

use std::collections::BTreeSet;

use flagperf_onnx::{
    Attribute, DType, Graph, Node, Tensor, TensorSpec, ValueInfo, Weight, WeightRole, WeightSource, differentiate,
    infer_shapes, operators_with_derivative,
};
use indexmap::IndexMap;

use crate::{Executor, ReferenceOps};

/// Half the distance between the two points of a difference.
const STEP: f64 = 1e-5;
/// The largest error of a gradient, relative to the larger of 1 and the gradient. A central difference of f64 numbers with
/// this step is exact to about 1e-10.
const TOLERANCE: f64 = 1e-8;

/// An input of the node under test.
#[derive(Clone)]
enum Input {
    /// Has a gradient.
    Learned {
        shape: Vec<usize>,
        low: f64,
        high: f64,
    },
    Constant(Tensor),
    Omitted,
}

impl Input {
    fn name(&self, i: usize) -> String {
        if matches!(self, Input::Omitted) { String::new() } else { format!("x{i}") }
    }
}

/// One use of an operator.
struct Case {
    op: &'static str,
    inputs: Vec<Input>,
    attributes: IndexMap<String, Attribute>,
    outputs: usize,
    /// The output that the loss is computed from.
    read: usize,
}

fn case(op: &'static str) -> Case {
    Case { op, inputs: Vec::new(), attributes: IndexMap::new(), outputs: 1, read: 0 }
}

impl Case {
    /// Adds an input with numbers between -2 and 2.
    fn x(self, shape: &[usize]) -> Self {
        self.within(shape, -2.0, 2.0)
    }

    fn within(mut self, shape: &[usize], low: f64, high: f64) -> Self {
        self.inputs.push(Input::Learned { shape: shape.to_vec(), low, high });
        self
    }

    fn constant(mut self, tensor: Tensor) -> Self {
        self.inputs.push(Input::Constant(tensor));
        self
    }

    fn omitted(mut self) -> Self {
        self.inputs.push(Input::Omitted);
        self
    }

    fn list(self, values: &[i64]) -> Self {
        self.constant(Tensor::from_vec([values.len()], values.to_vec()).unwrap())
    }

    fn number(self, value: f64) -> Self {
        self.constant(Tensor::scalar(value))
    }

    fn int(self, name: &str, value: i64) -> Self {
        self.with(name, Attribute::Int(value))
    }

    fn ints(self, name: &str, values: &[i64]) -> Self {
        self.with(name, Attribute::Ints(values.to_vec()))
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.with(name, Attribute::String(value.to_owned()))
    }

    fn with(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.insert(name.to_owned(), value);
        self
    }

    fn outputs(self, outputs: usize, read: usize) -> Self {
        Case { outputs, read, ..self }
    }

    fn learned(&self) -> impl Iterator<Item = (usize, &Vec<usize>, [f64; 2])> {
        self.inputs.iter().enumerate().filter_map(|(i, input)| match input {
            Input::Learned { shape, low, high } => Some((i, shape, [*low, *high])),
            Input::Constant(_) | Input::Omitted => None,
        })
    }

    /// Returns a graph whose loss is a weighted sum of an output.
    fn graph(&self) -> Graph {
        let mut graph = Graph { opset: 20, ..Graph::default() };
        for (i, shape, _) in self.learned() {
            graph.inputs.push(ValueInfo { name: format!("x{i}"), spec: TensorSpec::new(shape.clone(), DType::F64) });
        }
        for (i, input) in self.inputs.iter().enumerate() {
            if let Input::Constant(tensor) = input {
                add_constant(&mut graph, &format!("x{i}"), tensor.clone());
            }
        }
        graph.nodes.push(Node {
            name: "node".to_owned(),
            op: self.op.to_owned(),
            inputs: self.inputs.iter().enumerate().map(|(i, input)| input.name(i)).collect(),
            outputs: (0..self.outputs).map(|i| format!("y{i}")).collect(),
            attributes: self.attributes.clone(),
            ..Node::default()
        });
        infer_shapes(&mut graph);
        let output = format!("y{}", self.read);
        let shape = graph.values[&output].fixed_shape().unwrap();
        let count = shape.iter().product();
        add_constant(&mut graph, "factors", Tensor::from_vec(shape, noise(count, 99, [-1.0, 1.0])).unwrap());
        for (op, inputs, output) in
            [("Mul", vec![output.as_str(), "factors"], "weighted"), ("ReduceSum", vec!["weighted"], "loss")]
        {
            graph.nodes.push(Node {
                name: output.to_owned(),
                op: op.to_owned(),
                inputs: inputs.into_iter().map(str::to_owned).collect(),
                outputs: vec![output.to_owned()],
                attributes: match op {
                    "ReduceSum" => IndexMap::from([("keepdims".to_owned(), Attribute::Int(0))]),
                    _ => IndexMap::new(),
                },
                ..Node::default()
            });
        }
        infer_shapes(&mut graph);
        graph
    }
}

fn add_constant(graph: &mut Graph, name: &str, tensor: Tensor) {
    let weight = Weight { spec: tensor.spec(), role: WeightRole::Constant, source: WeightSource::Value(tensor) };
    graph.weights.insert(name.to_owned(), weight);
}

/// Returns numbers within bounds that do not repeat, and none of which is within a step of another.
fn noise(count: usize, seed: usize, [low, high]: [f64; 2]) -> Vec<f64> {
    (0..count).map(|i| low + (high - low) * (((i + 1) as f64 * 0.618_033_988_749 + seed as f64 * 0.31) % 1.0)).collect()
}

/// Runs a graph that outputs these values.
fn run(graph: &Graph, outputs: &[&str], inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, String> {
    let specs: Vec<TensorSpec> = graph.inputs.iter().map(|input| input.spec.clone()).collect();
    let mut graph = graph.clone();
    graph.outputs =
        outputs.iter().map(|name| ValueInfo { name: (*name).to_owned(), spec: "f64".parse().unwrap() }).collect();
    for output in &mut graph.outputs {
        output.spec = graph.values.get(&output.name).cloned().ok_or_else(|| format!("no shape: {}", output.name))?;
    }
    let inputs: Vec<Tensor> = specs
        .iter()
        .zip(inputs)
        .map(|(spec, values)| Tensor::from_vec(spec.fixed_shape().unwrap(), values.clone()).unwrap())
        .collect();
    let outputs = Executor::load(&graph, ReferenceOps).and_then(|executor| executor.run_host(&inputs));
    Ok(outputs.map_err(|error| error.to_string())?.iter().map(Tensor::to_f64).collect())
}

/// Returns the largest error of the gradients of a case; an error names the first gradient that is too far off.
fn largest_error(case: &Case) -> Result<f64, String> {
    let graph = case.graph();
    let names: Vec<String> = graph.inputs.iter().map(|input| input.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let inputs: Vec<Vec<f64>> =
        case.learned().map(|(i, shape, range)| noise(shape.iter().product(), i, range)).collect();
    let differentiated = differentiate(&graph, "loss", &names).map_err(|error| error.to_string())?;
    for (name, gradient) in &differentiated.gradients {
        let spec = &graph.inputs.iter().find(|input| input.name == *name).unwrap().spec;
        if differentiated.graph.values.get(gradient) != Some(spec) {
            return Err(format!("the gradient of {name} is {:?}", differentiated.graph.values.get(gradient)));
        }
    }
    let gradients: Vec<&str> = differentiated.gradients.values().map(String::as_str).collect();
    let computed = run(&differentiated.graph, &gradients, &inputs)?;
    let mut largest = 0f64;
    for (i, name) in names.iter().enumerate() {
        let computed = differentiated.gradients.get_index_of(*name).map(|index| &computed[index]);
        for k in 0..inputs[i].len() {
            let loss = |offset: f64| {
                let mut moved = inputs.clone();
                moved[i][k] += offset;
                run(&graph, &["loss"], &moved).map(|loss| loss[0][0])
            };
            let expected = (loss(STEP)? - loss(-STEP)?) / (2.0 * STEP);
            let computed = computed.map_or(0.0, |values| values[k]);
            let error = (computed - expected).abs() / expected.abs().max(1.0);
            if error.is_nan() || error > TOLERANCE {
                return Err(format!("{name}[{k}] has the gradient {computed}, the difference quotient {expected}"));
            }
            largest = largest.max(error);
        }
    }
    Ok(largest)
}

#[test]
fn gradients_equal_difference_quotients() {
    let mut errors: IndexMap<&str, f64> = IndexMap::new();
    let mut failures = Vec::new();
    for case in cases::all() {
        match largest_error(&case) {
            Ok(error) => {
                let known = errors.entry(case.op).or_default();
                *known = known.max(error);
            }
            Err(reason) => failures.push(format!("{} {:?}: {reason}", case.op, case.attributes)),
        }
    }
    for (op, error) in errors {
        println!("{op:24} {error:.1e}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_operator_with_a_derivative_has_a_case() {
    let tested: BTreeSet<&str> = cases::all().iter().map(|case| case.op).collect();
    let missing: Vec<&str> = operators_with_derivative().filter(|op| !tested.contains(op)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
