//! The elements of the inputs.

use flagperf_core::tensor::{DType, Tensor, TensorSpec};
use flagperf_onnx::{RandomStream, from_e4m3};

use super::operators::Elements;

/// Draws the elements of an input. `classes` is the size of the last dimension of the first input.
pub(crate) fn draw(name: &str, elements: Elements, spec: &TensorSpec, classes: usize, seed: u64) -> Option<Tensor> {
    let shape = spec.fixed_shape()?;
    let count: usize = shape.iter().product();
    let mut random = RandomStream::new(seed, name);
    if elements == Elements::Bits {
        let bytes: Vec<u8> = (0..count * spec.dtype.size()).map(|_| random.below(256) as u8).collect();
        return Tensor::from_bytes(shape, spec.dtype, &bytes).ok();
    }
    if elements == Elements::Float8 {
        let bits = std::iter::repeat_with(|| random.below(256) as u8).filter(|bits| !from_e4m3(*bits).is_nan());
        return Tensor::from_vec(shape, bits.take(count).collect::<Vec<u8>>()).ok();
    }
    let mut values: Vec<f64> = match elements {
        Elements::Few => (0..count).map(|_| random.below(5) as f64 - 2.0).collect(),
        Elements::Small => (0..count).map(|_| (random.below(3) + 1) as f64 * 2f64.powi(-17)).collect(),
        Elements::Signs => (0..count).map(|_| if random.below(2) == 0 { 1.0 } else { -1.0 }).collect(),
        Elements::NonZero => (0..count).map(|_| (random.below(100) + 1) as f64).collect(),
        Elements::Classes => (0..count).map(|_| random.below(classes as u64) as f64).collect(),
        _ => (0..count.div_ceil(2)).flat_map(|_| random.normal_pair()).take(count).collect(),
    };
    match elements {
        Elements::Positive => values.iter_mut().for_each(|value| *value = value.abs().max(2f64.powi(-10))),
        Elements::Special => {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            values.iter_mut().step_by(7).zip(special.into_iter().cycle()).for_each(|(value, special)| *value = special);
        }
        Elements::Signs => {
            let product: f64 = values.iter().product();
            values.first_mut().into_iter().for_each(|value| *value *= product);
        }
        _ => {}
    }
    let tensor = Tensor::from_vec(shape, values).ok()?;
    Some(if spec.dtype == DType::F64 { tensor } else { tensor.cast(spec.dtype) })
}
