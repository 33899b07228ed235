//! The state of a run that `flagperf resume` needs: the arguments of the run, and its sessions on hosts. `resume` finds
//! the sessions by their names here and connects to them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use super::conduct::session_name;
use super::rescale::Rescaled;
use flagperf_config::{Environment, Overrides, is_host_name};
use flagperf_core::file;
use flagperf_core::run_files::STATE_FILE;
use flagperf_plan::AuditScope;
use flagperf_result::Provenance;
use flagperf_run::CaseParts;

/// Largest size of the file in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Random id, which no other run has.
    pub id: String,
    /// The values from the command line, with absolute paths.
    pub overrides: Overrides,
    /// `--audit`.
    pub audit: AuditScope,
    /// `--official`.
    pub official: bool,
    /// The hosts, in order; empty when the run uses one device of this machine, without sessions.
    pub hosts: Vec<String>,
    /// The sessions that were started, in order.
    pub sessions: Vec<SessionState>,
    /// The cases whose records are written.
    pub finished: Vec<String>,
    /// The program and the checkout that started the run.
    #[serde(default)]
    pub program: Provenance,
    /// What [`case_parts`](flagperf_run::case_parts) returned when the run began; empty in the state of an older program.
    #[serde(default)]
    pub parts: BTreeMap<String, CaseParts>,
    /// The trainings that go on with other numbers of hosts or devices, by their keys now.
    #[serde(default)]
    pub rescaled: BTreeMap<String, Rescaled>,
}

/// A session of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    pub case: String,
    pub host: String,
    /// Name of the session.
    pub session: String,
    /// Folder of the session's files, relative to the folder of the run.
    pub folder: PathBuf,
}

impl RunState {
    /// Returns the state of a new run.
    pub fn new(
        overrides: &Overrides,
        audit: AuditScope,
        official: bool,
        hosts: Vec<String>,
        program: &Provenance,
        parts: BTreeMap<String, CaseParts>,
    ) -> Self {
        // The process that resumes the run may have another environment.
        let config = overrides.config.clone().or_else(|| overrides.environment.config.clone());
        let overrides = Overrides { config, ..overrides.clone() }.absolute();
        let program = program.clone();
        RunState { id: session_name(), overrides, audit, official, hosts, program, parts, ..RunState::default() }
    }

    /// Returns the cases that are not those with which the run began, in order, each with what has changed: the settings with both
    /// values, or else the files. Nothing is listed for a case that is new or gone.
    pub fn changed_cases(&self, now: &BTreeMap<String, CaseParts>) -> Vec<(String, Vec<String>)> {
        let cases: BTreeSet<&String> = self.parts.keys().chain(now.keys()).collect();
        let change = |case: &String| match (self.parts.get(case), now.get(case)) {
            (Some(then), Some(now)) if then == now => None,
            (Some(then), Some(now)) => {
                let changed = changed_parts(then, now);
                // The default of the batch of an evaluation follows from the number of devices.
                let counts =
                    |part: &String| !self.rescaled.contains_key(case) || !part.starts_with("`eval_batch_size`");
                let changed: Vec<String> = changed.into_iter().filter(counts).collect();
                (!changed.is_empty()).then(|| (case.clone(), changed))
            }
            _ => Some((case.clone(), Vec::new())),
        };
        if self.parts.is_empty() { Vec::new() } else { cases.into_iter().filter_map(change).collect() }
    }

    /// Returns the folder of the run with this id if its main process was killed, so that it can be resumed. `results` is the
    /// folder for results.
    pub(super) fn killed_run(results: &Path, id: &str) -> Option<PathBuf> {
        let is_free = |folder: &Path| fs::File::open(folder).is_ok_and(|file| file.try_lock().is_ok());
        let folders = fs::read_dir(results).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_same = |folder: &Path| RunState::read(folder).is_ok_and(|state| state.id == id);
        folders.into_iter().find(|folder| !id.is_empty() && is_same(folder) && is_free(folder))
    }

    pub(super) fn add(&mut self, session: SessionState) {
        self.sessions.push(session);
    }

    /// Returns the session whose files are in this folder, which is relative to the folder of the run.
    pub(super) fn session(&self, folder: &Path) -> Option<&str> {
        self.sessions.iter().find(|known| known.folder == folder).map(|known| known.session.as_str())
    }

    /// Forgets the sessions of a case, which is then started again by `resume`.
    pub(super) fn forget(&mut self, case: &str) {
        self.sessions.retain(|known| known.case != case);
    }

    /// Returns whether sessions of a case were started.
    pub(super) fn has_sessions(&self, case: &str) -> bool {
        self.sessions.iter().any(|known| known.case == case)
    }

    /// Returns the hosts of the sessions of a case, in order.
    pub(super) fn hosts_of(&self, case: &str) -> Vec<String> {
        let hosts = self.sessions.iter().filter(|known| known.case == case).map(|known| known.host.clone());
        hosts.collect::<IndexSet<String>>().into_iter().collect()
    }

    /// Returns whether the records of a case are written.
    pub(super) fn is_finished(&self, case: &str) -> bool {
        self.finished.iter().any(|finished| finished == case)
    }

    /// Returns the values from the command line and the environment.
    pub fn overrides(&self) -> Overrides {
        Overrides { environment: Environment::read(), ..self.overrides.clone() }
    }

    pub(super) fn finish(&mut self, case: &str) {
        self.finished.push(case.to_owned());
    }

    /// Writes the state. An error is only logged, because only `resume` needs the state.
    pub fn write(&self, folder: &Path) {
        let path = folder.join(STATE_FILE);
        let text = serde_json::to_vec_pretty(self).expect("a state is plain data");
        let written = file::stage(&text, &path, None).and_then(|file| file.persist(&path).map_err(|error| error.error));
        if let Err(error) = written {
            tracing::warn!(%error, "the state of the run cannot be written, so the run cannot be resumed");
        }
    }

    /// Reads the state of the run in `folder`.
    ///
    /// # Errors
    /// When the file does not exist, cannot be read, is invalid, or belongs to another user.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let path = folder.join(STATE_FILE);
        let text = flagperf_core::regular_file::read_regular(&path, BYTES_MAX)?;
        let (owner, own) = (fs::symlink_metadata(&path)?.uid(), nix::unistd::geteuid().as_raw());
        // The state names the configuration, and thereby the programs that are started.
        if owner != own {
            return Err(io::Error::other(format!("`{STATE_FILE}` belongs to another user (user id {owner})")));
        }
        let state: RunState = serde_json::from_slice(&text)?;
        match state.hosts.iter().find(|host| !is_host_name(host)) {
            Some(host) => Err(io::Error::other(format!("`{STATE_FILE}` lists `{host}`, which is not a host name"))),
            None => Ok(state),
        }
    }

    /// Removes the state of a run whose cases are all finished.
    pub fn remove(folder: &Path) {
        let _ = fs::remove_file(folder.join(STATE_FILE));
    }
}

/// Returns the parts of a case that have changed. The files that set a changed setting are not listed.
fn changed_parts(then: &CaseParts, now: &CaseParts) -> Vec<String> {
    let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let (files, settings): (Vec<&String>, Vec<&String>) =
        names.into_iter().filter(|name| then.get(*name) != now.get(*name)).partition(|name| name.contains('/'));
    let value = |parts: &CaseParts, name: &String| parts.get(name).cloned().unwrap_or_else(|| "missing".to_owned());
    let scripts = files.iter().filter(|name| settings.is_empty() || !name.ends_with(".yaml"));
    let scripts = scripts.map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let settings = settings.iter().map(|name| format!("`{name}` (was {}, is {})", value(then, name), value(now, name)));
    settings.chain(scripts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_case_is_listed_with_the_setting_or_the_file_that_changed() {
        let parts = |batch: &str, script: &str, yaml: &str| -> BTreeMap<String, CaseParts> {
            let parts =
                [("batch_size", batch), ("scripts/a/model.rhai", script), ("configs/a/configurations.yaml", yaml)];
            [("a:b".to_owned(), parts.map(|(name, value)| (name.to_owned(), value.to_owned())).into())].into()
        };
        let state = RunState { parts: parts("4", "s", "y"), ..RunState::default() };
        let changed =
            |now: &BTreeMap<String, CaseParts>| state.changed_cases(now).pop().map(|(_, parts)| parts.join(", "));
        assert_eq!(changed(&parts("4", "s", "y")), None);
        assert_eq!(changed(&parts("8", "s", "x")).as_deref(), Some("`batch_size` (was 4, is 8)"));
        assert_eq!(changed(&parts("4", "x", "y")).as_deref(), Some("`scripts/a/model.rhai`"));
        assert_eq!(changed(&parts("4", "s", "x")).as_deref(), Some("`configs/a/configurations.yaml`"));
        let gone = state.changed_cases(&BTreeMap::new());
        assert_eq!(gone, [("a:b".to_owned(), Vec::new())]);
        assert!(
            RunState::default().changed_cases(&parts("4", "s", "y")).is_empty(),
            "an older program wrote the state"
        );
    }

    #[test]
    fn a_run_whose_process_has_ended_is_found_by_its_id() {
        let results = tempfile::tempdir().unwrap();
        let folders = ["run1", "run2"].map(|name| results.path().join(name));
        let ids = folders.clone().map(|folder| {
            fs::create_dir(&folder).unwrap();
            let state = RunState::new(
                &Overrides::default(),
                AuditScope::default(),
                false,
                Vec::new(),
                &Provenance::default(),
                BTreeMap::new(),
            );
            state.write(&folder);
            state.id
        });
        let running = fs::File::open(&folders[0]).unwrap();
        running.try_lock().unwrap();
        assert_eq!(RunState::killed_run(results.path(), &ids[0]), None, "it is running");
        assert_eq!(RunState::killed_run(results.path(), &ids[1]), Some(folders[1].clone()));
        assert_eq!(RunState::killed_run(results.path(), ""), None);
        drop(running);
        assert_eq!(RunState::killed_run(results.path(), &ids[0]), Some(folders[0].clone()));
    }
}
