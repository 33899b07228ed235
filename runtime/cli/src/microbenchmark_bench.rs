//! The engine that is measured on this host, the use of the host, and the processes that measure.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use flagperf_config::{Config, Environment, Overrides, Vendor, VisibleDevices, env, list_known, load};
use flagperf_core::exit_code;
use flagperf_core::hash::hash_bytes;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_engine::EngineSource;
use flagperf_microbenchmark::{Format, GroupSize, Limit, LimitJob, LimitTimes, OperatorJob};
use flagperf_plan::INTERFACE_VARIABLES;
use flagperf_run::{HostBusy, HostLock, Interrupt, LockNotice};
use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::microbenchmark::EngineArguments;
use super::microbenchmark_processes::{Job, ProcessJob, measure};
use super::microbenchmark_results::{Output, format_of};
use super::microbenchmark_selection::{check_devices, find_engine};
use super::output::{PAGE, check_replaceable, print_message, print_mistake, print_now};
use super::setup::{find_checkout, print_findings};

/// The time of each of the two measurements of an operator, in seconds.
const TIME_S: f64 = 1.0;

/// The part of a group on several hosts that measures on this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    /// The id of the run for which the host is reserved.
    pub(super) run_id: String,
    /// Name of host.yaml in messages.
    pub(super) host_file_name: String,
    /// Its first process. `local_size` has the number of its processes.
    pub(super) first: ProcessGroup,
}

impl Member {
    /// Reads the argument `--member`.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the seed of the tensors, which all processes of the group draw alike.
    fn seed(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.first.seed.derive("tensors", 0).bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The processes that measure together.
#[derive(Clone, Debug)]
pub(super) enum Processes {
    /// One process.
    One,
    /// One for each of so many devices of this host.
    Devices(u32),
    /// Those of this host, in a group on several hosts.
    Member(Box<Member>),
}

impl Processes {
    fn member(&self) -> Option<&Member> {
        if let Processes::Member(member) = self { Some(member) } else { None }
    }

    /// Returns the number of devices of this host, and of all hosts if others take part: at least two.
    fn size(&self) -> GroupSize {
        match self {
            Processes::One => GroupSize { hosts: 1, devices: 1 },
            Processes::Devices(devices) => GroupSize { hosts: 1, devices: *devices },
            Processes::Member(member) => GroupSize { hosts: 2, devices: member.first.local_size },
        }
    }

    /// Returns the first process of this host, in a group that `scratch` distinguishes from others at the same port.
    fn first(&self, scratch: &Path, master_port: u16) -> Option<ProcessGroup> {
        match self {
            Processes::One => None,
            Processes::Member(member) => Some(member.first.clone()),
            Processes::Devices(devices) => Some(ProcessGroup {
                size: *devices,
                local_size: *devices,
                id: hash_bytes(scratch.as_os_str().as_encoded_bytes()).chars().take(16).collect(),
                master_address: "127.0.0.1".to_owned(),
                master_port,
                peer_address: "127.0.0.1".to_owned(),
                ..ProcessGroup::default()
            }),
        }
    }
}

/// Reads host.yaml and the vendor, and prints what is wrong with them. `member` is set on another host than that of the user.
pub(super) fn load_site(
    root: &Path,
    arguments: &EngineArguments,
    member: Option<&Member>,
) -> Result<(Config, Vendor), ExitCode> {
    let overrides = Overrides {
        vendor: arguments.vendor.clone(),
        config: arguments.config.clone(),
        environment: Environment::read(),
        is_copy: member.is_some(),
        host_file_name: member.map(|member| member.host_file_name.clone()),
        ..Overrides::default()
    };
    let config = load(root, &overrides).map_err(|findings| {
        print_findings(findings.0.iter());
        ExitCode::from(exit_code::MISTAKE)
    })?;
    let Some(vendor) = config.vendor.clone() else { return Err(print_vendor_mistake(root, &config)) };
    // Those of the cases in host.yaml are none of this command's business.
    print_findings(config.findings.iter().filter(|finding| finding.cases.is_empty()));
    Ok((config, vendor))
}

/// Prints why the vendor cannot be read: its file is wrong, or there is no such vendor.
fn print_vendor_mistake(root: &Path, config: &Config) -> ExitCode {
    let name = &config.site.vendor;
    if root.join("vendors").join(name).is_dir() {
        print_findings(config.findings.iter());
        return ExitCode::from(exit_code::MISTAKE);
    }
    let entries = std::fs::read_dir(root.join("vendors")).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut known: Vec<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    known.sort_unstable();
    print_mistake(&format!(
        "unknown vendor `{}` (known: {})",
        one_line(name),
        list_known(name, known.iter().map(String::as_str))
    ))
}

/// The engine that is measured, and the use of this host.
pub(super) struct Bench {
    pub(super) vendor: Vendor,
    engine: EngineSource,
    /// The variable by which a process gets one of several devices, and the port at which the processes meet.
    visible: Option<VisibleDevices>,
    master_port: u16,
    processes: Processes,
    page: Option<PathBuf>,
    pub(super) interrupt: Interrupt,
    clock: MonotonicClock,
    seed: u64,
    scratch: tempfile::TempDir,
    _host: HostLock,
}

impl Bench {
    /// Finds the engine, and waits for the host as `BUSY_HOST` says.
    pub(super) fn new(
        arguments: &EngineArguments,
        page: Option<&Path>,
        processes: Processes,
    ) -> anyhow::Result<Result<Self, ExitCode>> {
        let root = find_checkout()?;
        let (config, vendor) = match load_site(&root, arguments, processes.member()) {
            Ok(loaded) => loaded,
            Err(code) => return Ok(Err(code)),
        };
        let Config { site, visible, .. } = config;
        let checked = find_engine(&root, &vendor, arguments).and_then(|engine| {
            check_devices(&engine.engine, visible.as_ref(), processes.size())?;
            page.map_or(Ok(()), |path| check_replaceable(path, &PAGE))?;
            Ok(engine)
        });
        let engine = match checked {
            Ok(engine) => engine,
            Err(message) => return Ok(Err(print_mistake(&message))),
        };
        let interrupt = Interrupt::install().context("cannot install signal handlers")?;
        let about = format!("process {}, an operator or the limits of a device", std::process::id());
        let mut on_notice = |notice: &LockNotice| print_message(&format!("warning: {notice}"));
        // The agent of this host has reserved it for the run.
        let run = processes.member().map_or(about.as_str(), |member| member.run_id.as_str());
        let names = (run, about.as_str());
        let host = match HostLock::take(&env::host_lock(), names, site.busy_host, &interrupt, &mut on_notice) {
            Ok(lock) => lock,
            Err(busy) => {
                print_message(&format!("error: {busy}\n  hint: {}", HostBusy::HINT));
                let code = if interrupt.is_set() { exit_code::INTERRUPTED } else { exit_code::MISTAKE };
                return Ok(Err(ExitCode::from(code)));
            }
        };
        let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
        let (page, clock) = (page.map(Path::to_owned), MonotonicClock::start());
        let seed = processes.member().map_or_else(|| u64::from(std::process::id()), Member::seed);
        let master_port = site.master_port;
        Ok(Ok(Bench {
            vendor,
            engine,
            visible,
            master_port,
            processes,
            page,
            interrupt,
            clock,
            seed,
            scratch,
            _host: host,
        }))
    }

    pub(super) fn announce(&self, what: &str) {
        print_now(&format!("measuring {what} with {}", self.engine.engine));
    }

    /// Returns how results are printed.
    pub(super) fn output(&self, json: bool) -> Output<'_> {
        Output { json, page: self.page.as_deref(), is_interrupted: self.interrupt.is_set() }
    }

    /// Returns the settings of a job in a format, without an operator.
    pub(super) fn settings(&self, format: Format) -> anyhow::Result<OperatorJob> {
        let scratch = tempfile::tempdir_in(self.scratch.path()).context("cannot create a temporary folder")?.keep();
        Ok(OperatorJob {
            operator: String::new(),
            format,
            sizes: IndexMap::new(),
            engine: self.engine.clone(),
            monitor: self.vendor.monitor.clone(),
            time_s: Seconds(TIME_S),
            seed: self.seed,
            scratch,
        })
    }

    /// Returns the processes of this host in their group: one without a group, unless there are several.
    fn groups(&self) -> Vec<Option<ProcessGroup>> {
        let Some(first) = self.processes.first(self.scratch.path(), self.master_port) else { return vec![None] };
        let process = |local_rank| ProcessGroup { rank: first.rank + local_rank, local_rank, ..first.clone() };
        (0..first.local_size).map(|local_rank| Some(process(local_rank))).collect()
    }

    /// Measures a limit with all processes of this host at the same time.
    pub(super) fn measure_limit(&self, limit: &Limit) -> anyhow::Result<Result<Vec<LimitTimes>, String>> {
        let job = |group| {
            let settings = self.settings(format_of(limit))?;
            Ok(Job::Limit(LimitJob { limit: limit.name.to_owned(), settings, group }))
        };
        self.measure(self.groups().into_iter().map(job).collect::<anyhow::Result<_>>()?)
    }

    /// Runs jobs at the same time; of several, each gets the device of its place in the list, as those of a training do.
    pub(super) fn measure<T: DeserializeOwned>(&self, jobs: Vec<Job>) -> anyhow::Result<Result<Vec<T>, String>> {
        let are_several = jobs.len() > 1;
        let with_device = |(job, device): (Job, u32)| {
            let visible = self.visible.clone().filter(|_| are_several);
            let device =
                visible.and_then(|visible| VisibleDevices { device: Some(device), ..visible }.worker_variable());
            let card = job.group().and_then(|group| group.interface.clone()).into_iter();
            let cards = card.flat_map(|card| INTERFACE_VARIABLES.map(|name| (name.to_owned(), card.clone())));
            ProcessJob { environment: device.into_iter().chain(cards).collect(), job }
        };
        let jobs: Vec<ProcessJob> = jobs.into_iter().zip(0..).map(with_device).collect();
        measure(&jobs, self.scratch.path(), self.clock, || self.interrupt.is_set())
    }
}
