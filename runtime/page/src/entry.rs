//! What a table of results lists as one: a result, or the sum of those of a run on several devices.

use std::collections::BTreeSet;

use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Record, Status, StepSummary, Validity};
use flagperf_verify::Standing;

use super::result::{Check, ReadResult, text};
use super::summary::ReadSummary;
use super::words::Language;

/// A result with what `verify` found.
pub(super) type CheckedResult = (ReadResult, Check);

/// A result, or the sum over several devices.
#[derive(Clone, Debug)]
pub(super) struct Entry<'r> {
    /// The result, or those of the replicas in their order, of which there is at least one.
    pub(super) results: Vec<&'r CheckedResult>,
    pub(super) summary: Option<&'r ReadSummary>,
}

impl<'r> Entry<'r> {
    /// Returns the entry of a result.
    pub(super) fn of_result(result: &'r CheckedResult) -> Self {
        Entry { results: vec![result], summary: None }
    }

    /// Returns the sum over the devices of a case, whose summary was read with these results.
    pub(super) fn of_summary(summary: &'r ReadSummary, results: &'r [CheckedResult]) -> Self {
        Entry { results: summary.replicas.iter().map(|index| &results[*index]).collect(), summary: Some(summary) }
    }

    /// Returns the record of the first device, whose settings are those of all.
    pub(super) fn record(&self) -> &'r Record {
        &self.results[0].0.record
    }

    /// Returns the case with its framework, and with its scale if it ran on several devices.
    pub(super) fn key(&self) -> String {
        text(&self.summary.map_or_else(|| self.record().key(), |read| read.summary.case.clone()))
    }

    /// Returns the number of devices.
    pub(super) fn devices(&self) -> usize {
        self.results.len()
    }

    /// Returns hosts and devices of each host as keys of cases have them: `2x8`; `None` for one device.
    pub(super) fn scale(&self) -> Option<String> {
        let replicas = &self.summary?.summary.replicas;
        let hosts = replicas.iter().map(|replica| replica.node_rank as usize + 1).max()?;
        Some(format!("{hosts}x{}", replicas.len() / hosts))
    }

    /// Returns the number of devices as a table shows it; workers that shared a device are not devices.
    pub(super) fn devices_text(&self, language: Language) -> String {
        let devices = self.devices().to_string();
        match self.step() {
            Some(step) if step.shares_devices => language.sentence("{} workers on shared devices", &[&devices]),
            _ => match self.scale().filter(|scale| !scale.starts_with("1x")) {
                Some(scale) => format!("{devices} ({scale})"),
                None => devices,
            },
        }
    }

    /// Returns the names of the devices.
    pub(super) fn device_names(&self) -> String {
        let name = |result: &&CheckedResult| result.0.record.headline_device().map(|device| device.name.clone());
        let names: BTreeSet<String> = self.results.iter().filter_map(name).collect();
        text(&names.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Returns where it was measured, or of how many replicas it is the sum.
    pub(super) fn place(&self, language: Language) -> String {
        match self.summary {
            Some(_) => language.sentence("sum of {}", &[&self.devices().to_string()]),
            None => self.results[0].0.place(),
        }
    }

    /// Returns the sums of the step of the headline.
    pub(super) fn step(&self) -> Option<&'r StepSummary> {
        self.summary?.summary.steps.last()
    }

    /// Returns the samples per second of *core*, which are the sum over the devices.
    pub(super) fn core(&self) -> Option<SamplesPerSecond> {
        match self.summary {
            Some(_) => self.step()?.throughput_core_samples_per_s,
            None => self.record().measured_loops().next_back()?.throughput_core_samples_per_s,
        }
    }

    /// Returns those of *whole*.
    pub(super) fn whole(&self) -> Option<SamplesPerSecond> {
        match self.summary {
            Some(_) => self.step()?.throughput_whole_samples_per_s,
            None => self.record().measured_loops().next_back()?.throughput_whole_samples_per_s,
        }
    }

    pub(super) fn status(&self) -> Status {
        self.summary.map_or(self.record().status, |read| read.summary.status)
    }

    pub(super) fn validity(&self) -> Validity {
        self.summary.map_or(self.record().validity.verdict, |read| read.summary.validity)
    }

    /// Returns when the first of its results began.
    pub(super) fn started(&self) -> &'r str {
        let time = |text: &&str| text.parse::<jiff::Timestamp>().ok();
        let started = self.results.iter().map(|(result, _)| result.record.started.as_str());
        started.min_by_key(time).unwrap_or_default()
    }

    /// Returns what `verify` says in a word: the worst that it says of the summary and of the results. A summary has no signature of its
    /// own: a sum is authentic if all of its results are.
    pub(super) fn check_name(&self) -> &'static str {
        let of_results = || self.results.iter().map(|(_, check)| check.name());
        let all = || of_results().chain(self.summary.map(|read| read.check.name()));
        let has = |name: &'static str| all().any(|own| own == name).then_some(name);
        let [authentic, consistent, wrong, unknown] =
            [Standing::Authentic, Standing::Consistent, Standing::Wrong, Standing::NotVerifiable].map(Standing::name);
        let worst = [wrong, unknown, Check::NOT_CHECKED].into_iter().find_map(has);
        worst.unwrap_or(if of_results().all(|name| name == authentic) { authentic } else { consistent })
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.check_name() == Standing::Wrong.name()
    }
}
