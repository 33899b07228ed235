//! Measures cases, or variants of one case, in turns: each block is a run with a result of its own, while no other run uses
//! the host.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::output::{PAGE, check_replaceable, counted, print_message, print_mistake, print_result, write_file};
use super::result_printer::relative_path;
use super::selection::Selection;
use super::setup::{announce, check_choice, locate_checkout, prepare_process, print_findings, report_mistakes};
use flagperf_comparison::{Side, Variant};
use flagperf_config::{Findings, Overrides, Site, env};
use flagperf_core::event::Level;
use flagperf_core::exit_code;
use flagperf_core::measure::{Clock as _, MonotonicClock, Nanos};
use flagperf_core::text::{escape_json, one_line};
use flagperf_core::units::Seconds;
use flagperf_fleet::needs_fleet;
use flagperf_host::THIS_PROGRAM;
use flagperf_plan::AuditScope;
use flagperf_prepare::{Prepared, prepare};
use flagperf_report::{columns, duration};
use flagperf_result::{Record, Status};
use flagperf_run::{
    CheckoutState, ExitOnSignal, HostBusy, HostLock, HostUse, Interrupt, LockNotice, RunOptions, conduct,
};
use flagperf_verify::find_results;

/// The arguments of a command that measures variants of a case.
#[derive(Debug, Args)]
pub(super) struct VariantArguments {
    /// How often each combination, or value, is measured, at least 2, in turns: forwards, backwards, and so on
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=1000))]
    rounds: u16,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write a page that draws the result
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

/// What was measured of variants.
pub(super) struct Measured {
    pub(super) variants: Vec<Variant>,
    /// Whether the measurement was interrupted; the rounds that were complete then remain.
    pub(super) is_interrupted: bool,
}

impl VariantArguments {
    /// Prints a report of what was measured, and returns the exit code. `is_sound` states whether everything was measured and agrees.
    pub(super) fn print<R: Serialize>(
        &self,
        report: &R,
        (is_interrupted, is_sound): (bool, bool),
        page: fn(&R) -> String,
        text: fn(&R, u16) -> String,
    ) -> anyhow::Result<ExitCode> {
        let mut code = match () {
            () if is_interrupted => exit_code::INTERRUPTED,
            () if is_sound => exit_code::OK,
            () => exit_code::FAILED,
        };
        if let Some(path) = &self.html
            && let Err(message) = write_file(path, &page(report))
        {
            print_message(&format!("error: {message}"));
            code = code.max(exit_code::UNWRITTEN);
        }
        let printed = match self.json {
            true => format!("{}\n", escape_json(&serde_json::to_string_pretty(report)?)),
            false => text(report, columns()),
        };
        Ok(print_result(&printed, code))
    }
}

/// A case on one device of this machine, whose variants are measured.
pub(super) struct Subject {
    checkout: PathBuf,
    overrides: Overrides,
    /// The case without the settings of a variant.
    pub(super) standard: Prepared,
    rounds: usize,
    exits: ExitOnSignal,
}

impl Subject {
    /// Prepares the case that a command line selects. Returns an exit code if `command` cannot measure it.
    pub(super) fn new(arguments: &VariantArguments, command: &str) -> anyhow::Result<Result<Self, ExitCode>> {
        let VariantArguments { rounds, html, selection, .. } = arguments;
        if let Some(Err(message)) = html.as_deref().map(|path| check_replaceable(path, &PAGE)) {
            return Ok(Err(print_mistake(&message)));
        }
        let checkout = locate_checkout()?;
        if let Err(message) = check_choice(&checkout, selection) {
            print_message(&message);
            return Ok(Err(ExitCode::from(exit_code::MISTAKE)));
        }
        let (checkout, overrides) = (announce(checkout), selection.overrides());
        let exits = prepare_process()?;
        let standard = match prepare(&checkout, &overrides) {
            Ok(standard) => standard,
            Err(findings) => return Ok(Err(report_mistakes(&findings))),
        };
        print_findings(standard.plan.findings.iter());
        let refused = match &standard.plan.cases[..] {
            [case] if case.key.training.is_some() => {
                Some(format!("`{}` is a training: `{command}` measures inference", case.key))
            }
            [_] if needs_fleet(&standard.plan) => {
                Some(format!("`{command}` measures a case on one device of this machine"))
            }
            [_] => None,
            _ => Some(format!("`{command}` measures one case\n  hint: choose it with --case NAME")),
        };
        Ok(match refused {
            Some(message) => Err(print_mistake(&message)),
            None => Ok(Subject { checkout, overrides, standard, rounds: usize::from(*rounds), exits }),
        })
    }

    /// Returns the name of the case.
    pub(super) fn case(&self) -> String {
        self.standard.plan.cases[0].key.to_string()
    }

    /// Prepares the case with further settings, or returns the first error.
    pub(super) fn prepare(&self, settings: impl Iterator<Item = String>) -> Result<Prepared, String> {
        let set = self.overrides.set.iter().cloned().chain(settings).collect();
        prepare(&self.checkout, &Overrides { set, ..self.overrides.clone() }).map_err(|findings| first_error(&findings))
    }

    /// Returns the `--set` of the command line that sets one of these keys.
    pub(super) fn set_of(&self, is_key: impl Fn(&str) -> bool) -> Option<&str> {
        let sets_key = |set: &&str| is_key(set.split('=').next().unwrap_or_default());
        self.overrides.set.iter().map(String::as_str).find(sets_key)
    }

    /// Measures variants, each with its name and its plan or why it has none, in turns; `what` is what one of them is. Returns an exit
    /// code if the host cannot be had, or the measurement is interrupted before the first result.
    pub(super) fn measure(
        self,
        what: &str,
        variants: Vec<(String, Result<Prepared, String>)>,
    ) -> anyhow::Result<Result<Measured, ExitCode>> {
        print_message(&format!("{} in {} rounds", counted(variants.len(), what), self.rounds));
        let blocks = match Blocks::start(&self.standard.plan.site, "measures variants of a case")? {
            Ok(blocks) => blocks,
            Err(code) => return Ok(Err(code)),
        };
        drop(self.exits);
        let (variants, is_interrupted) = blocks.measure_rounds(variants, self.rounds);
        if is_interrupted && variants.iter().all(|variant| variant.side.results.is_empty()) {
            return Ok(Err(ExitCode::from(exit_code::INTERRUPTED)));
        }
        Ok(Ok(Measured { variants, is_interrupted }))
    }
}

/// Returns the first error of several findings.
fn first_error(findings: &Findings) -> String {
    let error = findings.0.iter().find(|finding| finding.level == Level::Error);
    error.map_or_else(|| findings.to_string(), |finding| one_line(&finding.message).into_owned())
}

/// What all blocks share.
pub(super) struct Blocks {
    options: RunOptions,
    interrupt: Interrupt,
}

/// The outcome of a block.
pub(super) enum Block {
    /// The folder of the result, and its record.
    Measured(PathBuf, Box<Record>),
    /// The folder of the result, and why it failed.
    Failed(PathBuf, String),
    Interrupted,
    /// Why there is no result.
    NotRun(String),
}

impl Blocks {
    /// Waits until no other run uses the host. `what` is what this process does. Returns an exit code if that is not possible.
    pub(super) fn start(site: &Site, what: &str) -> anyhow::Result<Result<Self, ExitCode>> {
        let interrupt = Interrupt::install().context("cannot install signal handlers")?;
        let about = format!("process {} {what}", std::process::id());
        let mut on_notice = |notice: &LockNotice| print_message(&format!("note: {notice}"));
        let lock = HostLock::take(&env::host_lock(), (&about, &about), site.busy_host, &interrupt, &mut on_notice);
        let host_use = match lock {
            Ok(lock) => HostUse::new(lock, Vec::new()),
            Err(busy) => return Ok(Err(print_mistake(&format!("{busy}\n  hint: {}", HostBusy::HINT)))),
        };
        let options = RunOptions {
            has_live_display: false,
            audit: AuditScope::Standard,
            worker: vec![THIS_PROGRAM.into(), "work".into()],
            clock: Arc::new(MonotonicClock::start()),
            folder: None,
            program: Some(CheckoutState::read(&site.flagperf_path).provenance()),
            resumed: None,
            barrier: None,
            host_use,
            checkpoint_store: None,
        };
        Ok(Ok(Blocks { options, interrupt }))
    }

    /// Runs a case once.
    pub(super) fn measure(&self, Prepared { plan, values }: &Prepared) -> Block {
        let outcome = match conduct(plan, values, &self.options, &self.interrupt, &mut |_| ()) {
            Ok(outcome) => outcome,
            Err(error) => return Block::NotRun(error.to_string()),
        };
        if outcome.interrupted {
            return Block::Interrupted;
        }
        let Some(record) = outcome.records.into_iter().next() else {
            return Block::NotRun("it has no record".to_owned());
        };
        let folder = find_results(&outcome.folder).ok().and_then(|found| found.into_iter().next());
        let folder = folder.unwrap_or(outcome.folder);
        if record.status == Status::Ok {
            return Block::Measured(folder, Box::new(record));
        }
        let reason = record.failures.first().and_then(|failure| failure.reason.lines().next());
        let reason = reason.map(|line| one_line(line).into_owned());
        Block::Failed(folder, reason.unwrap_or_else(|| "it has no figures".to_owned()))
    }

    /// Runs each variant once in each round. Returns them with whether this was interrupted.
    fn measure_rounds(&self, variants: Vec<(String, Result<Prepared, String>)>, rounds: usize) -> (Vec<Variant>, bool) {
        let (mut measured, plans): (Vec<Variant>, Vec<Option<Prepared>>) = variants
            .into_iter()
            .map(|(name, prepared)| {
                let failure = prepared.as_ref().err().cloned();
                (Variant { side: Side { name, results: Vec::new() }, failure }, prepared.ok())
            })
            .unzip();
        let count = measured.len();
        if let Some(plan) = &plans[0] {
            // The first run of all is often slower, which would favour the other variants.
            print_message(&format!("a warm-up block, which does not count: {}", measured[0].side.name));
            if let Block::Interrupted = self.measure(plan) {
                return (measured, true);
            }
        }
        let clock = MonotonicClock::start();
        for round in 0..rounds {
            if measured.iter().filter(|variant| variant.failure.is_none()).count() < 2 {
                print_message("error: fewer than two variants are left to compare");
                break;
            }
            if round == 1 {
                let took = clock.now().since(Nanos(0));
                let rest = duration(Seconds(took.0 * (rounds - 1) as f64));
                print_message(&format!("the first round took {}; the others will take about {rest}", duration(took)));
            }
            for turn in 0..count {
                // Forwards, then backwards: what changes steadily with time then favours no variant.
                let index = if round % 2 == 0 { turn } else { count - 1 - turn };
                let variant = &mut measured[index];
                let (Some(plan), None) = (&plans[index], &variant.failure) else { continue };
                let block = round * count + turn + 1;
                print_message(&format!("block {block} of {}: {}", rounds * count, variant.side.name));
                match self.measure(plan) {
                    Block::Measured(folder, record) => variant.side.results.push((folder, *record)),
                    Block::Failed(folder, reason) => {
                        print_failed(block, &folder, &reason);
                        variant.failure = Some(reason);
                    }
                    Block::NotRun(reason) => {
                        print_message(&format!("error: block {block}: {reason}"));
                        variant.failure = Some(reason);
                    }
                    Block::Interrupted => {
                        print_message(&format!("interrupted after {}", counted(round, "complete round")));
                        measured.iter_mut().for_each(|variant| variant.side.results.truncate(round));
                        return (measured, true);
                    }
                }
            }
        }
        (measured, false)
    }
}

/// Prints why a block failed, and where its result is.
pub(super) fn print_failed(block: usize, folder: &Path, reason: &str) {
    let shown = relative_path(folder).display().to_string();
    print_message(&format!("error: block {block} failed: {reason}\n  result {shown}"));
}
