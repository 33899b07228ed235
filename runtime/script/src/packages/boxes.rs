//! `boxes`: boxes of object detection. Conversions, overlaps, and non-maximum suppression on the host.

use rhai::plugin::*;
use rhai::{Dynamic, Map, Module, NativeCallContext};

use super::options::FunctionOptions;
use super::tensor::Tensor;
use crate::budget::Budget;
use crate::names::script_type;
use crate::sandbox::{Fallible, ScriptState, script_state};
use flagperf_core::metric::{BoxForm, KeptBox, Suppression, corner_iou, suppress};
use flagperf_core::tensor::{DType, Tensor as HostTensor, TensorError};
use flagperf_engine::Value;

/// Largest number of boxes that remain in an image.
const KEPT_MAX: usize = 1 << 16;
/// Largest number of candidates of an image, and the default.
const CANDIDATES_MAX: usize = 30_000;

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

/// Returns the tensor `name` of a map that a script passes.
pub(super) fn named_tensor(map: &Map, what: &str, name: &str) -> Fallible<Tensor> {
    let value = map.get(name).ok_or_else(|| format!("{what} must have the tensor `{name}`"))?;
    let tensor = value.read_lock::<Tensor>().map(|tensor| tensor.clone());
    tensor.ok_or_else(|| format!("`{name}` of {what} must be a tensor, not {}", script_type(value)).into())
}

/// Returns the number of images, the boxes of each, and the boxes of `N,D,4`.
pub(super) fn box_rows(what: &str, boxes: &HostTensor) -> Fallible<(usize, usize, Vec<[f64; 4]>)> {
    match *boxes.shape() {
        [images, count, 4] => {
            let numbers = boxes.to_f64();
            Ok((images, count, numbers.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect()))
        }
        _ => Err(format!("{what}: the boxes are `{}` (expected: `N,D,4`)", boxes.spec()).into()),
    }
}

/// Copies a tensor to the host after checking the budget for its elements as f64.
fn host_tensor(script: &ScriptState, tensor: &Tensor, copies: u64) -> Fallible<HostTensor> {
    script.budget.check_request((tensor.elements()? as u64).saturating_mul(8 * copies))?;
    tensor.to_host(&script.budget)
}

/// Wraps a tensor that was computed for the script.
fn counted(script: &ScriptState, work: impl FnOnce() -> Result<HostTensor, TensorError>) -> Fallible<Tensor> {
    let tensor = Budget::uncounted(work).map_err(|error| error.to_string())?;
    Ok(Tensor::counted(Value::Host(tensor), &script.budget))
}

fn form(name: &str) -> Fallible<BoxForm> {
    let known = BoxForm::NAMES.iter().find(|(known, _)| *known == name).map(|(_, form)| *form);
    known.ok_or_else(|| format!("unknown form of boxes `{name}` (known: corners, center, coco)").into())
}

/// Converts every box with `change`, which gets the index of its image, and keeps shape and type.
fn map_boxes(script: &ScriptState, boxes: &Tensor, change: impl Fn(usize, [f64; 4]) -> [f64; 4]) -> Fallible<Tensor> {
    let host = host_tensor(script, boxes, 3)?;
    let Some((4, outer)) = host.shape().split_last().map(|(last, outer)| (*last, outer)) else {
        return Err(format!("the boxes are `{}` (expected: `N,D,4`)", host.spec()).into());
    };
    if !host.dtype().is_float() {
        return Err(format!("the boxes are `{}` (expected: a float type)", host.spec()).into());
    }
    let per_image = outer.iter().skip(1).product::<usize>().max(1);
    counted(script, || {
        let numbers = host.to_f64();
        let rows = numbers.chunks_exact(4).enumerate();
        let changed = rows.flat_map(|(at, b)| change(at / per_image, [b[0], b[1], b[2], b[3]])).collect();
        Ok(HostTensor::from_vec(host.shape(), changed)?.cast(host.dtype()))
    })
}

fn suppression(options: Map) -> Fallible<Suppression> {
    let mut options = FunctionOptions::new("nms", options);
    let iou = options.number("iou")?.unwrap_or(0.5);
    let score = options.number("score")?.unwrap_or(0.0);
    let max = options.size("max")?.unwrap_or(300);
    let candidates = options.size("candidates")?.unwrap_or(CANDIDATES_MAX);
    options.finish()?;
    if !(0.0..=1.0).contains(&iou) || !score.is_finite() {
        return Err(format!("`nms`: `iou` must be from 0 to 1 and `score` finite, not {iou} and {score}").into());
    }
    if max == 0 || max > KEPT_MAX || candidates == 0 || candidates > CANDIDATES_MAX {
        return Err(
            format!("`nms`: `max` must be from 1 to {KEPT_MAX}, `candidates` from 1 to {CANDIDATES_MAX}").into()
        );
    }
    Ok(Suppression { iou, score, max, candidates })
}

/// Returns the boxes that remain in each image as padded tensors by name.
fn kept_boxes(
    script: &ScriptState,
    boxes: &[[f64; 4]],
    count: usize,
    kept: &[Vec<KeptBox>],
    max: usize,
) -> Fallible<Map> {
    script.budget.check_request((kept.len() * max) as u64 * 48)?;
    let padded = |value: &dyn Fn(usize, &KeptBox) -> Vec<f64>, width: usize, shape: &[usize], dtype: DType| {
        let mut numbers = vec![0.0; kept.len() * max * width];
        for (image, row) in kept.iter().enumerate() {
            for (at, kept) in row.iter().enumerate() {
                numbers[(image * max + at) * width..][..width].copy_from_slice(&value(image, kept));
            }
        }
        counted(script, || Ok(HostTensor::from_vec(shape, numbers)?.cast(dtype)))
    };
    let images = kept.len();
    let corners = padded(&|image, kept| boxes[image * count + kept.index].to_vec(), 4, &[images, max, 4], DType::F32)?;
    let scores = padded(&|_, kept| vec![kept.score], 1, &[images, max], DType::F32)?;
    let classes = padded(&|_, kept| vec![kept.class as f64], 1, &[images, max], DType::I64)?;
    let indices = padded(&|_, kept| vec![kept.index as f64], 1, &[images, max], DType::I64)?;
    let counts = counted(script, || HostTensor::from_vec([images], kept.iter().map(|row| row.len() as i64).collect()))?;
    let fields =
        [("boxes", corners), ("scores", scores), ("classes", classes), ("indices", indices), ("counts", counts)];
    Ok(fields.map(|(name, tensor)| (name.into(), Dynamic::from(tensor))).into_iter().collect())
}

#[export_module]
mod functions {
    /// Converts boxes (`N,D,4` of a float type, in pixels) between forms: `corners` (left, top, right, bottom), `center`
    /// (centre across, centre down, width, height) and `coco` (left, top, width, height).
    ///
    /// ```rhai
    /// boxes::convert(tensor::from([50, 50, 20, 10], "1,1,4,f32"), "center", "corners")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn convert(context: NativeCallContext, boxes: Tensor, from: &str, to: &str) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let (from, to) = (form(from)?, form(to)?);
        map_boxes(&script, &boxes, |_, values| to.of_corners(from.to_corners(values)))
    }

    /// Returns boxes in the pixels of the original images, from the pixels of the model's input. `placements` is `N,4`
    /// with the scale across and down, left and top, as in the field of `data::coco`; `form` is that of the boxes.
    ///
    /// ```rhai
    /// let placements = tensor::from([0.5, 0.5, 0, 80], "1,4,f64");
    /// boxes::restore(tensor::from([10, 100, 20, 10], "1,1,4,f32"), placements, "coco")
    /// ```
    #[rhai_fn(return_raw)]
    pub fn restore(context: NativeCallContext, boxes: Tensor, placements: Tensor, form: &str) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let form = super::form(form)?;
        let placed = host_tensor(&script, &placements, 1)?;
        let shape = boxes.value().spec().fixed_shape().unwrap_or_default();
        let images = shape.first().copied().unwrap_or(0);
        if placed.shape() != [images, 4] {
            return Err(format!("the placements are `{}` (expected: `{images},4`)", placed.spec()).into());
        }
        let placed = placed.to_f64();
        map_boxes(&script, &boxes, |image, values| {
            let [across, down, left, top] = [0, 1, 2, 3].map(|at| placed[image * 4 + at]);
            let [a, b, c, d] = form.to_corners(values);
            // A flipped image has a negative scale, which exchanges left and right.
            let (a, c) = if across < 0.0 { (c, a) } else { (a, c) };
            form.of_corners([(a - left) / across, (b - top) / down, (c - left) / across, (d - top) / down])
        })
    }

    /// Returns intersection over union of each box of `N,D,4` with each of `N,E,4`, both as corners: `N,D,E,f32`.
    ///
    /// ```rhai
    /// let one = tensor::from([0, 0, 10, 10], "1,1,4,f32");
    /// boxes::iou(one, one)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn iou(context: NativeCallContext, first: Tensor, second: Tensor) -> Fallible<Tensor> {
        let script = script_state(&context)?;
        let (a, b) = (host_tensor(&script, &first, 2)?, host_tensor(&script, &second, 2)?);
        let (images, rows, one) = box_rows("the first boxes", &a)?;
        let (others, columns, two) = box_rows("the second boxes", &b)?;
        if images != others {
            return Err(format!("boxes of {images} images with boxes of {others}").into());
        }
        let bytes = (images as u64).saturating_mul(rows as u64).saturating_mul(columns as u64).saturating_mul(4);
        script.budget.check_request(bytes)?;
        counted(&script, || {
            let overlap = |at: usize| {
                let (row, column) = (at / columns, at % columns);
                corner_iou(one[row], two[row / rows * columns + column]) as f32
            };
            HostTensor::from_vec([images, rows, columns], (0..images * rows * columns).map(overlap).collect())
        })
    }

    /// Suppresses boxes that overlap a better one of their class by more than `iou`. `boxes` is `N,D,4` as corners,
    /// `scores` is `N,D,C` with one score per class. Options: `iou` (default 0.5), `score` (boxes with this score or a
    /// lower one are dropped, default 0), `max` boxes per image (default 300), `candidates` compared per image (default
    /// 30,000, the best). Returns `boxes` (`N,max,4`), `scores`, `classes`, `indices` of the boxes, and `counts`. Overlaps
    /// are computed in f32, and equal scores rank by index, as in torchvision's `nms`. A score that is NaN is an error.
    ///
    /// ```rhai
    /// let found = tensor::from([0, 0, 10, 10, 1, 0, 11, 10], "1,2,4,f32");
    /// boxes::nms(found, tensor::from([0.9, 0.8], "1,2,1,f32"), #{iou: 0.5, max: 10})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn nms(context: NativeCallContext, boxes: Tensor, scores: Tensor, options: Map) -> Fallible<Map> {
        let script = script_state(&context)?;
        let limits = suppression(options)?;
        let (corners, scores) = (host_tensor(&script, &boxes, 2)?, host_tensor(&script, &scores, 5)?);
        let (images, count, corners) = box_rows("`nms`", &corners)?;
        let fits = matches!(scores.shape(), [n, d, _] if [*n, *d] == [images, count]);
        if !fits || !scores.dtype().is_float() {
            return Err(format!("`nms`: the scores are `{}` (expected: `{images},{count},C`)", scores.spec()).into());
        }
        let classes = scores.shape()[2];
        let numbers = scores.to_f64();
        if let Some(place) = numbers.iter().position(|score| score.is_nan()) {
            let (image, place) = (place / (count * classes), place / classes % count);
            return Err(format!("`nms`: a score of box {place} of image {image} is NaN").into());
        }
        let mut kept = Vec::with_capacity(images);
        for image in 0..images {
            script.budget.check()?;
            let row = &numbers[image * count * classes..(image + 1) * count * classes];
            kept.push(suppress(&corners[image * count..(image + 1) * count], row, &limits));
        }
        kept_boxes(&script, &corners, count, &kept, limits.max)
    }
}
