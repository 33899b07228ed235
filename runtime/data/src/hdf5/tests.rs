//! Tests of datasets in HDF5 files, with files that h5py wrote: `tests/reference/hdf5/make.py`.

use super::*;
use crate::{Loader, LoaderOptions, Pipeline, SampleSource, TrainingSampler, loader::BadSamplePolicy};
use flagperf_core::lent_memory::HeapMemory;

const FILES: [(&str, &[u8]); 3] = [
    ("a.hdf5", include_bytes!("../../../../tests/reference/hdf5/a.hdf5")),
    ("b.hdf5", include_bytes!("../../../../tests/reference/hdf5/b.hdf5")),
    ("c.h5", include_bytes!("../../../../tests/reference/hdf5/c.h5")),
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("shards")).unwrap();
    for (name, bytes) in FILES {
        fs::write(folder.path().join("shards").join(name), bytes).unwrap();
    }
    fs::write(folder.path().join("shards/README.txt"), "not a shard").unwrap();
    folder
}

fn field(name: &str, role: FieldRole, dtype: Option<DType>) -> Hdf5Field {
    Hdf5Field { name: name.to_owned(), role, dataset: name.to_owned(), dtype }
}

fn options() -> Hdf5Options {
    let fields = vec![
        field("ids", FieldRole::Input, Some(DType::I64)),
        field("weights", FieldRole::Input, None),
        field("labels", FieldRole::Truth, None),
    ];
    Hdf5Options { path: "shards".into(), fields }
}

fn open(folder: &Path, options: &Hdf5Options) -> Result<Hdf5Shards, String> {
    Hdf5Shards::open(&DataRoot::open(folder).unwrap(), options, DType::F16).map_err(|error| error.to_string())
}

#[test]
fn rows_of_contiguous_and_compressed_files_are_the_samples_in_order_of_the_names() {
    let folder = folder();
    let shards = open(folder.path(), &options()).unwrap();
    let specs: Vec<String> = shards.fields().iter().map(|field| field.spec.to_string()).collect();
    assert_eq!((shards.len(), specs), (15, ["4,i64", "1,f16", "i8"].map(str::to_owned).to_vec()));
    for sample in [14, 0, 5, 9, 4, 10] {
        let (mut ids, mut weight, mut label) = ([0; 32], [0; 2], [0; 1]);
        shards.read(sample, &mut [&mut ids, &mut weight, &mut label]).unwrap();
        let ids: Vec<i64> = bytemuck::pod_collect_to_vec(&ids);
        assert_eq!(ids, (0..4).map(|at| 100 * sample as i64 + at).collect::<Vec<_>>());
        assert_eq!(half::f16::from_ne_bytes(weight).to_f32(), sample as f32 / 4.0);
        assert_eq!(usize::from(label[0]), sample % 2);
    }
    assert_eq!(shards.sample_name(7), "shards/b.hdf5: row 2");
    let one = Hdf5Options { path: "shards/c.h5".into(), ..options() };
    assert_eq!(open(folder.path(), &one).unwrap().len(), 5);
}

#[test]
fn a_shuffled_epoch_reads_every_sample_with_any_number_of_workers() {
    let folder = folder();
    let pipeline = Pipeline { source: SampleSource::Hdf5(options()), transforms: Vec::new() };
    let dataset = pipeline.open_for_training(folder.path(), DType::F32).unwrap();
    let read = |workers| {
        let options = LoaderOptions {
            batch_size: 4,
            workers,
            prefetch: 3,
            pad_last_batch: false,
            on_bad_sample: BadSamplePolicy::Fail,
            preloaded: false,
        };
        let lend: crate::MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
        let mut loader = Loader::new(std::sync::Arc::clone(&dataset), options, lend).unwrap();
        let sampler = TrainingSampler { seed: 3, samples: 15, batch: 4, rank: 0, world: 1, drop_last: false };
        loader.start_epoch(&sampler, 0, 0..4);
        let ids = |batch: Result<crate::Batch, crate::LoadError>| batch.unwrap().inputs["ids"].to_f64();
        loader.by_ref().flat_map(ids).collect::<Vec<f64>>()
    };
    let alone = read(0);
    assert_eq!(read(3), alone);
    let mut firsts: Vec<f64> = alone.iter().step_by(4).copied().collect();
    assert_ne!(firsts, (0..15).map(|at| f64::from(at * 100)).collect::<Vec<_>>());
    firsts.sort_by(f64::total_cmp);
    assert_eq!(firsts, (0..15).map(|at| f64::from(at * 100)).collect::<Vec<_>>());
}

#[test]
fn what_the_files_lack_is_named() {
    let folder = folder();
    let with = |dataset: &str| {
        let fields = vec![Hdf5Field { dataset: dataset.to_owned(), ..field("x", FieldRole::Input, None) }];
        open(folder.path(), &Hdf5Options { fields, ..options() }).err().unwrap()
    };
    let missing = with("tokens");
    assert!(missing.starts_with("`shards/a.hdf5`: dataset `tokens`: ") && missing.contains("not found"), "{missing}");
    fs::create_dir(folder.path().join("empty")).unwrap();
    let empty = open(folder.path(), &Hdf5Options { path: "empty".into(), ..options() }).err().unwrap();
    assert_eq!(empty, "`empty`: has no file that ends in .hdf5 or .h5");
    fs::write(folder.path().join("shards/b.hdf5"), b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    let other = open(folder.path(), &options()).err().unwrap();
    assert!(other.starts_with("`shards/b.hdf5`: "), "{other}");
}

#[test]
fn a_file_that_is_cut_off_or_damaged_anywhere_is_an_error_or_other_numbers_and_never_a_panic() {
    for (name, bytes) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let options = Hdf5Options { path: name.into(), ..options() };
        let read_all = |bytes: &[u8]| {
            fs::write(folder.path().join(name), bytes).unwrap();
            let shards = open(folder.path(), &options)?;
            for index in 0..shards.len().min(8) {
                let sizes = shards
                    .fields()
                    .iter()
                    .map(|field| byte_count(&field.spec.fixed_shape().unwrap(), field.spec.dtype));
                let mut rows: Vec<Vec<u8>> = sizes.map(|size| vec![0; size.unwrap().min(1 << 20)]).collect();
                let mut rows: Vec<&mut [u8]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
                shards.read(index, &mut rows).map_err(|error| error.reason)?;
            }
            Ok::<_, String>(())
        };
        read_all(bytes).unwrap();
        let mut reasons = Vec::new();
        for at in (0..bytes.len()).step_by(13) {
            reasons.extend(read_all(&bytes[..at]).err());
            for value in [0, 0x7f, 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] = value;
                reasons.extend(read_all(&damaged).err());
            }
        }
        let panics: Vec<&String> = reasons.iter().filter(|reason| reason.contains("panicked")).collect();
        assert!(panics.is_empty(), "{name}: {} of {}: {}", panics.len(), reasons.len(), panics[0]);
        assert!(reasons.len() > bytes.len() / 26, "{name}: {}", reasons.len());
    }
}
