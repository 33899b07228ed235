//! Tensors in safetensors files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, View};

use flagperf_core::tensor::{DType, Tensor};

const DTYPES: [(DType, Dtype); 13] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

/// A tensor as an entry of a file.
pub struct StoredTensor(pub Tensor);

impl View for StoredTensor {
    fn dtype(&self) -> Dtype {
        let row = DTYPES.into_iter().find(|(dtype, _)| *dtype == self.0.dtype());
        row.expect("the table contains every element type").1
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.0.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.0.bytes().len()
    }
}

/// Writes tensors to a file.
///
/// # Errors
/// When the file cannot be written; the error has the path, and the kind of its cause.
pub fn write_tensors(
    tensors: Vec<(String, StoredTensor)>,
    metadata: HashMap<String, String>,
    path: &Path,
) -> io::Result<()> {
    // It writes a temporary file and renames it: a link at `path` is replaced, not followed.
    safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|error| match error {
        SafeTensorError::IoError(cause) => {
            io::Error::new(cause.kind(), format!("cannot write `{}`: {cause}", path.display()))
        }
        error => io::Error::other(format!("cannot write `{}`: {error}", path.display())),
    })
}

/// Returns the element type of an entry; `None` when tensors have no such type.
pub fn stored_dtype(view: &TensorView<'_>) -> Option<DType> {
    DTYPES.into_iter().find(|(_, stored)| *stored == view.dtype()).map(|(dtype, _)| dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_writing_has_the_path_and_the_kind_of_its_cause() {
        let path = Path::new("/no/such/folder/file");
        let error = write_tensors(Vec::new(), HashMap::new(), path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("cannot write `/no/such/folder/file`: "), "{error}");
    }
}
