//! The command-line arguments and their help, from which `reference_pages` generates docs/reference/commands.md.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

use super::ablate::AblateArguments;
use super::argument_values::{AuditArgument, dimension_size};
use super::backend::BackendCommand;
use super::compare::CompareArguments;
use super::dataset::DatasetCommand;
use super::decoder::DecoderCommand;
use super::exit_codes::exit_code_lines;
use super::graph::GraphCommand;
use super::history::HistoryArguments;
use super::import::ImportCommand;
use super::list::ListKind;
use super::microbenchmark::PeakArguments;
use super::new::NewCommand;
use super::operator::OperatorCommand;
use super::pareto::ParetoArguments;
use super::report::{ReportArguments, ShowArguments};
use super::scaling::ScalingArguments;
use super::selection::{AgentArguments, Selection};
use super::serve::ServeArguments;
use super::site::SiteArguments;
use super::sweep::SweepArguments;
use super::trace::TraceArguments;
use super::verify::{SignArguments, VerifyArguments};
use flagperf_fleet::{Scheduler, schedulers};
use flagperf_review::Role;

/// The arguments of `flagperf`.
#[derive(Debug, Parser)]
#[command(name = "flagperf", version, about, after_help = exit_code_lines())]
pub struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run cases and print their results.
    ///
    /// Runs the cases that host.yaml lists, or those that --case names, and prints one line for each after several cases. A case
    /// that is named without a framework runs with that of its entry in host.yaml, or else with the default of the vendor. Before
    /// the first case it checks what `plan` checks. Outside a checkout, every command uses the checkout that contains the
    /// program, and prints a note; `run` then requires --case or --config.
    Run(RunArguments),
    /// Resume a run that was interrupted, or whose main process was killed: collect what other hosts have measured, and run the
    /// cases that are not finished.
    ///
    /// A case that was interrupted, or cut off on this machine, is run again, a training from its newest checkpoint; its earlier
    /// measurements are kept in `cut_off/`. The options of the run are used again. The configuration of its cases, their scripts
    /// and the vendor must be unchanged; other settings of host.yaml may change.
    Resume(ResumeArguments),
    /// Print the effective values with their origins (file and line), without running anything.
    ///
    /// Reports mistakes in the configuration and in scripts, and missing or unsuitable files. It compiles the scripts of each
    /// case, builds its model without its weights, and opens the dataset, the weights file and the ONNX file. It reads neither
    /// samples nor weights; of images that a run draws on first use, it draws one of each shape in a temporary folder.
    Plan(PlanArguments),
    /// Check every case as host.yaml lists it, without a vendor, and with every vendor that has an overlay, or a training
    /// script, for it. Needs neither engines nor datasets nor the network.
    ///
    /// Checks what `plan` checks, for each framework of the vendor. Prints a line for each pair of a case and a vendor, then
    /// each finding once with the pairs that it concerns. A library, a dataset or a weights file that this machine lacks is a
    /// note; the model is then built with random weights. What it finds for a case, `plan` with that vendor finds, too. Exits
    /// with 2 if there is an error.
    Lint(LintArguments),
    /// Judge what a range of commits changes: may its author change these files, keys and functions? Exits with 1 if
    /// something is refused or needs somebody else, 2 if the range or the policy (review.yaml) cannot be used
    Review(ReviewArguments),
    /// List cases, vendors, engines or engine options
    List {
        /// What to list
        #[arg(value_name = "cases|vendors|engines|options")]
        what: ListKind,
    },
    /// Show what works on this machine, what is missing, and how to get it. Exits with 1 if something the selected cases
    /// need does not work, 2 if the configuration is invalid.
    ///
    /// Loads every plug-in and starts every sidecar of the vendor. An engine that no selected case uses may be missing. A
    /// mistake in a script and an unknown vendor count as an invalid configuration.
    Doctor(DoctorArguments),
    /// Install or list the libraries that engines open at run time
    Backend {
        #[command(subcommand)]
        command: BackendCommand,
    },
    /// List the datasets, or check the files of one
    Dataset {
        #[command(subcommand)]
        command: DatasetCommand,
    },
    /// Convert the configuration of another benchmark: FlagPerf
    Import {
        #[command(subcommand)]
        what: ImportCommand,
    },
    /// Create a case, a vendor, an engine or an operator that runs at once, and print the next commands
    New {
        #[command(subcommand)]
        what: NewCommand,
    },
    /// Check that a result's figures follow from its raw times and that its files are those of its manifest. Exits with 1 if
    /// a result is wrong, 2 if it cannot be checked
    Verify(VerifyArguments),
    /// Sign the manifest of a result with your private key
    Sign(SignArguments),
    /// Print the complete report of a result again, from its record, and the sum over several devices. Does not check the result:
    /// `verify` does. Exits with 1 if a sum does not follow from its results, or a result cannot be read
    Show(ShowArguments),
    /// Write results as a page with charts, or as rows and tests for other programs, from their files alone. Exits with 1 if a result
    /// is wrong or cannot be read, 2 if none can be read.
    ///
    /// Each result is checked as `verify` checks it, unless its files have more than 256 MiB; the report says what was found. A wrong
    /// result is marked, and has no row in the output of --markdown.
    Report(ReportArguments),
    /// Write a site of results: static pages with a ranking and a history for each case, and a page for each vendor and each result.
    ///
    /// Each result is checked as `report` checks it; one that is wrong or not valid is listed and not ranked. The pages need neither a
    /// server nor scripts. Exits with 1 if a result is wrong or cannot be read.
    Site(SiteArguments),
    /// Compare two results, or two cases that are measured in turns: speed with a confidence interval, errors of outputs, and
    /// metrics.
    ///
    /// Results are compared if they are of the same case, data and batch size. Two cases are each measured `--pairs` times, in turns,
    /// so that what changes on the machine concerns both; each block is a run with a result of its own. The exit code says
    /// whether the comparison was possible, and with --max-slowdown whether the second side is slower.
    Compare(CompareArguments),
    /// Print one table of the results of a case on several numbers of devices: sums, efficiency, and what training together costs.
    ///
    /// Batches must have the same size on each device or in sum.
    Scaling(ScalingArguments),
    /// Print how fast results that generate text serve each user, how many tokens a device generates for all of them, tokens per joule,
    /// and what a million tokens cost; mark the Pareto front of both speeds.
    ///
    /// Results with several numbers of prompts at a time (`batch_size`) on the same device share a table. Results that failed, or are
    /// invalid or wrong, are listed and not used.
    Pareto(ParetoArguments),
    /// List the results of a case in the order of time, and name the result from which on the case is slower or faster.
    ///
    /// Results of the same work on the same device with the same engine are in one table. A change of the level is named if it is on
    /// both sides in at least two results and chance hardly explains it, with the versions, settings and revisions that differ
    /// there. Results that are invalid or wrong are listed and not used; those whose files have more than 256 MiB are not verified. Exits with
    /// 2 if the results cannot be read.
    History(HistoryArguments),
    /// Measure what each switch of a case changes: alone, added to those before it, and left out of the whole.
    ///
    /// `switches` in configurations.yaml, or in the vendor's overlay, lists settings with their values off and on. Each combination is
    /// measured `--rounds` times, in turns, each time as a run with a result of its own. A switch that the engine does not have is
    /// named. Exits with 1 if a combination fails or its outputs do not agree with those of all switches off.
    Ablate(AblateArguments),
    /// Measure a case with several values of one setting, such as its batch size, and mark the smallest value that is enough.
    ///
    /// Each value is measured `--rounds` times, in turns, each time as a run with a result of its own. The knee is the smallest value
    /// with at least 95 % of the highest throughput. Exits with 1 if a value fails or the outputs depend on it.
    Sweep(SweepArguments),
    /// Write the times of a result as a trace: steps, passes, batches and their parts.
    Trace(TraceArguments),
    /// Serve models over HTTP and gRPC by KServe's protocol, version 2, which Triton's clients speak.
    ///
    /// Prints a line when every model is loaded, and serves until SIGTERM or Ctrl-C; the requests that were accepted are
    /// answered first. The access log is written to standard error.
    Serve(ServeArguments),
    /// Show an ONNX file, or what differs between two
    Graph {
        #[command(subcommand)]
        command: GraphCommand,
    },
    /// Measure what a device really reaches: products in each format, its memory, and copies to and from the host.
    ///
    /// The names are those of FlagPerf's `base`, whose rows are printed, too. Exits with 1 if a figure does not count.
    Peak(PeakArguments),
    /// Build, test or measure an operator that a vendor brings
    Operator {
        #[command(subcommand)]
        command: OperatorCommand,
    },
    /// Build a decoder of images that a vendor brings
    Decoder {
        #[command(subcommand)]
        command: DecoderCommand,
    },
    /// Create or show the key with which you sign results
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Print a script that completes commands and options in a shell.
    ///
    /// In bash, `source <(flagperf completions bash)` loads it.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Run a worker: read one job as a line of JSON from standard input, write events as lines of JSON to standard
    /// output, and exit when the input ends.
    ///
    /// Exits with 71 if it exceeds its memory limit, and with 72 if its scripts exhaust the stack; the record of its case states
    /// which.
    Work {
        /// Socket in a container, from which the worker receives its standard streams
        #[arg(long, hide = true, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Serve a `flagperf run` on another machine, which starts this command: read requests from standard input, run cases,
    /// and write their results to standard output
    Agent,
    /// Run a case on one device of this host. `agent` starts this command
    #[command(hide = true)]
    Session {
        /// The folder of the session, which contains its task
        folder: PathBuf,
    },
    /// Enter a domain of its own and become the given program. The worker starts sidecars by this
    #[command(hide = true)]
    LaunchCompanion {
        /// Inherited descriptor for the number of the error
        status: i32,
        /// Inherited descriptor of the socket for files
        holder: i32,
        /// The program and its arguments
        #[arg(last = true)]
        argv: Vec<std::ffi::OsString>,
    },
    /// Hold open the files that arrive on standard input, a socket. `launch-companion` runs this
    #[command(hide = true)]
    HoldFiles,
    /// Load a library, or start a sidecar, and print what it is. `plan` and `doctor` run this in a process of its own
    /// because a library may crash or hang
    #[command(hide = true)]
    Probe(ProbeArguments),
    /// Run a vendor's monitor.rhai on the output of its command, which is read from standard input, and print the devices
    /// as JSON. `run` starts this in a process of its own because a script may exhaust its memory
    #[command(hide = true)]
    ReadDevices {
        /// The script
        script: PathBuf,
    },
    /// Check the scripts and the files of cases: read requests as a line of JSON from standard input, and print the faults
    /// of each. `plan` and `lint` run this in a process of its own because a script may exhaust its memory
    #[command(hide = true)]
    Check,
    /// Load a model and run it on the inputs that arrive on standard input. `serve` runs this in a process of its own
    #[command(hide = true)]
    ServeWorker,
    /// Measure an operator or a limit, a job on standard input. `run --operator` and `peak` run this in a process of its own
    #[command(hide = true)]
    Microbenchmark {
        /// The file for the outcome
        results: PathBuf,
    },
}

/// The library, engine, monitor or sidecar to probe.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ProbeArguments {
    /// The shared library of a plug-in
    #[arg(value_name = "LIBRARY")]
    pub(super) library: Option<PathBuf>,
    /// An engine of this program, which opens its own library, and its options as JSON
    #[arg(long, num_args = 1..=2, value_names = ["NAME", "OPTIONS"])]
    pub(super) engine: Vec<String>,
    /// A monitor of this program, which opens its own library
    #[arg(long, value_name = "NAME")]
    pub(super) monitor: Option<String>,
    /// The vendor's folder, and the program and arguments of a sidecar, which starts in it
    #[arg(long, num_args = 2.., allow_hyphen_values = true, value_names = ["FOLDER", "PROGRAM"])]
    pub(super) sidecar: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a private key that only you can read, and print the public key, which is also written to FILE.pub
    New {
        /// File of the private key [default: flagperf/key in XDG_CONFIG_HOME or ~/.config]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
        /// Name of the key's owner, such as lab@example.org
        #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
        name: String,
    },
    /// Print the public key that belongs to a private key
    Show {
        /// File of the private key [default: flagperf/key in XDG_CONFIG_HOME or ~/.config]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// Run the model of an ONNX file on drawn inputs: the case of its name, which is created in the checkout if there is none, as by
    /// `flagperf new case NAME --from FILE`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["case", "data", "official", "submit"])]
    pub(super) onnx: Option<PathBuf>,
    /// Measure one operator, such as `mm:FP16`, without a case: one of FlagPerf's `operation`, in a format; repeatable
    #[arg(long, value_name = "NAME:FORMAT", value_hint = ValueHint::Other, conflicts_with_all = ["case", "onnx", "data", "official", "audit", "submit", "trace", "live"])]
    pub(super) operator: Vec<String>,
    /// The size of an open dimension of the inputs of FILE, by its name or as INPUT.AXIS, or of a dimension of an operator; repeatable,
    /// for an operator also with the same name
    #[arg(long, value_name = "DIM=SIZE", value_parser = dimension_size)]
    pub(super) shape: Vec<(String, usize)>,
    /// With --operator, also write a page with the figures
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
    /// The compiler, as by `--set compiler=NAME`
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other, conflicts_with = "official")]
    pub(super) compiler: Option<String>,
    #[command(flatten)]
    pub(super) output: RunOutput,
    /// Exit with 1 unless every result is valid, as an official result must be; includes `--audit full`. Cannot be
    /// combined with --set
    #[arg(long, conflicts_with = "set")]
    pub(super) official: bool,
    /// What the audit of inference includes; `full` also has 12 steps of a training computed again instead of 5
    #[arg(long, value_enum, default_value_t)]
    pub(super) audit: AuditArgument,
    /// Run some batches again after the measurement with the profile of the engine, and write a trace of each case beside its
    /// folder, as `flagperf trace` does; the same as `--set trace=true`
    #[arg(long, conflicts_with = "official")]
    pub(super) trace: bool,
    /// Run nothing; print a job that runs the selected cases on a cluster, as in `flagperf run --submit slurm | sbatch`
    #[arg(long, value_name = "SCHEDULER", value_parser = scheduler_names(), conflicts_with = "live")]
    pub(super) submit: Option<String>,
}

fn scheduler_names() -> clap::builder::PossibleValuesParser {
    let value =
        |scheduler: &&dyn Scheduler| clap::builder::PossibleValue::new(scheduler.name()).help(scheduler.about());
    schedulers().iter().map(value).collect::<Vec<_>>().into()
}

#[derive(Debug, Args)]
pub(super) struct ResumeArguments {
    /// Folder of the run
    #[arg(value_hint = ValueHint::DirPath)]
    pub(super) run: PathBuf,
    /// Go on without the hosts that cannot be reached. What they have measured and not sent is then not part of the results
    #[arg(long)]
    pub(super) skip_unreachable: bool,
    /// Go on with a training on another number of hosts or devices: its key with these numbers, such as
    /// `digits:pytorch:cpu:1:1:1`. Its hosts are those that host.yaml lists now; repeatable
    #[arg(long, value_name = "NAME:FRAMEWORK:HARDWARE:HOSTS:DEVICES:REPEAT", value_hint = ValueHint::Other)]
    pub(super) case: Vec<String>,
    #[command(flatten)]
    pub(super) output: RunOutput,
}

/// What a run prints.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct RunOutput {
    /// Print only the record, as JSON, on standard output; one record per case
    #[arg(long)]
    pub(super) json: bool,
    /// Print plain lines instead of progress bars, and a report without charts
    #[arg(long)]
    pub(super) plain: bool,
    /// Draw the run on the whole terminal while it runs: progress, power, the distribution of the step times as it grows
    #[arg(long, conflicts_with_all = ["json", "plain"])]
    pub(super) live: bool,
    /// Print every section of the record, and every warning in full, before the verdict
    #[arg(long, conflicts_with = "json")]
    pub(super) details: bool,
}

#[derive(Debug, Args)]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    pub(super) selection: Selection,
    #[command(flatten)]
    pub(super) agent: AgentArguments,
    /// Check every host in HOSTS: its connection, its clock, its free disk space, and the report of `flagperf doctor` on it.
    /// This program and the files of the checkout are sent to a host that lacks them
    #[arg(long)]
    pub(super) hosts: bool,
    /// With --hosts: print the report of every host, also of those that are ready
    #[arg(long, requires = "hosts", conflicts_with = "json")]
    pub(super) details: bool,
    /// Print the checks as JSON; with --hosts, the state and the report of every host
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    #[command(flatten)]
    pub(super) selection: Selection,
    #[command(flatten)]
    pub(super) agent: AgentArguments,
    /// Print the plan, the values and the findings as JSON; only the findings if there is no plan
    #[arg(long)]
    pub(super) json: bool,
    /// Print every value, also those that are defaults
    #[arg(long, conflicts_with = "json")]
    pub(super) details: bool,
}

#[derive(Debug, Args)]
pub(super) struct LintArguments {
    /// Cases to check [default: every case in configs/]
    #[arg(value_name = "CASE", value_hint = ValueHint::Other)]
    pub(super) cases: Vec<String>,
    /// Check only with this vendor; repeatable [default: no vendor, and every vendor with an overlay for the case]
    #[arg(long, value_name = "VENDOR", value_hint = ValueHint::Other)]
    pub(super) vendor: Vec<String>,
    /// Directory that contains host.yaml (also FLAGPERF_CONFIG)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) config: Option<PathBuf>,
    /// Print the pairs and the findings as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReviewArguments {
    /// The commits, as in a pull request: what HEAD adds since it separated from BASE [default: origin/main..HEAD, or main..HEAD
    /// without a remote]
    #[arg(value_name = "BASE..HEAD", value_hint = ValueHint::Other)]
    pub(super) range: Option<String>,
    /// As whom the change is judged: vendor:NAME, case-author or maintainer [default: the role that fits the changed files]
    #[arg(long = "as", value_name = "ROLE", value_hint = ValueHint::Other)]
    pub(super) role: Option<Role>,
    /// Print the review as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print the review as Markdown, for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
