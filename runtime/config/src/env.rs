//! Environment variables; only this module reads them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

/// The variables that flagperf reads, each with a description.
pub const VARIABLES: &[(&str, &str)] = &[
    (CONFIG, "folder of the site's host.yaml, or the file itself"),
    (LOG_LEVEL, "overrides FLAGPERF_LOG_LEVEL of host.yaml"),
    (LOG_CALLS, "overrides LOG_CALL_INFORMATION of host.yaml"),
    (HOST_LOCK, "file that a run locks so that no other run starts on this host; /tmp/flagperf.lock by default"),
    (
        CACHE,
        "folder whose subfolder `flagperf` holds the libraries that `flagperf backend install` installs; ~/.cache by default",
    ),
    (SLURM_NODES, "the nodes of the Slurm job in which the program runs"),
    (OWN_CACHE, "replaces that subfolder; a worker in a container gets it"),
    (CONTAINER_HOST, "the socket of the container engine: unix:///PATH; by default, that of Docker or Podman"),
    (RUNTIME, "folder with the sockets of the user's own container engine"),
    (COLUMNS, "characters per line of tables, if standard output is no terminal; 100 by default"),
    (TERMINAL, "the kind of terminal; with `dumb`, a run prints lines"),
    (CONFIG_HOME, "folder whose subfolder `flagperf` holds the private key of `flagperf key`; ~/.config by default"),
];

pub(super) const CONFIG: &str = "FLAGPERF_CONFIG";
/// The level of logs and diagnostics.
pub const LOG_LEVEL: &str = "FLAGPERF_LOG_LEVEL";
pub(super) const LOG_CALLS: &str = "LOG_CALL_INFORMATION";
const HOST_LOCK: &str = "FLAGPERF_HOST_LOCK";
const CACHE: &str = "XDG_CACHE_HOME";
const SLURM_NODES: &str = "SLURM_JOB_NODELIST";
/// The user's cache folder for flagperf, if it is not below [`CACHE`].
pub const OWN_CACHE: &str = "FLAGPERF_CACHE";
const CONTAINER_HOST: &str = "DOCKER_HOST";
const RUNTIME: &str = "XDG_RUNTIME_DIR";
const COLUMNS: &str = "COLUMNS";
const TERMINAL: &str = "TERM";
const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The user's home folder.
pub const HOME: &str = "HOME";

/// The folders in which programs are found.
pub const PATH: &str = "PATH";

/// Returns a search path for programs: `first`, then `rest`, or else the folders of this process.
pub fn path_with(first: &Path, rest: Option<String>) -> String {
    let own = || read_variable(PATH).map(|value| value.to_string_lossy().into_owned());
    let first = first.to_string_lossy();
    rest.or_else(own).map_or_else(|| first.clone().into_owned(), |rest| format!("{first}:{rest}"))
}

/// Returns Python's search path for modules as a variable: `first`, then the folders that the variable already
/// contains.
pub fn python_path(first: &Path) -> (&'static str, OsString) {
    const PYTHON_PATH: &str = "PYTHONPATH";
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(PYTHON_PATH).filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    (PYTHON_PATH, path)
}

/// The variables that change the configuration; an empty variable counts as not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `FLAGPERF_CONFIG`.
    pub config: Option<PathBuf>,
    /// `FLAGPERF_LOG_LEVEL`.
    pub log_level: Option<String>,
    /// `LOG_CALL_INFORMATION`.
    pub log_call_information: Option<String>,
    /// `SLURM_JOB_NODELIST`.
    pub slurm_nodes: Option<String>,
}

impl Environment {
    /// Reads the variables of this process.
    pub fn read() -> Self {
        let text = |name| read_variable(name).map(|value| value.to_string_lossy().into_owned());
        Environment {
            config: read_variable(CONFIG).map(PathBuf::from),
            log_level: log_level(),
            log_call_information: text(LOG_CALLS),
            slurm_nodes: slurm_nodes(),
        }
    }
}

/// Returns `COLUMNS`, the characters per line; `None` when it is not set or no number.
pub fn columns() -> Option<u16> {
    read_variable(COLUMNS)?.to_str()?.parse().ok()
}

/// Returns whether the terminal cannot move its cursor: `TERM` is `dumb`.
pub fn is_dumb_terminal() -> bool {
    read_variable(TERMINAL).is_some_and(|name| name == "dumb")
}

/// Returns `FLAGPERF_LOG_LEVEL` of this process; `None` when it is not set.
pub fn log_level() -> Option<String> {
    read_variable(LOG_LEVEL).map(|value| value.to_string_lossy().into_owned())
}

/// The file whose lock stands for this host, unless `FLAGPERF_HOST_LOCK` names another one.
const USUAL_HOST_LOCK: &str = "/tmp/flagperf.lock";

/// Returns the file whose lock stands for this host. All users share it.
pub fn host_lock() -> PathBuf {
    other_host_lock().unwrap_or_else(|| PathBuf::from(USUAL_HOST_LOCK))
}

/// Returns the file that `FLAGPERF_HOST_LOCK` names instead of the usual one; `None` if it names none.
pub fn other_host_lock() -> Option<PathBuf> {
    read_variable(HOST_LOCK).map(PathBuf::from).filter(|path| path != Path::new(USUAL_HOST_LOCK))
}

/// Returns the user's cache folder for flagperf; `None` when neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_folder() -> Option<PathBuf> {
    if let Some(own) = read_variable(OWN_CACHE) {
        return Some(own.into());
    }
    let cache =
        read_variable(CACHE).map(PathBuf::from).or_else(|| Some(PathBuf::from(read_variable(HOME)?).join(".cache")));
    cache.map(|cache| cache.join("flagperf"))
}

/// Returns the folder of the installed backends; `None` without a cache folder.
pub fn backends_folder() -> Option<PathBuf> {
    cache_folder().map(|cache| cache.join("backends"))
}

/// Returns the user's configuration folder for flagperf; `None` when neither `XDG_CONFIG_HOME` nor `HOME` is set.
pub fn config_folder() -> Option<PathBuf> {
    let config = read_variable(CONFIG_HOME)
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(read_variable(HOME)?).join(".config")));
    config.map(|config| config.join("flagperf"))
}

/// Returns the address of the container engine; `None` when it is not set.
pub fn container_host() -> Option<String> {
    read_variable(CONTAINER_HOST).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the folder with the sockets of the user's own services; `None` when it is not set.
pub fn runtime_folder() -> Option<PathBuf> {
    read_variable(RUNTIME).map(PathBuf::from)
}

/// Returns the value of a vendor's variable for visible devices in this process; `None` when it is not set.
pub fn visible_devices_value(name: &str) -> Option<String> {
    read_variable(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the list of nodes of the Slurm job in which this process runs, as Slurm abbreviates it: `node[1-4]`.
pub fn slurm_nodes() -> Option<String> {
    read_variable(SLURM_NODES).map(|value| value.to_string_lossy().into_owned())
}

/// Variables with which a program executes code that neither its command nor the vendor's folder names.
pub const CODE_VARIABLES: [&str; 24] = [
    "BASH_ENV",
    "CUDA_INJECTION64_PATH",
    "GCONV_PATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_AUDIT",
    "LD_PRELOAD",
    "LUA_INIT",
    "NODE_OPTIONS",
    "NVTX_INJECTION64_PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "_JAVA_OPTIONS",
];
/// Such a variable of the shell, whose name is also an instruction of Dockerfiles, so that it cannot be searched for in texts.
const SHELL_CODE_VARIABLE: &str = "ENV";

/// Returns whether a program executes other code with this variable.
pub fn is_code_variable(name: &str) -> bool {
    all_code_variables().any(|variable| variable == name)
}

fn all_code_variables() -> impl Iterator<Item = &'static str> {
    CODE_VARIABLES.into_iter().chain([SHELL_CODE_VARIABLE])
}

/// Returns those of the variables that `value` returns with which a program executes other code, as `NAME=VALUE`.
pub fn code_variables<'s>(value: impl Fn(&str) -> Option<&'s String>) -> Vec<String> {
    all_code_variables().filter_map(|name| Some(format!("{name}={}", value(name).filter(|v| !v.is_empty())?))).collect()
}

/// The variables that a worker inherits from this process, beside those that flagperf reads and the one that selects the visible
/// devices. What a case or a vendor needs beside them is in its `environment_variables.sh`.
///
/// `LD_LIBRARY_PATH` is one of them, because the record lists each library that a worker loads with its path and hash.
pub const INHERITED: [&str; 13] = [
    HOME,
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    PATH,
    "TMPDIR",
    "TZ",
    "USER",
];
/// The beginning of the names of flagperf's own variables.
const OWN_VARIABLES: &str = "FLAGPERF_";

/// Returns the variables of this process that a worker inherits.
pub fn inherited_variables() -> IndexMap<String, String> {
    let is_inherited = |name: &str| {
        INHERITED.contains(&name)
            || name.starts_with(OWN_VARIABLES)
            || VARIABLES.iter().any(|(variable, _)| *variable == name)
    };
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let all = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    all.filter(|(name, _)| is_inherited(name)).collect()
}

/// Returns the names of the variables of this process with which a worker would execute other code if it inherited them.
pub fn refused_variables() -> Vec<&'static str> {
    all_code_variables().filter(|name| read_variable(name).is_some()).collect()
}

fn read_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_inherits_the_search_path_but_not_the_other_variables_of_the_shell() {
        let inherited = inherited_variables();
        assert!(inherited.contains_key(PATH));
        // cargo sets it for tests.
        assert!(read_variable("CARGO_MANIFEST_DIR").is_some() && !inherited.contains_key("CARGO_MANIFEST_DIR"));
        assert!(CODE_VARIABLES.iter().all(|name| !inherited.contains_key(*name) && !INHERITED.contains(name)));
    }
}
