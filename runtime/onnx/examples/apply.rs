//! Measures the time of single operators: `apply [ELEMENTS]...` prints the best of five measurements for each operator
//! and number of elements.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use flagperf_onnx::exec::apply;
use flagperf_onnx::{Attribute, Tensor};
use indexmap::IndexMap;

fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes = std::env::args().skip(1).map(|size| size.parse()).collect::<Result<Vec<usize>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![4, 1_000_000];
    }
    for size in sizes {
        let x = Tensor::from_vec([size / 2, 2], (0..size).map(|i| (i % 251) as f32 / 125.0 - 1.0).collect())?;
        let ints = |values: &[i64]| Tensor::from_vec([values.len()], values.to_vec());
        let number = Tensor::scalar(2.0f32);
        measure("Add", &[&x, &x])?;
        measure("Mul", &[&x, &number])?;
        measure("Less", &[&x, &number])?;
        measure("Exp", &[&x])?;
        measure("Reshape", &[&x, &ints(&[-1])?])?;
        measure("Slice", &[&x, &ints(&[0])?, &ints(&[1])?, &ints(&[0])?, &ints(&[1])?])?;
        measure("ReduceSum", &[&x, &ints(&[1])?])?;
        measure("Transpose", &[&x])?;
    }
    Ok(())
}

/// Prints the time of an operator.
#[expect(clippy::disallowed_methods, reason = "an example has no other clock")]
fn measure(op: &str, inputs: &[&Tensor]) -> Result<(), Box<dyn Error>> {
    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|input| Some(*input)).collect();
    let elements = inputs[0].map_or(0, Tensor::len);
    let calls = (20_000_000 / (elements + 1000)).max(1);
    let attributes: IndexMap<String, Attribute> = IndexMap::new();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(apply(op, attributes.clone(), &inputs, 1)?);
        }
        best = best.min(start.elapsed().as_secs_f64() / calls as f64);
    }
    println!("{op} of {elements} elements: {:.3} us", best * 1e6);
    Ok(())
}
