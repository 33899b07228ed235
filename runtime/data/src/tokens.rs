//! A stream of tokens in one file, cut into samples of one length, with or without masking.

use std::path::PathBuf;

use super::array_file::{ArrayFile, StoredType};
use super::masking::Masking;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, Tensor, TensorSpec};

/// The description of a stream of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenStreamOptions {
    /// The file: .npy or .safetensors, or flat numbers of the type `stored`.
    pub file: PathBuf,
    /// Type of the elements of a file without a header.
    pub stored: Option<StoredType>,
    /// Name of the tensor in a safetensors file; needed if it has several.
    pub key: Option<String>,
    /// Tokens per sample.
    pub length: usize,
    /// Tokens from the beginning of a sample to that of the next.
    pub stride: usize,
    /// Number of tokens of the model; a larger token is an error. `None` for no check.
    pub vocabulary: Option<u32>,
    /// Masking for masked language modelling.
    pub masking: Option<Masking>,
    /// Integer type of the tokens in a batch.
    pub id_type: DType,
}

/// An opened stream of tokens. Fields: `input_ids` (input) and `labels` (truth), both of the length of a sample. With
/// masking, the labels are the original tokens where they were chosen and -100 elsewhere; otherwise all tokens.
pub struct TokenStream {
    array: ArrayFile,
    options: TokenStreamOptions,
    samples: usize,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

impl TokenStream {
    /// Opens the file and checks its header. In a short text that is marked as a sample, samples begin at shorter distances
    /// than `stride` if there would be fewer than `least` of them.
    ///
    /// # Errors
    /// When the file cannot be opened, does not contain integers, or has fewer tokens than a sample.
    pub fn open(root: &DataRoot, options: &TokenStreamOptions, least: usize) -> Result<Self, DataError> {
        let array = ArrayFile::open(root, &options.file, options.stored, options.key.as_deref())?;
        let invalid = |reason: String| Err(DataError::Invalid { path: options.file.clone(), reason });
        if array.stored.dtype().is_float() {
            return invalid(format!("has elements of type {}, but tokens are integers", array.stored.dtype().name()));
        }
        let tokens: usize = array.shape.iter().product();
        if tokens < options.length {
            return invalid(format!("has {tokens} tokens, fewer than the {} of a sample", options.length));
        }
        let mut options = options.clone();
        if root.is_sample() && least > 1 {
            options.stride = options.stride.min((tokens - options.length) / (least - 1)).max(1);
        }
        let samples = (tokens - options.length) / options.stride.max(1) + 1;
        let field = |name: &str, role, dtype| Field {
            name: name.to_owned(),
            role,
            spec: TensorSpec::new([options.length], dtype),
        };
        let fields =
            vec![field("input_ids", FieldRole::Input, options.id_type), field("labels", FieldRole::Truth, DType::I64)];
        let TokenStreamOptions { file, length, stride, masking, .. } = &options;
        let text = format!("tokens {}, length {length}, stride {stride}, masking: {masking:?}", file.display());
        let facts = root.facts(
            &root.path().join(file),
            samples,
            hash_bytes(format!("{text}; {}", array.content()).as_bytes()),
            vec![text],
        );
        Ok(TokenStream { array, options, samples, fields, facts })
    }

    fn sample(&self, index: usize) -> Result<Vec<i64>, String> {
        let first = index * self.options.stride;
        let tokens = self.array.read(first, self.options.length)?.cast(DType::I64);
        let tokens = tokens.as_slice::<i64>().map_err(|error| error.to_string())?.to_vec();
        let most = self.options.vocabulary.map_or(i64::MAX, i64::from);
        match tokens.iter().position(|token| !(0..most).contains(token)) {
            Some(at) => Err(format!(
                "token {} at position {} is outside the vocabulary of {most}: does the tokenizer match the model?",
                tokens[at],
                first + at
            )),
            None => Ok(tokens),
        }
    }
}

impl Dataset for TokenStream {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        format!("{}: tokens from {}", self.options.file.display(), index * self.options.stride)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        let mut tokens = self.sample(index).map_err(failed)?;
        let masking = self.options.masking.as_ref();
        let labels = match masking {
            Some(masking) => masking.apply(index as u64, &mut tokens),
            None => tokens.clone(),
        };
        write_field(&tokens, self.options.id_type, fields[0]).map_err(failed)?;
        write_field(&labels, DType::I64, fields[1]).map_err(failed)
    }
}

/// Writes whole numbers as elements of the type `dtype`.
pub(super) fn write_field(numbers: &[i64], dtype: DType, out: &mut [u8]) -> Result<(), String> {
    let tensor = Tensor::from_vec([numbers.len()], numbers.to_vec()).map_err(|error| error.to_string())?;
    write_tensor(&tensor.cast(dtype), out)
}

/// Writes the elements of a tensor.
pub(super) fn write_tensor(tensor: &Tensor, out: &mut [u8]) -> Result<(), String> {
    if tensor.bytes().len() != out.len() {
        return Err(format!("{} bytes for a field of {}", tensor.bytes().len(), out.len()));
    }
    out.copy_from_slice(tensor.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masking::IGNORED_LABEL;

    fn options() -> TokenStreamOptions {
        TokenStreamOptions {
            file: "tokens.bin".into(),
            stored: Some(StoredType::U16),
            key: None,
            length: 4,
            stride: 3,
            vocabulary: Some(100),
            masking: None,
            id_type: DType::I32,
        }
    }

    fn open(tokens: &[u16], options: &TokenStreamOptions) -> Result<(tempfile::TempDir, TokenStream), DataError> {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        std::fs::write(folder.path().join("tokens.bin"), bytes).unwrap();
        TokenStream::open(&DataRoot::open(folder.path()).unwrap(), options, 0).map(|stream| (folder, stream))
    }

    fn read(stream: &TokenStream, index: usize) -> Result<(Vec<i32>, Vec<i64>), SampleError> {
        let (mut ids, mut labels) = ([0; 16], [0; 32]);
        stream.read(index, &mut [&mut ids, &mut labels])?;
        Ok((bytemuck::pod_collect_to_vec(&ids), bytemuck::pod_collect_to_vec(&labels)))
    }

    #[test]
    fn a_stream_is_cut_into_samples_and_the_rest_is_left_out() {
        let (_folder, stream) = open(&[0, 1, 2, 3, 4, 5, 6, 7, 8], &options()).unwrap();
        assert_eq!(stream.len(), 2);
        assert_eq!(read(&stream, 1).unwrap(), (vec![3, 4, 5, 6], vec![3, 4, 5, 6]));
    }

    #[test]
    fn a_sample_text_has_as_many_different_samples_as_are_wanted_and_another_text_does_not() {
        let (folder, _) = open(&(0..50).collect::<Vec<u16>>(), &options()).unwrap();
        let samples = |least| {
            let stream = TokenStream::open(&DataRoot::open(folder.path()).unwrap(), &options(), least).unwrap();
            (stream.len(), read(&stream, stream.len() - 1).unwrap().0[0])
        };
        assert_eq!(samples(24), (16, 45));
        std::fs::write(folder.path().join(crate::root::SAMPLE_MARK), "").unwrap();
        assert_eq!(samples(0), (16, 45));
        assert_eq!(samples(24), (24, 46));
        assert_eq!(samples(1000), (47, 46));
    }

    #[test]
    fn with_masking_the_labels_are_the_hidden_tokens() {
        let masking = Masking { share: 1.0, mask: 9, vocabulary: 1, special: vec![2], seed: 0 };
        let (_folder, stream) =
            open(&[50, 51, 2, 53], &TokenStreamOptions { masking: Some(masking), ..options() }).unwrap();
        let (ids, labels) = read(&stream, 0).unwrap();
        assert_eq!(labels, [50, 51, IGNORED_LABEL, 53]);
        assert_eq!(ids[2], 2);
        assert!(ids.iter().zip([50, 51, 2, 53]).all(|(id, original)| [9, 0, original].contains(id)), "{ids:?}");
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named_with_its_position() {
        let (_folder, stream) = open(&[0, 1, 2, 3, 4, 100, 6], &options()).unwrap();
        let expected = "tokens.bin: tokens from 3: token 100 at position 5 is outside the vocabulary of 100: does the \
                        tokenizer match the model?";
        assert_eq!(read(&stream, 1).unwrap_err().to_string(), expected);
    }

    #[test]
    fn fewer_tokens_than_a_sample_are_refused() {
        let error = open(&[1, 2, 3], &options()).err().unwrap();
        assert_eq!(error.to_string(), "`tokens.bin`: has 3 tokens, fewer than the 4 of a sample");
    }
}
