//! Metrics of segmentation.

use rhai::NativeCallContext;
use rhai::plugin::*;

use super::functions::host_tensors;
use super::return_value::Metrics;
use crate::packages::options::size;
use crate::packages::tensor::Tensor;
use crate::sandbox::Fallible;
use flagperf_core::metric;

fn overlap(
    context: &NativeCallContext<'_>,
    labels: Tensor,
    truth: Tensor,
    classes: i64,
    ignore: Option<i64>,
) -> Fallible<Metrics> {
    let classes = size("the number of classes", classes)?;
    let [labels, truth] = host_tensors(context, [labels, truth])?;
    metric::iou(&labels, &truth, classes, ignore).map(Metrics).map_err(|error| error.to_string().into())
}

#[export_module]
pub(super) mod functions {
    /// Returns `mean_iou`, the mean over the classes of intersection over union, and `pixel_accuracy`. Classes that occur
    /// neither in the labels nor in the truth of a pass have no part in the mean. `labels` and `truth` are integers of
    /// one shape, such as `N,H,W`, from 0 to `classes - 1`.
    ///
    /// ```rhai
    /// metric::iou(tensor::from([0, 1, 1], "1,3,i64"), tensor::from([0, 0, 1], "1,3,i64"), 2)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn iou(context: NativeCallContext, labels: Tensor, truth: Tensor, classes: i64) -> Fallible<Metrics> {
        overlap(&context, labels, truth, classes, None)
    }

    /// Returns `mean_iou` and `pixel_accuracy` without the pixels whose truth is `ignore`.
    ///
    /// ```rhai
    /// metric::iou(tensor::from([0, 1, 1], "1,3,i64"), tensor::from([0, 255, 1], "1,3,i64"), 2, 255)
    /// ```
    #[rhai_fn(name = "iou", return_raw)]
    pub fn iou_except(
        context: NativeCallContext,
        labels: Tensor,
        truth: Tensor,
        classes: i64,
        ignore: i64,
    ) -> Fallible<Metrics> {
        overlap(&context, labels, truth, classes, Some(ignore))
    }

    /// Returns `pixel_agreement`, the share of mask pixels that equal the stored ones: what FlagPerf's SAM case calls
    /// IoU. It counts the background, too. `masks` and `truth` are integers or booleans of one shape.
    ///
    /// ```rhai
    /// metric::pixel_agreement(tensor::zeros("1,4,4,bool"), tensor::zeros("1,4,4,bool"))
    /// ```
    #[rhai_fn(return_raw)]
    pub fn pixel_agreement(context: NativeCallContext, masks: Tensor, truth: Tensor) -> Fallible<Metrics> {
        let [masks, truth] = host_tensors(&context, [masks, truth])?;
        metric::pixel_agreement(&masks, &truth).map(Metrics).map_err(|error| error.to_string().into())
    }
}
