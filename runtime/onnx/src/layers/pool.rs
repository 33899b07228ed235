//! Pooling over `N,C,H,W`.

use super::{add_node, attributes, ints};
use crate::{Attribute, BuildError, GraphBuilder, Var};

/// A pool; the fields are those of `torch.nn.MaxPool2d`.
#[derive(Clone, Copy, Debug)]
pub struct Pool2d {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Step of the window, vertical and horizontal.
    pub stride: [usize; 2],
    /// Rows of padding on top and bottom, columns left and right.
    pub padding: [usize; 2],
    /// Whether a window that extends beyond the end produces an output.
    pub ceil_mode: bool,
}

impl Pool2d {
    /// Returns a pool with a square window that moves by its own size, as in PyTorch.
    pub fn new(kernel: usize) -> Self {
        Pool2d { kernel: [kernel; 2], stride: [kernel; 2], padding: [0; 2], ceil_mode: false }
    }
}

/// The largest element of each window.
///
/// # Errors
/// When the window is larger than the padded input.
pub fn max_pool2d(builder: &mut GraphBuilder, name: &str, x: &Var, pool: Pool2d) -> Result<Var, BuildError> {
    add_node(builder, name, "MaxPool", &[Some(x)], window_attributes(pool))
}

/// The mean of each window; padding counts as zeros, as in PyTorch.
///
/// # Errors
/// When the window is larger than the padded input.
pub fn avg_pool2d(builder: &mut GraphBuilder, name: &str, x: &Var, pool: Pool2d) -> Result<Var, BuildError> {
    let mut attributes = window_attributes(pool);
    attributes.insert("count_include_pad".to_owned(), Attribute::Int(1));
    add_node(builder, name, "AveragePool", &[Some(x)], attributes)
}

/// The mean of each channel: `N,C,H,W` becomes `N,C,1,1`.
///
/// # Errors
/// When the element type is not a floating-point type.
pub fn global_avg_pool(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    add_node(builder, name, "GlobalAveragePool", &[Some(x)], attributes([]))
}

fn window_attributes(pool: Pool2d) -> super::AttributeMap {
    let [rows, columns] = pool.padding;
    attributes([
        ("kernel_shape", ints(pool.kernel)),
        ("strides", ints(pool.stride)),
        ("pads", ints([rows, columns, rows, columns])),
        ("ceil_mode", Attribute::Int(i64::from(pool.ceil_mode))),
    ])
}
