//! Pooling of `N,C,H,W`.

use super::{attributes, ints, one};
use crate::{Attribute, BuildError, GraphBuilder, Var};

/// A pool; the fields are those of `torch.nn.MaxPool2d`.
#[derive(Clone, Copy, Debug)]
pub struct Pool2d {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps of the window, down and right.
    pub stride: [usize; 2],
    /// Rows on top and bottom, columns left and right.
    pub padding: [usize; 2],
    /// Whether a window that reaches over the end counts.
    pub ceil_mode: bool,
}

impl Pool2d {
    /// A square window that moves by its own size, as in PyTorch.
    pub fn new(kernel: usize) -> Self {
        Pool2d { kernel: [kernel; 2], stride: [kernel; 2], padding: [0; 2], ceil_mode: false }
    }
}

/// The largest element of each window.
///
/// # Errors
/// When the window does not fit the input.
pub fn max_pool2d(builder: &mut GraphBuilder, name: &str, x: &Var, pool: Pool2d) -> Result<Var, BuildError> {
    one(builder, name, "MaxPool", &[Some(x)], window(pool))
}

/// The mean of each window; padding counts as zeros, as in PyTorch.
///
/// # Errors
/// When the window does not fit the input.
pub fn avg_pool2d(builder: &mut GraphBuilder, name: &str, x: &Var, pool: Pool2d) -> Result<Var, BuildError> {
    let mut attributes = window(pool);
    attributes.insert("count_include_pad".to_owned(), Attribute::Int(1));
    one(builder, name, "AveragePool", &[Some(x)], attributes)
}

/// The mean of each channel: `N,C,H,W` becomes `N,C,1,1`.
///
/// # Errors
/// When the element type is not a real number.
pub fn global_avg_pool(builder: &mut GraphBuilder, name: &str, x: &Var) -> Result<Var, BuildError> {
    one(builder, name, "GlobalAveragePool", &[Some(x)], attributes([]))
}

fn window(pool: Pool2d) -> super::Attributes {
    let [rows, columns] = pool.padding;
    attributes([
        ("kernel_shape", ints(pool.kernel)),
        ("strides", ints(pool.stride)),
        ("pads", ints([rows, columns, rows, columns])),
        ("ceil_mode", Attribute::Int(i64::from(pool.ceil_mode))),
    ])
}
