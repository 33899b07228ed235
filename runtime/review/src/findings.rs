//! The findings of a review, which are also the schema of its JSON.

use serde::Serialize;

use super::role::{Outcome, Role};
use super::tree::FilePath;

/// Version of the schema of a review.
pub const SCHEMA: u32 = 1;

/// A review.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Review {
    /// Version of the schema.
    pub schema: u32,
    /// The compared commits; null for trees that are no commits.
    pub commits: Option<Commits>,
    /// The greatest outcome of all findings.
    pub verdict: Verdict,
    /// As whom the change was judged.
    pub judged_as: JudgedAs,
    /// The number of changed files.
    pub changed_files: usize,
    /// What is not simply allowed, and notes about what is; the gravest first.
    pub findings: Vec<ReviewFinding>,
    /// The changed files, each with the rule that decides about it.
    pub files: Vec<FileReview>,
    /// The changed keys of YAML files.
    pub keys: Vec<KeyChange>,
    /// The changed functions of scripts.
    pub functions: Vec<FunctionChange>,
    /// What the adaptations of the changed cases and vendors cost.
    pub costs: Vec<AdaptationCost>,
    /// Remarks about the review itself.
    pub notes: Vec<String>,
}

/// The commits whose trees were compared, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Commits {
    /// The commit before: where the change separated from its base.
    pub base: String,
    /// The commit after.
    pub head: String,
}

/// The result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The role may make every change.
    Allowed,
    /// Nothing is refused, but somebody else has to agree.
    Needs,
    /// Something is refused.
    Refused,
}

impl Verdict {
    /// Returns the verdict as a phrase.
    pub fn phrase(self) -> &'static str {
        match self {
            Verdict::Allowed => "allowed",
            Verdict::Needs => "needs the agreement of others",
            Verdict::Refused => "refused",
        }
    }
}

/// As whom a change was judged, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JudgedAs {
    /// `vendor:NAME`, `case-author` or `maintainer`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub role: Role,
    /// Whether the caller named the role; otherwise it follows from the changed files.
    pub is_given: bool,
    /// Why this role.
    pub reason: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReviewFinding {
    /// `allowed` for a note, `needs ROLE`, or `refused`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub outcome: Outcome,
    /// The rule of the policy, or the check.
    pub rule: String,
    #[cfg_attr(test, schemars(with = "String"))]
    pub file: FilePath,
    /// The line in the file after the change; null for the whole file.
    pub line: Option<usize>,
    /// What was found.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileReview {
    /// The path, after the change if the file still exists.
    #[cfg_attr(test, schemars(with = "String"))]
    pub file: FilePath,
    /// The earlier path of a renamed file.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub renamed_from: Option<FilePath>,
    /// `added`, `removed`, `modified` or `renamed`.
    pub change: &'static str,
    /// The rule about the path.
    pub rule: String,
    /// What that rule decides. Rules about keys, functions and rows may decide differently about parts of the file.
    #[cfg_attr(test, schemars(with = "String"))]
    pub outcome: Outcome,
    /// How the content was compared.
    pub compared: Comparison,
}

/// How the content of a file was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// By its path only.
    Path,
    /// Key by key.
    Keys,
    /// Function by function.
    Functions,
    /// Row by row.
    Rows,
    /// The same functions or keys: only layout, comments or order differ.
    LayoutOnly,
    /// Not at all: it is binary, too large, malformed, or no file.
    NotCompared,
}

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeyChange {
    #[cfg_attr(test, schemars(with = "String"))]
    pub file: FilePath,
    /// The line of the key after the change; null if it is gone.
    pub line: Option<usize>,
    /// The key with those that contain it: `target_accuracy.top1`, `mean[0]`.
    pub key: String,
    /// The value before; null if the key is new.
    pub before: Option<String>,
    /// The value after; null if the key is gone.
    pub after: Option<String>,
}

/// A function that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FunctionChange {
    #[cfg_attr(test, schemars(with = "String"))]
    pub file: FilePath,
    /// The line of the definition after the change; null if the function is gone.
    pub line: Option<usize>,
    /// The function; `statements` for those outside all functions.
    pub function: String,
    /// How it differs.
    pub change: FunctionChangeKind,
    /// Where a moved function was before: `scripts/tiny/forward.rhai: step`.
    pub moved_from: Option<String>,
    /// Whether the time of the function counts as `core`: a forward function is it or calls it.
    pub is_timed: bool,
    /// Functions that it newly calls.
    pub calls_added: Vec<CalledFunction>,
    /// Functions that it no longer calls.
    pub calls_removed: Vec<CalledFunction>,
    /// Constants that differ.
    pub literals: Vec<LiteralChange>,
}

/// How a function differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FunctionChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its tree differs.
    Changed,
    /// The same tree has another name or is in another file.
    Moved,
}

/// A function that a script calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CalledFunction {
    /// Its name, with the package or the shared script.
    pub name: String,
    /// The packages of the host with a function of this name; empty for functions of scripts and of the language.
    pub packages: Vec<String>,
}

/// A constant that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiteralChange {
    /// Its line after the change; null if it is gone.
    pub line: Option<usize>,
    /// The constant before; null if it is new.
    pub before: Option<String>,
    /// The constant after; null if it is gone.
    pub after: Option<String>,
}

/// How far the adaptation of a case by a vendor differs from the standard case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AdaptationCost {
    pub case: String,
    pub vendor: String,
    /// The keys that the overlay sets.
    pub keys: Vec<String>,
    /// Functions of the vendor's scripts that the standard case lacks or has otherwise.
    pub functions: Vec<String>,
    /// Lines of the vendor's scripts, without empty lines and comments.
    pub script_lines: usize,
    /// Files with requirements of the vendor.
    pub requirements: Vec<String>,
    /// The record that states where the model's nodes ran; null without one.
    pub record: Option<String>,
    /// Nodes of the model that the record places on the processor although others ran on a device; null if unknown.
    pub nodes_off_device: Option<u64>,
    /// All nodes of the model that the record places; null if unknown.
    pub nodes: Option<u64>,
}
