//! The packages that scripts can use in addition to the language: one file per package, each granted to some stages
//! only.
//!
//! Functions of a package are called with its name (`metric::top_k`), methods of values without it. Knows nothing about
//! cases.

#[cfg(test)]
mod api;
pub(super) mod boxes;
mod comparison;
pub(super) mod data;
pub(super) mod graph;
pub(super) mod image;
pub(super) mod log;
pub(super) mod metric;
pub(super) mod nn;
pub(super) mod optim;
pub(super) mod options;
mod parts;
pub(super) mod session;
mod table;
pub(super) mod tensor;
pub(super) mod text;
pub(super) mod timing;

pub(super) use comparison::refuse_meaningless_comparisons;
pub(super) use table::{names, register};
