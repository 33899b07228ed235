//! What the evaluator of a case received, stored so that accuracy can be computed again, and the digests of outputs.
//!
//! Knows no engine and no clock.

mod output_digest;
mod stored_pass;
mod tensor_file;

pub use output_digest::{digest_outputs, name_outputs};
pub use stored_pass::{FILE_KIND, StoredPass, StoredPassError, StoredStep, file_name};
pub use tensor_file::{StoredTensor, stored_dtype, write_tensors};
