//! The elements with which an operator is tested.

use flagperf_core::tensor::{DType, Tensor, TensorSpec};
use flagperf_onnx::RandomStream;

/// Changes normally distributed numbers to another kind of elements of a type.
pub(crate) type Change = fn(&mut Vec<f64>, DType);

/// The kinds of elements by name.
pub(crate) const VALUES: [(&str, Change); 6] = [
    ("normal", |_, _| ()),
    ("offset", |values, _| values.iter_mut().for_each(|value| *value += 100.0)),
    ("huge", |values, dtype| {
        values.iter_mut().for_each(|value| *value *= if dtype == DType::F16 { 1e4 } else { 1e30 })
    }),
    ("tiny", |values, dtype| {
        values.iter_mut().for_each(|value| *value *= if dtype == DType::F16 { 1e-6 } else { 1e-40 })
    }),
    ("equal", |values, _| values.fill(1.0 / 3.0)),
    ("special", |values, _| {
        let count = values.len();
        for (place, special) in [(0, f64::NAN), (count / 3, f64::INFINITY), (2 * count / 3, f64::NEG_INFINITY)] {
            values.get_mut(place).into_iter().for_each(|value| *value = special);
        }
    }),
];

/// Draws the elements of an input: normally distributed numbers that `change` then changes; integers are 0 or 1.
pub(crate) fn draw(name: &str, spec: &TensorSpec, change: Change, seed: u64) -> Option<Tensor> {
    let shape = spec.fixed_shape()?;
    let count: usize = shape.iter().product();
    let mut random = RandomStream::new(seed, name);
    let mut values: Vec<f64> = (0..count.div_ceil(2)).flat_map(|_| random.normal_pair()).take(count).collect();
    if spec.dtype.is_float() {
        change(&mut values, spec.dtype);
    } else {
        values.iter_mut().for_each(|value| *value = f64::from(*value > 0.0));
    }
    Some(Tensor::from_vec(shape, values).ok()?.cast(spec.dtype))
}
