//! Compares every operator with the outputs of ONNX Runtime or ONNX's reference evaluator in vectors.json, which
//! make_vectors.py wrote. Each case runs on the interpreter and on the reference library, with inputs as tensors and as
//! constants, and its inferred shapes and types are compared with the actual ones.

use serde_json::Value as Json;

use super::Sketch;
use crate::{CpuOps, ExecError, Executor, ReferenceOps};
use flagperf_onnx::{Attribute, DType, Graph, InferError, Tensor, check, infer_values, lower, upgrade};

/// Operators whose output shape depends on values that shape inference does not know.
const UNKNOWN_SHAPES: [&str; 5] = ["NonMaxSuppression", "NonZero", "Range", "Resize", "Upsample"];

struct Case {
    label: String,
    op: String,
    opset: i64,
    attributes: Vec<(String, Attribute)>,
    inputs: Vec<Option<Tensor>>,
    names: Vec<String>,
    outputs: Vec<Tensor>,
}

fn cases() -> Vec<Case> {
    let json: Vec<Json> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    json.iter().enumerate().map(|(i, case)| Case::parse(i, case)).collect()
}

fn list(json: &Json) -> &[Json] {
    json.as_array().unwrap()
}

fn tensor(json: &Json) -> Tensor {
    let dtype: DType = json["dtype"].as_str().unwrap().parse().unwrap();
    let shape: Vec<usize> = list(&json["shape"]).iter().map(|size| size.as_u64().unwrap() as usize).collect();
    let number = |value: &Json| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    let values: Vec<f64> = list(&json["values"]).iter().map(number).collect();
    Tensor::from_vec(shape, values).unwrap().cast(dtype)
}

fn attribute(json: &Json) -> Attribute {
    match json {
        Json::String(text) => Attribute::String(text.clone()),
        Json::Number(number) if number.is_i64() => Attribute::Int(number.as_i64().unwrap()),
        Json::Number(number) => Attribute::Float(number.as_f64().unwrap() as f32),
        other if list(other).iter().all(Json::is_string) => {
            Attribute::Strings(list(other).iter().map(|value| value.as_str().unwrap().to_owned()).collect())
        }
        other if list(other).iter().all(Json::is_i64) => {
            Attribute::Ints(list(other).iter().map(|value| value.as_i64().unwrap()).collect())
        }
        other => Attribute::Floats(list(other).iter().map(|value| value.as_f64().unwrap() as f32).collect()),
    }
}

impl Case {
    fn parse(i: usize, json: &Json) -> Self {
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        let attributes = json["attributes"].as_object().unwrap();
        let input = |input: &Json| (!input.is_null()).then(|| tensor(input));
        Case {
            label: format!("case {i}: {} {} (by {})", text("op"), json["attributes"], text("by")),
            op: text("op"),
            opset: json["opset"].as_i64().unwrap(),
            attributes: attributes.iter().map(|(name, value)| (name.clone(), attribute(value))).collect(),
            inputs: list(&json["inputs"]).iter().map(input).collect(),
            names: list(&json["names"]).iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
            outputs: list(&json["outputs"]).iter().map(tensor).collect(),
        }
    }

    /// Returns the graph and its inputs; the inputs from `constants` on are constants.
    fn graph(&self, constants: usize) -> (Graph, Vec<Tensor>) {
        let (mut sketch, mut fed) = (Sketch::new(), Vec::new());
        let names: Vec<String> = (0..self.inputs.len()).map(|i| format!("x{i}")).collect();
        let mut read = Vec::new();
        for (i, (name, input)) in names.iter().zip(&self.inputs).enumerate() {
            read.push(if input.is_some() { name.as_str() } else { "" });
            match input {
                Some(tensor) if i >= constants => sketch = sketch.weight(name, tensor.clone()),
                Some(tensor) => {
                    sketch = sketch.input(name, &tensor.spec().to_string());
                    fed.push(tensor.clone());
                }
                None => {}
            }
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        sketch = sketch.node(&self.op, &read, &names);
        sketch.0.opset = self.opset;
        sketch.0.nodes[0].attributes = self.attributes.iter().cloned().collect();
        let named = self.names.iter().filter(|name| !name.is_empty());
        for (name, output) in named.zip(self.outputs()) {
            sketch = Sketch(sketch.output(name, &output.spec().to_string()));
        }
        (sketch.0, fed)
    }

    /// Returns the outputs that have a name.
    fn outputs(&self) -> Vec<&Tensor> {
        if self.names.len() == self.outputs.len() {
            return self.names.iter().zip(&self.outputs).filter(|(name, _)| !name.is_empty()).map(|(_, y)| y).collect();
        }
        self.outputs.iter().collect()
    }

    /// Returns the allowed relative error: sums are added in another order, and each result of 16 bits is rounded.
    fn tolerance(&self) -> f64 {
        let dtypes = self.inputs.iter().flatten().chain(&self.outputs).map(Tensor::dtype);
        let bound = |dtype| match dtype {
            DType::BF16 => 8e-3,
            DType::F16 => 2e-3,
            DType::F32 => 1e-5,
            _ => 1e-12,
        };
        dtypes.map(bound).fold(0.0, f64::max)
    }
}

/// Returns why two tensors differ.
fn difference(actual: &Tensor, expected: &Tensor, tolerance: f64) -> Option<String> {
    if actual.spec() != expected.spec() {
        return Some(format!("`{}` instead of `{}`", actual.spec(), expected.spec()));
    }
    let close = |a: f64, e: f64| a == e || (a.is_nan() && e.is_nan()) || (a - e).abs() <= tolerance * e.abs().max(1.0);
    let (actual, expected) = (actual.to_f64(), expected.to_f64());
    let at = actual.iter().zip(&expected).position(|(a, e)| !close(*a, *e))?;
    Some(format!("element {at} is {} instead of {}", actual[at], expected[at]))
}

fn faults(case: &Case, run: impl Fn(&Graph, &[Tensor]) -> Result<Vec<Tensor>, ExecError>) -> Vec<String> {
    let mut faults = Vec::new();
    for constants in [case.inputs.len(), 1] {
        let (graph, fed) = case.graph(constants);
        match run(&graph, &fed) {
            // ONNX Runtime computes what the standard's tests compute otherwise.
            Err(error) if error.to_string().contains("the standard's text and its tests differ") => {}
            Err(error) => faults.push(format!("{}: {error}", case.label)),
            Ok(outputs) => {
                let pairs = outputs.iter().zip(case.outputs());
                let found = pairs.filter_map(|(actual, expected)| difference(actual, expected, case.tolerance()));
                faults.extend(found.map(|fault| format!("{}: {fault}", case.label)));
            }
        }
    }
    faults
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[cfg(feature = "cpu")]
#[test]
fn the_interpreter_computes_what_other_implementations_compute() {
    let run = |graph: &Graph, fed: &[Tensor]| Executor::load(graph, CpuOps)?.run_host(fed);
    assert_none(&cases().iter().flat_map(|case| faults(case, run)).collect::<Vec<_>>());
}

#[test]
fn the_reference_library_computes_what_other_implementations_compute() {
    let run = |graph: &Graph, fed: &[Tensor]| Executor::load(graph, ReferenceOps)?.run_host(fed);
    assert_none(&cases().iter().flat_map(|case| faults(case, run)).collect::<Vec<_>>());
}

#[test]
fn lowered_operators_compute_what_other_implementations_compute() {
    #[rustfmt::skip]
    const LACKING: [&str; 25] = [
        "Attention", "Celu", "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "Gelu", "GlobalLpPool",
        "GroupNormalization", "Hardmax", "LRN", "LayerNormalization", "LpNormalization", "LpPool", "MatMulInteger",
        "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "QuantizeLinear",
        "RMSNormalization", "RotaryEmbedding", "Shrink", "SoftmaxCrossEntropyLoss", "Softsign", "ThresholdedRelu",
    ];
    let reads_scores = |case: &&Case| case.op == "Attention" && case.names.len() > 3;
    let reads_statistics = |case: &Case| case.op == "LayerNormalization" && case.names.len() > 1;
    let is_composite = |case: &Case| LACKING.contains(&case.op.as_str()) && case.opset > 17 && !reads_statistics(case);
    let composites: Vec<Case> = cases().into_iter().filter(is_composite).collect();
    assert!(composites.len() >= 40, "{} cases", composites.len());
    let run = |graph: &Graph, fed: &[Tensor]| {
        let lowered = lower(graph, 17, &LACKING).unwrap();
        check(&lowered).unwrap();
        assert!(lowered.opset == 17 && lowered.nodes.iter().all(|node| !LACKING.contains(&node.op.as_str())));
        assert_eq!(lowered.outputs, graph.outputs);
        Executor::load(&lowered, ReferenceOps)?.run_host(fed)
    };
    let lowerable = composites.iter().filter(|case| !reads_scores(case));
    assert_none(&lowerable.flat_map(|case| faults(case, run)).collect::<Vec<_>>());
    for case in composites.iter().filter(reads_scores) {
        let error = lower(&case.graph(1).0, 17, &[]).unwrap_err().to_string();
        assert!(error.starts_with("node `y0` (Attention) cannot be decomposed: the output"), "{error}");
    }
}

#[test]
fn inferred_shapes_and_types_are_the_actual_ones() {
    let inferred = |case: &Case| {
        let graph = upgrade(&case.graph(1).0).unwrap();
        let (values, uninferred) = infer_values(&graph);
        if uninferred.iter().any(|node| matches!(node.reason, InferError::UnknownOperator(_))) {
            return Vec::new();
        }
        let mut faults: Vec<String> =
            uninferred.iter().map(|node| format!("{}: {}", case.label, node.reason)).collect();
        for output in &graph.outputs {
            let known = values.iter().find(|(name, _)| *name == output.name).map(|(_, spec)| spec);
            let fits = known.is_some_and(|spec| {
                let shape = output.spec.fixed_shape().unwrap();
                let complete = UNKNOWN_SHAPES.contains(&case.op.as_str()) || spec.fixed_shape().is_some();
                complete && spec.admits(&shape, output.spec.dtype)
            });
            if !fits {
                let known = known.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                faults.push(format!("{}: inferred `{known}` instead of `{}`", case.label, output.spec));
            }
        }
        faults
    };
    assert_none(&cases().iter().flat_map(inferred).collect::<Vec<_>>());
}
