//! `tensor`: tensors that scripts create, compute with and inspect. The functions are the executor's operators with the
//! meaning that ONNX defines: shapes are broadcast, integers are computed as integers, f16 and bf16 as themselves, and
//! nothing is converted unless the script says so.
//!
//! Knows nothing about devices: a tensor in device memory is copied to the host first.

mod creation;
mod documented;
mod elementwise;
mod inspection;
mod layout;
mod ordering;
mod package;
mod pairwise;
mod random;
mod reduction;
mod selection;
mod torch_random;
mod value;
mod work;

pub(super) use package::module;
pub(crate) use value::Tensor;

#[cfg(test)]
mod tests;
