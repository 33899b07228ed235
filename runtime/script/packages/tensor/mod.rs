//! `tensor`: tensors that scripts create and inspect. Arithmetic converts elements of any type to f64 and rounds the
//! result back.
//!
//! Knows nothing about devices: a tensor in device memory is copied to the host first.

mod arithmetic;
mod functions;
mod package;
mod value;

pub(super) use package::module;
pub(crate) use value::Tensor;
