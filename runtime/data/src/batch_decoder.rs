//! Decodes the images of whole batches with a vendor's library, and compares its pixels with those of flagperf.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Dataset;
use super::geometry::Size;
use super::pixels::ImageTransforms;
use flagperf_core::engine_error::EngineError;
use flagperf_core::event::DecoderFacts;
use flagperf_core::image_decoder::{
    AxisWeights, DecoderLibrary, DecoderOptions, EncodedImage, ImageDecoder, ImageStatus,
};

/// The largest accepted difference of a value from that of flagperf, in levels of 8 bits.
const DIFFERENCE_MAX: u8 = 8;
/// The largest accepted mean difference. ISO 10918-2 admits about one level for the inverse cosine transform alone.
const MEAN_DIFFERENCE_MAX: f64 = 0.25;

/// The content of an image file that a decoder of whole batches may support, and how the image is resized.
pub struct EncodedFile {
    pub file: Vec<u8>,
    pub size: Size,
    pub columns: AxisWeights,
    pub rows: AxisWeights,
}

/// Decodes the images of whole batches with a vendor's library.
pub struct BatchDecoder {
    library: Arc<dyn DecoderLibrary>,
    options: DecoderOptions,
    /// Decoders that decode nothing now; one is created for each batch that is decoded at once.
    idle: Mutex<Vec<Box<dyn ImageDecoder>>>,
    images: AtomicU64,
    on_processor: AtomicU64,
}

impl BatchDecoder {
    /// Creates a decoder for images with these options.
    pub fn new(library: Arc<dyn DecoderLibrary>, options: DecoderOptions) -> Self {
        let (images, on_processor) = (AtomicU64::new(0), AtomicU64::new(0));
        BatchDecoder { library, options, idle: Mutex::default(), images, on_processor }
    }

    /// Decodes images, and sets the status of each.
    ///
    /// # Errors
    /// When the library fails for a reason that does not lie in an image.
    pub fn decode(&self, images: &mut [EncodedImage<'_>]) -> Result<(), EngineError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let free = idle().pop();
        let mut decoder = free.map_or_else(|| self.library.open(&self.options), Ok)?;
        decoder.decode(images)?;
        idle().push(decoder);
        let decoded = images.iter().filter(|image| image.status == ImageStatus::Decoded).count();
        self.images.fetch_add(decoded as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts an image that flagperf decodes itself.
    pub fn count_on_processor(&self) {
        self.on_processor.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what a decoder that has decoded an image states of itself.
    fn description(&self) -> String {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.first().map(|decoder| decoder.description()).unwrap_or_default()
    }
}

/// Returns what decoded the images of a dataset, after comparing those of `samples` with flagperf's; `None` if flagperf decodes
/// them.
///
/// # Errors
/// When the decoder fails, or its pixels differ by more than is accepted.
pub fn check_decoder(dataset: &dyn Dataset, samples: &[u64]) -> Result<Option<DecoderFacts>, String> {
    let Some((decoder, transforms)) = dataset.batch_decoder() else { return Ok(None) };
    let name = decoder.library.name();
    let mut facts = DecoderFacts {
        name: name.to_owned(),
        description: decoder.description(),
        library_sha256: decoder.library.sha256(),
        images: decoder.images.load(Ordering::Relaxed),
        on_processor: decoder.on_processor.load(Ordering::Relaxed),
        ..DecoderFacts::default()
    };
    let mut differences = 0u64;
    let mut values = 0u64;
    for sample in samples {
        let Some([own, theirs]) = levels_of_both(dataset, decoder, transforms, *sample as usize)? else { continue };
        let largest = own.iter().zip(&theirs).map(|(own, theirs)| own.abs_diff(*theirs));
        facts.largest_difference = largest.clone().max().unwrap_or(0).max(facts.largest_difference);
        differences += largest.map(u64::from).sum::<u64>();
        values += own.len() as u64;
        facts.compared += 1;
    }
    facts.mean_difference = if values == 0 { 0.0 } else { differences as f64 / values as f64 };
    if facts.largest_difference > DIFFERENCE_MAX || facts.mean_difference > MEAN_DIFFERENCE_MAX {
        return Err(format!(
            "the pixels of decoder `{name}` differ from those of flagperf by {} levels at most and {:.3} on average, in {} images \
             (accepted: {DIFFERENCE_MAX} and {MEAN_DIFFERENCE_MAX})",
            facts.largest_difference, facts.mean_difference, facts.compared
        ));
    }
    Ok(Some(facts))
}

/// Returns the levels of a sample's image as flagperf and as the decoder compute them; `None` for an image that the decoder does
/// not decode.
fn levels_of_both(
    dataset: &dyn Dataset,
    decoder: &BatchDecoder,
    transforms: &ImageTransforms,
    sample: usize,
) -> Result<Option<[Vec<u8>; 2]>, String> {
    let bytes = |field: &super::Field| {
        let values: usize = field.spec.fixed_shape().unwrap_or_default().iter().product();
        vec![0; values * field.spec.dtype.size()]
    };
    let mut memory: Vec<Vec<u8>> = dataset.fields().iter().map(bytes).collect();
    let mut fields: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    let Ok(Some(encoded)) = dataset.read_encoded(sample, &mut fields) else { return Ok(None) };
    let mut out = vec![0; fields[0].len()];
    let mut image = [encoded.image(&mut out)];
    decoder.decode(&mut image).map_err(|error| error.to_string())?;
    if image[0].status != ImageStatus::Decoded {
        return Ok(None);
    }
    dataset.read(sample, &mut fields).map_err(|error| error.to_string())?;
    let levels = |values: &[u8]| transforms.levels(values);
    match (levels(fields[0]), levels(&out)) {
        (Some(own), Some(theirs)) => Ok(Some([own, theirs])),
        _ => Err(format!(
            "decoder `{}` wrote a value to the image of `{}` that no pixel has",
            decoder.library.name(),
            dataset.sample_name(sample)
        )),
    }
}

impl EncodedFile {
    /// Returns the image to decode to `out`.
    pub fn image<'a>(&'a self, out: &'a mut [u8]) -> EncodedImage<'a> {
        let EncodedFile { file, size, columns, rows } = self;
        EncodedImage { file, size: *size, columns, rows, out, status: ImageStatus::Unsupported }
    }
}
