//! The environment: the only place that reads variables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variables that flagperf reads, and what each does.
pub const VARIABLES: &[(&str, &str)] = &[
    (CONFIG, "folder (or file) of the site's host.yaml"),
    (LOG_LEVEL, "overrides FLAGPERF_LOG_LEVEL of host.yaml"),
    (LOG_CALLS, "overrides LOG_CALL_INFORMATION of host.yaml"),
    (CACHE, "libraries that `flagperf backend install` gets are kept in its folder `flagperf`; else in ~/.cache"),
];

pub(super) const CONFIG: &str = "FLAGPERF_CONFIG";
pub(super) const LOG_LEVEL: &str = "FLAGPERF_LOG_LEVEL";
pub(super) const LOG_CALLS: &str = "LOG_CALL_INFORMATION";
const CACHE: &str = "XDG_CACHE_HOME";
const HOME: &str = "HOME";

/// The variable with the folders that Python finds modules in, `first` before those that it names already.
pub fn python_path(first: &Path) -> (&'static str, OsString) {
    const PYTHON_PATH: &str = "PYTHONPATH";
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(PYTHON_PATH).filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    (PYTHON_PATH, path)
}

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
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        Environment {
            config: variable(CONFIG).map(PathBuf::from),
            log_level: text(LOG_LEVEL),
            log_call_information: text(LOG_CALLS),
        }
    }
}

/// Where this user's programs keep what they can get again; `None` when nothing says where the user's files are.
pub fn cache_folder() -> Option<PathBuf> {
    let cache = variable(CACHE).map(PathBuf::from).or_else(|| Some(PathBuf::from(variable(HOME)?).join(".cache")));
    cache.map(|cache| cache.join("flagperf"))
}

/// What the variable of a vendor says of the devices that this process sees; `None` when it is not set.
pub fn visible_devices(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
