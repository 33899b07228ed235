//! The values of arguments that are one of several words, with their help.

use clap::ValueEnum;

use flagperf_plan::AuditScope;
use flagperf_scaffold::EngineKind;

/// The value of `--audit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum AuditArgument {
    /// Between passes, run the same batch, fresh inputs, one sample in every row, and samples in another order
    #[default]
    Standard,
    /// Also run a pass of the model with changed weights: its accuracy must fall, and its speed must not change
    Full,
}

impl From<AuditArgument> for AuditScope {
    fn from(argument: AuditArgument) -> Self {
        match argument {
            AuditArgument::Standard => AuditScope::Standard,
            AuditArgument::Full => AuditScope::Full,
        }
    }
}

/// Reads the value of `--shape`: the name of a dimension, and its size.
pub(super) fn dimension_size(text: &str) -> Result<(String, usize), String> {
    let read = text.rsplit_once('=').and_then(|(name, size)| Some((name, size.parse().ok()?)));
    match read.filter(|(name, size)| !name.is_empty() && *size > 0) {
        Some((name, size)) => Ok((name.to_owned(), size)),
        None => Err("it must be a dimension and its size, which is at least 1, such as `seq=128`".to_owned()),
    }
}

/// The value of `--kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineArgument {
    /// A shared library in C
    Plugin,
    /// A process in Python
    Sidecar,
}

impl From<EngineArgument> for EngineKind {
    fn from(argument: EngineArgument) -> Self {
        match argument {
            EngineArgument::Plugin => EngineKind::Plugin,
            EngineArgument::Sidecar => EngineKind::Sidecar,
        }
    }
}
