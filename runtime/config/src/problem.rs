//! The problems and notes that reading configuration files and the command line can produce.

use super::{FlopsError, Origin};

/// A problem with, or a note about, configuration files and the command line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigProblem {
    /// A file or folder that cannot be read.
    #[error("cannot be read: {reason}")]
    Read {
        /// The cause.
        reason: String,
    },
    /// A configuration file that exceeds the size limit.
    #[error("has {bytes} bytes; the limit for a configuration file is {bytes_max}")]
    TooLarge {
        /// Size of the file.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A folder without `configs/` or `scripts/`.
    #[error("`{path}` is not a flagperf checkout: configs/ or scripts/ is missing")]
    NoCheckout {
        /// The folder.
        path: String,
    },
    /// Results cannot be written there.
    #[error("`FLAGPERF_LOG_PATH` must be the folder for results, not `{path}`")]
    NoResultsFolder {
        /// The path.
        path: String,
    },
    /// Malformed YAML, or an invalid value in vendor.yaml.
    #[error("{reason}")]
    Yaml {
        /// The error message.
        reason: String,
    },
    /// A file that contains a list or a single value instead of a mapping.
    #[error("must be a mapping of keys to values")]
    NotMapping,
    /// A key that the file does not have.
    #[error("unknown key `{key}`{}", nearest_note(.nearest))]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that was probably meant.
        nearest: Option<String>,
        /// All keys of the file.
        known: String,
    },
    /// A key that a file of sections, such as vendor.yaml, does not have.
    #[error("unknown key `{key}`{}", nearest_note(.nearest))]
    UnknownSectionKey {
        /// The key, after those of its sections.
        key: String,
        /// The known key that was probably meant.
        nearest: Option<String>,
        /// All keys of the section.
        known: String,
    },
    /// A value of the wrong type.
    #[error("`{key}` must be {expected}, not {found}")]
    Type {
        /// The key.
        key: String,
        /// Description of the expected value.
        expected: &'static str,
        /// Description of the value found.
        found: String,
    },
    /// A value that is not one of the words allowed for its key.
    #[error("`{key}` must be {words}, not {found}")]
    Word {
        /// The key.
        key: String,
        /// The allowed words, as a phrase: `` `fail` or `count` ``.
        words: String,
        /// Description of the value found.
        found: String,
    },
    /// A required key that is missing.
    #[error("`{key}` is missing")]
    Missing {
        /// The key.
        key: String,
        /// Description of the key.
        about: &'static str,
    },
    /// An invalid `flops` expression.
    #[error("`flops`: {0}")]
    Flops(FlopsError),
    /// A key in `CASES` that is not a valid case key.
    #[error("`{key}` is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`){}", reason_text(.reason))]
    CaseKey {
        /// The key.
        key: String,
        /// Which part is wrong, and why; empty when the form as a whole is.
        reason: String,
    },
    /// A case without a folder in `configs/`.
    #[error("unknown case `{case}` (known: {known})")]
    UnknownCase {
        /// The case.
        case: String,
        /// The known cases.
        known: String,
        /// The known case that was probably meant.
        nearest: Option<String>,
    },
    /// A case for which no framework was given and none can be inferred.
    #[error("no framework for case `{case}`")]
    NoFramework {
        /// The case.
        case: String,
        /// The vendor's frameworks.
        known: String,
    },
    /// `--case NAME` runs with the framework that host.yaml lists for the case.
    #[error("case `{case}` runs with `{framework}`, which `CASES` names for it")]
    ListedFramework {
        /// The case.
        case: String,
        /// The framework.
        framework: String,
    },
    /// `--case NAME` runs with the vendor's default framework or its only one.
    #[error("case `{case}` runs with `{framework}`, the {which} framework of vendor `{vendor}`")]
    VendorsFramework {
        /// The case.
        case: String,
        /// The framework.
        framework: String,
        /// `default` or `only`.
        which: &'static str,
        /// The vendor.
        vendor: String,
    },
    /// No case to run.
    #[error("`CASES` is empty")]
    NoCases,
    /// An overlay sets a parameter.
    #[error("`{key}` is a case parameter{}; an overlay cannot change it", origin_note(.parameter))]
    OverlaysParameter {
        /// The key.
        key: String,
        /// Where the parameter is.
        parameter: Origin,
    },
    /// An overlay sets a key that only the author of a case may set.
    #[error("`{key}` cannot be set by a vendor: it defines what is measured, which is the same for every vendor")]
    CaseOnly {
        /// The key.
        key: String,
    },
    /// A free key of parameters.yaml that is similar to a key that the host reads.
    #[error("`{key}` is read only by scripts (nearest key that the host reads: `{near}`)")]
    NearParameter {
        /// The key.
        key: String,
        /// The key that was probably meant.
        near: &'static str,
    },
    /// A target that has the wrong type or is outside the range of its metric.
    #[error("`target_accuracy`: `{metric}` must be {expected}, not {found}")]
    Target {
        /// The metric.
        metric: String,
        /// Description of the expected value.
        expected: String,
        /// Description of the value found.
        found: String,
    },
    /// An unknown limit of agreement, or one with a wrong type or value.
    #[error("`agreement`: `{what}` must be {expected}, not {found}")]
    Limit {
        /// The precision or limit.
        what: String,
        /// Description of the expected value.
        expected: String,
        /// Description of the value found.
        found: String,
    },
    /// A target of a metric that the host does not compute, with a name similar to a metric that it does.
    #[error("`target_accuracy`: only a script can report `{metric}` (nearest metric of the host: `{near}`)")]
    NearMetric {
        /// The metric.
        metric: String,
        /// The metric that was probably meant.
        near: String,
    },
    /// A file of a case sets a key of host.yaml.
    #[error("`{key}` belongs to host.yaml (`{host_key}`)")]
    BelongsToHost {
        /// The key.
        key: String,
        /// The key of host.yaml.
        host_key: &'static str,
    },
    /// A file of a case sets a key that the host sets itself.
    #[error("`{key}` is set by the host itself")]
    Reserved {
        /// The key.
        key: String,
    },
    /// `parameters.yaml` sets a key of `configurations.yaml`.
    #[error("`{key}` belongs to configurations.yaml")]
    BelongsToSettings {
        /// The key.
        key: String,
    },
    /// An overlay that changes nothing.
    #[error("`{key}` is already `{value}` ({base}); an overlay must change the value")]
    Redundant {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Origin of the value that the overlay repeats.
        base: Origin,
    },
    /// `precision` and `fp16` of one file, or of one command line, contradict each other.
    #[error("`precision: {precision}` contradicts `fp16: {fp16}` ({at})")]
    PrecisionConflict {
        /// The value of `precision`.
        precision: String,
        /// The value of `fp16`.
        fp16: bool,
        /// Origin of `fp16`.
        at: Origin,
    },
    /// A file in the folder of overlays whose name belongs to no vendor.
    #[error("this file is not read: its name matches no folder in vendors/{}", nearest_note(.nearest))]
    UnreadOverlay {
        /// The overlay that was probably meant.
        nearest: Option<String>,
    },
    /// A case for which the vendor has no overlay.
    #[error("vendor `{vendor}` has no overlay for case `{case}`, so the standard settings apply")]
    NoOverlay {
        /// The case.
        case: String,
        /// The vendor.
        vendor: String,
    },
    /// A new key in an overlay.
    #[error("new key `{key}` of vendor `{vendor}`{}", nearest_note(.nearest))]
    NewKey {
        /// The key.
        key: String,
        /// The vendor.
        vendor: String,
        /// The known key that was probably meant.
        nearest: Option<String>,
    },
    /// A change made by an overlay.
    #[error("`{key}`: `{from}` ({base}) becomes `{to}`")]
    Changed {
        /// The key.
        key: String,
        /// The value before.
        from: String,
        /// Origin of the value before.
        base: Origin,
        /// The value after.
        to: String,
    },
    /// A `--set` argument without `=`.
    #[error("`{argument}` is not KEY=VALUE")]
    SetSyntax {
        /// The argument.
        argument: String,
    },
    /// A `--set` of a key that the case does not have.
    #[error("case `{case}` has no key `{key}`{}", nearest_note(.nearest))]
    SetUnknown {
        /// The case.
        case: String,
        /// The key.
        key: String,
        /// The known key that was probably meant.
        nearest: Option<String>,
        /// All keys of the case.
        known: String,
    },
    /// A `--set` argument, which departs from the standard configuration.
    #[error("`{key}`: `{from}` ({base}) becomes `{to}`: a departure from the standard configuration")]
    Departure {
        /// The key.
        key: String,
        /// The value before.
        from: String,
        /// Origin of the value before.
        base: Origin,
        /// The value after.
        to: String,
    },
    /// A `--set` argument that repeats the value of the standard configuration.
    #[error("`{key}` is already `{value}` ({base}): no departure from the standard configuration")]
    Unchanged {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Origin of the value that the argument repeats.
        base: Origin,
    },
}

impl ConfigProblem {
    /// Returns what to do about the problem; empty when the message suffices.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownKey { known, .. } => format!("known keys: {known}"),
            Self::SetUnknown { known, .. } => {
                format!(
                    "known keys: {known}; an option that vendor.yaml does not list is set as ENGINE.OPTION, where ENGINE \
                     is a name in vendor.yaml; `flagperf list options` lists those of the engines of this program"
                )
            }
            Self::UnknownSectionKey { known, .. } => {
                format!("known keys: {known}; was the file written for another version of flagperf?")
            }
            Self::NoOverlay { case, vendor } => {
                format!("configs/{case}/vendor_config/{vendor}_configurations.yaml may change them, such as `compiler`")
            }
            Self::TooLarge { .. } => "is it the right file? It contains only keys and short values".to_owned(),
            Self::Missing { about, .. } => (*about).to_owned(),
            Self::Flops(_) => "write numbers joined by `*` and `+`, such as `4.12e9` or `2*512*0.33e9`".to_owned(),
            Self::UnknownCase { nearest, .. } => match nearest {
                Some(case) => format!("did you mean `{case}`?"),
                None => "a case has a folder in configs/ and one in scripts/".to_owned(),
            },
            Self::NoFramework { case, known } => format!("give --case {case}:FRAMEWORK (known: {known})"),
            Self::NoCases => {
                "add a line such as `\"resnet50:interpreter\": \"datasets/drawn/generated\"`, or give --case".to_owned()
            }
            Self::OverlaysParameter { .. } | Self::Redundant { .. } | Self::CaseOnly { .. } => {
                "delete the line".to_owned()
            }
            Self::PrecisionConflict { .. } => "set only one of the two".to_owned(),
            Self::NearParameter { .. } => "`flagperf plan` lists the keys that the host reads".to_owned(),
            Self::Target { .. } => {
                "for example `target_accuracy: {top1: 0.76}`, without quotes or percent signs".to_owned()
            }
            Self::Limit { .. } => "for example `agreement: {fp16: {relative_l2: 0.05, cosine: 0.99}}`".to_owned(),
            Self::NearMetric { .. } => "a metric that no script reports misses its target".to_owned(),
            Self::BelongsToHost { .. } => "site settings are allowed only in host.yaml".to_owned(),
            Self::BelongsToSettings { .. } => "choose another name for the parameter".to_owned(),
            Self::SetSyntax { .. } => "for example --set batch_size=4".to_owned(),
            _ => String::new(),
        }
    }
}

/// Returns where a value is set; empty for a default.
fn origin_note(origin: &Origin) -> String {
    if *origin == Origin::Default { String::new() } else { format!(" ({origin})") }
}

fn reason_text(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn nearest_note(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(" (nearest: `{name}`)"))
}
