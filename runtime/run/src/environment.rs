//! Prepares workers that run directly on the machine: sets environment variables from shell files, and installs Python packages
//! into a virtual environment. The user's own Python is never changed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flagperf_core::regular_file::read_regular;
use indexmap::IndexMap;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tracing::info;

use super::{Interrupt, RunOptions};
use flagperf_config::{Site, cache_folder, env};
use flagperf_container::Requirements;
use flagperf_core::units::Seconds;
use flagperf_host::{Ending, Process, ProcessEvent, Program, Worker as _};
use flagperf_plan::CasePlan;

/// Longest wait for a line of a program before the conductor checks the time limit and for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Largest size of an environment in bytes.
const ENVIRONMENT_BYTES_MAX: u64 = 4 << 20;
/// Variables that a shell sets by itself.
const SHELL_VARIABLES: [&str; 4] = ["_", "SHLVL", "PWD", "OLDPWD"];
/// The folder of virtual environments in the cache, and the file that marks a virtual environment as complete.
const FOLDER: &str = "venv";
const READY: &str = "ready";
/// A shell script that sources the given files, and writes the environment before and after to two files.
const READ_VARIABLES: &str =
    r#"env -0 >"$1"; after=$2; shift 2; set -a; for file in "$@"; do . "$file"; done; exec env -0 >"$after""#;
/// A Python script that prints what identifies a Python installation: its version, its program, and the folders of its
/// packages.
const IDENTIFY: &str =
    "import json, site, sys; print(json.dumps([sys.version, sys.executable, site.getsitepackages()]))";
/// Programs for whose failure there is a hint.
const PIP: &str = "pip";
const VENV: &str = "`python3 -m venv`";
/// Beginnings of pip's lines that are shown as progress.
const PROGRESS: [&str; 3] = ["Collecting ", "Installing ", "Successfully "];

/// Why the workers of a case cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvironmentError {
    /// A program failed.
    #[error("{what} failed: {ending}{}", quoted(.output))]
    Failed { what: &'static str, ending: Ending, output: Vec<String> },
    /// A program took longer than the time limit of a phase.
    #[error("{0} took longer than the time limit of a phase")]
    TimedOut(&'static str),
    /// A program could not be started.
    #[error(transparent)]
    NotStarted(#[from] flagperf_host::ProcessError),
    /// A file cannot be read or written.
    #[error("cannot use {what}: {source}")]
    File { what: String, source: io::Error },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl EnvironmentError {
    /// Returns what to do about the error; empty when the message suffices.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Failed { what: PIP, .. } => {
                "check the packages in requirements.txt, in the folder of the case's scripts, and the package index that \
                 `PIP_SOURCE` in host.yaml names"
            }
            Self::Failed { what: VENV, .. } => {
                "the `python3` on PATH needs the module venv: on Debian, install the package python3-venv"
            }
            Self::TimedOut(_) => "`PHASE_TIMEOUT` in host.yaml sets the limit in seconds",
            _ => "",
        }
    }
}

fn quoted(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n{line}")).collect()
}

/// Prepares the workers of a case.
pub(super) struct EnvironmentBuilder<'b> {
    pub(super) site: &'b Site,
    pub(super) options: &'b RunOptions,
    pub(super) interrupt: &'b Interrupt,
    /// The file to which programs write their standard error.
    pub(super) log: &'b Path,
    /// Shows a line of progress.
    pub(super) show_progress: &'b mut dyn FnMut(&str),
}

impl EnvironmentBuilder<'_> {
    /// Returns all environment variables of the workers of a case, and installs its packages.
    pub(super) fn variables(&mut self, case: &CasePlan) -> Result<IndexMap<String, String>, EnvironmentError> {
        let preparation = &case.preparation;
        let mut variables = env::inherited_variables();
        if !preparation.variables.is_empty() {
            variables.extend(self.read_variables(&preparation.variables)?);
        }
        if let Some(file) = &preparation.requirements {
            let requirements = Requirements::read(file, &preparation.variables, self.site.pip_source.as_deref())
                .map_err(|source| EnvironmentError::File { what: "the requirements of the case".to_owned(), source })?;
            let folder = self.virtual_environment(file, &requirements, &variables)?;
            let path = variables.get(env::PATH).cloned();
            variables.insert(env::PATH.to_owned(), env::path_with(&folder.join("bin"), path));
            variables.insert("VIRTUAL_ENV".to_owned(), folder.to_string_lossy().into_owned());
        }
        Ok(variables)
    }

    /// Reads shell files and returns the variables that they set or change, given those that workers inherit.
    fn read_variables(&mut self, files: &[PathBuf]) -> Result<IndexMap<String, String>, EnvironmentError> {
        let failed = |source| EnvironmentError::File { what: "a temporary folder".to_owned(), source };
        let folder = tempfile::tempdir().map_err(failed)?;
        let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
        let shell = ["/bin/bash", "-c", READ_VARIABLES, "variables"].map(Into::into);
        let paths = [&before, &after].into_iter().chain(files).map(|path| path.clone().into_os_string());
        self.run(
            "environment_variables.sh",
            shell.into_iter().chain(paths).collect(),
            false,
            &env::inherited_variables(),
        )?;
        let read = |path: &Path| read_environment(path).map_err(failed);
        let before = read(&before)?;
        let is_new =
            |name: &String, value: &String| before.get(name) != Some(value) && !SHELL_VARIABLES.contains(&&**name);
        Ok(read(&after)?.into_iter().filter(|(name, value)| is_new(name, value)).collect())
    }

    /// Returns the virtual environment with these requirements, based on the `python3` on PATH, and creates it if it is
    /// missing.
    fn virtual_environment(
        &mut self,
        file: &Path,
        requirements: &Requirements,
        variables: &IndexMap<String, String>,
    ) -> Result<PathBuf, EnvironmentError> {
        let argv = |words: &[&str]| words.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>();
        let python = self.run("python3", argv(&["python3", "-c", IDENTIFY]), false, variables)?;
        let cache = cache_folder().ok_or_else(|| EnvironmentError::File {
            what: "the cache folder".to_owned(),
            source: io::Error::other("neither XDG_CACHE_HOME nor HOME is set"),
        })?;
        let folder = cache.join(FOLDER).join(requirements.sha256(&python));
        let _lock = self.lock(&folder.with_extension("lock"))?;
        if folder.join(READY).is_file() {
            return Ok(folder);
        }
        let line = format!("installing the packages of {} in {}", file.display(), folder.display());
        info!("{line}");
        (self.show_progress)(&line);
        let path = folder.to_string_lossy().into_owned();
        let system = ["python3", "-m", "venv", "--clear", "--system-site-packages", &path];
        self.run(VENV, argv(&system), false, variables)?;
        let failed = |source| EnvironmentError::File { what: format!("`{}`", folder.display()), source };
        add_packages_of(&python, &folder).map_err(failed)?;
        let (python, file) = (format!("{path}/bin/python"), file.to_string_lossy());
        let pip = [&*python, "-m", "pip", "install", "--disable-pip-version-check", "-r", &file];
        let index = self.site.pip_source.as_deref().map(|index| ["-i", index]);
        self.run(PIP, argv(&[&pip[..], index.as_slice().as_flattened()].concat()), true, variables)?;
        File::create(folder.join(READY)).map_err(failed)?;
        Ok(folder)
    }

    /// Takes the lock of a virtual environment, and waits while another conductor installs the same one.
    fn lock(&self, path: &Path) -> Result<Flock<File>, EnvironmentError> {
        let failed = |source| EnvironmentError::File { what: format!("`{}`", path.display()), source };
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
        let mut file = File::create(path).map_err(failed)?;
        let started = self.options.clock.now();
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((file, Errno::EWOULDBLOCK)) => file,
                Err((_, error)) => return Err(failed(error.into())),
            };
            self.check_time("another run that installs the same packages", started)?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn check_time(&self, what: &'static str, started: flagperf_core::measure::Nanos) -> Result<(), EnvironmentError> {
        let Seconds(elapsed) = self.options.clock.now().since(started);
        if self.interrupt.is_set() {
            return Err(EnvironmentError::Interrupted);
        }
        if elapsed > self.site.phase_timeout.0 { Err(EnvironmentError::TimedOut(what)) } else { Ok(()) }
    }

    /// Runs a program to its end and returns the last line of its output, which is empty if there is none. pip `inherits` all
    /// variables of this process, because they may configure it.
    fn run(
        &mut self,
        what: &'static str,
        argv: Vec<std::ffi::OsString>,
        inherits: bool,
        environment: &IndexMap<String, String>,
    ) -> Result<String, EnvironmentError> {
        let (stderr, environment) = (self.log.to_owned(), environment.clone());
        let program = Program { argv, input: String::new(), stderr, inherits, environment };
        let mut process = Process::start(&program, self.options.clock.clone())?;
        let started = self.options.clock.now();
        let mut last = String::new();
        loop {
            match process.next_event(POLL_INTERVAL) {
                ProcessEvent::Line(_, line) => {
                    if PROGRESS.iter().any(|begin| line.starts_with(begin)) {
                        info!("{line}");
                        (self.show_progress)(&line);
                    }
                    last = line;
                }
                ProcessEvent::Silence => {}
                ProcessEvent::Ended(Ending::Exited(0)) => return Ok(last),
                ProcessEvent::Ended(ending) => {
                    return Err(EnvironmentError::Failed { what, ending, output: process.last_stderr_lines() });
                }
            }
            // A program that writes without end is not silent.
            self.check_time(what, started)?;
        }
    }
}

/// Reads the output of `env -0`. Variables that are not UTF-8 are left out: a worker inherits them.
fn read_environment(path: &Path) -> io::Result<IndexMap<String, String>> {
    let bytes = read_regular(path, ENVIRONMENT_BYTES_MAX)?;
    let text = bytes.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='));
    Ok(text.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Makes the packages of the given Python installation visible in a virtual environment. This is needed if that Python
/// belongs to a virtual environment itself: `--system-site-packages` covers only the packages of the system.
fn add_packages_of(python: &str, environment: &Path) -> io::Result<()> {
    let (_, _, folders): (String, String, Vec<String>) = serde_json::from_str(python)?;
    for entry in fs::read_dir(environment.join("lib"))? {
        let packages = entry?.path().join("site-packages");
        if packages.is_dir() {
            fs::write(packages.join("flagperf.pth"), folders.join("\n") + "\n")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::Overrides;
    use flagperf_config::fixture::Checkout;
    use flagperf_core::measure::MonotonicClock;
    use flagperf_plan::AuditScope;

    #[test]
    fn a_file_with_variables_that_writes_without_end_is_stopped() {
        let checkout = Checkout::new().with("endless.sh", "while :; do echo again; done\n");
        let mut site = checkout.load(&Overrides::default()).unwrap().site;
        site.phase_timeout = Seconds(0.5);
        let options = RunOptions {
            has_live_display: false,
            audit: AuditScope::default(),
            worker: Vec::new(),
            clock: std::sync::Arc::new(MonotonicClock::start()),
            folder: None,
            program: None,
            resumed: None,
            barrier: None,
            host_use: crate::HostUse::default(),
            checkpoint_store: None,
        };
        let read = |interrupt: &Interrupt, site: &Site| {
            let (log, show_progress) = (&checkout.root().join("log"), &mut |_: &str| ());
            let mut builder = EnvironmentBuilder { site, options: &options, interrupt, log, show_progress };
            builder.read_variables(&[checkout.root().join("endless.sh")]).unwrap_err().to_string()
        };
        let late = "environment_variables.sh took longer than the time limit of a phase";
        assert_eq!(read(&Interrupt::default(), &site), late);
        site.phase_timeout = Seconds(3600.0);
        let interrupt = Interrupt::default();
        interrupt.set();
        assert_eq!(read(&interrupt, &site), "interrupted");
    }
}
