//! Finds sub-graphs by pattern and replaces them, and makes graphs smaller without changing what they compute.
//!
//! A pattern and its replacement are text, in which each line is a node as ONNX's own text form writes it. Nothing here
//! executes a graph: constants are computed, and rewrites proved, by `flagperf-onnx-exec`.

mod call;
mod defaults;
mod diff;
mod edit;
mod find;
mod fold;
mod fusions;
mod index;
mod instance;
mod matched;
mod numbering;
mod parse;
mod pattern;
mod place;
mod replace;
mod simplify;
mod vendor_operator;

pub use call::{describe_call, has_subgraph, is_random};
pub use diff::{DiffRegion, GraphDiff, diff};
pub use edit::{EditError, extract, insert, remove_unused, rename};
pub use find::NearMiss;
pub use fold::{known_integers, replace_by_constants};
pub use fusions::{FUSIONS, Fusion};
pub use index::prepare;
pub use matched::Match;
pub use numbering::{Contents, Numbered, Numbering, constant_of, weight_contents};
pub use pattern::{Pattern, PatternError};
pub use replace::{Region, Replaced, Replacement, Rewrite, RewriteError, find, replace, with_version};
pub use simplify::{Simplified, simplify};
pub use vendor_operator::{VendorOperator, expand_operators};
