//! The environment: the only place that reads variables.

use std::path::PathBuf;

/// The variables that flagperf reads, and what each does.
pub const VARIABLES: &[(&str, &str)] = &[
    (CONFIG, "folder (or file) of the site's host.yaml"),
    (LOG_LEVEL, "overrides FLAGPERF_LOG_LEVEL of host.yaml"),
    (LOG_CALLS, "overrides LOG_CALL_INFORMATION of host.yaml"),
];

pub(super) const CONFIG: &str = "FLAGPERF_CONFIG";
pub(super) const LOG_LEVEL: &str = "FLAGPERF_LOG_LEVEL";
pub(super) const LOG_CALLS: &str = "LOG_CALL_INFORMATION";

/// What the environment says; an empty variable says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `FLAGPERF_CONFIG`.
    pub config: Option<PathBuf>,
    /// `FLAGPERF_LOG_LEVEL`.
    pub log_level: Option<String>,
    /// `LOG_CALL_INFORMATION`.
    pub log_call_information: Option<String>,
}

impl Environment {
    /// Reads the variables.
    pub fn read() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        Environment {
            config: variable(CONFIG).map(PathBuf::from),
            log_level: text(LOG_LEVEL),
            log_call_information: text(LOG_CALLS),
        }
    }
}
