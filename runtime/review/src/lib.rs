//! What a change touches and whether its author may: a pure function of a policy, two trees and a role.
//!
//! Knows no version control, no engine and no vendor by name.

mod content;
mod cost;
mod entries;
mod findings;
mod graph;
mod judge;
mod keys;
mod loader;
mod pattern;
mod policy;
mod published;
mod result_row;
mod reviewer;
mod role;
mod rows;
mod scripts;
mod submission;
mod suspicion;
mod tree;

#[cfg(test)]
mod memory_tree;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod submission_tests;
#[cfg(test)]
mod tests;

pub use findings::{
    AdaptationCost, CalledFunction, Commits, Comparison, FileReview, FunctionChange, FunctionChangeKind, JudgedAs,
    KeyChange, LiteralChange, Review, ReviewFinding, SCHEMA, Verdict,
};
pub use pattern::{Bindings, Pattern};
pub use policy::{CHECKS, POLICY_FILE, Policy, PolicyError};
pub use reviewer::{COMPARED_MAX, ReviewRequest, review};
pub use role::{Outcome, Role, UnknownRole};
pub use tree::{Change, EntryKind, FILE_BYTES_MAX, FilePath, Name, Side, Snapshot, Unreadable};
