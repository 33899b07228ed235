//! Convolution as matrix products over tiles of the output, with bias, sum and activation while a tile is in the cache.

use std::ops::Range;

use candle_core::Tensor as Candle;
use rayon::prelude::*;

use super::gemm::{Matrix, Shared, multiply};
use super::storage::{floats, with_floats};
use super::{OpError, activation, columns, depthwise};
use crate::exec::ops::{After, Conv, Unary};

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
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

impl Shape {
    fn new(x: &Candle, weight: &Candle, conv: &Conv) -> Result<Self, OpError> {
        let (images, channels, height, width) = x.dims4()?;
        let (filters, channels_per_group, kernel_height, kernel_width) = weight.dims4()?;
        if channels != channels_per_group * conv.groups || filters % conv.groups != 0 {
            return Err(conv.mismatch(x.dims(), weight.dims()));
        }
        let (input, kernel) = ([height, width], [kernel_height, kernel_width]);
        let output = conv.output(input, kernel)?;
        let filters_per_group = filters / conv.groups;
        Ok(Shape {
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

    /// Places of one output plane.
    pub fn plane(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Weights of one filter.
    fn taps(&self) -> usize {
        self.channels_per_group * self.kernel[0] * self.kernel[1]
    }

    /// Whether the columns are the input itself.
    fn pointwise(&self) -> bool {
        let Conv { strides, before, after, .. } = self.conv;
        (self.kernel, strides, before, after) == ([1, 1], [1, 1], [0, 0], [0, 0])
    }
}

/// What follows a convolution, on slices.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    pub bias: Option<&'a [f32]>,
    pub residual: Option<&'a [f32]>,
    pub activation: Option<Unary>,
}

impl Finish<'_> {
    /// Finishes the places `range` of the whole result, all of one filter.
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
    x: &Candle,
    weight: &Candle,
    bias: Option<&Candle>,
    conv: &Conv,
    after: After<'_, Candle>,
) -> Result<Candle, OpError> {
    let shape = Shape::new(x, weight, conv)?;
    let dims = [shape.images, shape.filters, shape.output[0], shape.output[1]];
    if bias.is_some_and(|bias| bias.dims() != [shape.filters]) || after.residual.is_some_and(|r| r.dims() != dims) {
        return Err(OpError::operands(format!("bias or summand does not fit a result of {dims:?}")));
    }
    let mut result = vec![0.0; dims.iter().product()];
    with_floats(x, |input| {
        with_floats(weight, |weight| {
            with_optional(bias, |bias| {
                with_optional(after.residual, |residual| {
                    let finish = Finish { bias, residual, activation: after.activation };
                    if shape.channels_per_group == 1 {
                        depthwise::conv(&shape, input, weight, finish, &mut result);
                    } else {
                        products(&shape, input, weight, finish, &mut result);
                    }
                })
            })
        })
    })????;
    floats(result, &dims)
}

fn with_optional<R>(x: Option<&Candle>, f: impl FnOnce(Option<&[f32]>) -> R) -> Result<R, OpError> {
    match x {
        Some(x) => with_floats(x, |x| f(Some(x))),
        None => Ok(f(None)),
    }
}

/// A part of the result: some filters of a group at some places, which count through all images.
#[derive(Clone, Debug)]
struct Task {
    group: usize,
    filters: Range<usize>,
    columns: Range<usize>,
}

/// Columns of a tile: enough for the matrix product to be efficient, few enough for the tile to stay in the cache.
const TILE: usize = 256;

fn tasks(shape: &Shape) -> Vec<Task> {
    let columns = shape.images * shape.plane();
    let tiles = columns.div_ceil(TILE).max(1);
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

fn products(shape: &Shape, input: &[f32], weight: &[f32], finish: Finish, result: &mut [f32]) {
    let result = Shared::new(result);
    tasks(shape).into_par_iter().for_each_init(Default::default, |(tile, product): &mut (Vec<f32>, Vec<f32>), task| {
        let width = task.columns.len();
        product.resize(task.filters.len() * width, 0.0);
        let first = task.group * shape.filters_per_group + task.filters.start;
        let weight = &weight[first * shape.taps()..(first + task.filters.len()) * shape.taps()];
        let left = Matrix { elements: weight, rows: task.filters.len(), columns: shape.taps(), stride: shape.taps() };
        multiply(left, right(shape, input, &task, tile), product);
        for (line, filter) in product.chunks_exact_mut(width.max(1)).zip(first..) {
            scatter(shape, filter, &task.columns, line, finish, &result);
        }
    });
}

/// The right side of a task's product: a part of the input itself, or columns laid out in `tile`.
fn right<'a>(shape: &Shape, input: &'a [f32], task: &Task, tile: &'a mut Vec<f32>) -> Matrix<'a> {
    let (rows, columns, plane) = (shape.taps(), task.columns.len(), shape.plane());
    let image = task.columns.start / plane.max(1);
    if shape.pointwise() && task.columns.end <= (image + 1) * plane {
        let channel = image * shape.channels + task.group * shape.channels_per_group;
        let start = channel * plane + task.columns.start % plane;
        return Matrix { elements: &input[start..], rows, columns, stride: plane };
    }
    tile.resize(rows * columns, 0.0);
    columns::fill(shape, input, task.group, task.columns.clone(), tile);
    Matrix { elements: tile, rows, columns, stride: columns }
}

/// Finishes one filter's places of a tile and puts them where they belong in the result.
fn scatter(shape: &Shape, filter: usize, columns: &Range<usize>, line: &[f32], finish: Finish, result: &Shared) {
    let plane = shape.plane();
    let mut at = columns.start;
    let mut rest = line;
    while at < columns.end {
        let (image, place) = (at / plane, at % plane);
        let (piece, others) = rest.split_at((plane - place).min(columns.end - at));
        rest = others;
        let start = (image * shape.filters + filter) * plane + place;
        let range = start..start + piece.len();
        // SAFETY: tasks share no place of no filter, and one task has one range at a time.
        let places = unsafe { result.range(range.clone()) };
        places.copy_from_slice(piece);
        finish.apply(filter, range, places);
        at += piece.len();
    }
}
