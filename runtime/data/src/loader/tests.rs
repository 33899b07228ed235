//! Tests of the loader.

mod epochs;

use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::Duration;

use super::*;
use crate::{Field, FieldRole, HeldSamples, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::lent_memory::HeapMemory;
use flagperf_core::tensor::{DType, TensorSpec};

/// A dataset whose samples are their own index. Reading some of them fails, and reading one may panic.
struct Numbers {
    count: usize,
    bad: Vec<usize>,
    panics: Option<usize>,
    fields: Vec<Field>,
    facts: DatasetFacts,
    /// The thread that read each sample.
    readers: Mutex<Vec<ThreadId>>,
}

impl Numbers {
    fn new(count: usize) -> Self {
        let field = |name: &str, role| Field {
            name: name.to_owned(),
            role,
            spec: TensorSpec::new([] as [usize; 0], DType::I64),
        };
        let fields = vec![field("values", FieldRole::Input), field("labels", FieldRole::Truth)];
        let (bad, facts, readers) = (Vec::new(), DatasetFacts::default(), Mutex::default());
        Numbers { count, bad, panics: None, fields, facts, readers }
    }
}

impl Dataset for Numbers {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }
    fn len(&self) -> usize {
        self.count
    }
    fn fields(&self) -> &[Field] {
        &self.fields
    }
    fn sample_name(&self, index: usize) -> String {
        format!("number {index}")
    }
    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.readers.lock().unwrap().push(std::thread::current().id());
        for field in fields.iter_mut() {
            field.copy_from_slice(&(index as i64).to_ne_bytes());
        }
        if self.panics == Some(index) {
            panic!("a decoder's bug at {index}");
        }
        if self.bad.contains(&index) {
            return Err(SampleError { sample: self.sample_name(index), reason: "bad".to_owned() });
        }
        Ok(())
    }
}

fn options(batch_size: usize) -> LoaderOptions {
    LoaderOptions {
        batch_size,
        workers: 3,
        prefetch: 2,
        pad_last_batch: true,
        on_bad_sample: BadSamplePolicy::Count,
        preloaded: false,
    }
}

fn loader(numbers: Numbers, options: LoaderOptions) -> Loader {
    Loader::new(Arc::new(numbers), options, &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?))).unwrap()
}

fn values(batch: &Batch) -> Vec<i64> {
    batch.inputs["values"].as_slice::<i64>().unwrap().to_vec()
}

#[test]
fn every_sample_is_returned_once_per_pass_and_in_order() {
    for batch_size in [1, 7, 50, 64] {
        let mut loader = loader(Numbers::new(50), options(batch_size));
        for _ in 0..3 {
            loader.start_pass().unwrap();
            let mut seen = Vec::new();
            for number in 0..loader.batches() {
                let batch = loader.next().unwrap().unwrap();
                assert_eq!(batch.index, number);
                let rows = batch.sample_indices.len();
                assert_eq!(values(&batch)[..rows], batch.sample_indices.iter().map(|t| *t as i64).collect::<Vec<_>>());
                seen.extend_from_slice(&batch.sample_indices);
                loader.recycle(batch).unwrap();
            }
            assert!(loader.next().is_none());
            assert_eq!(seen, (0..50).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_batch_that_is_not_read_yet_is_not_waited_for() {
    let mut loader = loader(Numbers::new(6), options(2));
    assert!(loader.next_if_ready().is_none(), "no pass has begun");
    loader.start_pass().unwrap();
    let mut found = Vec::new();
    while found.len() < 3 {
        match loader.next_if_ready() {
            Some(batch) => found.push(values(&batch.unwrap())),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert_eq!(found, [vec![0, 1], vec![2, 3], vec![4, 5]]);
    assert!(loader.next_if_ready().is_none() && loader.next().is_none(), "the pass has ended");
    let mut loader = self::loader(Numbers::new(6), LoaderOptions { workers: 0, ..options(2) });
    loader.start_pass().unwrap();
    assert!(loader.next_if_ready().is_none(), "without threads nothing is read ahead");
}

#[test]
fn without_workers_a_batch_is_read_by_the_thread_that_requests_it() {
    for preloaded in [false, true] {
        let numbers = Arc::new(Numbers::new(7));
        let options = LoaderOptions { workers: 0, preloaded, ..options(2) };
        let lend: MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
        let mut loader = Loader::new(Arc::clone(&numbers) as Arc<dyn Dataset>, options, lend).unwrap();
        for _ in 0..2 {
            loader.start_pass().unwrap();
            let seen: Vec<i64> = loader.by_ref().flat_map(|batch| values(&batch.unwrap())).collect();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 0]);
        }
        let readers = numbers.readers.lock().unwrap();
        assert_eq!(readers.len(), if preloaded { 7 } else { 14 });
        assert!(readers.iter().all(|reader| *reader == std::thread::current().id()));
    }
}

#[test]
fn without_workers_nothing_is_read_ahead_and_every_slot_may_be_held() {
    let numbers = Arc::new(Numbers::new(8));
    let options = LoaderOptions { workers: 0, ..options(1) };
    let lend: MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
    let mut loader = Loader::new(Arc::clone(&numbers) as Arc<dyn Dataset>, options, lend).unwrap();
    loader.start_pass().unwrap();
    let held: Vec<Batch> = loader.by_ref().take(3).map(Result::unwrap).collect();
    assert_eq!(numbers.readers.lock().unwrap().len(), 3);
    assert_eq!(loader.next().unwrap().unwrap_err(), LoadError::AllHeld { slots: 3 });
    drop(held);
    assert_eq!(values(&loader.next().unwrap().unwrap()), [3]);
}

#[test]
fn the_last_batch_is_padded_with_zeros_or_short() {
    // With the memory of a single batch, the padding rows contained samples before.
    let mut padded = loader(Numbers::new(5), LoaderOptions { prefetch: 0, ..options(2) });
    let mut short = loader(Numbers::new(5), LoaderOptions { pad_last_batch: false, ..options(2) });
    for _ in 0..2 {
        padded.start_pass().unwrap();
        let last = padded.by_ref().last().unwrap().unwrap();
        assert_eq!((values(&last), last.rows, last.sample_indices), (vec![4, 0], 2, vec![4]));
    }
    short.start_pass().unwrap();
    let last = short.by_ref().last().unwrap().unwrap();
    assert_eq!((values(&last), last.rows, last.sample_indices), (vec![4], 1, vec![4]));
}

#[test]
fn a_bad_sample_is_counted_and_its_row_zeroed() {
    let numbers = Numbers { bad: vec![1, 3], panics: Some(2), ..Numbers::new(4) };
    let mut loader = loader(numbers, options(4));
    loader.start_pass().unwrap();
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(values(&batch), [0; 4]);
    let failed: Vec<String> = batch.failed.iter().map(|(row, error)| format!("{row} {error}")).collect();
    assert_eq!(
        failed,
        ["1 number 1: bad", "2 number 2: panicked while reading: a decoder's bug at 2", "3 number 3: bad"]
    );
    assert_eq!(batch.sample_indices, [0, 1, 2, 3]);
}

#[test]
fn a_bad_sample_fails_its_batch_with_the_option_fail() {
    let numbers = Numbers { bad: vec![3, 2], ..Numbers::new(6) };
    let mut loader = loader(numbers, LoaderOptions { on_bad_sample: BadSamplePolicy::Fail, ..options(2) });
    loader.start_pass().unwrap();
    let outcomes: Vec<_> = loader.by_ref().map(|batch| batch.map(|b| b.index).map_err(|e| e.to_string())).collect();
    assert_eq!(outcomes, [Ok(0), Err("number 2: bad".to_owned()), Ok(2)]);
}

#[test]
fn a_batch_that_is_held_cannot_be_recycled() {
    let mut loader = loader(Numbers::new(6), options(2));
    loader.start_pass().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let held = batch.truth["labels"].clone();
    let error = loader.recycle(batch).unwrap_err();
    assert_eq!(error, RecycleError::Held { batch: 0, field: "labels".to_owned() });
    assert_eq!(loader.by_ref().count(), 2);
    assert_eq!(held.as_slice::<i64>().unwrap(), [0, 1], "the memory of a held tensor is never overwritten");
}

#[test]
fn a_batch_of_another_loader_is_refused() {
    let mut one = loader(Numbers::new(2), options(2));
    let mut other = loader(Numbers::new(2), options(2));
    one.start_pass().unwrap();
    let batch = one.next().unwrap().unwrap();
    assert_eq!(other.recycle(batch), Err(RecycleError::Unknown(0)));
}

#[test]
fn holding_every_batch_is_an_error_and_not_a_deadlock() {
    let mut loader = loader(Numbers::new(10), options(1));
    loader.start_pass().unwrap();
    let held: Vec<_> = loader.by_ref().take(3).map(Result::unwrap).collect();
    assert_eq!(loader.next().unwrap().unwrap_err(), LoadError::AllHeld { slots: 3 });
    drop(held);
    assert_eq!(loader.by_ref().map(Result::unwrap).count(), 7);
}

#[test]
fn memory_is_borrowed_for_the_prefetched_batches_only() {
    let mut bytes_lent = 0;
    let mut lend = |_: &Field, bytes: usize| {
        bytes_lent += bytes;
        Ok(Box::new(HeapMemory::zeroed(bytes)?) as _)
    };
    let mut loader = Loader::new(Arc::new(Numbers::new(1000)), options(4), &mut lend).unwrap();
    loader.start_pass().unwrap();
    assert_eq!(loader.by_ref().map(Result::unwrap).count(), 250);
    assert_eq!(bytes_lent, 3 * 4 * (8 + 8), "three batches of four rows of two fields");
}

#[test]
fn a_new_pass_after_an_abandoned_one_starts_at_the_first_sample() {
    let mut loader = loader(Numbers::new(40), options(4));
    for _ in 0..20 {
        loader.start_pass().unwrap();
        let batch = loader.next().unwrap().unwrap();
        assert_eq!(values(&batch), [0, 1, 2, 3]);
    }
}

#[test]
fn a_dropped_loader_leaves_no_thread() {
    let numbers: Arc<dyn Dataset> = Arc::new(Numbers::new(100_000));
    let mut lend = |_: &Field, bytes: usize| Ok(Box::new(HeapMemory::zeroed(bytes)?) as _);
    let mut loader = Loader::new(Arc::clone(&numbers), options(1000), &mut lend).unwrap();
    loader.start_pass().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&numbers), 1);
}

#[test]
fn preloaded_batches_are_read_once_and_may_all_be_held() {
    let mut loader = loader(Numbers::new(7), LoaderOptions { preloaded: true, ..options(2) });
    for _ in 0..2 {
        loader.start_pass().unwrap();
        let all: Vec<_> = loader.by_ref().map(Result::unwrap).collect();
        assert_eq!(
            all.iter().flat_map(|batch| batch.sample_indices.clone()).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5, 6]
        );
        all.into_iter().for_each(|batch| loader.recycle(batch).unwrap());
    }
}

#[test]
fn batches_are_returned_in_the_order_of_the_pass() {
    for preloaded in [false, true] {
        let mut loader = loader(Numbers::new(7), LoaderOptions { preloaded, ..options(2) });
        loader.set_batches([&[6, 0][..], &[3, 1], &[5, 2], &[4]].map(Arc::from).to_vec());
        for order in [[2, 0, 3, 1], [1, 3, 0, 2]] {
            loader.start_pass_in_order(order.to_vec()).unwrap();
            for number in order {
                let batch = loader.next().unwrap().unwrap();
                assert_eq!((batch.index, &batch.sample_indices[..]), (number as u64, loader.samples(number)));
                assert_eq!(
                    values(&batch)[..batch.sample_indices.len()],
                    *batch.sample_indices.iter().map(|i| *i as i64).collect::<Vec<_>>()
                );
                loader.recycle(batch).unwrap();
            }
            assert!(loader.next().is_none());
        }
    }
}

#[test]
fn other_batches_can_be_requested_between_passes() {
    for preloaded in [false, true] {
        let mut loader = loader(Numbers::new(4), LoaderOptions { preloaded, ..options(2) });
        loader.start_pass().unwrap();
        assert_eq!(loader.by_ref().map(|batch| values(&batch.unwrap())).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
        let request = |samples: [u64; 2]| BatchRequest { number: 9, samples: samples.into(), perturbation: None };
        loader.start_requests(vec![request([3, 3]), request([1, 0])]).unwrap();
        for expected in [[3, 3], [1, 0]] {
            let batch = loader.next().unwrap().unwrap();
            assert_eq!((batch.index, values(&batch)), (9, expected.to_vec()));
            loader.recycle(batch).unwrap();
        }
        loader.start_pass().unwrap();
        assert_eq!(loader.by_ref().map(|batch| values(&batch.unwrap())).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
    }
}

#[test]
fn no_requested_batch_is_read_while_another_is_in_use() {
    let numbers = Arc::new(Numbers::new(12));
    let mut lend = |_: &Field, bytes: usize| -> Result<Box<dyn LentMemory>, EngineError> {
        Ok(Box::new(HeapMemory::zeroed(bytes)?))
    };
    let mut loader = Loader::new(Arc::clone(&numbers) as Arc<dyn Dataset>, options(2), &mut lend).unwrap();
    let request = |first: u64| BatchRequest { number: 0, samples: [first, first + 1].into(), perturbation: None };
    loader.start_requests((0..6).map(|i| request(2 * i)).collect()).unwrap();
    for step in 0..6 {
        let batch = loader.next().unwrap().unwrap();
        let reads = numbers.readers.lock().unwrap().len();
        loader.recycle(batch).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(numbers.readers.lock().unwrap().len(), reads, "step {step}");
    }
}

#[test]
fn held_samples_are_read_once_and_loaded_in_any_order() {
    let numbers = Arc::new(Numbers { bad: vec![3], ..Numbers::new(50) });
    let dataset = Arc::clone(&numbers) as Arc<dyn Dataset>;
    assert!(HeldSamples::read(Arc::clone(&dataset), &[2, 3], false).is_err());
    let held = HeldSamples::read(dataset, &[7, 3, 40], true).unwrap();
    let read = numbers.readers.lock().unwrap().len();
    assert_eq!([7, 3, 40].map(|index| held.has(index)), [true, false, true]);
    let options = LoaderOptions { workers: 0, prefetch: 0, on_bad_sample: BadSamplePolicy::Fail, ..options(3) };
    let lend: MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
    let mut loader = Loader::new(Arc::new(held), options, lend).unwrap();
    let request = |samples: &[u64]| BatchRequest { number: 0, samples: samples.into(), perturbation: None };
    for samples in [&[40, 7][..], &[7], &[40, 40, 7]] {
        let batch = loader.load(request(samples)).unwrap();
        assert_eq!((batch.rows, batch.sample_indices.as_slice()), (3, samples), "the other rows are padding");
        assert_eq!(values(&batch)[..samples.len()], samples.iter().map(|index| *index as i64).collect::<Vec<_>>());
        loader.recycle(batch).unwrap();
    }
    assert!(loader.load(request(&[3])).is_err());
    assert_eq!(numbers.readers.lock().unwrap().len(), read, "no sample is read again");
}
