//! `flagperf run`: plans the selected cases and conducts the run.

use std::fs::File;
use std::io::{self, IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::arguments::{RunArguments, RunOutput};
use super::microbenchmark::run_operators;
use super::new::case_of_file;
use super::output::{StderrDisplay, print_message, print_mistake, print_now, print_result};
use super::result_printer::{ResultPrinter, relative_path};
use super::resume::{announce_resume, refuse_changed_cases};
use super::setup::{announce, check_choice, locate_checkout, prepare_process, print_findings, report_mistakes};
use super::trace::TRACE_KEY;
use flagperf_config::{CaseKey, Environment, Overrides, Scale, env};
use flagperf_core::exit_code;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::run_files::STATE_FILE;
use flagperf_core::units::Seconds;
use flagperf_fleet::{
    FleetError, FleetOptions, JobRequest, RunState, conduct_fleet, contact_limit, needs_fleet, schedulers, user_name,
};
use flagperf_host::THIS_PROGRAM;
use flagperf_plan::AuditScope;
use flagperf_prepare::{Prepared, prepare};
use flagperf_report::{BarDisplay, LineDisplay, LiveDisplay};
use flagperf_run::{
    CheckoutState, HostBusy, HostLock, HostUse, Interrupt, LockNotice, Notice, RunError, RunOptions, RunOutcome,
    case_parts, conduct,
};

/// Runs the selected cases and prints their results.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    if !arguments.operator.is_empty() {
        return run_operators(arguments);
    }
    if arguments.html.is_some() {
        return Ok(print_mistake(
            "--html writes a page of operators: name them by --operator; `flagperf report` writes pages of results",
        ));
    }
    if arguments.onnx.is_none() && !arguments.shape.is_empty() {
        return Ok(print_mistake("--shape sets a dimension of the model of --onnx, or of an operator of --operator"));
    }
    let checkout = locate_checkout()?;
    let chosen = arguments.onnx.as_ref().map_or_else(|| check_choice(&checkout, &arguments.selection), |_| Ok(()));
    if let Err(message) = chosen {
        print_message(&message);
        return Ok(ExitCode::from(exit_code::MISTAKE));
    }
    let RunArguments { output, official, audit, .. } = *arguments;
    let mut overrides = arguments.selection.overrides();
    if arguments.trace {
        overrides.set.push(format!("{TRACE_KEY}=true"));
    }
    overrides.set.extend(arguments.compiler.iter().map(|compiler| format!("compiler={compiler}")));
    if let Some(file) = &arguments.onnx {
        match case_of_file(file, &arguments.shape, &checkout.root, &overrides) {
            Ok(case) => {
                overrides.cases = vec![case];
                // No other entry chooses the folder in which the file is looked for.
                overrides.data = file.canonicalize().ok().and_then(|file| Some(file.parent()?.to_owned()));
            }
            Err(code) => return Ok(code),
        }
    }
    if let Some(name) = &arguments.submit {
        return submit(name, &announce(checkout), &overrides);
    }
    let request = RunRequest {
        overrides,
        output,
        official,
        audit: if official { AuditScope::Full } else { audit.into() },
        resumed: None,
        skips_unreachable: false,
    };
    run_request(&announce(checkout), request)
}

/// Prints a job that runs the selected cases on a cluster.
fn submit(name: &str, checkout: &Path, overrides: &Overrides) -> anyhow::Result<ExitCode> {
    let _exits = prepare_process()?;
    // Within the job, the scheduler determines the hosts, so `HOSTS` is ignored here, too.
    let environment = Environment { slurm_nodes: Some(String::new()), ..overrides.environment.clone() };
    let overrides = &Overrides { environment, ..overrides.clone() };
    let Prepared { plan, .. } = match prepare(checkout, overrides) {
        Ok(planned) => planned,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    let Some(scheduler) = schedulers().iter().find(|scheduler| scheduler.name() == name) else {
        return Ok(ExitCode::from(exit_code::MISTAKE));
    };
    let most = |number: fn(&Scale) -> u32| plan.cases.iter().map(|case| number(&case.key.scale)).max().unwrap_or(1);
    // A container cannot reach other hosts with the user's ssh.
    if scheduler.is_single_host() && most(|scale| scale.hosts) > 1 {
        print_message(&format!(
            "error: a case needs {} hosts, but `--submit {name}` supports only one\n  hint: use --case to \
             select cases that need one host",
            most(|scale| scale.hosts)
        ));
        return Ok(ExitCode::from(exit_code::MISTAKE));
    }
    let phases: usize = plan.cases.iter().map(|case| case.jobs.len()).sum();
    let framework = plan.cases.first().map(|case| case.key.framework.as_str()).unwrap_or_default();
    let mut arguments = vec!["run".to_owned(), "--plain".to_owned()];
    arguments.extend(overrides.arguments());
    let request = JobRequest {
        hosts: most(|scale| scale.hosts),
        devices: most(|scale| scale.devices),
        checkout: plan.site.flagperf_path.clone(),
        program: std::env::current_exe().context("the path of this program is unknown")?,
        arguments,
        time_max_s: (plan.site.phase_timeout.0 * phases as f64) as u64,
        image: format!("flagperf-inference-{}-{framework}", plan.site.vendor),
    };
    Ok(print_result(&scheduler.job(&request), exit_code::OK))
}

/// The cases to run, and how their results are printed.
pub(super) struct RunRequest {
    pub(super) overrides: Overrides,
    pub(super) output: RunOutput,
    pub(super) official: bool,
    pub(super) audit: AuditScope,
    /// The folder and the state of the run to resume; `None` for a new run.
    pub(super) resumed: Option<(PathBuf, RunState)>,
    /// Whether a resumed run goes on without the hosts that cannot be reached.
    pub(super) skips_unreachable: bool,
}

/// Runs the cases, and prints their results.
pub(super) fn run_request(checkout: &Path, request: RunRequest) -> anyhow::Result<ExitCode> {
    let RunRequest { overrides, output, official, audit, resumed, skips_unreachable } = request;
    let is_on_terminal = !env::is_dumb_terminal() && stderr().is_terminal() && (output.json || stdout().is_terminal());
    if output.live && !is_on_terminal {
        return Ok(print_mistake(
            "--live draws on a terminal, but standard output or standard error is none, or a dumb one (TERM)\n  hint: without --live, the run \
             prints its progress as lines",
        ));
    }
    let is_resumed = resumed.is_some();
    let exits = prepare_process()?;
    let planned = match prepare(checkout, &overrides) {
        Ok(planned) => planned,
        Err(findings) => return Ok(report_mistakes(&findings)),
    };
    print_findings(planned.plan.findings.iter());
    let has_live_display = !output.plain && is_on_terminal;
    let interrupt = Interrupt::install().context("cannot install signal handlers")?;
    drop(exits);
    let mut results = ResultPrinter::new(output, official);
    let Prepared { plan, values } = &planned;
    let clock = Arc::new(MonotonicClock::start());
    let mut show: Box<dyn FnMut(&Notice<'_>)> = if output.live {
        let cases: Vec<CaseKey> = plan.cases.iter().map(|case| case.key.clone()).collect();
        let mut live = LiveDisplay::new(&cases, clock.clone(), &interrupt);
        Box::new(move |notice| live.show(notice))
    } else {
        display(has_live_display)
    };
    if let Some(refusal) = resumed.as_ref().and_then(|resumed| refuse_changed_cases(resumed, &planned)) {
        return Ok(refusal);
    }
    let on_hosts = resumed.as_ref().map_or_else(|| needs_fleet(plan), |(_, state)| !state.hosts.is_empty());
    let checkout_state = || CheckoutState::read(&plan.site.flagperf_path).provenance();
    // Runs on hosts ask git themselves.
    let program = (!on_hosts).then(checkout_state);
    if official && let Some(reason) = program.clone().unwrap_or_else(checkout_state).unofficial_checkout() {
        print_message(&format!("warning: every result will be unofficial: {reason}"));
    }
    let state = match (&resumed, &program) {
        (Some((_, state)), Some(_)) => Some(state.clone()),
        (None, Some(program)) => {
            Some(RunState::new(&overrides, audit, official, Vec::new(), program, case_parts(plan, values)))
        }
        (_, None) => None,
    };
    let mut _lock_of_run = match resumed.as_ref().map(|(folder, _)| lock_run(folder)) {
        Some(Err(message)) => {
            print_message(&message);
            return Ok(ExitCode::from(exit_code::MISTAKE));
        }
        locked => locked.and_then(Result::ok),
    };
    let mut watch = |notice: &Notice<'_>| {
        if let Notice::RunBegins { folder } = notice {
            state.iter().for_each(|state| state.write(folder));
            if on_hosts {
                announce_second_signal(&interrupt, folder, contact_limit(&plan.site));
            }
            if _lock_of_run.is_none() {
                _lock_of_run = lock_run(folder).ok();
            }
        }
        show(notice);
        results.notice(notice);
    };
    let conducted = if on_hosts {
        let options = FleetOptions { overrides, has_live_display, audit, official, skips_unreachable, clock };
        conduct_fleet(plan, values, &options, resumed, &interrupt, &mut watch)
    } else {
        let (id, user, folder) = (std::process::id(), user_name(), plan.site.flagperf_log_path.display());
        let about = format!("process {id} of user `{user}`, results in {folder}");
        let mut on_notice = |notice: &LockNotice| {
            let level = if let LockNotice::Waits(_) = notice { "note" } else { "warning" };
            print_message(&format!("{level}: {notice}"));
        };
        let names = (about.as_str(), about.as_str());
        let host_use = match HostLock::take(&env::host_lock(), names, plan.site.busy_host, &interrupt, &mut on_notice) {
            Ok(lock) => HostUse::new(lock, Vec::new()),
            Err(busy) => {
                print_message(&format!("error: {busy}\n  hint: {}", HostBusy::HINT));
                let code = if interrupt.is_set() { exit_code::INTERRUPTED } else { exit_code::MISTAKE };
                return Ok(ExitCode::from(code));
            }
        };
        let worker = vec![THIS_PROGRAM.into(), "work".into()];
        let (folder, resumed) = resumed.map(|(folder, state)| (folder, state.program)).unzip();
        let options = RunOptions {
            has_live_display,
            audit,
            worker,
            clock,
            folder,
            program,
            resumed,
            barrier: None,
            host_use,
            checkpoint_store: None,
        };
        let conducted = conduct(plan, values, &options, &interrupt, &mut watch);
        // The case that an interruption ended is run again by `resume`.
        let is_over = |outcome: &&RunOutcome| outcome.is_complete() && !outcome.interrupted && !outcome.has_checkpoints;
        if let Some(outcome) = conducted.as_ref().ok().filter(is_over) {
            RunState::remove(&outcome.folder);
        }
        conducted.map_err(FleetError::from)
    };
    drop(show);
    Ok(match conducted {
        Ok(outcome) => {
            results.print_overview(&outcome.not_run);
            announce_resume(&outcome);
            results.exit_code(&outcome)
        }
        Err(error) => report_not_started(&error, is_resumed),
    })
}

/// Lets a second signal state what happens to the hosts of the run, before it ends this process. `limit` is the time without
/// contact after which the hosts stop.
fn announce_second_signal(interrupt: &Interrupt, folder: &Path, limit: Seconds) {
    let (run, state) = (relative_path(folder).display().to_string(), folder.join(STATE_FILE));
    interrupt.before_exit(move || {
        // Without this file, no case has begun.
        let resume = match state.exists() {
            true => format!("; `flagperf resume {run}` collects their results and frees them at once"),
            false => String::new(),
        };
        print_now(&format!(
            "warning: this process ends now and does not wait for the hosts, which stop and are free for other runs after {:.0} s \
             without contact (`HOST_TIMEOUT` plus 30 s){resume}",
            limit.0
        ));
    });
}

/// Locks the folder of a run until the returned file is dropped, because two processes must not write to one folder.
fn lock_run(folder: &Path) -> Result<File, String> {
    let locked = File::open(folder).and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
    locked.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let folder = folder.display();
            format!(
                "error: another process is running or resuming `{folder}`\n  hint: wait until that \
                 process has ended, or end it with Ctrl-C"
            )
        }
        _ => format!("error: `{}` cannot be used: {error}", folder.display()),
    })
}

/// Returns a function that displays the notices of a run: as bars on a terminal, otherwise as lines.
pub(super) fn display(bars: bool) -> Box<dyn FnMut(&Notice<'_>)> {
    if bars {
        let mut bars = BarDisplay::default();
        Box::new(move |notice| bars.show(notice))
    } else {
        let mut lines = LineDisplay::new(StderrDisplay::default());
        Box::new(move |notice| lines.show(notice))
    }
}

/// Prints why a run did not start, and returns its exit code.
pub(super) fn report_not_started(error: &FleetError, is_resumed: bool) -> ExitCode {
    match error {
        FleetError::Run(error @ RunError::Folder { .. }) => {
            print_message(&format!(
                "error: {error}\n  hint: is FLAGPERF_LOG_PATH in host.yaml, the folder for results, writable, and \
                 is there space on its disk?"
            ));
            ExitCode::from(exit_code::UNWRITTEN)
        }
        FleetError::Busy(hosts) => {
            for (host, reason) in hosts {
                print_message(&format!("error: host `{host}`: {reason}"));
            }
            print_message(&format!("  hint: nothing was run; {}", HostBusy::HINT));
            ExitCode::from(exit_code::MISTAKE)
        }
        FleetError::Hosts(hosts) => {
            for (host, reason) in hosts {
                print_message(&format!("error: host `{host}` cannot be used: {reason}"));
            }
            let hint = match is_resumed {
                true => {
                    "try again when the host is back; `flagperf resume --skip-unreachable` goes on without it, and what it has \
                         not sent is then not part of the results; `--case KEY` continues a training on other hosts"
                }
                false => "nothing was run; `flagperf doctor --hosts` checks every host",
            };
            print_message(&format!("  hint: {hint}"));
            ExitCode::from(exit_code::MISTAKE)
        }
        FleetError::Refused(refusals) => {
            for refusal in refusals {
                print_message(&format!("error: {refusal}"));
            }
            print_message("  hint: nothing was run; `flagperf doctor --hosts` checks every host");
            ExitCode::from(exit_code::MISTAKE)
        }
        FleetError::Interrupted => {
            print_message(&format!("error: {error}"));
            ExitCode::from(exit_code::INTERRUPTED)
        }
        error => {
            print_message(&format!("error: {error}"));
            ExitCode::from(exit_code::MISTAKE)
        }
    }
}
