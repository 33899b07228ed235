//! Convolution as matrix products over tiles of the output. Bias, residual and activation are applied while a tile is
//! in the cache.

use std::ops::Range;

use gemm::Parallelism;
use ndarray::{ArrayView2, ShapeBuilder};
use rayon::prelude::*;

use super::gemm::{DisjointRanges, multiply};
use super::storage::{Dense, f32_tensor, with_f32_elements, zeros};
use super::{OpError, activation, depthwise, im2col};
use crate::ops::{Conv, ConvEpilogue, Unary};

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvShape {
    pub images: usize,
    pub channels: usize,
    pub channels_per_group: usize,
    pub filters: usize,
    pub filters_per_group: usize,
    pub input: [usize; 2],
    pub kernel: [usize; 2],
    pub output: [usize; 2],
    pub conv: Conv,
}

impl ConvShape {
    fn new(x: &Dense, weight: &Dense, conv: &Conv) -> Result<Self, OpError> {
        let [images, channels, height, width] = x.image_shape()?;
        let [filters, channels_per_group, kernel_height, kernel_width] = weight.image_shape()?;
        if channels != channels_per_group * conv.groups || filters % conv.groups != 0 {
            return Err(conv.shape_mismatch(x.shape(), weight.shape()));
        }
        let (input, kernel) = ([height, width], [kernel_height, kernel_width]);
        let output = conv.output(input, kernel)?;
        let filters_per_group = filters / conv.groups;
        Ok(ConvShape {
            images,
            channels,
            channels_per_group,
            filters,
            filters_per_group,
            input,
            kernel,
            output,
            conv: *conv,
        })
    }

    /// Returns the number of positions of one output plane.
    pub fn output_plane_size(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Returns the number of weights of one filter.
    fn filter_size(&self) -> usize {
        self.channels_per_group * self.kernel[0] * self.kernel[1]
    }

    /// Returns whether the columns are the input itself.
    fn is_pointwise(&self) -> bool {
        let Conv { strides, before, after, .. } = self.conv;
        (self.kernel, strides, before, after) == ([1, 1], [1, 1], [0, 0], [0, 0])
    }
}

/// The operations that follow a convolution, on slices.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a> {
    pub bias: Option<&'a [f32]>,
    pub residual: Option<&'a [f32]>,
    pub activation: Option<Unary>,
}

impl Epilogue<'_> {
    /// Applies the operations to the positions `range` of the whole result, all of which belong to one filter.
    pub fn apply(&self, filter: usize, range: Range<usize>, places: &mut [f32]) {
        if let Some(bias) = self.bias {
            let bias = bias[filter];
            places.iter_mut().for_each(|place| *place += bias);
        }
        if let Some(residual) = self.residual {
            places.iter_mut().zip(&residual[range]).for_each(|(place, residual)| *place += residual);
        }
        if let Some(kind) = self.activation {
            activation::apply(kind, places);
        }
    }
}

pub(super) fn conv(
    x: &Dense,
    weight: &Dense,
    bias: Option<&Dense>,
    conv: &Conv,
    tensors: ConvEpilogue<'_, Dense>,
) -> Result<Dense, OpError> {
    let shape = ConvShape::new(x, weight, conv)?;
    let dims = [shape.images, shape.filters, shape.output[0], shape.output[1]];
    if bias.is_some_and(|bias| bias.shape() != [shape.filters]) || tensors.residual.is_some_and(|r| r.shape() != dims) {
        return Err(OpError::invalid_operands(format!(
            "the bias or the residual does not match the result shape {dims:?}"
        )));
    }
    let mut result = zeros(&dims)?;
    with_f32_elements(x, |input| {
        with_f32_elements(weight, |weight| {
            with_optional(bias, |bias| {
                with_optional(tensors.residual, |residual| {
                    let epilogue = Epilogue { bias, residual, activation: tensors.activation };
                    if shape.channels_per_group == 1 {
                        depthwise::conv(&shape, input, weight, epilogue, &mut result);
                    } else {
                        conv_by_products(&shape, input, weight, epilogue, &mut result);
                    }
                })
            })
        })
    })????;
    f32_tensor(result, &dims)
}

fn with_optional<R>(x: Option<&Dense>, f: impl FnOnce(Option<&[f32]>) -> R) -> Result<R, OpError> {
    match x {
        Some(x) => with_f32_elements(x, |x| f(Some(x))),
        None => Ok(f(None)),
    }
}

/// A part of the result: a range of a group's filters at a range of positions, which count through all images.
#[derive(Clone, Debug)]
struct Task {
    group: usize,
    filters: Range<usize>,
    columns: Range<usize>,
}

/// Columns of a tile: enough for an efficient matrix product, and few enough for the tile to stay in the cache.
const TILE_COLUMNS: usize = 256;

fn tasks(shape: &ConvShape) -> Vec<Task> {
    let columns = shape.images * shape.output_plane_size();
    let tiles = columns.div_ceil(TILE_COLUMNS).max(1);
    let blocks = rayon::current_num_threads().div_ceil(tiles * shape.conv.groups).min(shape.filters_per_group).max(1);
    let part = |whole: usize, parts: usize, i: usize| whole * i / parts..whole * (i + 1) / parts;
    let mut tasks = Vec::new();
    for group in 0..shape.conv.groups {
        for tile in 0..tiles {
            let columns = part(columns, tiles, tile);
            let blocks = (0..blocks).map(|block| part(shape.filters_per_group, blocks, block));
            tasks.extend(blocks.map(|filters| Task { group, filters, columns: columns.clone() }));
        }
    }
    tasks
}

fn conv_by_products(shape: &ConvShape, input: &[f32], weight: &[f32], epilogue: Epilogue, result: &mut [f32]) {
    let result = DisjointRanges::new(result);
    tasks(shape).into_par_iter().for_each_init(Default::default, |(tile, product): &mut (Vec<f32>, Vec<f32>), task| {
        let width = task.columns.len();
        product.resize(task.filters.len() * width, 0.0);
        let first = task.group * shape.filters_per_group + task.filters.start;
        let weight = &weight[first * shape.filter_size()..(first + task.filters.len()) * shape.filter_size()];
        let left = matrix(weight, [task.filters.len(), shape.filter_size()], shape.filter_size());
        multiply(left, right_matrix(shape, input, &task, tile), product, Parallelism::None);
        for (line, filter) in product.chunks_exact_mut(width.max(1)).zip(first..) {
            store(shape, filter, &task.columns, line, epilogue, &result);
        }
    });
}

/// Returns the right operand of a task's product: a part of the input itself, or columns arranged in `tile`.
fn right_matrix<'a>(shape: &ConvShape, input: &'a [f32], task: &Task, tile: &'a mut Vec<f32>) -> ArrayView2<'a, f32> {
    let (rows, columns, plane) = (shape.filter_size(), task.columns.len(), shape.output_plane_size());
    let image = task.columns.start / plane.max(1);
    if shape.is_pointwise() && task.columns.end <= (image + 1) * plane {
        let channel = image * shape.channels + task.group * shape.channels_per_group;
        let start = channel * plane + task.columns.start % plane;
        return matrix(&input[start..], [rows, columns], plane);
    }
    tile.resize(rows * columns, 0.0);
    im2col::fill(shape, input, task.group, task.columns.clone(), tile);
    matrix(tile, [rows, columns], columns)
}

/// Returns a row-major matrix in a slice, with `stride` elements from one row to the next.
fn matrix(elements: &[f32], [rows, columns]: [usize; 2], stride: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns).strides((stride, 1)), elements).expect("the slice contains the matrix")
}

/// Stores one filter's positions of a tile in the result and applies the epilogue to them.
fn store(
    shape: &ConvShape,
    filter: usize,
    columns: &Range<usize>,
    line: &[f32],
    epilogue: Epilogue,
    result: &DisjointRanges,
) {
    let plane = shape.output_plane_size();
    let mut at = columns.start;
    let mut rest = line;
    while at < columns.end {
        let (image, place) = (at / plane, at % plane);
        let (piece, others) = rest.split_at((plane - place).min(columns.end - at));
        rest = others;
        let start = (image * shape.filters + filter) * plane + place;
        let range = start..start + piece.len();
        // SAFETY: no two tasks share a position of a filter, and a task uses one range at a time.
        let places = unsafe { result.range(range.clone()) };
        places.copy_from_slice(piece);
        epilogue.apply(filter, range, places);
        at += piece.len();
    }
}
