//! Checks the outputs that a sidecar reports against those that the model declares. An output of another shape takes
//! the declared shape only if its elements are already in the declared order.

use indexmap::IndexMap;

use super::session::Signature;
use crate::printable::printable_line;
use crate::{EngineError, Value};
use flagperf_core::event::{ReshapedOutput, ThirdValue};
use flagperf_core::tensor::{NamedSizes, TensorSpec};
use flagperf_core::units::Seconds;

/// The largest accepted time in seconds, thirty years; no step takes as long.
const SECONDS_MAX: f64 = 1e9;
/// Bytes that are kept of each text of a third value.
const THIRD_VALUE: usize = 200;

/// Checks the number and the specs of the outputs against the model and returns their shapes.
///
/// A named dimension must have the same size everywhere. An output of another shape takes the declared shape if it has
/// the declared elements in the declared order; the first such change of each output is recorded in `reshaped`.
pub(super) fn check_outputs(
    model: &Signature,
    inputs: &[Value],
    reported: &[TensorSpec],
    reshaped: &mut IndexMap<String, ReshapedOutput>,
) -> Result<Vec<Vec<usize>>, EngineError> {
    let (declared, count) = (model.outputs.len(), reported.len());
    if declared != count {
        return Err(EngineError::Failed(format!(
            "the sidecar's number of outputs is {count}, the model declares {declared}"
        )));
    }
    let mut sizes = input_sizes(model, inputs);
    let mut shapes = Vec::with_capacity(reported.len());
    for (index, spec) in reported.iter().enumerate() {
        let info = &model.outputs[index];
        match spec.fixed_shape() {
            Some(shape) if info.spec.admits(&shape, spec.dtype) && sizes.bind(&info.spec, &shape).is_ok() => {
                shapes.push(shape);
            }
            shape => {
                let declared = declared_shape(model, inputs, &shapes, index);
                let change = shape.zip(declared).filter(|_| spec.dtype == info.spec.dtype);
                match change {
                    Some((from, to)) if has_same_order(&from, &to) => {
                        reshaped.entry(info.name.clone()).or_insert_with(|| ReshapedOutput {
                            from: spec.to_string(),
                            to: TensorSpec::new(to.iter().copied(), spec.dtype).to_string(),
                        });
                        shapes.push(to);
                    }
                    change => return Err(mismatch_error(model, inputs, index, spec, change)),
                }
            }
        }
    }
    Ok(shapes)
}

/// Checks the time that the vendor's code requests to subtract.
pub(super) fn check_vendor_time(seconds: Option<f64>) -> Result<Option<Seconds>, EngineError> {
    match seconds {
        Some(seconds) if !(0.0..=SECONDS_MAX).contains(&seconds) => {
            let reason = format!(
                "the sidecar requests to subtract `{seconds:e}` s from a run (expected: 0 to `{SECONDS_MAX:e}` s)"
            );
            Err(EngineError::Failed(reason))
        }
        seconds => Ok(seconds.map(Seconds)),
    }
}

/// Returns a third value in the form of the record, with printable and limited texts.
pub(super) fn printable_third_value(third: &ThirdValue) -> ThirdValue {
    let [kind, repr] = [&third.kind, &third.repr].map(|text| printable_line(text, THIRD_VALUE));
    ThirdValue { kind, repr }
}

/// Returns the sizes that the inputs give to named dimensions.
fn input_sizes<'m>(model: &'m Signature, inputs: &[Value]) -> NamedSizes<'m> {
    let mut sizes = NamedSizes::default();
    for (info, value) in model.inputs.iter().zip(inputs) {
        let shape = value.spec().fixed_shape().unwrap_or_default();
        // The inputs were checked before the run.
        let _ = sizes.bind(&info.spec, &shape);
    }
    sizes
}

/// Returns the declared shape of output `index`; `None` if the inputs and the earlier outputs do not determine every
/// size.
fn declared_shape(model: &Signature, inputs: &[Value], shapes: &[Vec<usize>], index: usize) -> Option<Vec<usize>> {
    let mut sizes = input_sizes(model, inputs);
    for (info, shape) in model.outputs.iter().zip(shapes) {
        // An earlier output that took its declared shape has no other size.
        let _ = sizes.bind(&info.spec, shape);
    }
    model.outputs[index].spec.dims.iter().map(|dim| sizes.size(dim)).collect()
}

/// Whether one shape can be turned into the other by merging or splitting neighbouring dimensions and by adding or
/// removing dimensions of size 1: the elements then have the same order. A transposed output has the same number of
/// elements, but in another order.
fn has_same_order(one: &[usize], other: &[usize]) -> bool {
    let above_one = |shape: &[usize]| shape.iter().copied().filter(|size| *size != 1).collect::<Vec<_>>().into_iter();
    let (mut ones, mut others) = (above_one(one), above_one(other));
    loop {
        let (mut size, mut other_size) = match (ones.next(), others.next()) {
            (None, None) => return true,
            (Some(size), Some(other_size)) => (size, other_size),
            _ => return false,
        };
        let is_merged = size > other_size;
        let (whole, part, rest) =
            if is_merged { (size, &mut other_size, &mut others) } else { (other_size, &mut size, &mut ones) };
        while *part < whole {
            let Some(next) = rest.next() else { return false };
            *part = part.saturating_mul(next);
        }
        if *part != whole {
            return false;
        }
    }
}

/// Returns the error for an output that does not match the model. `shapes` are the reported and the declared shape, if
/// both are known and the element types are equal.
fn mismatch_error(
    model: &Signature,
    inputs: &[Value],
    index: usize,
    spec: &TensorSpec,
    shapes: Option<(Vec<usize>, Vec<usize>)>,
) -> EngineError {
    let (name, declared) = (&model.outputs[index].name, &model.outputs[index].spec);
    let sizes = input_sizes(model, inputs);
    let sizes = sizes.iter().map(|(name, size)| format!(", {name} = {size}")).collect::<String>();
    let element_count = |shape: &[usize]| shape.iter().copied().fold(1, usize::saturating_mul);
    let order = match shapes {
        Some((from, to)) if element_count(&from) == element_count(&to) => {
            ": the number of elements is the same, but not their order"
        }
        _ => "",
    };
    EngineError::Failed(format!(
        "the sidecar returned output `{name}` as `{spec}`, the model declares `{declared}`{sizes}{order}"
    ))
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::ValueInfo;

    use super::*;
    use flagperf_core::tensor::Tensor;

    fn infos(specs: &[&str]) -> Vec<ValueInfo> {
        let info = |(index, spec): (usize, &&str)| ValueInfo { name: format!("v{index}"), spec: spec.parse().unwrap() };
        specs.iter().enumerate().map(info).collect()
    }

    /// Returns the resulting shapes and the recorded changes for outputs with these specs and an input of two rows.
    fn checked(declared: &[&str], reported: &[&str]) -> Result<(Vec<Vec<usize>>, String), String> {
        let model = Signature { inputs: infos(&["N,3,f32"]), outputs: infos(declared) };
        let input = Value::Host(Tensor::from_vec([2, 3], vec![0f32; 6]).unwrap());
        let reported: Vec<TensorSpec> = reported.iter().map(|spec| spec.parse().unwrap()).collect();
        let mut reshaped = IndexMap::new();
        let shapes = check_outputs(&model, &[input], &reported, &mut reshaped).map_err(|error| error.to_string())?;
        let changes = reshaped.iter().map(|(name, output)| format!("{name}: {} to {};", output.from, output.to));
        Ok((shapes, changes.collect()))
    }

    #[test]
    fn an_output_with_the_declared_elements_in_order_takes_the_declared_shape() {
        let shape = vec![2, 3, 4];
        for reported in ["24,f32", "1,2,3,4,f32", "2,12,f32", "6,4,f32", "2,3,4,1,f32", "2,3,2,2,f32"] {
            let change = format!("v0: {reported} to 2,3,4,f32;");
            assert_eq!(checked(&["N,3,4,f32"], &[reported]), Ok((vec![shape.clone()], change)), "{reported}");
        }
        assert_eq!(checked(&["N,3,4,f32"], &["2,3,4,f32"]), Ok((vec![shape], String::new())));
    }

    #[test]
    fn another_order_number_or_type_is_refused_with_both_shapes() {
        let refused = |declared: &str, reported: &str, order: &str| {
            let expected = format!(
                "the sidecar returned output `v0` as `{reported}`, the model declares `{declared}`, N = 2{order}"
            );
            assert!(checked(&[declared], &[reported]).unwrap_err().ends_with(&expected), "{reported}");
        };
        for reported in ["3,2,4,f32", "2,4,3,f32", "4,6,f32", "8,3,f32"] {
            refused("N,3,4,f32", reported, ": the number of elements is the same, but not their order");
        }
        refused("N,3,4,f32", "23,f32", "");
        refused("N,3,4,f32", "24,f16", "");
        refused("N,3,4,f32", "9223372036854775808,9223372036854775808,f32", "");
        refused("N,0,f32", "2,f32", "");
    }

    #[test]
    fn a_size_that_only_the_output_determines_is_not_guessed() {
        assert!(checked(&["N,?,f32"], &["24,f32"]).is_err());
        assert!(checked(&["N,M,f32"], &["24,f32"]).is_err());
        // An earlier output determines `M`.
        let both = (vec![vec![12], vec![2, 12]], "v1: 24,f32 to 2,12,f32;".to_owned());
        assert_eq!(checked(&["M,f32", "N,M,f32"], &["12,f32", "24,f32"]), Ok(both));
    }

    #[test]
    fn seconds_that_no_step_can_take_are_refused() {
        assert_eq!(check_vendor_time(Some(0.5)).unwrap(), Some(Seconds(0.5)));
        let error = check_vendor_time(Some(1e308)).unwrap_err().to_string();
        assert!(error.contains("requests to subtract `1e308` s from a run"), "{error}");
        let error = check_vendor_time(Some(-0.5)).unwrap_err().to_string();
        assert!(error.ends_with("`-5e-1` s from a run (expected: 0 to `1e9` s)"), "{error}");
    }
}
