//! Tensors in safetensors files.

use std::borrow::Cow;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, View};

use crate::tensor::{DType, Tensor};

const DTYPES: [(DType, Dtype); 9] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I8, Dtype::I8),
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

/// Returns the element type of an entry; `None` when tensors have no such type.
pub fn stored_dtype(view: &TensorView<'_>) -> Option<DType> {
    DTYPES.into_iter().find(|(_, stored)| *stored == view.dtype()).map(|(dtype, _)| dtype)
}
