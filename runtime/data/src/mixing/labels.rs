//! A dataset whose labels are probabilities of classes, so that they can be mixed.

use std::sync::Arc;

use super::{Mix, Mixing};
use crate::random::Epoch;
use crate::{DataError, Dataset, Field, SampleError, Transform};
use flagperf_core::event::DatasetFacts;
use flagperf_core::tensor::{DType, TensorSpec};

/// Largest number of classes.
const CLASSES_MAX: usize = 1 << 20;

/// A dataset with the field `labels` as `C,f32`: 1 for the class of the sample, and 0 for all others.
pub struct LabelProbabilities {
    dataset: Arc<dyn Dataset>,
    mixing: Mixing,
    classes: usize,
    fields: Vec<Field>,
}

/// Returns the transforms that mix batches, and the number of classes; `None` if there are none.
///
/// # Errors
/// When they have different numbers of classes, or one that is not supported.
pub fn mixing_of(transforms: &[Transform]) -> Result<Option<(Vec<Transform>, usize)>, DataError> {
    let mix = |transform: &Transform| match transform {
        Transform::MixUp(mix) | Transform::CutMix(mix) => Some((transform.clone(), *mix)),
        _ => None,
    };
    let (ways, mixes): (Vec<Transform>, Vec<Mix>) = transforms.iter().filter_map(mix).unzip();
    let Some(Mix { classes, .. }) = mixes.first().copied() else { return Ok(None) };
    if let Some(other) = mixes.iter().find(|mix| mix.classes != classes) {
        let reason = format!("mixup and cutmix have {classes} and {} classes", other.classes);
        return Err(DataError::Transforms(reason));
    }
    if classes == 0 || classes > CLASSES_MAX {
        return Err(DataError::Transforms(format!("`{}`: 1 to {CLASSES_MAX} classes are supported", ways[0])));
    }
    Ok(Some((ways, classes)))
}

impl LabelProbabilities {
    /// Changes the labels of a dataset with the fields `images` and `labels`; batches are mixed in one of these ways.
    ///
    /// # Errors
    /// When the dataset has no such fields, or its images have values of a type that cannot be mixed.
    pub fn new(dataset: Arc<dyn Dataset>, ways: Vec<Transform>, classes: usize) -> Result<Self, DataError> {
        let mut fields = dataset.fields().to_vec();
        let place = |name: &str| fields.iter().position(|field| field.name == name);
        let refused = |reason: &str| DataError::Transforms(format!("`{}` {reason}", ways[0]));
        let (Some(images), Some(labels)) = (place("images"), place("labels")) else {
            return Err(refused("applies to images with labels only"));
        };
        if !fields[images].spec.dtype.is_float() && ways.iter().any(|way| matches!(way, Transform::MixUp(_))) {
            return Err(refused("mixes values, which must have a float type"));
        }
        fields[labels].spec = TensorSpec::new([classes], DType::F32);
        Ok(LabelProbabilities { dataset, mixing: Mixing { ways, images, labels }, classes, fields })
    }

    /// Reads a sample with `read` and converts its label.
    fn read_with(
        &self,
        index: usize,
        fields: &mut [&mut [u8]],
        read: impl FnOnce(&mut [&mut [u8]]) -> Result<(), SampleError>,
    ) -> Result<(), SampleError> {
        let labels = self.mixing.labels;
        let mut class = [0; 8];
        let mut original: Vec<&mut [u8]> = fields.iter_mut().map(|field| &mut **field).collect();
        original[labels] = &mut class;
        read(&mut original)?;
        let class = i64::from_ne_bytes(class);
        let place = usize::try_from(class).ok().filter(|class| *class < self.classes).ok_or_else(|| SampleError {
            sample: self.sample_name(index),
            reason: format!("its class {class} is outside the {} classes of mixup or cutmix", self.classes),
        })?;
        fields[labels].fill(0);
        fields[labels].chunks_exact_mut(4).skip(place).take(1).for_each(|one| one.copy_from_slice(&1f32.to_ne_bytes()));
        Ok(())
    }
}

impl Dataset for LabelProbabilities {
    fn facts(&self) -> &DatasetFacts {
        self.dataset.facts()
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn mixing(&self) -> Option<&Mixing> {
        Some(&self.mixing)
    }

    fn sample_name(&self, index: usize) -> String {
        self.dataset.sample_name(index)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_with(index, fields, |fields| self.dataset.read(index, fields))
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_with(index, fields, |fields| self.dataset.read_in_epoch(index, epoch, fields))
    }
}
