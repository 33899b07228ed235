//! What a sidecar says that it has computed, against what the model declares.

use indexmap::IndexMap;

use super::printable::printable_line;
use super::session::Signature;
use crate::engine::{EngineError, Value};
use crate::event::{ReshapedOutput, ThirdValue};
use crate::tensor::{Dim, TensorSpec};
use crate::units::Seconds;

/// No step takes as long: thirty years.
const SECONDS_MAX: f64 = 1e9;
/// Characters of a third value that are kept.
const THIRD_VALUE: usize = 200;

/// Checks the number and the specs of the outputs against the model, and returns their shapes. Names of dimensions have one
/// size. An output whose elements are the declared ones in the declared order, in another shape, takes the declared shape;
/// the first of its kind is noted in `reshaped`.
pub(super) fn check_outputs(
    model: &Signature,
    inputs: &[Value],
    given: &[TensorSpec],
    reshaped: &mut IndexMap<String, ReshapedOutput>,
) -> Result<Vec<Vec<usize>>, EngineError> {
    let (declared, found) = (model.outputs.len(), given.len());
    if declared != found {
        return Err(EngineError::Failed(format!("the sidecar gave {found} outputs, the model declares {declared}")));
    }
    let mut sizes = input_sizes(model, inputs);
    let mut shapes = Vec::with_capacity(given.len());
    for (index, spec) in given.iter().enumerate() {
        let info = &model.outputs[index];
        match spec.fixed_shape() {
            Some(shape) if info.spec.admits(&shape, spec.dtype) && note(&mut sizes, &info.spec, &shape) => {
                shapes.push(shape);
            }
            shape => {
                let declared = declared_shape(model, inputs, &shapes, index);
                let taken = shape.zip(declared).filter(|_| spec.dtype == info.spec.dtype);
                match taken {
                    Some((from, to)) if same_order(&from, &to) => {
                        reshaped.entry(info.name.clone()).or_insert_with(|| ReshapedOutput {
                            from: spec.to_string(),
                            to: TensorSpec::new(to.iter().copied(), spec.dtype).to_string(),
                        });
                        shapes.push(to);
                    }
                    taken => return Err(mismatch(model, inputs, index, spec, taken)),
                }
            }
        }
    }
    Ok(shapes)
}

/// Checks the time that the vendor's code wants taken off.
pub(super) fn check_seconds(seconds: Option<f64>) -> Result<Option<Seconds>, EngineError> {
    match seconds {
        Some(seconds) if seconds.abs() > SECONDS_MAX => {
            Err(EngineError::Failed(format!("the sidecar asks to have `{seconds:e}` s of a run taken off")))
        }
        seconds => Ok(seconds.map(Seconds)),
    }
}

/// A third value as the record has it.
pub(super) fn third_value(third: &ThirdValue) -> ThirdValue {
    let [kind, repr] = [&third.kind, &third.repr].map(|text| printable_line(text, THIRD_VALUE));
    ThirdValue { kind, repr }
}

/// The sizes that the inputs give to names of dimensions.
fn input_sizes<'m>(model: &'m Signature, inputs: &[Value]) -> IndexMap<&'m str, usize> {
    let mut sizes = IndexMap::new();
    for (info, value) in model.inputs.iter().zip(inputs) {
        let shape = value.spec().fixed_shape().unwrap_or_default();
        note(&mut sizes, &info.spec, &shape);
    }
    sizes
}

/// Notes the sizes of named dimensions; `false` when one has another size already.
fn note<'a>(sizes: &mut IndexMap<&'a str, usize>, spec: &'a TensorSpec, shape: &[usize]) -> bool {
    spec.dims.iter().zip(shape).all(|(dim, size)| match dim {
        Dim::Named(name) => *sizes.entry(name).or_insert(*size) == *size,
        _ => true,
    })
}

/// The shape of output `index` when the inputs and the outputs before it say it in full.
fn declared_shape(model: &Signature, inputs: &[Value], shapes: &[Vec<usize>], index: usize) -> Option<Vec<usize>> {
    let mut sizes = input_sizes(model, inputs);
    for (info, shape) in model.outputs.iter().zip(shapes) {
        note(&mut sizes, &info.spec, shape);
    }
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Named(name) => sizes.get(name.as_str()).copied(),
        Dim::Unknown => None,
    };
    model.outputs[index].spec.dims.iter().map(size).collect()
}

/// Whether the sizes of one shape come from those of the other by merging or splitting neighbours, and by adding or leaving
/// out ones: then the elements lie in the same order. A transposed output has as many elements, but not in this order.
fn same_order(one: &[usize], other: &[usize]) -> bool {
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

/// That an output is not what the model declares; `shapes` are its shape and the declared one, of the same type.
fn mismatch(
    model: &Signature,
    inputs: &[Value],
    index: usize,
    spec: &TensorSpec,
    shapes: Option<(Vec<usize>, Vec<usize>)>,
) -> EngineError {
    let (name, declared) = (&model.outputs[index].name, &model.outputs[index].spec);
    let sizes = input_sizes(model, inputs);
    let sizes = sizes.iter().map(|(name, size)| format!(", {name} = {size}")).collect::<String>();
    let elements = |shape: &[usize]| shape.iter().copied().fold(1, usize::saturating_mul);
    let order = match shapes {
        Some((from, to)) if elements(&from) == elements(&to) => ": as many elements, but in another order",
        _ => "",
    };
    EngineError::Failed(format!(
        "the sidecar gave output `{name}` as `{spec}`, the model declares `{declared}`{sizes}{order}"
    ))
}

#[cfg(test)]
mod tests {
    use flagperf_onnx::ValueInfo;

    use super::*;
    use crate::tensor::Tensor;

    fn infos(specs: &[&str]) -> Vec<ValueInfo> {
        let info = |(index, spec): (usize, &&str)| ValueInfo { name: format!("v{index}"), spec: spec.parse().unwrap() };
        specs.iter().enumerate().map(info).collect()
    }

    /// The shapes that outputs of these specs are taken in, and those that were noted, with an input of two rows.
    fn taken(declared: &[&str], given: &[&str]) -> Result<(Vec<Vec<usize>>, String), String> {
        let model = Signature { inputs: infos(&["N,3,f32"]), outputs: infos(declared) };
        let input = Value::Host(Tensor::from_vec([2, 3], vec![0f32; 6]).unwrap());
        let given: Vec<TensorSpec> = given.iter().map(|spec| spec.parse().unwrap()).collect();
        let mut reshaped = IndexMap::new();
        let shapes = check_outputs(&model, &[input], &given, &mut reshaped).map_err(|error| error.to_string())?;
        let noted = reshaped.iter().map(|(name, output)| format!("{name}: {} to {};", output.from, output.to));
        Ok((shapes, noted.collect()))
    }

    #[test]
    fn the_elements_of_the_declared_shape_in_its_order_take_it() {
        let shape = vec![2, 3, 4];
        for given in ["24,f32", "1,2,3,4,f32", "2,12,f32", "6,4,f32", "2,3,4,1,f32", "2,3,2,2,f32"] {
            let noted = format!("v0: {given} to 2,3,4,f32;");
            assert_eq!(taken(&["N,3,4,f32"], &[given]), Ok((vec![shape.clone()], noted)), "{given}");
        }
        assert_eq!(taken(&["N,3,4,f32"], &["2,3,4,f32"]), Ok((vec![shape], String::new())));
    }

    #[test]
    fn another_order_another_number_and_another_type_are_refused_with_both_shapes() {
        let refused = |declared: &str, given: &str, more: &str| {
            let expected =
                format!("the sidecar gave output `v0` as `{given}`, the model declares `{declared}`, N = 2{more}");
            assert!(taken(&[declared], &[given]).unwrap_err().ends_with(&expected), "{given}");
        };
        for given in ["3,2,4,f32", "2,4,3,f32", "4,6,f32", "8,3,f32"] {
            refused("N,3,4,f32", given, ": as many elements, but in another order");
        }
        refused("N,3,4,f32", "23,f32", "");
        refused("N,3,4,f32", "24,f16", "");
        refused("N,3,4,f32", "9223372036854775808,9223372036854775808,f32", "");
        refused("N,0,f32", "2,f32", "");
    }

    #[test]
    fn a_size_that_only_the_output_says_is_not_guessed() {
        assert!(taken(&["N,?,f32"], &["24,f32"]).is_err());
        assert!(taken(&["N,M,f32"], &["24,f32"]).is_err());
        // An output before it says `M`.
        let both = (vec![vec![12], vec![2, 12]], "v1: 24,f32 to 2,12,f32;".to_owned());
        assert_eq!(taken(&["M,f32", "N,M,f32"], &["12,f32", "24,f32"]), Ok(both));
    }

    #[test]
    fn seconds_are_those_of_a_step() {
        assert_eq!(check_seconds(Some(0.5)).unwrap(), Some(Seconds(0.5)));
        assert!(check_seconds(Some(1e308)).unwrap_err().to_string().contains("`1e308` s of a run taken off"));
    }
}
