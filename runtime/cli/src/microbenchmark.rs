//! `flagperf run --operator` and `flagperf peak`: one operator at a time, and the limits of a device.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueHint};
use flagperf_config::{Config, Environment, Overrides, Vendor, VisibleDevices, env, list_known, load};
use flagperf_core::exit_code;
use flagperf_core::hash::hash_bytes;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::process_group::ProcessGroup;
use flagperf_core::text::one_line;
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::EngineSource;
use flagperf_microbenchmark::{
    DataSheet, ExchangeFigures, Format, Limit, LimitJob, LimitTimes, LimitValue, OperatorFigures, OperatorJob,
    OperatorTimes, Reason, Sizes,
};
use flagperf_report::columns;
use flagperf_run::{HostBusy, HostLock, Interrupt, LockNotice};
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arguments::RunArguments;
use super::microbenchmark_page::{operators_page, peak_page};
use super::microbenchmark_processes::{Job, ProcessJob, measure};
use super::microbenchmark_selection::{check_devices, chosen_limits, chosen_operators, find_engine};
use super::microbenchmark_text::{operators_text, peak_text};
use super::output::{check_page_file, print_message, print_mistake, print_now, print_result, write_file};
use super::setup::{find_checkout, print_findings};

/// Exit code: something was not measured, or does not count.
const EXIT_UNSOUND: u8 = 1;
/// The time of each of the two measurements of an operator, in seconds.
const TIME_S: f64 = 1.0;

/// The most devices that are measured together.
const DEVICES_MAX: i64 = 128;

/// The arguments of `flagperf peak`.
#[derive(Debug, Args)]
pub(super) struct PeakArguments {
    /// Measure only this limit, such as `computation-FP16`; repeatable
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    only: Vec<String>,
    /// Measure what the first N devices of this machine reach together
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, value_parser = clap::value_parser!(u32).range(2..=DEVICES_MAX))]
    devices: Option<u32>,
    #[command(flatten)]
    engine: EngineArguments,
    /// Print the results as JSON, with every time that was measured
    #[arg(long)]
    json: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// The engine that is measured.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct EngineArguments {
    /// The vendor whose device is measured: a folder in vendors/
    #[arg(long, value_name = "VENDOR", value_hint = ValueHint::Other)]
    pub(super) vendor: Option<String>,
    /// A compiler or framework of the vendor [default: its `default_framework`]
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub(super) compiler: Option<String>,
    /// An option of the engine, such as `threads=1` or `device=cuda:1`; repeatable
    #[arg(long, value_name = "OPTION=VALUE", value_hint = ValueHint::Other)]
    pub(super) set: Vec<String>,
    /// Directory that contains host.yaml (also FLAGPERF_CONFIG)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    config: Option<PathBuf>,
}

/// An operator in one format and one shape: what was measured, or why not.
#[derive(Debug, Serialize)]
pub(super) struct OperatorResult {
    pub(super) operator: String,
    pub(super) format: Format,
    pub(super) sizes: IndexMap<String, usize>,
    pub(super) flops: Option<f64>,
    pub(super) figures: Option<OperatorFigures>,
    pub(super) data_sheet: DataSheet,
    pub(super) times: Option<OperatorTimes>,
    pub(super) failure: Option<String>,
}

/// A limit: what was measured, or why not.
#[derive(Debug, Serialize)]
pub(super) struct LimitResult {
    pub(super) limit: &'static str,
    pub(super) row: &'static str,
    pub(super) unit: &'static str,
    /// The device, as its driver names it, or else as the engine does.
    pub(super) device: Option<String>,
    /// The number of these devices that were measured together.
    pub(super) devices: usize,
    pub(super) value: Option<f64>,
    /// The size at which it was reached, and the figures there, if it was measured by an operator.
    pub(super) size: Option<usize>,
    pub(super) figures: Option<OperatorFigures>,
    /// The bytes of the tensors by which it was reached, and the figures of each size, if it is that of several devices.
    pub(super) bytes: Option<Bytes>,
    pub(super) exchange: Vec<ExchangeFigures>,
    /// Why it does not count; empty if it does.
    pub(super) reasons: Vec<Reason>,
    pub(super) data_sheet_value: Option<f64>,
    pub(super) data_sheet: DataSheet,
    pub(super) times: Option<LimitTimes>,
    pub(super) failure: Option<String>,
}

/// Measures the operators that `--operator` names, in each shape, and prints their figures.
pub(super) fn run_operators(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let chosen = match chosen_operators(&arguments.operator, &arguments.shape) {
        Ok(chosen) => chosen,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let overrides = arguments.selection.overrides();
    let engine = EngineArguments {
        vendor: overrides.vendor,
        compiler: arguments.compiler.clone(),
        set: overrides.set,
        config: overrides.config,
    };
    let bench = match Bench::new(&engine, arguments.html.as_deref(), None)? {
        Ok(bench) => bench,
        Err(code) => return Ok(code),
    };
    let mut results = Vec::new();
    for (operator, format, sizes) in chosen {
        let gradient = if operator.has_gradient { ", with its gradient," } else { "" };
        let name = format!("{}:{} {}", operator.name, format.name, sizes_text(&sizes));
        bench.announce(&format!("{}{gradient}", name.trim_end()));
        let job = OperatorJob { operator: operator.name.to_owned(), sizes, ..bench.settings(format)? };
        let flops = Sizes::of(operator, &job.sizes).ok().and_then(|sizes| Some(operator.flops?(&sizes)));
        let measured = bench.measure::<OperatorTimes>(vec![Job::Operator(job.clone())])?.map(|mut all| all.remove(0));
        let (times, failure) = measured.map_or_else(|reason| (None, Some(reason)), |times| (Some(times), None));
        let sheet = bench.data_sheet(times.as_ref().and_then(|times| times.device_name.as_deref()), format);
        let figures = times.as_ref().map(|times| OperatorFigures::of(times, flops, &sheet));
        let OperatorJob { operator, sizes, .. } = job;
        results.push(OperatorResult { operator, format, sizes, flops, figures, data_sheet: sheet, times, failure });
        if bench.interrupt.is_set() {
            break;
        }
    }
    let is_sound = |result: &OperatorResult| result.figures.as_ref().is_some_and(|figures| figures.reasons.is_empty());
    let sound = results.iter().all(is_sound);
    bench.print(arguments.output.json, &results, operators_text(&results, columns()), operators_page, sound)
}

/// Measures the limits of a device, and prints them.
pub(super) fn peak(arguments: &PeakArguments) -> anyhow::Result<ExitCode> {
    let devices = arguments.devices;
    let chosen = match chosen_limits(&arguments.only, devices.unwrap_or(1)) {
        Ok(chosen) => chosen,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let bench = match Bench::new(&arguments.engine, arguments.html.as_deref(), devices)? {
        Ok(bench) => bench,
        Err(code) => return Ok(code),
    };
    let mut results = Vec::new();
    for limit in chosen {
        if let Some(reason) = limit.missing() {
            results.push(bench.limit_result(limit, Format::FP32, Err(reason.to_owned())));
            continue;
        }
        bench.announce(limit.name);
        let format = limit.operator().map_or(Format::FP32, |(_, format)| format);
        let job = |group| {
            let settings = bench.settings(format)?;
            Ok(Job::Limit(LimitJob { limit: limit.name.to_owned(), settings, group }))
        };
        let jobs = bench.groups(devices).into_iter().map(job).collect::<anyhow::Result<_>>()?;
        let measured = bench.measure::<LimitTimes>(jobs)?;
        results.push(bench.limit_result(limit, format, measured.map(LimitTimes::merge)));
        if bench.interrupt.is_set() {
            break;
        }
    }
    let is_sound = |result: &LimitResult| result.failure.is_none() && result.reasons.is_empty();
    // What a device does not have is no failure, as long as something was measured.
    let sound = results.iter().any(is_sound) && results.iter().all(|r| r.failure.is_some() || is_sound(r));
    bench.print(arguments.json, &results, peak_text(&results, columns()), peak_page, sound)
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
struct Bench {
    vendor: Vendor,
    engine: EngineSource,
    /// The variable by which a process gets one of several devices, and the port at which the processes meet.
    visible: Option<VisibleDevices>,
    master_port: u16,
    page: Option<PathBuf>,
    interrupt: Interrupt,
    clock: MonotonicClock,
    seed: u64,
    scratch: tempfile::TempDir,
    _host: HostLock,
}

impl Bench {
    /// Finds the engine, and waits for the host as `BUSY_HOST` says.
    fn new(
        arguments: &EngineArguments,
        page: Option<&Path>,
        devices: Option<u32>,
    ) -> anyhow::Result<Result<Self, ExitCode>> {
        let root = find_checkout()?;
        let overrides = Overrides {
            vendor: arguments.vendor.clone(),
            config: arguments.config.clone(),
            environment: Environment::read(),
            ..Overrides::default()
        };
        let config = match load(&root, &overrides) {
            Ok(config) => config,
            Err(findings) => {
                print_findings(findings.0.iter());
                return Ok(Err(ExitCode::from(exit_code::MISTAKE)));
            }
        };
        let Config { vendor: Some(vendor), site, findings, visible, .. } = config else {
            return Ok(Err(print_vendor_mistake(&root, &config)));
        };
        // Those of the cases in host.yaml are none of this command's business.
        print_findings(findings.iter().filter(|finding| finding.cases.is_empty()));
        let engine = match find_engine(&root, &vendor, arguments) {
            Ok(engine) => engine,
            Err(message) => return Ok(Err(print_mistake(&message))),
        };
        if let Some(Err(message)) = devices.map(|_| check_devices(&engine, visible.as_ref())) {
            return Ok(Err(print_mistake(&message)));
        }
        if let Some(Err(message)) = page.map(check_page_file) {
            return Ok(Err(print_mistake(&message)));
        }
        let interrupt = Interrupt::install().context("cannot install signal handlers")?;
        let about = format!("process {}, an operator or the limits of a device", std::process::id());
        let mut on_notice = |notice: &LockNotice| print_message(&format!("warning: {notice}"));
        let names = (about.as_str(), about.as_str());
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
        let seed = u64::from(std::process::id());
        let master_port = site.master_port;
        Ok(Ok(Bench { vendor, engine, visible, master_port, page, interrupt, clock, seed, scratch, _host: host }))
    }

    fn announce(&self, what: &str) {
        print_now(&format!("measuring {what} with {}", self.engine.engine));
    }

    /// Returns the settings of a job in a format, without an operator.
    fn settings(&self, format: Format) -> anyhow::Result<OperatorJob> {
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

    /// Returns the groups of the processes that measure together: one process without a group, unless there are several devices.
    fn groups(&self, devices: Option<u32>) -> Vec<Option<ProcessGroup>> {
        let Some(size) = devices else { return vec![None] };
        let id: String = hash_bytes(self.scratch.path().as_os_str().as_encoded_bytes()).chars().take(16).collect();
        let group = |rank| ProcessGroup {
            rank,
            size,
            id: id.clone(),
            master_address: "127.0.0.1".to_owned(),
            master_port: self.master_port,
            peer_address: "127.0.0.1".to_owned(),
            ..ProcessGroup::default()
        };
        (0..size).map(|rank| Some(group(rank))).collect()
    }

    /// Runs jobs at the same time; of several, each gets the device of its place in the list, as those of a training do.
    fn measure<T: DeserializeOwned>(&self, jobs: Vec<Job>) -> anyhow::Result<Result<Vec<T>, String>> {
        let are_several = jobs.len() > 1;
        let environment = |device: u32| {
            let visible = self.visible.clone().filter(|_| are_several);
            visible.and_then(|visible| VisibleDevices { device: Some(device), ..visible }.worker_variable())
        };
        let with_device = |(job, device)| ProcessJob { job, environment: environment(device).into_iter().collect() };
        let jobs: Vec<ProcessJob> = jobs.into_iter().zip(0..).map(with_device).collect();
        measure(&jobs, self.scratch.path(), self.clock, || self.interrupt.is_set())
    }

    /// Returns what vendor.yaml says of a device in a format.
    fn data_sheet(&self, device: Option<&str>, format: Format) -> DataSheet {
        let Some(device) = device.and_then(|name| self.vendor.device(name)) else { return DataSheet::default() };
        DataSheet {
            device: device.name.clone(),
            flops_per_s: device.peak_flops_per_s.get(format.peak_name()).map(|peak| peak.0),
            bytes_per_s: device.bandwidth_bytes_per_s,
            memory_bytes: device.memory_bytes.map(|bytes| bytes.0 as f64),
            source: device.source.clone(),
        }
    }

    fn limit_result(&self, limit: &Limit, format: Format, measured: Result<Option<LimitTimes>, String>) -> LimitResult {
        let (times, failure) = measured.map_or_else(|reason| (None, Some(reason)), |times| (times, None));
        let device = times.as_ref().map(|times| times.device_name().unwrap_or(times.device()).to_owned());
        let data_sheet = self.data_sheet(device.as_deref(), format);
        let found = times.as_ref().and_then(|times| times.value(&data_sheet));
        let value = found.as_ref().map(|found| found.value);
        let LimitValue { size, figures, bytes, exchange, reasons, .. } = found.unwrap_or_default();
        LimitResult {
            limit: limit.name,
            row: limit.row,
            unit: limit.unit(),
            device,
            devices: times.as_ref().map_or(1, LimitTimes::devices),
            value,
            size,
            figures,
            bytes,
            exchange,
            reasons,
            data_sheet_value: limit.data_sheet_value(&data_sheet),
            data_sheet,
            times,
            failure,
        }
    }

    /// Prints results as text or JSON, and writes the page.
    fn print<T: Serialize>(
        &self,
        json: bool,
        results: &[T],
        text: String,
        page: fn(&[T], &str) -> String,
        is_sound: bool,
    ) -> anyhow::Result<ExitCode> {
        let code = match (self.interrupt.is_set(), is_sound) {
            (true, _) => exit_code::INTERRUPTED,
            (false, true) => exit_code::OK,
            (false, false) => EXIT_UNSOUND,
        };
        if let Some(path) = &self.page
            && let Err(message) = write_file(path, &page(results, &text))
        {
            return Ok(print_mistake(&message));
        }
        let shown = if json { format!("{}\n", serde_json::to_string_pretty(results)?) } else { text };
        Ok(print_result(&shown, code))
    }
}

/// Returns sizes as text: `M=1024 N=1024`.
pub(super) fn sizes_text(sizes: &IndexMap<String, usize>) -> String {
    sizes.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(" ")
}
