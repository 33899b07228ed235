//! A small sample dataset whose samples are repeated, so that a pass has enough of them for its batches.

use std::sync::Arc;

use super::batch_decoder::{BatchDecoder, EncodedFile};
use super::mixing::Mixing;
use super::pixels::ImageTransforms;
use super::random::Epoch;
use super::{Dataset, Field, OpenLength, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;

/// A dataset with `samples` samples: those of another one, again and again in the same order.
pub(super) struct Repeated {
    dataset: Arc<dyn Dataset>,
    samples: usize,
    facts: DatasetFacts,
}

impl Repeated {
    pub(super) fn new(dataset: Arc<dyn Dataset>, samples: usize) -> Self {
        let mut facts = dataset.facts().clone();
        let text =
            format!("its {} samples are repeated to {samples}, so that a pass has enough batches", facts.samples);
        facts.samples = samples as u64;
        facts.index_sha256 = hash_bytes(format!("{}; {text}", facts.index_sha256).as_bytes());
        facts.pipeline.push(text);
        Repeated { dataset, samples, facts }
    }

    fn original(&self, index: usize) -> usize {
        index % self.dataset.len()
    }
}

impl Dataset for Repeated {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn open_length(&self) -> Option<OpenLength> {
        self.dataset.open_length()
    }

    fn sample_name(&self, index: usize) -> String {
        self.dataset.sample_name(self.original(index))
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.dataset.read(self.original(index), fields)
    }

    fn read_in_epoch(&self, index: usize, epoch: Epoch, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.dataset.read_in_epoch(self.original(index), epoch, fields)
    }

    fn batch_decoder(&self) -> Option<(&BatchDecoder, &ImageTransforms)> {
        self.dataset.batch_decoder()
    }

    fn read_encoded(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<Option<EncodedFile>, SampleError> {
        self.dataset.read_encoded(self.original(index), fields)
    }

    fn mixing(&self) -> Option<&Mixing> {
        self.dataset.mixing()
    }
}

#[cfg(test)]
mod tests {
    use crate::{ArrayField, FieldRole, Pipeline, SampleSource};
    use flagperf_core::tensor::DType;

    #[test]
    fn only_data_with_the_mark_of_a_sample_are_repeated_and_the_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }");
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(header.as_bytes());
        file.extend([5i64, 6, 7].iter().flat_map(|number| number.to_le_bytes()));
        std::fs::write(folder.path().join("numbers.npy"), file).unwrap();
        let numbers =
            ArrayField { name: "numbers".into(), role: FieldRole::Input, file: "numbers.npy".into(), key: None };
        let pipeline = Pipeline { source: SampleSource::Arrays(vec![numbers]), transforms: Vec::new() };
        let open = |least| pipeline.open_with_samples(folder.path(), DType::F32, least).unwrap();
        assert_eq!(open(8).len(), 3);
        std::fs::write(folder.path().join(crate::root::SAMPLE_MARK), "").unwrap();
        assert_eq!((open(0).len(), open(3).facts().pipeline.len()), (3, open(0).facts().pipeline.len()));
        let repeated = open(8);
        let mut number = [0; 8];
        repeated.read(7, &mut [&mut number]).unwrap();
        assert_eq!((repeated.len(), repeated.facts().samples, i64::from_ne_bytes(number)), (8, 8, 6));
        let text = "its 3 samples are repeated to 8, so that a pass has enough batches";
        assert_eq!(repeated.facts().pipeline.last().unwrap(), text);
        assert_ne!(repeated.facts().index_sha256, open(0).facts().index_sha256);
    }
}
