//! Gradient clipping by the norm of all gradients, as `torch.nn.utils.clip_grad_norm_`.

use indexmap::IndexMap;

use crate::lower::NodeList;
use crate::{Attribute, DType};

/// Adds the norm of all gradients together.
pub(super) fn total_norm<'a>(n: &mut NodeList<'_>, gradients: impl Iterator<Item = &'a String>) -> String {
    let squares: Vec<String> = gradients
        .map(|gradient| n.add_with("ReduceSumSquare", &[gradient], [("keepdims", Attribute::Int(0))]))
        .collect();
    let squares: Vec<&str> = squares.iter().map(String::as_str).collect();
    let sum = n.add("Sum", &squares);
    n.add("Sqrt", &[&sum])
}

/// Scales gradients down so that their norm is at most `largest`.
pub(super) fn clip(n: &mut NodeList<'_>, gradients: &mut IndexMap<String, String>, norm: &str, largest: f64) {
    let (largest, small, one) = (n.number(largest, DType::F32), n.number(1e-6, DType::F32), n.number(1.0, DType::F32));
    let norm = n.add("Add", &[norm, &small]);
    let ratio = n.add("Div", &[&largest, &norm]);
    let factor = n.add("Min", &[&ratio, &one]);
    for gradient in gradients.values_mut() {
        *gradient = n.add("Mul", &[gradient, &factor]);
    }
}
