//! `flagperf operator`: builds, tests and measures operators of vendors.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueHint};
use flagperf_config::{OperatorCase, OperatorDescription, Vendor, list_known, list_names};
use flagperf_core::exit_code;
use flagperf_core::measure::{Clock as _, MonotonicClock};
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_engine::backend::Backend;
use flagperf_host::{CapturedCommand, ProcessError, capture};
use flagperf_operator::{
    BuildError, CaseError, EngineName, Target, build, build_shell, check_case, check_description, measure,
};
use flagperf_report::columns;
use flagperf_run::Interrupt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operator_page::operator_page;
use super::operator_text::{measured_text, tested_text};
use super::output::{PAGE, check_replaceable, print_mistake, print_result, write_file};
use super::setup::find_checkout;

/// Exit code: the operator does not compute what it means.
const EXIT_DIFFERENT: u8 = 1;

#[derive(Debug, Subcommand)]
pub(super) enum OperatorCommand {
    /// Build the libraries of an operator by the commands in its operator.yaml, and those by which its vendor's engines find it
    Build {
        /// The operator: VENDOR/NAME, or NAME if only one vendor has it
        #[arg(value_hint = ValueHint::Other)]
        operator: String,
        /// The kind of device, such as `cpu` or `cuda`, or an engine of `operator_shells` in vendor.yaml; by default every one
        /// that operator.yaml lists, and every engine whose headers are found
        #[arg(long, value_hint = ValueHint::Other)]
        device: Option<String>,
        /// The folder of the engine's headers; by default those that vendor.yaml lists
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        headers: Option<PathBuf>,
        /// The time limit of each command, in seconds
        #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u32).range(1..), value_name = "SECONDS")]
        time_limit: u32,
    },
    /// Compare an operator with the standard operators that mean the same, computed in f64. Exits with 1 if it differs
    ///
    /// Each case of `tests` in operator.yaml runs in a process of its own, which is killed after the time limit. With libtorch, the
    /// tensors lie between margins that show whether the operator writes outside of its outputs.
    Test(RunArguments),
    /// Measure an operator beside the engine's own operators and beside a copy of the same size
    Bench {
        #[command(flatten)]
        run: RunArguments,
        /// Also write a page with a plot
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        html: Option<PathBuf>,
    },
}

#[derive(Clone, Debug, Args)]
pub(super) struct RunArguments {
    /// The operator: VENDOR/NAME, or NAME if only one vendor has it
    #[arg(value_hint = ValueHint::Other)]
    operator: String,
    /// The device: `cpu`, or one such as `cuda:0`
    #[arg(long, default_value = "cpu", value_hint = ValueHint::Other)]
    device: String,
    /// The engine: `libtorch` (as `flagperf backend install` installs it), the path of its plug-in, or an engine of this program
    #[arg(long, default_value = LIBTORCH, value_hint = ValueHint::Other)]
    engine: String,
    /// The time limit of each case, in seconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..), value_name = "SECONDS")]
    time_limit: u32,
    /// Run only this case, and write the results to the file of `--results`. The command starts itself with this
    #[arg(long, hide = true, requires = "results")]
    case: Option<usize>,
    #[arg(long, hide = true)]
    results: Option<PathBuf>,
}

/// The engine whose plug-in is looked for among the installed libraries.
const LIBTORCH: &str = "libtorch";

pub(super) fn operator(command: &OperatorCommand) -> anyhow::Result<ExitCode> {
    let root = find_checkout();
    let result = match command {
        OperatorCommand::Build { operator, device, headers, time_limit } => {
            let time_max = Seconds(f64::from(*time_limit));
            build_libraries(&root?, operator, device.as_deref(), headers.as_deref(), time_max)
        }
        OperatorCommand::Test(run) => test(&root?, run)?,
        OperatorCommand::Bench { run, html } => bench(&root?, run, html.as_deref())?,
    };
    Ok(match result {
        Ok((text, code)) => print_result(&text, code),
        Err(message) => print_mistake(&message),
    })
}

/// The text that a command prints and its exit code, or a mistake of the user.
type Answer = Result<(String, u8), String>;

fn build_libraries(root: &Path, name: &str, device: Option<&str>, headers: Option<&Path>, time_max: Seconds) -> Answer {
    let operator = find(root, name)?;
    let vendor = Vendor::read(root, operator.name().0).map_err(|finding| finding.to_string())?;
    let all: Vec<&str> = operator.build.keys().chain(vendor.operator_shells.keys()).map(String::as_str).collect();
    let is_asked_for = device.is_some() || headers.is_some();
    let mut text = String::new();
    for device in device.map_or(all, |device| vec![device]) {
        let built = match vendor.operator_shells.get(device).filter(|_| !operator.build.contains_key(device)) {
            Some(shell) => build_shell(&operator, device, shell, &vendor.folder, headers, time_max),
            None => build(&operator, device, time_max),
        };
        match built {
            Ok(library) => text += &format!("{device}: {}\n", library.display()),
            // Most machines do not have the headers of every engine.
            Err(error @ BuildError::NoHeader { .. }) if !is_asked_for => {
                text += &format!("{device}: not built: {error} (`--headers` names another folder)\n");
            }
            Err(error) => {
                print_result(&text, exit_code::OK);
                let other = operator.build.keys().find(|other| *other != device);
                let hint = match (&error, other) {
                    (BuildError::NoHeader { .. }, _) => {
                        "\n  hint: install the headers of the engine, or name their folder: --headers DIR".to_owned()
                    }
                    (BuildError::Start(ProcessError::TimedOut { .. }), _) => {
                        "\n  hint: `--time-limit SECONDS` allows more time".to_owned()
                    }
                    (BuildError::Start(_), Some(other)) => {
                        format!("\n  hint: install it, or build only the library for `{other}`: --device {other}")
                    }
                    _ => String::new(),
                };
                return Err(format!("the library for `{device}`: {error}{hint}"));
            }
        }
    }
    Ok((text, exit_code::OK))
}

fn test(root: &Path, run: &RunArguments) -> anyhow::Result<Answer> {
    let (operator, target) = match operator_and_target(root, run) {
        Ok(found) => found,
        Err(message) => return Ok(Err(message)),
    };
    if let (Some(case), Some(results)) = (run.case, &run.results) {
        let mut results = Results::create(results)?;
        return Ok(finished(check_case(&operator, case, &target, &mut |tested| results.add(&tested))));
    }
    if operator.tests.is_empty() {
        return Ok(Err("operator.yaml lists no `tests`".to_owned()));
    }
    let counts = match result_counts(&operator, "tests", &operator.tests) {
        Ok(counts) => counts,
        Err(message) => return Ok(Err(message)),
    };
    let counts = counts.into_iter().map(|dtypes| dtypes * target.memories().len());
    let Some(outcomes) = run_cases(run, "test", counts)? else { return Ok(Ok(INTERRUPTED)) };
    let (text, passed) = tested_text(&operator, &outcomes, columns());
    Ok(Ok((text, if passed { exit_code::OK } else { EXIT_DIFFERENT })))
}

fn bench(root: &Path, run: &RunArguments, page: Option<&Path>) -> anyhow::Result<Answer> {
    let (operator, target) = match operator_and_target(root, run) {
        Ok(found) => found,
        Err(message) => return Ok(Err(message)),
    };
    if let (Some(case), Some(results)) = (run.case, &run.results) {
        let (mut results, clock) = (Results::create(results)?, MonotonicClock::start());
        return Ok(finished(measure(&operator, case, &target, &clock, &mut |measured| results.add(&measured))));
    }
    if operator.benchmarks.is_empty() {
        return Ok(Err("operator.yaml lists no `benchmarks`".to_owned()));
    }
    let counts = match result_counts(&operator, "benchmarks", &operator.benchmarks) {
        Ok(counts) => counts,
        Err(message) => return Ok(Err(message)),
    };
    let Some(outcomes) = run_cases(run, "bench", counts.into_iter())? else { return Ok(Ok(INTERRUPTED)) };
    let (mut text, passed) = measured_text(&operator, &outcomes, columns());
    if let Some(path) = page {
        let title = format!("{} on {}", run.operator, run.device);
        let html = operator_page(&title, &operator, &outcomes, &text);
        if let Err(message) = check_replaceable(path, &PAGE).and_then(|()| write_file(path, &html)) {
            return Ok(Err(message));
        }
        text += &format!("page  {}\n", path.display());
    }
    Ok(Ok((text, if passed { exit_code::OK } else { EXIT_DIFFERENT })))
}

/// Returns the number of types with which each case of `key` is run, if all cases are possible.
fn result_counts(operator: &OperatorDescription, key: &str, cases: &[OperatorCase]) -> Result<Vec<usize>, String> {
    let count = |(place, case)| match check_description(operator, case) {
        Err(CaseError::Case(reason)) => Err(operator.case_finding(key, place, &reason).to_string()),
        counted => counted.map_err(|error| error.to_string()),
    };
    cases.iter().enumerate().map(count).collect()
}

/// Returns an operator and where it runs, if nothing is missing that every case needs.
fn operator_and_target(root: &Path, run: &RunArguments) -> Result<(OperatorDescription, Target), String> {
    let operator = find(root, &run.operator)?;
    let target = target(root, run)?;
    match target.obstacle(&operator) {
        Some(reason) => Err(reason),
        None => Ok((operator, target)),
    }
}

/// Finds an operator by `VENDOR/NAME`, or by a name that only one vendor has.
fn find(root: &Path, name: &str) -> Result<OperatorDescription, String> {
    let entries = std::fs::read_dir(root.join("vendors")).into_iter().flatten().flatten();
    let mut known: Vec<(String, PathBuf)> = Vec::new();
    for vendor in entries.map(|entry| entry.path()) {
        let vendor_name = vendor.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let operators = OperatorDescription::names(&vendor);
        known.extend(operators.into_iter().map(|operator| (format!("{vendor_name}/{operator}"), vendor.clone())));
    }
    known.sort();
    let is_meant = |full: &str| full == name || full.split_once('/').is_some_and(|(_, own)| own == name);
    let found: Vec<&(String, PathBuf)> = known.iter().filter(|(full, _)| is_meant(full)).collect();
    let names = || known.iter().map(|(full, _)| full.as_str());
    match found[..] {
        [(full, vendor)] => {
            let own = full.split_once('/').map_or(full.as_str(), |(_, own)| own);
            OperatorDescription::read(vendor, own).map_err(|finding| finding.to_string())
        }
        [] => Err(format!("unknown operator `{name}` (known: {})", list_known(name, names()))),
        _ => Err(format!(
            "several vendors have an operator `{name}`: {}",
            list_names(found.iter().map(|(full, _)| full.as_str()))
        )),
    }
}

fn target(root: &Path, run: &RunArguments) -> Result<Target, String> {
    let engine = if run.engine == LIBTORCH {
        let backend = if run.device == "cpu" { LIBTORCH } else { "libtorch-cuda" };
        let library = Backend::find(root, backend).and_then(|backend| backend.installed());
        let missing = || {
            format!(
                "{backend} is not installed\n  hint: run `flagperf backend install {backend}`, or name another engine: `--engine onnxruntime`"
            )
        };
        EngineName::Library(library.ok_or_else(missing)?)
    } else if run.engine.contains('/') {
        let path = Path::new(&run.engine).canonicalize();
        EngineName::Library(path.map_err(|error| format!("cannot open `{}`: {error}", run.engine))?)
    } else {
        flagperf_engine::find(&run.engine).map_err(|unknown| unknown.to_string())?;
        EngineName::Own(run.engine.clone())
    };
    Ok(Target { engine, device: run.device.clone() })
}

/// What is known of a case: the results, and why there are no more, if there should be.
#[derive(Clone, Debug)]
pub(super) struct CaseResults<T> {
    pub(super) results: Vec<T>,
    pub(super) failure: Option<String>,
}

/// The answer of a command that is interrupted.
const INTERRUPTED: (String, u8) = (String::new(), exit_code::INTERRUPTED);

/// Runs the cases, each of which has so many results; `None` if this is interrupted.
fn run_cases<T: DeserializeOwned>(
    run: &RunArguments,
    command: &str,
    counts: impl Iterator<Item = usize>,
) -> anyhow::Result<Option<Vec<CaseResults<T>>>> {
    // The process of a case has a process group of its own, which a signal of the terminal does not reach.
    let interrupt = Interrupt::install().context("cannot install signal handlers")?;
    let mut outcomes = Vec::new();
    for (case, expected) in counts.enumerate() {
        outcomes.push(run_case(run, case, (command, expected), &interrupt)?);
        if interrupt.is_set() {
            return Ok(None);
        }
    }
    Ok(Some(outcomes))
}

/// Runs a case, which has so many results, in a process of its own: an operator may crash, never end, or end the process.
fn run_case<T: DeserializeOwned>(
    run: &RunArguments,
    case: usize,
    (command, expected): (&str, usize),
    interrupt: &Interrupt,
) -> anyhow::Result<CaseResults<T>> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let file = folder.path().join("results");
    let program = std::env::current_exe().context("cannot find this program")?;
    let words = ["operator", command, &run.operator, "--device", &run.device, "--engine", &run.engine, "--case"];
    let mut argv: Vec<OsString> = vec![program.into()];
    argv.extend(words.iter().map(OsString::from));
    argv.extend([case.to_string().into(), "--results".into(), file.clone().into()]);
    let time_max = Seconds(f64::from(run.time_limit));
    let captured = CapturedCommand { argv, folder: None, input: Vec::new(), bytes_max: OUTPUT_BYTES_MAX, time_max };
    let clock = MonotonicClock::start();
    let began = clock.now();
    let ended = capture(&captured, &clock, || interrupt.is_set());
    let lines = File::open(&file).map(|file| BufReader::new(file).lines().map_while(Result::ok).collect::<Vec<_>>());
    let lines = lines.unwrap_or_default();
    let results: Vec<T> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let failure = match ended {
        Err(error) => {
            let after = clock.now().since(began).0;
            Some(format!("{} (after {after:.1} s)", one_line(&error.to_string())))
        }
        Ok(_) if results.len() != expected => {
            Some(format!("its process ended with {} instead of {expected} results", results.len()))
        }
        Ok(_) => None,
    };
    Ok(CaseResults { results, failure })
}

/// The most that a process of a case may print.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// The file of results of one case: a line of JSON each, so that those before a crash are known.
struct Results {
    file: File,
}

impl Results {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = flagperf_core::file::create(path).with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(Results { file })
    }

    fn add(&mut self, result: &impl Serialize) {
        if let Ok(line) = serde_json::to_string(result) {
            // The process that reads the file reports that the result is missing.
            let _ = writeln!(self.file, "{line}");
        }
    }
}

/// Returns the answer of the process of a case, whose results are in the file.
fn finished(done: Result<(), CaseError>) -> Answer {
    done.map(|()| (String::new(), exit_code::OK)).map_err(|error| error.to_string())
}
