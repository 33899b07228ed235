//! Trains with a program of the case: starts it, stamps each of its lines, and turns what it reports into the events of a training.
//!
//! The times are the host's; what was computed is only what the program says, so that a result is never more than unofficial. The
//! program runs until it ends, or until the host ends it after the target, the last epoch or its last line.

mod collector;
#[cfg(test)]
mod collector_tests;
mod report;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use flagperf_core::description::PROGRAM_ENGINE;
use flagperf_core::event::{EngineFacts, Event, Failure, SidecarFacts};
use flagperf_core::hash::hash_reader;
use flagperf_core::measure::Nanos;
use flagperf_core::process_group::LOST_PROCESS;
use flagperf_core::regular_file::open_regular;
use flagperf_core::step::Step;
use flagperf_core::text::truncate;
use flagperf_host::{Ending, Process, ProcessEvent, Program, Worker as _};
use flagperf_plan::{LinePatterns, TrainingProgram, TrainingSettings};

use super::super::phase::{Worker, failure};
use collector::Collector;
use report::Reader;

/// Nanoseconds that a program has to end by itself after its training has ended.
const GRACE: u64 = 30_000_000_000;
/// How long one wait for a line takes at most.
const POLL: Duration = Duration::from_millis(200);
/// Starts a program in a folder with one stream for all that it prints, as FlagPerf does.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "exec 2>&1; cd -- \"$0\" && exec \"$@\""];
/// The last lines of a program that are searched for [`LOSSES`], and how much of each.
const LAST_LINES: usize = 100;
const LINE_BYTES: usize = 500;
/// What the collectives of the frameworks write when another process has ended.
const LOSSES: [&str; 8] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "Socket closed",
    "DistNetworkError",
    "ncclRemoteError",
    "Connect timeout",
];
const STDERR_HINT: &str = "the program's last lines are in stdout_err.out.log";
const COMMAND_HINT: &str = "`command` is set in the case's training.yaml";

impl Worker<'_> {
    /// Trains with the program of the case, as often as the case repeats it.
    pub(super) fn train_with_program(&self, settings: &TrainingSettings) -> Result<(), Failure> {
        let program = |round| {
            let job = self.job.with_seed(self.job.training_seed(round));
            job.program(round).map_err(|reason| failure(&reason, COMMAND_HINT))
        };
        let first = program(0)?;
        let name = first.argv.first().map_or("", String::as_str);
        self.run_step(Step::Training, &format!("training with the program {name}"), || {
            (self.emit)(Event::Engine(Box::new(self.program_facts(&first))));
            self.wait_for_others();
            let mut passes = 0;
            (0..self.job.settings.repeat)
                .try_for_each(|round| self.run_program(&program(round)?, settings, round, &mut passes))
        })
    }

    /// Runs the program once.
    fn run_program(
        &self,
        program: &TrainingProgram,
        settings: &TrainingSettings,
        round: u32,
        passes: &mut u32,
    ) -> Result<(), Failure> {
        let patterns = LinePatterns::new(&settings.patterns).map_err(|reason| failure(&reason, ""))?;
        let reader = Reader::new(patterns);
        // What the program does before its first report is part of the training.
        let begin = self.clock.now();
        let mut process = self.start_program(program)?;
        let batch_size = self.job.settings.batch_size;
        let mut collector = Collector::new(batch_size, settings, round, passes, begin, self.emit);
        let (mut deadline, mut last_lines): (Option<Nanos>, _) = (None, VecDeque::new());
        let ending = loop {
            match process.next_event(POLL) {
                ProcessEvent::Line(at, line) => {
                    copy_line(&line);
                    last_lines.push_back(truncate(&line, LINE_BYTES).into_owned());
                    if last_lines.len() > LAST_LINES {
                        last_lines.pop_front();
                    }
                    reader.read(&line).into_iter().try_for_each(|report| collector.add(at, report))?;
                }
                ProcessEvent::Silence => {}
                ProcessEvent::Ended(ending) => break Some(ending),
            }
            let now = self.clock.now();
            if collector.is_done() && now > *deadline.get_or_insert(Nanos(now.0 + GRACE)) {
                process.kill();
                break None;
            }
        };
        check_ending(ending, collector.is_done()).map_err(|failed| self.named_loss(failed, &last_lines))?;
        let group = self.job.process_group.as_ref().filter(|group| group.size > 1);
        collector.finish(group.map_or(0, |group| group.rank)).map_err(|failed| match group {
            Some(group) => Failure { reason: format!("{} on rank {}", failed.reason, group.rank), ..failed },
            None => failed,
        })
    }

    /// Says of a failure whether the program has only lost the one of another device: the host then looks for the first failure.
    fn named_loss(&self, failed: Failure, last_lines: &VecDeque<String>) -> Failure {
        let is_alone = self.job.process_group.as_ref().is_none_or(|group| group.size < 2);
        let is_loss = |line: &&String| LOSSES.iter().any(|words| line.contains(words));
        match last_lines.iter().rfind(is_loss).filter(|_| !is_alone) {
            Some(line) => Failure { reason: format!("{LOST_PROCESS}: {}: `{}`", failed.reason, line.trim()), ..failed },
            None => failed,
        }
    }

    fn start_program(&self, program: &TrainingProgram) -> Result<Process, Failure> {
        let scratch = self.job.scratch();
        fs::create_dir_all(&scratch).map_err(|e| failure(&e, ""))?;
        let folder = program.folder.display().to_string();
        let argv = SHELL.into_iter().map(str::to_owned).chain([folder]).chain(program.argv.iter().cloned());
        let started = Program {
            argv: argv.map(Into::into).collect(),
            input: String::new(),
            // The shell joins both streams, so that this file stays empty.
            stderr: scratch.join("program.err.log"),
            inherits: true,
            // A line that waits in a buffer would be stamped late.
            environment: [("PYTHONUNBUFFERED".to_owned(), "1".to_owned())]
                .into_iter()
                .chain(program.environment.clone())
                .collect(),
        };
        Process::start(&started, Arc::clone(&self.clock)).map_err(|e| failure(&e, COMMAND_HINT))
    }

    /// Returns the command and the hashes of the files that it names.
    fn program_facts(&self, program: &TrainingProgram) -> EngineFacts {
        let hash = |name: &String| {
            let file = open_regular(&program.folder.join(name)).ok()?;
            Some((name.clone(), hash_reader(file).ok()?))
        };
        let sidecar = SidecarFacts {
            name: self.job.engine.name.clone(),
            version: "not told".to_owned(),
            command: program.argv.clone(),
            files_sha256: program.argv.iter().filter_map(hash).collect(),
            ..SidecarFacts::default()
        };
        EngineFacts {
            name: PROGRAM_ENGINE.to_owned(),
            version: "not told".to_owned(),
            device: "not told".to_owned(),
            precision: self.job.settings.precision.arithmetic().to_owned(),
            sidecar: Some(sidecar),
            ..EngineFacts::default()
        }
    }
}

/// Copies a line to standard error, where the conductor limits it. An error is ignored: the conductor is gone.
fn copy_line(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Checks how the program ended; `None` if the host ended it after its training.
fn check_ending(ending: Option<Ending>, is_done: bool) -> Result<(), Failure> {
    let when = if is_done { "after" } else { "before the end of" };
    match ending {
        None | Some(Ending::Exited(0)) => Ok(()),
        Some(ending) => Err(failure(&format!("the program ended {when} its training: {ending}"), STDERR_HINT)),
    }
}
