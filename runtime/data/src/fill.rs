//! Fills one batch: a pool of threads reads the rows of a slot.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::ThreadPool;

use super::perturbation::Perturbation;
use super::random::Epoch;
use super::slot::Slot;
use super::{Dataset, SampleError};
use flagperf_core::image_decoder::{EncodedImage, ImageStatus};

/// The samples to read into a slot.
#[derive(Clone, Debug)]
pub struct FillTask {
    /// Number of the pass; rows are skipped unless this is the current pass.
    pub pass: u64,
    /// Position of the batch in its pass.
    pub position: u64,
    pub request: BatchRequest,
    /// The epoch of a training, whose random transforms are applied.
    pub epoch: Option<Epoch>,
}

/// A batch to read.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The number that the batch gets.
    pub number: u64,
    /// The indices of the samples in the dataset, one per row. A sample may occur several times.
    pub samples: Arc<[u64]>,
    /// Changes the inputs, each sample in its own way.
    pub perturbation: Option<Perturbation>,
}

/// A filled slot.
pub struct FilledSlot {
    pub slot: Slot,
    pub task: FillTask,
    /// Rows whose samples could not be read, in order; their memory is zeroed.
    pub failed: Vec<(usize, SampleError)>,
}

/// Reads the samples of `task` into `slot` with the threads of `pool`, or on this thread without a pool. The remaining
/// rows are zeroed, and fields of an open length are shortened to the longest sample.
pub fn fill_slot(
    mut slot: Slot,
    task: FillTask,
    dataset: &dyn Dataset,
    pool: Option<&ThreadPool>,
    pass: &AtomicU64,
) -> FilledSlot {
    let failed = Failures::default();
    let mut rows = slot.rows_mut().expect("a slot is filled only while no tensor of it is held");
    let padding = rows.split_off(task.request.samples.len().min(rows.len()));
    padding.into_iter().flatten().for_each(|field| field.fill(0));
    let is_current = || pass.load(Ordering::Relaxed) == task.pass;
    let others = decode_rows(&mut rows, &task, dataset, pool, &is_current, &failed);
    for_each_row(pool, &mut rows, |row, fields| {
        let sample = task.request.samples[row];
        if !is_current() || failed.has(row) {
            return;
        }
        if others.as_ref().is_none_or(|others| others.contains(&row))
            && let Err(error) = read_sample(dataset, sample as usize, task.epoch, fields)
        {
            return failed.add(row, error, fields);
        }
        if let Some(perturbation) = &task.request.perturbation {
            perturb(perturbation, dataset, sample, fields);
        }
    });
    if let (Some(epoch), Some(mixing)) = (task.epoch, dataset.mixing())
        && let Some(rows) = slot.rows_mut()
    {
        let mix = || mixing.apply(epoch, &task.request.samples, dataset.fields(), rows);
        match pool {
            Some(pool) => pool.install(mix),
            None => mix(),
        }
    }
    if let Some(open) = dataset.open_length() {
        slot.shorten(dataset.fields(), &open);
    }
    FilledSlot { slot, task, failed: failed.in_order() }
}

/// The memory of the fields of a sample.
type Row<'a> = Vec<&'a mut [u8]>;

/// Rows whose samples could not be read.
#[derive(Default)]
struct Failures(Mutex<BTreeMap<usize, SampleError>>);

impl Failures {
    fn add(&self, row: usize, error: SampleError, fields: &mut [&mut [u8]]) {
        fields.iter_mut().for_each(|field| field.fill(0));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(row, error);
    }

    fn has(&self, row: usize) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&row)
    }

    fn in_order(self) -> Vec<(usize, SampleError)> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
    }
}

/// Calls a function for each row with the threads of `pool`, or on this thread without a pool.
fn for_each_row<'a>(pool: Option<&ThreadPool>, rows: &mut [Row<'a>], call: impl Fn(usize, &mut Row<'a>) + Sync) {
    let rows = rows.iter_mut().enumerate();
    match pool {
        Some(pool) => pool.in_place_scope_fifo(|scope| {
            let call = &call;
            rows.for_each(|(row, fields)| scope.spawn_fifo(move |_| call(row, fields)));
        }),
        None => rows.for_each(|(row, fields)| call(row, fields)),
    }
}

/// Fills the rows whose images the batch decoder of the dataset decodes, and returns the others that did not fail; `None` without
/// a decoder.
fn decode_rows(
    rows: &mut [Row<'_>],
    task: &FillTask,
    dataset: &dyn Dataset,
    pool: Option<&ThreadPool>,
    is_current: &(dyn Fn() -> bool + Sync),
    failed: &Failures,
) -> Option<BTreeSet<usize>> {
    let (decoder, _) = dataset.batch_decoder()?;
    let files = Mutex::new(BTreeMap::new());
    for_each_row(pool, rows, |row, fields| {
        if !is_current() {
            return;
        }
        let sample = task.request.samples[row] as usize;
        match caught(dataset, sample, || dataset.read_encoded(sample, fields)) {
            Ok(Some(file)) => drop(files.lock().unwrap_or_else(PoisonError::into_inner).insert(row, file)),
            Ok(None) => {}
            Err(error) => failed.add(row, error, fields),
        }
    });
    let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let with_file = rows.iter_mut().enumerate().filter_map(|(row, fields)| Some((row, files.get(&row)?, fields)));
    let (places, mut images): (Vec<usize>, Vec<EncodedImage<'_>>) =
        with_file.map(|(row, file, fields)| (row, file.image(fields[0]))).unzip();
    let outcome = if images.is_empty() || !is_current() { Ok(()) } else { decoder.decode(&mut images) };
    let statuses: Vec<ImageStatus> = images.iter().map(|image| image.status).collect();
    let mut others: BTreeSet<usize> = (0..rows.len()).filter(|row| !files.contains_key(row)).collect();
    for (row, status) in places.into_iter().zip(statuses) {
        let reason = match (&outcome, status) {
            (Ok(()), ImageStatus::Decoded) => continue,
            (Ok(()), ImageStatus::Unsupported) => {
                others.insert(row);
                continue;
            }
            (Ok(()), ImageStatus::Damaged) => "damaged JPEG".to_owned(),
            (Err(error), _) => error.to_string(),
        };
        let sample = dataset.sample_name(task.request.samples[row] as usize);
        failed.add(row, SampleError { sample, reason }, &mut rows[row]);
    }
    if is_current() {
        others.iter().filter(|row| !failed.has(**row)).for_each(|_| decoder.count_on_processor());
    }
    Some(others)
}

/// Mixes a sample with another one. If that cannot be read, numbers still change.
fn perturb(perturbation: &Perturbation, dataset: &dyn Dataset, sample: u64, fields: &mut [&mut [u8]]) {
    let other = perturbation.other_sample(sample, dataset.len() as u64).and_then(|other| {
        let mut memory: Vec<Vec<u8>> = fields.iter().map(|field| vec![0; field.len()]).collect();
        let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
        read_sample(dataset, other as usize, None, &mut slices).ok().map(|()| memory)
    });
    perturbation.apply(dataset, sample, fields, other.as_deref());
}

/// Reads a sample.
pub(super) fn read_sample(
    dataset: &dyn Dataset,
    index: usize,
    epoch: Option<Epoch>,
    fields: &mut [&mut [u8]],
) -> Result<(), SampleError> {
    caught(dataset, index, || match epoch {
        Some(epoch) => dataset.read_in_epoch(index, epoch, fields),
        None => dataset.read(index, fields),
    })
}

/// Calls a function that reads a sample, and converts a panic to an error: a decoder that panics on a damaged file must not end
/// the loader.
fn caught<T>(
    dataset: &dyn Dataset,
    index: usize,
    read: impl FnOnce() -> Result<T, SampleError>,
) -> Result<T, SampleError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let reason = format!("panicked while reading: {}", flagperf_core::panic::panic_text(&*panic));
        Err(SampleError { sample: dataset.sample_name(index), reason })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_decoder::{BatchDecoder, EncodedFile};
    use crate::pixels::ImageTransforms;
    use crate::{Field, FieldRole, Filter, Geometry, Target, Transform};
    use flagperf_core::engine_error::EngineError;
    use flagperf_core::event::DatasetFacts;
    use flagperf_core::image_decoder::{DecoderLibrary, DecoderOptions, ImageDecoder};
    use flagperf_core::lent_memory::{HeapMemory, LentMemory};
    use flagperf_core::tensor::DType;

    /// A library that is never asked for a decoder, because no file can be read.
    struct Unused;

    impl DecoderLibrary for Unused {
        fn name(&self) -> &str {
            "unused"
        }
        fn open(&self, _: &DecoderOptions) -> Result<Box<dyn ImageDecoder>, EngineError> {
            Err(EngineError::Failed("it was asked for a decoder".to_owned()))
        }
        fn sha256(&self) -> Option<String> {
            None
        }
    }

    /// A dataset whose files make their reader panic.
    struct Damaged {
        decoder: BatchDecoder,
        transforms: ImageTransforms,
        fields: Vec<Field>,
        facts: DatasetFacts,
    }

    impl Dataset for Damaged {
        fn facts(&self) -> &DatasetFacts {
            &self.facts
        }
        fn fields(&self) -> &[Field] {
            &self.fields
        }
        fn sample_name(&self, index: usize) -> String {
            format!("file {index}")
        }
        fn read(&self, _: usize, _: &mut [&mut [u8]]) -> Result<(), SampleError> {
            panic!("a file is read again without the decoder")
        }
        fn batch_decoder(&self) -> Option<(&BatchDecoder, &ImageTransforms)> {
            Some((&self.decoder, &self.transforms))
        }
        fn read_encoded(&self, index: usize, _: &mut [&mut [u8]]) -> Result<Option<EncodedFile>, SampleError> {
            panic!("a bug at {index}")
        }
    }

    #[test]
    fn a_panic_while_the_file_for_a_decoder_is_read_is_the_error_of_its_sample() {
        let resize = Geometry::Resize { target: Target::Exactly((2, 2)), filter: Filter::Bilinear };
        let transforms = ImageTransforms::new(&[Transform::Geometry(resize)], DType::F32).unwrap();
        let decoder = BatchDecoder::new(Arc::new(Unused), transforms.decoder_options().unwrap());
        let fields = vec![Field { name: "images".to_owned(), role: FieldRole::Input, spec: transforms.spec() }];
        let dataset = Damaged { decoder, transforms, fields, facts: DatasetFacts::default() };
        let mut lend =
            |_: &Field, bytes: usize| HeapMemory::zeroed(bytes).map(|memory| Box::new(memory) as Box<dyn LentMemory>);
        let slot = Slot::new(&dataset, 2, &mut lend).unwrap();
        let request = BatchRequest { number: 0, samples: Arc::from([5, 3]), perturbation: None };
        let task = FillTask { pass: 0, position: 0, request, epoch: None };
        let filled = fill_slot(slot, task, &dataset, None, &AtomicU64::new(0));
        let failed: Vec<String> = filled.failed.iter().map(|(row, error)| format!("{row}: {error}")).collect();
        let expected = |row: usize, file: usize| format!("{row}: file {file}: panicked while reading: a bug at {file}");
        assert_eq!(failed, [expected(0, 5), expected(1, 3)]);
    }
}
