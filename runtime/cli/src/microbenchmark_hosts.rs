//! `flagperf peak --hosts`: what the devices of several hosts reach together.
//!
//! Each host measures with its own processes of one group (`flagperf peak --member`); this process merges the times and prints them as
//! those of one host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use flagperf_config::{Config, EngineEntry, Vendor};
use flagperf_core::measure::MonotonicClock;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::text::{SHOWN_BYTES, one_line, truncate};
use flagperf_fleet::{GroupFailure, GroupHosts, GroupSettings};
use flagperf_microbenchmark::{GroupSize, Limit, LimitTimes};
use flagperf_run::{Interrupt, Notice};

use super::microbenchmark::PeakArguments;
use super::microbenchmark_bench::{Member, load_site};
use super::microbenchmark_results::{LimitResult, Output};
use super::microbenchmark_selection::{check_devices, chosen_limits, find_entry};
use super::output::{PAGE, check_replaceable, print_mistake, print_now};
use super::run::{display, report_not_started};
use super::setup::find_checkout;

/// Measures the limits of the devices of all hosts together, and prints them.
pub(super) fn peak_on_hosts(arguments: &PeakArguments) -> anyhow::Result<ExitCode> {
    let (config, vendor) = match load_site(&find_checkout()?, &arguments.engine, None) {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let hosts = match GroupHosts::names(&config.site) {
        Ok(hosts) => hosts,
        Err(error) => return Ok(report_not_started(&error, false)),
    };
    let size = GroupSize { hosts: hosts.len(), devices: arguments.devices.unwrap_or(1) };
    let (limits, entry) = match check(arguments, &config, &vendor, size) {
        Ok(checked) => checked,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let interrupt = Interrupt::install().context("cannot install signal handlers")?;
    let mut notify = display(false);
    let libraries = entry.library.iter().map(|library| vendor.folder.join(library)).filter(|path| path.is_file());
    let libraries = libraries.collect::<Vec<PathBuf>>();
    let log = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let (site, host_file) = (&config.site, config.host_file.path.as_path());
    let settings = GroupSettings { site, host_file, libraries: &libraries, log: log.path() };
    let clock = Arc::new(MonotonicClock::start());
    let group = match GroupHosts::connect(hosts.clone(), settings, clock, &interrupt, &mut *notify) {
        Ok(group) => group,
        Err(error) => return Ok(report_not_started(&error, false)),
    };
    let same_machines = group.same_machines();
    let host_file_name = config.host_file.name.to_string();
    let mut hosts = MeasuringHosts { arguments, host_file_name, names: hosts, devices: size.devices, group, notify };
    let mut results = Vec::new();
    for limit in limits {
        print_now(&format!("measuring {} with {}", limit.name, entry.engine));
        let measured = hosts.measure(limit).map(Some);
        let mut result = LimitResult::of(&vendor, limit, size.hosts, measured);
        if result.value.is_some() {
            result.reasons.extend(same_machines.iter().cloned());
        }
        results.push(result);
        if interrupt.is_set() {
            break;
        }
    }
    // The hosts are free before the results are printed.
    drop(hosts);
    let page = arguments.html.as_deref();
    Output { json: arguments.json, page, is_interrupted: interrupt.is_set() }.print_limits(&results, true)
}

/// Returns the limits to measure and the engine, of which this machine needs to know no more than its description.
fn check<'v>(
    arguments: &'v PeakArguments,
    config: &Config,
    vendor: &'v Vendor,
    size: GroupSize,
) -> Result<(Vec<&'static Limit>, &'v EngineEntry), String> {
    let limits = chosen_limits(&arguments.only, size)?;
    let (_, entry) = find_entry(vendor, &arguments.engine)?;
    check_devices(&entry.engine, config.visible.as_ref(), size)?;
    arguments.html.as_deref().map_or(Ok(()), |path| check_replaceable(path, &PAGE))?;
    Ok((limits, entry))
}

/// The hosts that measure, and what they are told.
struct MeasuringHosts<'a> {
    arguments: &'a PeakArguments,
    host_file_name: String,
    names: Vec<String>,
    /// The processes of each host.
    devices: u32,
    group: GroupHosts,
    notify: Box<dyn FnMut(&Notice<'_>)>,
}

impl MeasuringHosts<'_> {
    /// Measures a limit on all hosts at the same time.
    fn measure(&mut self, limit: &Limit) -> Result<LimitTimes, String> {
        let first = self.group.first_processes(self.devices);
        let arguments = first.iter().map(|first| self.member_arguments(limit, first)).collect();
        let measured = self.group.measure(arguments, &mut *self.notify);
        let outputs = measured.map_err(|failure| failure_text(&self.names, &first, &failure))?;
        let hosts = outputs.iter().zip(&self.names).zip(&first).enumerate();
        let times = hosts.map(|(place, ((output, host), first_of_host))| {
            let read = serde_json::from_str::<LimitTimes>(output)
                .map_err(|error| format!("it sent no measurement of `{}`: {error}", limit.name));
            let checked = read.and_then(|times| times.of_host(limit, host, first_of_host, shorten));
            checked.map_err(|reason| failure_text(&self.names, &first, &GroupFailure { host: Some(place), reason }))
        });
        let times = times.collect::<Result<Vec<_>, _>>()?;
        LimitTimes::merge(times).ok_or_else(|| "nothing was measured".to_owned())
    }

    /// Returns the arguments with which a host measures a limit.
    fn member_arguments(&self, limit: &Limit, first: &ProcessGroup) -> Vec<String> {
        let (run_id, host_file_name) = (self.group.run_id().to_owned(), self.host_file_name.clone());
        let member = Member { run_id, host_file_name, first: first.clone() };
        let member = serde_json::to_string(&member).expect("a member is plain data");
        let own = ["--only", limit.name, "--member", &member].map(str::to_owned);
        [own.to_vec(), self.arguments.engine.for_host()].concat()
    }
}

/// Returns a text of a host on one line and of limited length.
fn shorten(text: &str) -> String {
    truncate(&one_line(text), SHOWN_BYTES).into_owned()
}

/// Returns why nothing was measured, with the host and the ranks of its processes: `host `h2`: rank 1: its process was killed`.
fn failure_text(hosts: &[String], first: &[ProcessGroup], failure: &GroupFailure) -> String {
    let reason = shorten(&failure.reason);
    let Some(place) = failure.host else { return reason };
    let (host, ProcessGroup { rank, local_size, .. }) = (&hosts[place], &first[place]);
    match local_size {
        _ if reason.starts_with("rank ") => format!("host `{host}`: {reason}"),
        0 | 1 => format!("host `{host}` (rank {rank}): {reason}"),
        size => format!("host `{host}` (ranks {rank} to {}): {reason}", rank + size - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_names_the_host_and_its_ranks() {
        let hosts = ["h1", "h2"].map(str::to_owned);
        let text = |devices: u32, host: Option<usize>, reason: &str| {
            let first = [0, devices].map(|rank| ProcessGroup { rank, local_size: devices, ..ProcessGroup::default() });
            failure_text(&hosts, &first, &GroupFailure { host, reason: reason.to_owned() })
        };
        assert_eq!(text(1, Some(1), "no answer\nfor 10 s"), "host `h2` (rank 1): no answer\\nfor 10 s");
        assert_eq!(text(4, Some(1), "no answer"), "host `h2` (ranks 4 to 7): no answer");
        assert_eq!(
            text(4, Some(0), "rank 3 (X=3): its process was killed"),
            "host `h1`: rank 3 (X=3): its process was killed"
        );
        assert_eq!(text(1, None, "it was stopped"), "it was stopped");
    }
}
