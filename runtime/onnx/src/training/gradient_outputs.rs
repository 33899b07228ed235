//! Gradients as outputs of a graph: inference with a backward pass.

use super::clip::total_norm;
use crate::check::infer_shapes;
use crate::lower::Rewriting;
use crate::{GradientError, Graph, ValueInfo, WeightRole, differentiate};

/// What is added to the name of a value for the output with its gradient.
const SUFFIX: &str = "_gradient";
/// The output with the norm of the gradients of all parameters.
const PARAMETERS: &str = "parameters_gradient_norm";

/// Adds the gradients of `loss`, a value with one element, with respect to `values` as outputs `NAME_gradient`; with `parameters`,
/// also the norm of the gradients of all parameters together as the output `parameters_gradient_norm`, `1`.
///
/// # Errors
/// When the graph cannot be differentiated, or the loss does not depend on one of the values.
pub fn add_gradients(graph: &Graph, loss: &str, values: &[&str], parameters: bool) -> Result<Graph, GradientError> {
    let learned = graph.weights.iter().filter(|(_, weight)| parameters && weight.role == WeightRole::Parameter);
    let learned: Vec<&str> = learned.map(|(name, _)| name.as_str()).collect();
    let differentiated = differentiate(graph, loss, &[values, &learned].concat())?;
    let gradient = |value: &str| {
        let independent = || GradientError::Independent { loss: loss.to_owned(), value: value.to_owned() };
        differentiated.gradients.get(value).ok_or_else(independent)
    };
    let mut rewriting = Rewriting::new(&differentiated.graph);
    let mut outputs = Vec::new();
    for value in values {
        let (gradient, output) = (gradient(value)?, format!("{value}{SUFFIX}"));
        rewriting.extend(&output, |list| list.define("Identity", &[gradient], &output));
        outputs.push(output);
    }
    if parameters {
        let gradients: Vec<&String> = learned.iter().filter_map(|name| gradient(name).ok()).collect();
        if gradients.is_empty() {
            return Err(GradientError::Independent { loss: loss.to_owned(), value: "any parameter".to_owned() });
        }
        rewriting.extend(PARAMETERS, |list| {
            let norm = total_norm(list, gradients.into_iter());
            let shape = list.ints(&[1]);
            list.define("Reshape", &[&norm, &shape], PARAMETERS);
        });
        outputs.push(PARAMETERS.to_owned());
    }
    let mut finished = rewriting.finish();
    infer_shapes(&mut finished);
    let specs = finished.specs();
    let infos: Vec<ValueInfo> = (outputs.into_iter())
        .map(|name| ValueInfo { spec: specs.get(&name).cloned().expect("the shape of a gradient is known"), name })
        .collect();
    finished.outputs.extend(infos);
    Ok(finished)
}
