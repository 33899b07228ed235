//! `flagperf run --operator` and `flagperf peak`: one operator at a time, and the limits of a device.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use flagperf_core::exit_code;
use flagperf_host::exit_when_input_ends;
use flagperf_microbenchmark::{GroupSize, Limit, LimitTimes, OperatorFigures, OperatorJob, OperatorTimes, Sizes};
use flagperf_report::columns;

use super::arguments::RunArguments;
use super::microbenchmark_bench::{Bench, Member, Processes};
use super::microbenchmark_hosts::peak_on_hosts;
use super::microbenchmark_page::operators_page;
use super::microbenchmark_processes::Job;
use super::microbenchmark_results::{LimitResult, OperatorResult, data_sheet, sizes_text};
use super::microbenchmark_selection::{chosen_limits, chosen_operators};
use super::microbenchmark_text::operators_text;
use super::output::{print_message, print_mistake, print_result};
use super::reply::input_is_a_pipe;

/// The most devices that are measured together.
const DEVICES_MAX: i64 = 128;

/// The arguments of `flagperf peak`.
#[derive(Debug, Args)]
pub(super) struct PeakArguments {
    /// Measure only this limit, such as `computation-FP16`; repeatable
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub(super) only: Vec<String>,
    /// Measure what the first N devices of this machine, or of each host, reach together
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, value_parser = clap::value_parser!(u32).range(2..=DEVICES_MAX))]
    pub(super) devices: Option<u32>,
    /// Measure what a device of each host in HOSTS reaches together with those of the others
    #[arg(long)]
    hosts: bool,
    /// Measure as a part of a group on several hosts, which this describes as JSON
    #[arg(long, hide = true, value_name = "JSON", conflicts_with_all = ["hosts", "devices"], value_parser = Member::parse)]
    member: Option<Member>,
    #[command(flatten)]
    pub(super) engine: EngineArguments,
    /// Print the results as JSON, with every time that was measured
    #[arg(long)]
    pub(super) json: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
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
    pub(super) config: Option<PathBuf>,
}

impl EngineArguments {
    /// Returns the arguments for a command on another host, which has its own host.yaml.
    pub(super) fn for_host(&self) -> Vec<String> {
        let pair = |name: &str, value: &String| [name.to_owned(), value.clone()];
        let named = [("--vendor", &self.vendor), ("--compiler", &self.compiler)];
        let named = named.into_iter().filter_map(|(name, value)| Some(pair(name, value.as_ref()?)));
        named.chain(self.set.iter().map(|set| pair("--set", set))).flatten().collect()
    }
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
    let bench = match Bench::new(&engine, arguments.html.as_deref(), Processes::One)? {
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
        let sheet = data_sheet(&bench.vendor, times.as_ref().and_then(|times| times.device_name.as_deref()), format);
        let figures = times.as_ref().map(|times| OperatorFigures::of(times, flops, &sheet));
        let OperatorJob { operator, sizes, .. } = job;
        results.push(OperatorResult { operator, format, sizes, flops, figures, data_sheet: sheet, times, failure });
        if bench.interrupt.is_set() {
            break;
        }
    }
    let is_sound = |result: &OperatorResult| result.figures.as_ref().is_some_and(|figures| figures.reasons.is_empty());
    let sound = results.iter().all(is_sound);
    bench.output(arguments.output.json).print(&results, operators_text(&results, columns()), operators_page, sound)
}

/// Measures the limits of a device, of several ones or of hosts, and prints them.
pub(super) fn peak(arguments: &PeakArguments) -> anyhow::Result<ExitCode> {
    if let Some(member) = &arguments.member {
        return measure_as_member(arguments, member);
    }
    if arguments.hosts {
        return peak_on_hosts(arguments);
    }
    let devices = arguments.devices.unwrap_or(1);
    let chosen = match chosen_limits(&arguments.only, GroupSize { hosts: 1, devices }) {
        Ok(chosen) => chosen,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let processes = arguments.devices.map_or(Processes::One, Processes::Devices);
    let bench = match Bench::new(&arguments.engine, arguments.html.as_deref(), processes)? {
        Ok(bench) => bench,
        Err(code) => return Ok(code),
    };
    let mut results = Vec::new();
    for limit in chosen {
        bench.announce(limit.name);
        let measured = bench.measure_limit(limit)?.map(LimitTimes::merge);
        results.push(LimitResult::of(&bench.vendor, limit, 1, measured));
        if bench.interrupt.is_set() {
            break;
        }
    }
    bench.output(arguments.json).print_limits(&results, arguments.devices.is_some())
}

/// Measures a limit as the part of a group that runs on this host, and prints the times.
fn measure_as_member(arguments: &PeakArguments, member: &Member) -> anyhow::Result<ExitCode> {
    if input_is_a_pipe()? {
        exit_when_input_ends(io::stdin());
    }
    let limit = match arguments.only.as_slice() {
        [name] => Limit::find(name),
        _ => Err("a member of a group measures one limit".to_owned()),
    };
    let limit = match limit {
        Ok(limit) => limit,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let bench = match Bench::new(&arguments.engine, None, Processes::Member(Box::new(member.clone())))? {
        Ok(bench) => bench,
        Err(code) => return Ok(code),
    };
    let measured = bench.measure_limit(limit)?;
    let merged = measured.and_then(|times| LimitTimes::merge(times).ok_or_else(|| "nothing was measured".to_owned()));
    Ok(match merged {
        Ok(times) => print_result(&serde_json::to_string(&times)?, exit_code::OK),
        Err(reason) => {
            print_message(&format!("error: {reason}"));
            ExitCode::from(exit_code::FAILED)
        }
    })
}
