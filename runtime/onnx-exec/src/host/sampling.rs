//! GridSample and AffineGrid on the host, for images of any number of spatial dimensions.

use std::sync::Arc;

use super::{HostFunction, input};
use crate::OpError;
use crate::indexing::{advance, row_major_strides};
use crate::resolve::Source;
use crate::result_size::check_result_size;
use flagperf_onnx::{DType, Tensor};

/// How a place between elements is read.
#[derive(Clone, Copy)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What lies outside the image.
#[derive(Clone, Copy)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy)]
struct Sampler {
    mode: Mode,
    outside: Outside,
    align_corners: bool,
}

/// `GridSample`: the values of an image at places between -1 and 1.
pub(crate) fn grid_sample(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let attributes = source.attributes;
    let sampler = Sampler {
        mode: match attributes.text("mode", "linear")? {
            "nearest" => Mode::Nearest,
            "linear" | "bilinear" => Mode::Linear,
            "cubic" | "bicubic" => Mode::Cubic,
            other => return Err(OpError::unsupported(format!("`mode` `{other}`"))),
        },
        outside: match attributes.text("padding_mode", "zeros")? {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            "reflection" => Outside::Reflection,
            other => return Err(OpError::unsupported(format!("`padding_mode` `{other}`"))),
        },
        align_corners: attributes.flag("align_corners", false)?,
    };
    Ok(Arc::new(move |inputs| {
        let (x, grid) = (input(inputs, 0)?, input(inputs, 1)?);
        let ([batch, channels, spatial @ ..], [grids, places @ .., width]) = (x.shape(), grid.shape()) else {
            return Err(OpError::invalid_operands("the input or the grid has too few dimensions"));
        };
        if grids != batch || *width != spatial.len() || spatial.contains(&0) {
            return Err(OpError::invalid_operands(format!("the grid {:?} does not fit {:?}", grid.shape(), x.shape())));
        }
        let (numbers, grid) = (x.to_f64(), grid.to_f64());
        let (plane, count) = (spatial.iter().product::<usize>(), places.iter().product::<usize>());
        check_result_size(&[*batch, *channels, count], DType::F64)?;
        let mut result = vec![0.0; batch * channels * count];
        for (point, at) in grid.chunks_exact((*width).max(1)).enumerate() {
            let (image, place) = (point / count, point % count);
            let taps = sampler.taps(spatial, at);
            for channel in 0..*channels {
                let start = (image * channels + channel) * plane;
                let value = taps.iter().map(|(place, weight)| numbers[start + place] * weight).sum();
                result[(image * channels + channel) * count + place] = value;
            }
        }
        let shape = [&[*batch, *channels], places].concat();
        Ok(vec![Tensor::from_vec(shape, result)?.cast(x.dtype())])
    }))
}

impl Sampler {
    /// Returns the elements of a plane that a point reads, with their weights. The last coordinate of the point is that of
    /// the first dimension.
    fn taps(&self, spatial: &[usize], point: &[f64]) -> Vec<(usize, f64)> {
        let strides = row_major_strides(spatial);
        let mut taps = vec![(0usize, 1.0)];
        for (axis, size) in spatial.iter().enumerate() {
            let along = self.axis_taps(*size, point[spatial.len() - 1 - axis]);
            let stride = strides[axis];
            let extend = |(place, weight): &(usize, f64)| {
                let (place, weight) = (*place, *weight);
                along.iter().map(move |(i, factor)| (place + i * stride, weight * factor)).collect::<Vec<_>>()
            };
            taps = taps.iter().flat_map(extend).collect();
        }
        taps
    }

    fn axis_taps(&self, size: usize, coordinate: f64) -> Vec<(usize, f64)> {
        let (length, last) = (size as f64, size as f64 - 1.0);
        let mut place = match self.align_corners {
            true => (coordinate + 1.0) / 2.0 * last,
            false => ((coordinate + 1.0) * length - 1.0) / 2.0,
        };
        if let Mode::Nearest = self.mode {
            place = place.round_ties_even();
        }
        let bounds = if self.align_corners { [0.0, last] } else { [-0.5, length - 0.5] };
        // A cubic place stays: only the elements around it are moved inside.
        let is_cubic = matches!(self.mode, Mode::Cubic);
        if !is_cubic && (place < bounds[0] || place > bounds[1]) {
            place = match self.outside {
                Outside::Zeros => place,
                Outside::Border => place.clamp(0.0, last),
                Outside::Reflection => reflect(place, bounds),
            };
        }
        let first = place.floor();
        let rest = place - first;
        let taps = match self.mode {
            Mode::Nearest => vec![(place.round_ties_even(), 1.0)],
            Mode::Linear => vec![(first, 1.0 - rest), (first + 1.0, rest)],
            Mode::Cubic => (-1..3).map(|i| (first + f64::from(i), cubic(rest - f64::from(i)))).collect(),
        };
        let inside = |(place, weight): (f64, f64)| match self.outside {
            Outside::Zeros => (0.0..=last).contains(&place).then_some((place as usize, weight)),
            Outside::Border => Some((place.clamp(0.0, last) as usize, weight)),
            Outside::Reflection => Some((reflect(place, bounds).clamp(0.0, last) as usize, weight)),
        };
        taps.into_iter().filter_map(inside).collect()
    }
}

/// Mirrors a place at the bounds until it lies between them.
fn reflect(place: f64, [low, high]: [f64; 2]) -> f64 {
    let range = high - low;
    if range <= 0.0 || (low..=high).contains(&place) {
        return place.clamp(low, high.max(low));
    }
    let distance = if place < low { low - place } else { place - high };
    let (count, rest) = ((distance / range).floor(), distance % range);
    let from_near = (count % 2.0 == 0.0) == (place < low);
    if from_near { low + rest } else { high - rest }
}

/// The kernel of Keys 1981, "Cubic Convolution Interpolation", with the coefficient of the standard.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let x = distance.abs();
    match x {
        ..=1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        _ if x < 2.0 => ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A,
        _ => 0.0,
    }
}

/// `AffineGrid`: the places of an affine transformation of a regular grid.
pub(crate) fn affine_grid(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let align_corners = source.attributes.flag("align_corners", false)?;
    Ok(Arc::new(move |inputs| {
        let (theta, size) = (input(inputs, 0)?, input(inputs, 1)?.to_f64());
        let [batch, rows, columns] = theta.shape()[..] else {
            return Err(OpError::invalid_operands("the transformation must have 3 dimensions"));
        };
        let spatial: Vec<usize> = size.iter().skip(2).map(|size| *size as usize).collect();
        if spatial.len() != rows || columns != rows + 1 {
            return Err(OpError::invalid_operands(format!("{:?} does not transform {spatial:?}", theta.shape())));
        }
        check_result_size(&[&[batch], &spatial[..], &[rows]].concat(), DType::F64)?;
        let coordinate = |i: usize, size: usize| match align_corners {
            true => 2.0 * i as f64 / (size as f64 - 1.0) - 1.0,
            false => (2.0 * i as f64 + 1.0) / size as f64 - 1.0,
        };
        let (matrices, mut result) = (theta.to_f64(), Vec::new());
        for matrix in matrices.chunks_exact(rows * columns) {
            let mut at = vec![0; rows];
            for _ in 0..spatial.iter().product() {
                // The first coordinate of a point is that of the last dimension.
                let reversed = at.iter().zip(&spatial).rev().map(|(i, size)| coordinate(*i, *size));
                let point: Vec<f64> = reversed.chain([1.0]).collect();
                let dot = |row: &[f64]| row.iter().zip(&point).map(|(a, b)| a * b).sum::<f64>();
                result.extend(matrix.chunks_exact(columns).map(dot));
                advance(&mut at, &spatial);
            }
        }
        let shape = [&[batch], &spatial[..], &[rows]].concat();
        Ok(vec![Tensor::from_vec(shape, result)?.cast(theta.dtype())])
    }))
}
