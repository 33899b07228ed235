//! Concludes a case: writes and reports the records of its replicas and its summary.

use std::fs;
use std::io;

use super::conduct::FleetRun;
use super::host_link::LinkCommand;
use super::planned::PlannedCase;
use super::replica::{
    ReplicaEnd, ReplicaRecord, ReplicaState, display_name, replica_record, replica_summary, replicas_of,
};
use super::session::SessionOutcome;
use flagperf_config::Scale;
use flagperf_core::file;
use flagperf_core::run_files::{EVENTS_FILE, RECORD_FILE, SUMMARY_FILE};
use flagperf_plan::CasePlan;
use flagperf_result::{
    ManifestFault, Provenance, Record, ReplicaSummary, ResultManifest, Status, Summary, WriteError, departure_text,
    write_record,
};
use flagperf_run::{LostCase, Notice, RunOutcome, checkpoint_hashes, finished_record, planned_settings, was_killed};

impl FleetRun<'_> {
    /// Writes and reports the records of a case, and its summary if it has several replicas. Returns whether `resume` goes on from its
    /// checkpoints although it has ended, because a process that trained was killed or lost.
    pub(super) fn conclude(
        &mut self,
        case: &CasePlan,
        replicas: &[ReplicaState],
        outcome: &mut RunOutcome,
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> bool {
        let begin = outcome.records.len();
        let summaries = replicas.iter().map(|open| self.conclude_replica(case, open, begin, outcome, notify));
        let summaries: Vec<ReplicaSummary> = summaries.collect();
        let key = case.key.to_string();
        let is_interrupted = outcome.records[begin..].iter().any(|record| record.status == Status::Interrupted);
        let has_ended = |open: &ReplicaState| matches!(open.end, Some(ReplicaEnd::Ended(_)));
        // Those that train with others cannot go on alone. Otherwise a session that has not ended might measure at the same time as a
        // new one.
        let is_group = case.key.training.is_some() && replicas.len() > 1;
        let have_ended = replicas.iter().all(has_ended) || is_group && replicas.iter().any(has_ended);
        let has_checkpoints = |open: &ReplicaState| !checkpoint_hashes(&open.folder.join(EVENTS_FILE)).is_empty();
        let is_killed = case.key.training.is_some()
            && (outcome.records[begin..].iter().any(was_killed) || !replicas.iter().all(has_ended))
            && replicas.iter().any(has_checkpoints);
        match (is_interrupted || is_killed) && have_ended {
            true => self.fleet.state.forget(&key),
            false => self.fleet.state.finish(&key),
        }
        self.fleet.state.write(self.folder);
        if replicas.len() > 1 {
            let records: Vec<&Record> = outcome.records[begin..].iter().collect();
            let summary = Summary::of(&key, &records, summaries);
            let path = self.folder.join(case.key.folder()).join(SUMMARY_FILE);
            let text = serde_json::to_vec_pretty(&summary).expect("a summary is plain data");
            if let Err(error) = file::stage(&text, &path, None).and_then(|file| Ok(file.persist(&path)?)) {
                let (path, source) = (path.clone(), io::Error::other(error.to_string()));
                outcome.unwritten.push((begin, WriteError { path, source, kept: None }));
            }
            outcome.summaries.push(summary.validity);
            notify(&Notice::SummaryEnds { summary: &summary, path: &path });
        }
        is_killed && have_ended
    }

    /// Writes and reports the record of a replica, and returns its part of the summary. The records of the case begin at `begin`.
    fn conclude_replica(
        &self,
        case: &CasePlan,
        open: &ReplicaState,
        begin: usize,
        outcome: &mut RunOutcome,
        notify: &mut dyn FnMut(&Notice<'_>),
    ) -> ReplicaSummary {
        let end = open.end.clone().unwrap_or_else(|| ReplicaEnd::Ended(SessionOutcome::default()));
        let host = &open.replica.host;
        let (is_resumed, host_doubts) = (open.is_resumed(), self.host_doubts(case, host));
        let program = if is_resumed { &self.fleet.state.program } else { &self.program };
        let (plan, rows, run, folder) = (self.plan, self.rows, self.folder, open.folder.as_path());
        let lost = LostCase { plan, rows, case, run, folder, program, is_resumed, host_doubts: &host_doubts };
        let is_part = case.key.scale != Scale::ONE;
        let first = outcome.records[begin..].iter().find(|record| record.status == Status::Ok);
        let found = replica_record(lost, &end, &self.planned(case, program, is_resumed), first);
        let ReplicaRecord { record, is_own } = found;
        let path = open.folder.join(RECORD_FILE);
        // A record that the host has written is kept.
        let written = match path.exists() {
            true => Ok(()),
            false => fs::create_dir_all(&open.folder)
                .map_err(|source| WriteError { path: path.clone(), source, kept: None })
                .and_then(|()| write_record(&record, &path)),
        };
        let digest = ResultManifest::digest_of_folder(&open.folder);
        let unsealed = (is_own && digest.is_none() && record.status != Status::Interrupted).then(|| {
            let stated = if let ReplicaEnd::Ended(outcome) = &end { outcome.unsealed.clone() } else { None };
            let reason = stated.unwrap_or_else(|| "its files are not those of the manifest from its host".to_owned());
            ManifestFault::Read { path: open.folder.clone(), source: io::Error::other(reason) }
        });
        if matches!(end, ReplicaEnd::Ended(_)) {
            self.send(&open.replica.host, LinkCommand::Remove { session: open.session.clone() });
        }
        if open.is_given_up && written.is_ok() {
            self.fleet.given_up.add(&open.session, &open.replica.host);
        }
        let unwritten = written.as_ref().err();
        let sealed = unsealed.as_ref().map_or_else(|| Ok(digest.clone()), |fault| Err(fault.to_string()));
        let place = is_part.then(|| display_name(&open.replica));
        self.log.case_ends(&record, place.as_deref(), unwritten, &sealed);
        notify(&Notice::CaseEnds {
            record: &record,
            place: place.as_deref(),
            is_part,
            path: &path,
            unwritten,
            digest: digest.as_deref(),
            unsealed: unsealed.as_ref(),
        });
        let processor = if let ReplicaEnd::Ended(outcome) = &end { outcome.processor } else { None };
        // Only the record that the host wrote states when the case began there.
        let began = if is_own { open.began_here(&record) } else { None };
        let summary = ReplicaSummary {
            machine: self.fleet.machine(&open.replica.host),
            ..replica_summary(&open.replica, &record, (&open.folder, digest), processor, began)
        };
        outcome.unwritten.extend(written.err().map(|error| (outcome.records.len(), error)));
        outcome.unsealed.extend(unsealed.map(|fault| (outcome.records.len(), fault)));
        outcome.records.push(record);
        summary
    }

    /// Returns what the run planned for the replicas of a case.
    fn planned<'a>(&'a self, case: &CasePlan, program: &'a Provenance, is_resumed: bool) -> PlannedCase<'a> {
        let mut settings = planned_settings(self.rows, case);
        // Sessions have another current directory, and get the absolute path.
        let data = self.options.overrides.absolute().data.map(|path| path.display().to_string());
        if let (Some(setting), Some(data)) = (settings.get_mut("data"), data) {
            setting.value = data.into();
        }
        PlannedCase {
            settings,
            departures: case.departures.iter().map(|(key, value)| departure_text(key, value)).collect(),
            program: program.binary_sha256.as_deref(),
            files: &self.fleet.sent_files,
            host_file: &self.plan.host_file.name,
            is_resumed,
        }
    }

    /// Reports the results of a case that the killed process of a resumed run had finished, and returns their records.
    pub(super) fn report_finished(&self, case: &CasePlan, notify: &mut dyn FnMut(&Notice<'_>)) -> Vec<Record> {
        let hosts = self.fleet.state.hosts_of(&case.key.to_string());
        let replicas = replicas_of(&case.key, if hosts.is_empty() { &self.hosts } else { &hosts });
        let found = replicas.iter().filter_map(|replica| {
            let folder = self.folder.join(case.key.folder()).join(replica.folder());
            let record = finished_record(&folder).ok()?;
            let place = (replicas.len() > 1).then(|| display_name(replica));
            let path = folder.join(RECORD_FILE);
            notify(&Notice::FinishedBefore { record: &record, place: place.as_deref(), path: &path });
            Some(record)
        });
        found.collect()
    }
}
