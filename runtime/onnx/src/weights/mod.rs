//! Weights: reads or generates their bytes and returns them as tensors.
//!
//! Knows nothing about engines or graph rewriting.

mod configuration;
mod error;
mod gguf;
mod int8;
mod listing;
mod load;
mod mapped;
mod pickle;
mod pth;
mod reader;
mod safetensors;
mod seed;

pub use configuration::ConfigurationValue;
pub use error::{WeightError, WeightMismatches};
pub use int8::Int8Part;
pub use listing::find_weights_file;
pub use load::WeightOptions;
pub(crate) use mapped::MappedFile;
pub use reader::WeightReader;
pub(crate) use reader::cast_saturating;

/// The tensors of a weights file by name: each a specification, or a tensor of an unsupported type.
type TensorListing = std::collections::HashMap<String, Result<crate::TensorSpec, UnsupportedTensor>>;

/// A tensor whose element type is not supported.
#[derive(Clone, Debug)]
struct UnsupportedTensor {
    /// Its type as the file names it.
    kind: String,
    shape: Vec<usize>,
    /// The types that are supported in a file of this format.
    supported: std::sync::Arc<str>,
}

impl UnsupportedTensor {
    fn describe(&self) -> String {
        format!("the type {} and the shape {:?}", self.kind, self.shape)
    }
}

/// Returns names as a list for an error.
fn join_names(names: impl Iterator<Item = impl std::fmt::Display>) -> std::sync::Arc<str> {
    names.map(|name| name.to_string()).collect::<Vec<_>>().join(", ").into()
}

/// Separates the key of a dictionary from the name of a tensor in it. PyTorch's files may contain several dictionaries;
/// the key of one within others is a path, such as `model.state`.
const KEY_SEPARATOR: char = '\0';

/// Returns the key of the dictionary that contains a tensor, if any, and the name of the tensor.
fn split_key(key: &str) -> (Option<&str>, &str) {
    key.split_once(KEY_SEPARATOR).map_or((None, key), |(dict, name)| (Some(dict), name))
}
