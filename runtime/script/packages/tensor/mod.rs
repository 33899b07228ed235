//! `tensor`: tensors that scripts make and look at. Elements of any type are computed with as f64 and rounded back.
//!
//! Knows no device: a tensor that lies on one is copied to the host first.

mod arithmetic;
mod functions;
mod package;
mod value;

pub(super) use package::module;
pub(crate) use value::Tensor;
