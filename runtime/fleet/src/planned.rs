//! Compares the record of a replica with what this run planned for it and sent to its host: a host may have run something
//! else, by a fault or on purpose.
//!
//! Does not judge the figures.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::tree::HOST_FILE;
use flagperf_core::step::Phase;
use flagperf_result::{Provenance, Record, Setting, different_setting};

/// What a run planned for the replicas of a case.
pub(super) struct PlannedCase<'a> {
    pub(super) settings: IndexMap<String, Setting>,
    pub(super) departures: Vec<String>,
    /// SHA-256 of the program that was sent; `None` in the state of an older program.
    pub(super) program: Option<&'a str>,
    /// SHA-256 of the files that were sent, by path in the checkout.
    pub(super) files: &'a BTreeMap<String, String>,
    /// Name of the host.yaml of the run.
    pub(super) host_file: &'a str,
    /// Whether a process that was killed had started the replica: host.yaml may have changed since.
    pub(super) is_resumed: bool,
}

impl PlannedCase<'_> {
    /// Returns in what a record differs from the plan; `None` if it differs in nothing.
    pub(super) fn difference(&self, record: &Record) -> Option<String> {
        self.different_program(&record.provenance)
            .or_else(|| different_setting(&self.settings, &record.settings, !self.is_resumed))
            .or_else(|| self.different_file(&record.provenance))
            .or_else(|| (record.departures != self.departures).then(|| "the record lists other departures".to_owned()))
    }

    fn different_program(&self, found: &Provenance) -> Option<String> {
        let found = found.binary_sha256.as_deref().unwrap_or("unknown");
        let sent = self.program.filter(|sent| *sent != found)?;
        Some(format!("the SHA-256 of the program is {found} (expected: {sent})"))
    }

    /// Returns the first file that the case read and that is not as it was sent.
    fn different_file(&self, found: &Provenance) -> Option<String> {
        let is_host_file = |name: &str| name == self.host_file || name.starts_with("site/");
        let scripts = found.scripts_sha256.iter().map(|(name, hash)| (format!("scripts/{name}"), hash));
        let config = found.config_files_sha256.iter().filter(|(name, _)| !self.is_resumed || !is_host_file(name));
        let sent_as = |name: &str| if is_host_file(name) { HOST_FILE } else { name }.to_owned();
        let config = config.map(|(name, hash)| (sent_as(name), hash));
        let (path, hash) = scripts.chain(config).find(|(path, hash)| self.files.get(path) != Some(hash))?;
        Some(format!("`{path}` is not the file that was sent: its SHA-256 is {hash}"))
    }
}

/// Returns in what the data or the weights of a replica differ from those of another replica of its case.
pub(super) fn different_input(first: &Record, record: &Record) -> Option<&'static str> {
    let index = |record: &Record| record.provenance.dataset_sha256.clone();
    if index(first).zip(index(record)).is_some_and(|(one, other)| one != other) {
        return Some("the names or sizes of the samples");
    }
    let weights = |record: &Record| {
        let mut hashes: Vec<String> = record.provenance.weights_sha256.values().cloned().collect();
        hashes.sort_unstable();
        hashes
    };
    if weights(first) != weights(record) {
        return Some("the weights");
    }
    // Files that a case exports lie in the folder of each host's session.
    let models = &first.provenance.model_sha256;
    if record.provenance.model_sha256.iter().any(|(path, hash)| models.get(path).is_some_and(|other| other != hash)) {
        return Some("the files of the model");
    }
    let samples = |record: &Record, phase: Phase| {
        record.phases.iter().find(|own| own.phase == phase)?.dataset.as_ref().map(|dataset| dataset.samples)
    };
    let pair = |phase: Phase| samples(first, phase).zip(samples(record, phase));
    let differs = |(one, other): (u64, u64)| one != other;
    Phase::ALL.into_iter().filter_map(pair).any(differs).then_some("the numbers of samples")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_a_program_that_was_not_sent_is_named() {
        let files = ["scripts/a/model.rhai", "configs/a/parameters.yaml", "configs/host.yaml"];
        let files: BTreeMap<String, String> = files.map(|path| (path.to_owned(), path.len().to_string())).into();
        let planned = |is_resumed| PlannedCase {
            settings: IndexMap::new(),
            departures: Vec::new(),
            program: Some("p"),
            files: &files,
            host_file: "/lab/host.yaml",
            is_resumed,
        };
        let config = [("configs/a/parameters.yaml", "25"), ("site/host.yaml", "17")];
        let found = Provenance {
            binary_sha256: Some("p".into()),
            scripts_sha256: [("a/model.rhai".to_owned(), "20".to_owned())].into(),
            config_files_sha256: config.map(|(name, hash)| (name.to_owned(), hash.to_owned())).into(),
            ..Provenance::default()
        };
        let checked = |found: &Provenance, is_resumed: bool| {
            let planned = planned(is_resumed);
            planned.different_program(found).or_else(|| planned.different_file(found))
        };
        assert_eq!((checked(&found, false), checked(&found, true)), (None, None));
        let mut host_file = found.clone();
        host_file.config_files_sha256["site/host.yaml"] = "x".into();
        assert!(checked(&host_file, false).unwrap().starts_with("`configs/host.yaml` is not the file that was sent"));
        assert_eq!(checked(&host_file, true), None, "it may have changed before the run was resumed");
        let mut script = found.clone();
        script.scripts_sha256.insert("lib/added.rhai".into(), "1".into());
        assert!(checked(&script, true).unwrap().starts_with("`scripts/lib/added.rhai` is not the file that was sent"));
        let program = Provenance { binary_sha256: Some("q".into()), ..found };
        assert_eq!(checked(&program, false).unwrap(), "the SHA-256 of the program is q (expected: p)");
    }
}
