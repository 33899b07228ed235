//! The description of a dataset that `build_dataloader` returns: the source of the samples and their transforms.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arrays::{ArrayField, Arrays};
use super::coco::{Coco, CocoOptions};
use super::hdf5::{Hdf5Options, Hdf5Shards};
use super::image_folder::ImageFolder;
use super::image_masks::{ImageMaskOptions, ImageMasks};
use super::mixing::{LabelProbabilities, mixing_of};
use super::pixels::ImageTransforms;
use super::prompts::{PromptOptions, Prompts};
use super::questions::{QuestionOptions, Questions};
use super::repeated::Repeated;
use super::squad::{Squad, SquadOptions};
use super::synthetic::{Synthetic, SyntheticField, check_fields};
use super::tokens::{TokenStream, TokenStreamOptions};
use super::{DataError, DataRoot, Dataset, Transform};
use flagperf_core::image_decoder::DecoderLibrary;
use flagperf_core::tensor::DType;

/// The source of the samples and their transforms. This is only a description: nothing is read before
/// [`Pipeline::open`].
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub source: SampleSource,
    /// Transforms applied to every sample, in order.
    pub transforms: Vec<Transform>,
}

/// The source of the samples. Paths are relative to the data directory and must stay inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleSource {
    /// Images with one folder per class. Fields: `images` (input) and `labels` (truth, `i64`).
    ImageFolder {
        images: PathBuf,
        /// A text file with the name of one class folder per line: the class of a folder is its line, from 0. Without
        /// this file, the class of a folder is its rank among the folders in byte order.
        classes: Option<PathBuf>,
    },
    /// Seeded random values in memory, for which accuracy is meaningless.
    Synthetic {
        fields: Vec<SyntheticField>,
        samples: usize,
        seed: u64,
    },
    /// A stream of tokens, cut into samples.
    Tokens(TokenStreamOptions),
    Prompts(PromptOptions),
    /// Multiple-choice questions.
    Questions(QuestionOptions),
    /// Questions about contexts.
    Squad(SquadOptions),
    /// Arrays in files, one per field.
    Arrays(Vec<ArrayField>),
    /// Arrays in HDF5 files, one dataset of each per field.
    Hdf5(Hdf5Options),
    /// A folder of images and a folder of masks.
    ImageMasks(ImageMaskOptions),
    /// Images with boxes in COCO's format.
    Coco(CocoOptions),
}

/// What a check finds out about the data without listing the samples; `None` for what it would have to read them for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataCheck {
    /// The number of samples.
    pub samples: Option<usize>,
    /// The names of the fields of a batch.
    pub fields: Option<Vec<String>>,
}

impl Pipeline {
    /// Opens the dataset under `root`: lists its samples without reading them. Float inputs get the type `dtype`.
    ///
    /// # Errors
    /// When the folder is missing or empty, the class list does not match, or the transforms are not supported, such as
    /// random ones.
    pub fn open(&self, root: &Path, dtype: DType) -> Result<Arc<dyn Dataset>, DataError> {
        self.open_with_samples(root, dtype, 0)
    }

    /// Opens the dataset as [`Pipeline::open`] does. If its files are marked as a sample and it has fewer than `least`
    /// samples, it gets more: overlapping parts of a text, or the same samples again.
    ///
    /// # Errors
    /// As [`Pipeline::open`].
    pub fn open_with_samples(&self, root: &Path, dtype: DType, least: usize) -> Result<Arc<dyn Dataset>, DataError> {
        self.check_not_random()?;
        let dataset = self.open_source(root, dtype, least)?;
        Ok(match self.source {
            SampleSource::Synthetic { .. } => dataset,
            _ => repeated_if_sample(dataset, least),
        })
    }

    /// Opens the dataset as [`Pipeline::open_with_samples`] does; a vendor's library decodes its images.
    ///
    /// # Errors
    /// As [`Pipeline::open`], and for a dataset or transforms that such a library does not have.
    pub fn open_decoded_by(
        &self,
        library: Arc<dyn DecoderLibrary>,
        root: &Path,
        dtype: DType,
        least: usize,
    ) -> Result<Arc<dyn Dataset>, DataError> {
        self.check_not_random()?;
        let SampleSource::ImageFolder { images, classes } = &self.source else {
            let reason =
                "`decoder` decodes the images of `data::image_folder`, which is not the source of this dataset";
            return Err(DataError::Transforms(reason.to_owned()));
        };
        let transforms = ImageTransforms::new(&self.transforms, dtype)?;
        let folder = ImageFolder::open(&DataRoot::open(root)?, images, classes.as_deref(), transforms)?;
        Ok(repeated_if_sample(Arc::new(folder.decoded_by(library)?), least))
    }

    /// Opens the dataset of a training as [`Pipeline::open`] does; its transforms may be random.
    ///
    /// # Errors
    /// As [`Pipeline::open`].
    pub fn open_for_training(&self, root: &Path, dtype: DType) -> Result<Arc<dyn Dataset>, DataError> {
        let dataset = self.open_source(root, dtype, 0)?;
        Ok(match mixing_of(&self.transforms)? {
            Some((ways, classes)) => Arc::new(LabelProbabilities::new(dataset, ways, classes)?),
            None => dataset,
        })
    }

    /// Checks that no transform is random: without epochs, each pass would read the same samples.
    fn check_not_random(&self) -> Result<(), DataError> {
        match self.transforms.iter().find(|transform| transform.is_random()) {
            Some(random) => {
                Err(DataError::Transforms(format!("`{random}` draws for each epoch, which only a training has")))
            }
            None => Ok(()),
        }
    }

    fn open_source(&self, root: &Path, dtype: DType, least: usize) -> Result<Arc<dyn Dataset>, DataError> {
        match &self.source {
            SampleSource::ImageFolder { images, classes } => {
                let transforms = ImageTransforms::new(&self.transforms, dtype)?;
                let folder = ImageFolder::open(&DataRoot::open(root)?, images, classes.as_deref(), transforms)?;
                Ok(Arc::new(folder))
            }
            SampleSource::ImageMasks(options) => {
                let transforms = ImageTransforms::new(&self.transforms, dtype)?;
                Ok(Arc::new(ImageMasks::open(&DataRoot::open(root)?, options, transforms)?))
            }
            SampleSource::Coco(options) => {
                let transforms = ImageTransforms::new(&self.transforms, dtype)?;
                Ok(Arc::new(Coco::open(&DataRoot::open(root)?, options, transforms)?))
            }
            SampleSource::Synthetic { fields, samples, seed } => {
                self.check_no_transforms("synthetic samples")?;
                Ok(Arc::new(Synthetic::new(fields, *samples, *seed, dtype)?))
            }
            SampleSource::Tokens(options) => {
                self.check_no_transforms("tokens")?;
                Ok(Arc::new(TokenStream::open(&DataRoot::open(root)?, options, least)?))
            }
            SampleSource::Prompts(options) => {
                self.check_no_transforms("prompts")?;
                Ok(Arc::new(Prompts::open(&DataRoot::open(root)?, options)?))
            }
            SampleSource::Questions(options) => {
                self.check_no_transforms("questions")?;
                Ok(Arc::new(Questions::open(&DataRoot::open(root)?, options)?))
            }
            SampleSource::Squad(options) => {
                self.check_no_transforms("questions")?;
                Ok(Arc::new(Squad::open(&DataRoot::open(root)?, options)?))
            }
            SampleSource::Arrays(fields) => {
                self.check_no_transforms("arrays")?;
                Ok(Arc::new(Arrays::open(&DataRoot::open(root)?, fields, dtype)?))
            }
            SampleSource::Hdf5(options) => {
                self.check_no_transforms("arrays")?;
                Ok(Arc::new(Hdf5Shards::open(&DataRoot::open(root)?, options, dtype)?))
            }
        }
    }

    /// Checks that there are no transforms, which only images have.
    fn check_no_transforms(&self, samples: &str) -> Result<(), DataError> {
        let refused = |transform| DataError::Transforms(format!("`{transform}` does not apply to {samples}"));
        self.transforms.first().map_or(Ok(()), |transform| Err(refused(transform)))
    }

    /// Checks the data directory, the class folders, the class list and the transforms, without listing the samples:
    /// there may be millions.
    ///
    /// # Errors
    /// Those errors of [`Pipeline::open`] that can be found this way.
    pub fn check(&self, root: &Path, dtype: DType) -> Result<DataCheck, DataError> {
        self.check_not_random()?;
        self.check_source(root, dtype)
    }

    /// Checks what [`Pipeline::check`] does for the dataset of a training; its transforms may be random.
    ///
    /// # Errors
    /// As [`Pipeline::check`].
    pub fn check_for_training(&self, root: &Path, dtype: DType) -> Result<DataCheck, DataError> {
        mixing_of(&self.transforms)?;
        self.check_source(root, dtype)
    }

    fn check_source(&self, root: &Path, dtype: DType) -> Result<DataCheck, DataError> {
        let unknown = DataCheck::default();
        match &self.source {
            SampleSource::ImageFolder { images, classes } => {
                ImageTransforms::new(&self.transforms, dtype)?;
                ImageFolder::check(&DataRoot::open(root)?, images, classes.as_deref()).map(|()| unknown)
            }
            SampleSource::Synthetic { fields, samples, .. } => {
                self.check_no_transforms("synthetic samples")?;
                check_fields(fields, *samples, dtype)?;
                let fields = fields.iter().map(|field| field.field.name.clone()).collect();
                Ok(DataCheck { samples: Some(*samples), fields: Some(fields) })
            }
            SampleSource::Squad(options) => {
                self.check_no_transforms("questions")?;
                Squad::check(&DataRoot::open(root)?, options).map(|()| unknown)
            }
            // Opening these reads only headers, the positions of lines, annotations without pixels, and the tokenizer.
            _ => {
                let dataset = self.open_source(root, dtype, 0)?;
                let fields = dataset.fields().iter().map(|field| field.name.clone()).collect();
                Ok(DataCheck { samples: Some(dataset.len()), fields: Some(fields) })
            }
        }
    }
}

/// Returns a dataset whose files are marked as a sample with at least `least` samples.
fn repeated_if_sample(dataset: Arc<dyn Dataset>, least: usize) -> Arc<dyn Dataset> {
    match dataset.facts().synthetic && dataset.len() < least {
        true => Arc::new(Repeated::new(dataset, least)),
        false => dataset,
    }
}
