//! The history of a repository: the two trees that a range of commits compares, and what differs between them.
//!
//! Reads objects and references of git and nothing else; changes nothing. Knows no policy.

mod range;
mod repository;
mod tree;

pub use range::{HistoryError, Range};
pub use repository::{RangeComparison, Repository};
pub use tree::CommitTree;
