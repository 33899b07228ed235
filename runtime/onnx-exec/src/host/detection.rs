//! Operators of object detectors on the host: NonMaxSuppression and RoiAlign.

use std::sync::Arc;

use super::{HostFunction, input, optional};
use crate::OpError;
use crate::resolve::Source;
use crate::result_size::check_result_size;
use flagperf_onnx::{DType, Tensor};

/// A box by its corners: top, left, bottom, right.
#[derive(Clone, Copy)]
struct Corners([f32; 4]);

impl Corners {
    /// Reads two opposite corners in any order, or a centre and a size.
    fn new(numbers: &[f32], is_centred: bool) -> Self {
        let [a, b, c, d] = [numbers[0], numbers[1], numbers[2], numbers[3]];
        if is_centred {
            return Corners([b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0]);
        }
        Corners([a.min(c), b.min(d), a.max(c), b.max(d)])
    }

    fn area(self) -> f32 {
        let Corners([top, left, bottom, right]) = self;
        (bottom - top) * (right - left)
    }

    /// Returns the intersection over the union; 0 if a box is empty.
    fn overlap(self, other: Corners) -> f32 {
        let (Corners(a), Corners(b)) = (self, other);
        if self.area() <= 0.0 || other.area() <= 0.0 {
            return 0.0;
        }
        let height = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
        let width = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
        let shared = height * width;
        shared / (self.area() + other.area() - shared)
    }
}

/// `NonMaxSuppression`: of each batch and class, the boxes with the highest scores that overlap no chosen one by more than
/// a threshold. Of equal scores, the first box comes first.
pub(crate) fn non_max_suppression(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let is_centred = source.attributes.flag("center_point_box", false)?;
    Ok(Arc::new(move |inputs| {
        let (boxes, scores) = (input(inputs, 0)?, input(inputs, 1)?);
        let number = |i: usize| optional(inputs, i).and_then(|x| x.to_f64().first().copied());
        let most = number(2).unwrap_or(0.0) as i64;
        let (overlap, least) = (number(3).unwrap_or(0.0) as f32, number(4).map(|least| least as f32));
        let ([batches, count, 4], [score_batches, classes, score_count]) = (sizes(boxes)?, sizes(scores)?) else {
            return Err(OpError::invalid_operands("a box does not have 4 numbers"));
        };
        if (batches, count) != (score_batches, score_count) {
            return Err(OpError::invalid_operands(format!("{:?} and {:?} differ", boxes.shape(), scores.shape())));
        }
        let (boxes, scores) = (boxes.as_slice::<f32>()?, scores.as_slice::<f32>()?);
        let mut chosen: Vec<i64> = Vec::new();
        for batch in 0..batches {
            let corners: Vec<Corners> =
                (0..count).map(|i| Corners::new(&boxes[(batch * count + i) * 4..][..4], is_centred)).collect();
            for class in 0..classes {
                let scores = &scores[(batch * classes + class) * count..][..count];
                for place in suppress(&corners, scores, most.max(0) as usize, overlap, least) {
                    chosen.extend([batch as i64, class as i64, place as i64]);
                }
            }
        }
        Ok(vec![Tensor::from_vec([chosen.len() / 3, 3], chosen)?])
    }))
}

fn sizes(x: &Tensor) -> Result<[usize; 3], OpError> {
    x.shape().try_into().map_err(|_| OpError::invalid_operands(format!("{:?} must have 3 dimensions", x.shape())))
}

fn suppress(corners: &[Corners], scores: &[f32], most: usize, overlap: f32, least: Option<f32>) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..scores.len()).filter(|place| least.is_none_or(|least| scores[*place] > least)).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut kept: Vec<usize> = Vec::new();
    for place in order {
        if kept.len() >= most {
            break;
        }
        if kept.iter().all(|other| corners[place].overlap(corners[*other]) <= overlap) {
            kept.push(place);
        }
    }
    kept
}

/// The most samples along one axis of a bin of a region.
const SAMPLES_MAX: usize = 1 << 12;

/// The attributes of a RoiAlign.
#[derive(Clone, Copy)]
struct RoiAlign {
    output: [usize; 2],
    /// Samples along each axis of a bin; 0 for as many as the bin has elements.
    samples: usize,
    scale: f64,
    /// Half an element, if coordinates count from the centre of elements.
    offset: f64,
    is_max: bool,
}

/// `RoiAlign`: the mean or the largest of samples of each bin of regions of an image.
pub(crate) fn roi_align(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let attributes = source.attributes;
    let default = if source.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let size = |name| Ok::<_, OpError>(attributes.count(name)?.unwrap_or(1));
    let align = RoiAlign {
        output: [size("output_height")?, size("output_width")?],
        samples: attributes.sizes("sampling_ratio")?.and_then(|sizes| sizes.first().copied()).unwrap_or(0),
        scale: attributes.float("spatial_scale", 1.0)?,
        offset: match attributes.text("coordinate_transformation_mode", default)? {
            "half_pixel" => 0.5,
            "output_half_pixel" => 0.0,
            other => return Err(OpError::unsupported(format!("`coordinate_transformation_mode` `{other}`"))),
        },
        is_max: match attributes.text("mode", "avg")? {
            "avg" => false,
            "max" => true,
            other => return Err(OpError::unsupported(format!("`mode` `{other}`"))),
        },
    };
    Ok(Arc::new(move |inputs| {
        let (x, regions, batches) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?.to_f64());
        let [images, channels, height, width] = x.shape()[..] else {
            return Err(OpError::invalid_operands("the input has no two spatial dimensions"));
        };
        let (numbers, corners) = (x.to_f64(), regions.to_f64());
        if corners.len() != 4 * batches.len() || batches.iter().any(|batch| !(0.0..images as f64).contains(batch)) {
            return Err(OpError::invalid_operands("the regions do not match the images"));
        }
        check_result_size(&[batches.len(), channels, align.output[0], align.output[1]], DType::F64)?;
        let mut result = Vec::new();
        for (region, batch) in corners.chunks(4).zip(&batches) {
            for channel in 0..channels {
                let start = (*batch as usize * channels + channel) * height * width;
                align.append(&numbers[start..][..height * width], [height, width], region, &mut result)?;
            }
        }
        let shape = [batches.len(), channels, align.output[0], align.output[1]];
        Ok(vec![Tensor::from_vec(shape, result)?.cast(x.dtype())])
    }))
}

impl RoiAlign {
    /// Appends the bins of one region of one channel.
    fn append(&self, plane: &[f64], size: [usize; 2], region: &[f64], result: &mut Vec<f64>) -> Result<(), OpError> {
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|i| region[i] * self.scale - self.offset);
        let least = if self.offset == 0.0 { 1.0 } else { f64::NEG_INFINITY };
        let bins = [(bottom - top).max(least), (right - left).max(least)];
        let bins = [0, 1].map(|axis| bins[axis] / self.output[axis] as f64);
        let samples = bins.map(|bin| if self.samples > 0 { self.samples } else { bin.ceil().max(0.0) as usize });
        if samples.iter().any(|samples| *samples > SAMPLES_MAX) || size.contains(&0) {
            return Err(OpError::unsupported(format!("the region {region:?} of an image {size:?}")));
        }
        for row in 0..self.output[0] {
            for column in 0..self.output[1] {
                let start = [top + row as f64 * bins[0], left + column as f64 * bins[1]];
                let at = |axis: usize, i: usize| start[axis] + (i as f64 + 0.5) * bins[axis] / samples[axis] as f64;
                let taps = (0..samples[0]).flat_map(|i| (0..samples[1]).map(move |j| (i, j)));
                let values = taps.map(|(i, j)| bilinear(plane, size, [at(0, i), at(1, j)]));
                result.push(if self.is_max {
                    // The largest weighted corner, as the operator is defined.
                    values
                        .map(|corners| corners.into_iter().fold(f64::NEG_INFINITY, f64::max))
                        .fold(f64::NEG_INFINITY, f64::max)
                } else {
                    let count = (samples[0] * samples[1]).max(1) as f64;
                    values.map(|corners| corners.into_iter().sum::<f64>()).sum::<f64>() / count
                });
            }
        }
        Ok(())
    }
}

/// Returns the weighted elements around a place, whose sum is the interpolated value; zeros outside the image.
fn bilinear(plane: &[f64], size: [usize; 2], place: [f64; 2]) -> [f64; 4] {
    if (0..2).any(|axis| place[axis] < -1.0 || place[axis] > size[axis] as f64) {
        return [0.0; 4];
    }
    let [(y0, y1, fy), (x0, x1, fx)] = [0, 1].map(|axis| {
        let place = place[axis].max(0.0);
        let (low, last) = (place as usize, size[axis] - 1);
        if low >= last { (last, last, 0.0) } else { (low, low + 1, place - low as f64) }
    });
    let element = |y: usize, x: usize| plane[y * size[1] + x];
    [
        (1.0 - fy) * (1.0 - fx) * element(y0, x0),
        (1.0 - fy) * fx * element(y0, x1),
        fy * (1.0 - fx) * element(y1, x0),
        fy * fx * element(y1, x1),
    ]
}
