//! Compares the inputs and outputs of an existing model with those of the model that the scripts build.

use flagperf_onnx::{Dim, Graph, TensorSpec, ValueInfo};
use indexmap::IndexMap;

/// Returns why inference cannot run `found` where the case has the graphs `built`, as a fragment; `None` if it can. The
/// file may name its inputs and outputs otherwise, and may have further outputs.
pub(super) fn find_difference(built: &IndexMap<String, Graph>, found: &IndexMap<String, Graph>) -> Option<String> {
    if let Some(name) = built.keys().find(|name| !found.contains_key(*name)) {
        return Some(format!("it has no graph `{name}`, which the case's model has"));
    }
    built.iter().find_map(|(name, graph)| {
        let other = &found[name];
        let (inputs, outputs) = (&graph.inputs, &graph.outputs);
        if other.inputs.len() != inputs.len() || other.outputs.len() < outputs.len() {
            let (has, needs) = (count_values(other), count_values(graph));
            return Some(format!("it has {has}, but the case's model has {needs}"));
        }
        let difference = value_difference("input", inputs, &other.inputs);
        difference.or_else(|| value_difference("output", outputs, &other.outputs))
    })
}

fn count_values(graph: &Graph) -> String {
    let number = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!("{} and {}", number(graph.inputs.len(), "input"), number(graph.outputs.len(), "output"))
}

/// Compares values of the same name or, if a name is missing, of the same position.
fn value_difference(kind: &str, built: &[ValueInfo], found: &[ValueInfo]) -> Option<String> {
    let by_name = |value: &ValueInfo| found.iter().find(|other| other.name == value.name);
    let has_names = built.iter().all(|value| by_name(value).is_some());
    built.iter().enumerate().find_map(|(position, value)| {
        let other = if has_names { by_name(value)? } else { found.get(position)? };
        (!is_compatible(&value.spec, &other.spec)).then(|| {
            format!(
                "its {kind} `{}` is `{}`, but the {kind} `{}` of the case's model is `{}`",
                other.name, other.spec, value.name, value.spec
            )
        })
    })
}

/// Returns whether two specs have the same type and the same number of dimensions and no fixed sizes that differ.
fn is_compatible(a: &TensorSpec, b: &TensorSpec) -> bool {
    let fits = |(a, b): (&Dim, &Dim)| a.fixed().zip(b.fixed()).is_none_or(|(a, b)| a == b);
    a.dtype == b.dtype && a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(specs: &[(&str, &str)]) -> Vec<ValueInfo> {
        let value = |(name, spec): &(&str, &str)| ValueInfo { name: (*name).to_owned(), spec: spec.parse().unwrap() };
        specs.iter().map(value).collect()
    }

    fn model(inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> IndexMap<String, Graph> {
        let graph = Graph { inputs: values(inputs), outputs: values(outputs), ..Graph::default() };
        IndexMap::from([("model".to_owned(), graph)])
    }

    #[test]
    fn a_model_with_other_inputs_or_outputs_is_another_one() {
        let built = model(&[("x", "N,3,224,224,f32")], &[("y", "N,1000,f32")]);
        let difference =
            |inputs: &[(&str, &str)], outputs: &[(&str, &str)]| find_difference(&built, &model(inputs, outputs));
        let (x, y) = (("x", "N,3,224,224,f32"), ("y", "N,1000,f32"));
        assert_eq!(difference(&[x], &[y]), None);
        assert_eq!(difference(&[("image", "8,3,H,W,f32")], &[("z", "N,C,f32"), ("more", "1,i64")]), None);
        let other = "its input `x` is `N,3,32,32,f32`, but the input `x` of the case's model is `N,3,224,224,f32`";
        assert_eq!(difference(&[("x", "N,3,32,32,f32")], &[y]).as_deref(), Some(other));
        let other = "its output `z` is `N,1000,f16`, but the output `y` of the case's model is `N,1000,f32`";
        assert_eq!(difference(&[x], &[("z", "N,1000,f16")]).as_deref(), Some(other));
        let other = "it has 2 inputs and 1 output, but the case's model has 1 input and 1 output";
        assert_eq!(difference(&[x, ("mask", "N,i64")], &[y]).as_deref(), Some(other));
        let several = IndexMap::from([("encoder".to_owned(), Graph::default())]);
        let other = "it has no graph `model`, which the case's model has";
        assert_eq!(find_difference(&built, &several).as_deref(), Some(other));
    }

    #[test]
    fn values_are_compared_by_name_if_all_names_are_known() {
        let built = model(&[("a", "N,f32"), ("b", "N,i64")], &[("y", "N,f32")]);
        assert_eq!(find_difference(&built, &model(&[("b", "N,i64"), ("a", "N,f32")], &[("y", "N,f32")])), None);
        assert!(find_difference(&built, &model(&[("b", "N,i64"), ("c", "N,f32")], &[("y", "N,f32")])).is_some());
    }
}
