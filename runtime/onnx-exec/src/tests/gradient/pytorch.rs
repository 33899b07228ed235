//! Compares the gradients of the cases with those of PyTorch: `gradients.json`, made by make_gradients.py.

use flagperf_onnx::{Attribute, Tensor, WeightSource, differentiate};
use serde_json::{Value as Json, json};

use super::{Case, Input, cases, noise, run};

/// The largest difference, relative to the larger of 1 and the gradient: both sides compute in f64.
const TOLERANCE: f64 = 1e-8;

fn attribute(value: &Attribute) -> Json {
    match value {
        Attribute::Int(value) => json!(value),
        Attribute::Float(value) => json!(value),
        Attribute::String(value) => json!(value),
        Attribute::Ints(values) => json!(values),
        other => panic!("no case has {other:?}"),
    }
}

/// Describes a case for make_gradients.py.
fn description(case: &Case) -> Json {
    let input = |(i, input): (usize, &Input)| {
        let of = |tensor: &Tensor, learned: bool| {
            let dtype = tensor.dtype();
            json!({"shape": tensor.shape(), "values": tensor.to_f64(), "learned": learned, "dtype": dtype.name()})
        };
        match input {
            Input::Learned { shape, low, high } => {
                of(&Tensor::from_vec(shape.clone(), noise(shape.iter().product(), i, [*low, *high])).unwrap(), true)
            }
            Input::Constant(tensor) => of(tensor, false),
            Input::Omitted => Json::Null,
        }
    };
    let graph = case.graph();
    let WeightSource::Value(factors) = &graph.weights["factors"].source else { panic!("the factors are given") };
    let attributes: serde_json::Map<String, Json> =
        case.attributes.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
    json!({
        "op": case.op,
        "attributes": attributes,
        "inputs": case.inputs.iter().enumerate().map(input).collect::<Vec<_>>(),
        "read": case.read,
        "factors": factors.to_f64(),
    })
}

#[test]
#[ignore = "prints what make_gradients.py reads"]
fn prints_the_cases() {
    cases::all().iter().for_each(|case| println!("{}", description(case)));
}

/// Returns the largest difference from the expected gradients of a case.
fn difference(case: &Case, expected: &[Vec<f64>]) -> Result<f64, String> {
    let graph = case.graph();
    let names: Vec<&str> = graph.inputs.iter().map(|input| input.name.as_str()).collect();
    let inputs: Vec<Vec<f64>> =
        case.learned().map(|(i, shape, range)| noise(shape.iter().product(), i, range)).collect();
    let differentiated = differentiate(&graph, "loss", &names).map_err(|error| error.to_string())?;
    let values: Vec<&str> = differentiated.gradients.values().map(String::as_str).collect();
    let computed = run(&differentiated.graph, &values, &inputs)?;
    let mut largest = 0f64;
    for (name, expected) in names.iter().zip(expected) {
        let computed = differentiated.gradients.get_index_of(*name).map(|index| &computed[index]);
        for (k, expected) in expected.iter().enumerate() {
            let computed = computed.map_or(0.0, |values| values[k]);
            let error = (computed - expected).abs() / expected.abs().max(1.0);
            if error.is_nan() || error > TOLERANCE {
                return Err(format!("{name}[{k}] has the gradient {computed}, in PyTorch {expected}"));
            }
            largest = largest.max(error);
        }
    }
    Ok(largest)
}

#[test]
fn gradients_equal_those_of_pytorch() {
    let expected: Vec<Json> = serde_json::from_str(include_str!("../gradients.json")).unwrap();
    let cases = cases::all();
    let ops =
        |i: usize| (cases.get(i).map(|case| case.op), expected.get(i).and_then(|expected| expected["op"].as_str()));
    let stale = (0..cases.len().max(expected.len())).map(ops).find(|(case, expected)| case != expected);
    assert_eq!(stale, None, "run make_gradients.py again");
    let mut failures = Vec::new();
    for (case, expected) in cases.iter().zip(&expected) {
        let gradients: Vec<Vec<f64>> = serde_json::from_value(expected["gradients"].clone()).unwrap();
        match difference(case, &gradients) {
            Ok(error) => println!("{:26} {error:.1e}", case.op),
            Err(reason) => failures.push(format!("{} {:?}: {reason}", case.op, case.attributes)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
