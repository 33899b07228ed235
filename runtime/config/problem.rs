//! What can be wrong, or worth saying, about configuration files and the command line.

use super::{FlopsError, Origin};

/// What can be wrong, or worth saying, about configuration files and the command line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigProblem {
    /// A file or folder that cannot be read.
    #[error("cannot be read: {reason}")]
    Read {
        /// Why.
        reason: String,
    },
    /// A file beyond the size that configuration files may have.
    #[error("is {bytes} bytes large; a configuration file may have {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The size that it may have.
        bytes_max: u64,
    },
    /// No folder with `configs/` and `scripts/`.
    #[error("`{path}` is no checkout of flagperf: it lacks configs/ or scripts/")]
    NoCheckout {
        /// The folder.
        path: String,
    },
    /// Malformed YAML, or a value of vendor.yaml that means nothing.
    #[error("{reason}")]
    Yaml {
        /// What the reader says.
        reason: String,
    },
    /// A file whose top is a list or a single value.
    #[error("must be keys with values")]
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
    /// A value of another type than its key takes.
    #[error("`{key}` must be {expects}, not {found}")]
    Type {
        /// The key.
        key: String,
        /// What it takes.
        expects: &'static str,
        /// What was given.
        found: String,
    },
    /// A word that its key does not know.
    #[error("`{key}` must be one of {words}, not {found}")]
    Word {
        /// The key.
        key: String,
        /// The words that it knows.
        words: String,
        /// What was given.
        found: String,
    },
    /// A key without a default that is not given.
    #[error("`{key}` is missing")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it is for.
        about: &'static str,
    },
    /// The `flops` expression.
    #[error("`flops`: {0}")]
    Flops(FlopsError),
    /// A key in `CASES` that names no case.
    #[error("`{key}` is not a case key (`<case>:<framework>[_<version>]`)")]
    CaseKey {
        /// The key.
        key: String,
    },
    /// A case without a folder in `configs/`.
    #[error("unknown case `{case}` (known: {known})")]
    UnknownCase {
        /// The case.
        case: String,
        /// The cases that there are.
        known: String,
        /// The known case that was probably meant.
        nearest: Option<String>,
    },
    /// A case whose framework was not said and cannot be told.
    #[error("no framework for case `{case}`")]
    NoFramework {
        /// The case.
        case: String,
        /// The frameworks that the vendor has.
        known: String,
    },
    /// `--case NAME` runs with the framework that the vendor names for this, or its only one.
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
    /// A case without a data directory.
    #[error("no data directory for case `{case}`")]
    NoData {
        /// The case.
        case: String,
    },
    /// Nothing to run.
    #[error("`CASES` is empty")]
    NoCases,
    /// An overlay sets a parameter.
    #[error("`{key}` belongs to the case's parameters ({parameter}), which are the same for every vendor")]
    OverlaysParameter {
        /// The key.
        key: String,
        /// Where the parameter is.
        parameter: Origin,
    },
    /// An overlay sets what only the author of a case may set.
    #[error("`{key}` is not a vendor's key: it says what is measured, which is the same for every vendor")]
    CaseOnly {
        /// The key.
        key: String,
    },
    /// A free key of parameters.yaml that is nearly one that the host reads.
    #[error("`{key}` is read by scripts alone (nearest key that the host reads: `{near}`)")]
    NearParameter {
        /// The key.
        key: String,
        /// The key that was probably meant.
        near: &'static str,
    },
    /// The target of a metric that has not its type, or that it cannot have.
    #[error("`target_accuracy`: `{metric}` must be {expects}, not {found}")]
    Target {
        /// The metric.
        metric: String,
        /// What the metric can be.
        expects: String,
        /// What was given.
        found: String,
    },
    /// A limit of agreement that there is not, or of another type.
    #[error("`agreement`: `{what}` must be {expects}, not {found}")]
    Limit {
        /// The precision or limit.
        what: String,
        /// What it can be.
        expects: String,
        /// What was given.
        found: String,
    },
    /// The target of a metric that the host does not compute, with nearly the name of one that it does.
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
    #[error("`{key}` is `{value}` already ({base}); an overlay must change something")]
    Redundant {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Where the value comes from.
        base: Origin,
    },
    /// A file beside the overlays that no vendor's name leads to.
    #[error("this file is not read: no folder of vendors/ has its name{}", nearest_note(.nearest))]
    UnreadOverlay {
        /// The overlay that was probably meant.
        nearest: Option<String>,
    },
    /// An overlay's own key.
    #[error("new key `{key}` of vendor `{vendor}`{}", nearest_note(.nearest))]
    NewKey {
        /// The key.
        key: String,
        /// The vendor.
        vendor: String,
        /// The known key that was probably meant.
        nearest: Option<String>,
    },
    /// An overlay's change.
    #[error("`{key}`: `{from}` ({base}) becomes `{to}`")]
    Changed {
        /// The key.
        key: String,
        /// The value before.
        from: String,
        /// Where that comes from.
        base: Origin,
        /// The value after.
        to: String,
    },
    /// A `--set` that holds no `=`.
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
    /// A `--set`, which departs from the standard configuration.
    #[error("`{key}`: `{from}` ({base}) becomes `{to}`: a departure from the standard configuration")]
    Departure {
        /// The key.
        key: String,
        /// The value before.
        from: String,
        /// Where that comes from.
        base: Origin,
        /// The value after.
        to: String,
    },
}

impl ConfigProblem {
    /// What to do about it; empty when the message says it.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownKey { known, .. } | Self::SetUnknown { known, .. } => format!("known keys: {known}"),
            Self::TooLarge { .. } => "long lists belong in a file of the data directory".to_owned(),
            Self::Missing { about, .. } => (*about).to_owned(),
            Self::Flops(_) => "numbers joined by `*`, such as `4.12e9` or `2*512*0.33e9`".to_owned(),
            Self::UnknownCase { nearest, .. } => match nearest {
                Some(case) => format!("did you mean `{case}`?"),
                None => "a case is a folder in configs/ and one in scripts/".to_owned(),
            },
            Self::NoFramework { case, known } => format!("say --case {case}:FRAMEWORK (known: {known})"),
            Self::NoData { .. } => "give --data DIR, or add the case to `CASES`".to_owned(),
            Self::NoCases => {
                "add a line such as `\"resnet50:candle\": \"datasets/drawn/generated\"`, or give --case".to_owned()
            }
            Self::OverlaysParameter { .. } | Self::Redundant { .. } | Self::CaseOnly { .. } => {
                "delete the line".to_owned()
            }
            Self::NearParameter { .. } => "`flagperf plan` shows what the host reads".to_owned(),
            Self::Target { .. } => {
                "such as `target_accuracy: {top1: 0.76}`, without quotes and percent signs".to_owned()
            }
            Self::Limit { .. } => "such as `agreement: {fp16: {relative_l2: 0.05, cosine: 0.99}}`".to_owned(),
            Self::NearMetric { .. } => "a metric that no script reports misses its target".to_owned(),
            Self::BelongsToHost { .. } => "settings of the site are in host.yaml only".to_owned(),
            Self::BelongsToSettings { .. } => "give a parameter a name of its own".to_owned(),
            Self::SetSyntax { .. } => "such as --set batch_size=4".to_owned(),
            _ => String::new(),
        }
    }
}

fn nearest_note(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(" (nearest: `{name}`)"))
}
