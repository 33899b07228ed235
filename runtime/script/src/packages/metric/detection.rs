//! Metrics of object detection.

use rhai::plugin::*;
use rhai::{Map, NativeCallContext};

use super::functions::host_tensors;
use super::return_value::Metrics;
use crate::packages::boxes::{box_rows, named_tensor};
use crate::sandbox::Fallible;
use flagperf_core::metric::{ImageDetections, ImageTruth, coco_map as host_coco_map};
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// The padded boxes of a batch with the number that counts in each image.
struct PaddedBoxes {
    counts: Vec<usize>,
    /// Length of the padded rows.
    width: usize,
    boxes: Vec<[f64; 4]>,
}

impl PaddedBoxes {
    fn new(what: &str, boxes: &HostTensor, counts: &HostTensor) -> Fallible<Self> {
        let (images, width, rows) = box_rows(what, boxes)?;
        let wrong = || format!("{what}: `counts` is `{}` (expected: `{images}` of an integer type)", counts.spec());
        if counts.shape() != [images] || counts.dtype().is_float() {
            return Err(wrong().into());
        }
        let count = |(image, count): (usize, f64)| {
            let fits = (0.0..=width as f64).contains(&count);
            let error = || format!("{what}: image {image} has {count} boxes, but there is space for {width}").into();
            fits.then_some(count as usize).ok_or_else(error)
        };
        let counts = counts.to_f64().into_iter().enumerate().map(count).collect::<Fallible<_>>()?;
        Ok(PaddedBoxes { counts, width, boxes: rows })
    }

    /// Returns the numbers that belong to the boxes.
    fn values(&self, what: &str, tensor: &HostTensor) -> Fallible<Vec<f64>> {
        let expected = [self.counts.len(), self.width];
        if tensor.shape() == expected {
            return Ok(tensor.to_f64());
        }
        Err(format!("{what} is `{}` (expected: `{},{}` as the boxes)", tensor.spec(), expected[0], expected[1]).into())
    }

    fn of_image<T: Copy>(&self, values: &[T], image: usize) -> Vec<T> {
        values[image * self.width..][..self.counts[image]].to_vec()
    }
}

/// Returns the ids of the images.
fn image_ids(ids: &HostTensor, images: usize) -> Fallible<Vec<i64>> {
    let wrong = || format!("`image_ids` of the truth is `{}` (expected: `{images}` of an integer type)", ids.spec());
    if ids.shape() != [images] || ids.dtype().is_float() {
        return Err(wrong().into());
    }
    let ids = ids.cast(DType::I64);
    ids.as_slice::<i64>().map(<[i64]>::to_vec).map_err(|error| error.to_string().into())
}

#[export_module]
pub(super) mod functions {
    /// Returns COCO's figures of object detection, equal to those of pycocotools: `map`, `map50`, `map75`, `map_small`,
    /// `map_medium`, `map_large`, and the recalls `ar1`, `ar10`, `ar100`, `ar_small`, `ar_medium`, `ar_large`. A figure
    /// for which the truth has no objects (-1 in pycocotools), such as `map_large` without large ones, is left out.
    ///
    /// Boxes are left, top, width, height in the pixels of the original image (`boxes::restore`), padded to the same
    /// number in each image: `boxes` is `N,D,4`, `counts` is `N`. Detections also have `scores` and `classes`, the truth
    /// `classes`, `areas` and `crowds` (all `N,D`) and `image_ids` (`N`), as in the fields of `data::coco`. Detections with
    /// equal scores count in the order of the image ids, as in pycocotools, so the order of the samples changes nothing.
    ///
    /// ```rhai
    /// let one = tensor::from([1], "1,i64");
    /// let boxes = tensor::from([10, 10, 40, 40], "1,1,4,f32");
    /// let class = tensor::from([3], "1,1,i64");
    /// let found = #{boxes: boxes, scores: tensor::from([0.9], "1,1,f32"), classes: class, counts: one};
    /// let areas = tensor::from([1600], "1,1,f32");
    /// let truth = #{boxes: boxes, classes: class, areas: areas, crowds: tensor::zeros("1,1,bool"), counts: one};
    /// metric::coco_map(found, truth + #{image_ids: one})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn coco_map(context: NativeCallContext, detections: Map, truth: Map) -> Fallible<Metrics> {
        let fields = |map: &Map, what: &str, names: [&str; 4]| {
            let [a, b, c, d] = names.map(|name| named_tensor(map, what, name));
            host_tensors(&context, [a?, b?, c?, d?])
        };
        let [boxes, scores, classes, counts] =
            fields(&detections, "the detections", ["boxes", "scores", "classes", "counts"])?;
        let found = PaddedBoxes::new("the detections", &boxes, &counts)?;
        let scores = found.values("`scores` of the detections", &scores)?;
        let found_classes = found.values("`classes` of the detections", &classes)?;
        let [boxes, classes, areas, counts] = fields(&truth, "the truth", ["boxes", "classes", "areas", "counts"])?;
        let [crowds, ids] = ["crowds", "image_ids"].map(|name| named_tensor(&truth, "the truth", name));
        let [crowds, ids] = host_tensors(&context, [crowds?, ids?])?;
        let wanted = PaddedBoxes::new("the truth", &boxes, &counts)?;
        let classes = wanted.values("`classes` of the truth", &classes)?;
        let areas = wanted.values("`areas` of the truth", &areas)?;
        let crowds = wanted.values("`crowds` of the truth", &crowds)?;
        let ids = image_ids(&ids, wanted.counts.len())?;
        if found.counts.len() != wanted.counts.len() {
            let (images, expected) = (found.counts.len(), wanted.counts.len());
            return Err(format!("detections of {images} images for the truth of {expected}").into());
        }
        let whole = |values: Vec<f64>| values.into_iter().map(|value| value as i64).collect::<Vec<_>>();
        let image = |image: usize| {
            let detections = ImageDetections {
                boxes: found.of_image(&found.boxes, image),
                scores: found.of_image(&scores, image),
                classes: whole(found.of_image(&found_classes, image)),
            };
            let truth = ImageTruth {
                id: ids[image],
                boxes: wanted.of_image(&wanted.boxes, image),
                classes: whole(wanted.of_image(&classes, image)),
                areas: wanted.of_image(&areas, image),
                crowds: wanted.of_image(&crowds, image).into_iter().map(|crowd| crowd != 0.0).collect(),
            };
            (detections, truth)
        };
        let images: Vec<_> = (0..wanted.counts.len()).map(image).collect();
        host_coco_map(&images).map(Metrics).map_err(|error| error.to_string().into())
    }
}
