//! Displays a run as plain lines, for logs, pipes and `--plain`.

use std::io::Write;

use super::rows::plural;
use super::text::{display_text, duration, rate};
use flagperf_core::event::{Event, Level};
use flagperf_core::step::Step;
use flagperf_core::text::one_line;
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_run::Notice;

/// Largest number of lines per notice.
const LINES_MAX: usize = 100;
/// Largest number of lines of a failure's reason: a script's error has three, a traceback many.
const REASON_LINES: usize = 3;
/// Largest number of metrics of an evaluation.
const METRICS_SHOWN: usize = 5;

/// Writes lines for the notices of a run.
#[derive(Debug)]
pub struct LineDisplay<W> {
    out: W,
}

impl<W: Write> LineDisplay<W> {
    /// Creates a display that writes to `out`.
    pub const fn new(out: W) -> Self {
        LineDisplay { out }
    }

    /// Displays a notice. Write errors are ignored, so that a closed output does not stop the run.
    pub fn show(&mut self, notice: &Notice<'_>) {
        for line in plain_lines(notice) {
            let _ = self.out.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// Returns the lines of a notice other than the start or the progress of a step. Text from scripts, files and engines
/// is escaped, so that it cannot control the terminal, and truncated.
pub(super) fn notice_lines(notice: &Notice<'_>) -> Vec<String> {
    let lines = raw_lines(notice);
    lines.iter().flat_map(|line| line.split('\n')).take(LINES_MAX).map(|line| display_text(line).into_owned()).collect()
}

fn raw_lines(notice: &Notice<'_>) -> Vec<String> {
    match notice {
        Notice::RunIsReady { folder } => vec![format!("results in {}", folder.display())],
        Notice::CaseBegins { key, number, count } => vec![format!("case {key} ({number} of {count})")],
        Notice::CutOff { key, kept } => {
            let again = if key.training.is_some() {
                "goes on from its newest checkpoint, or begins again if it has none"
            } else {
                "is run again"
            };
            vec![format!(
                "note: case {key} was cut off and {again}; its earlier measurements are in {}",
                kept.display()
            )]
        }
        Notice::Preparation { line } => vec![one_line(&format!("  {:<10} {line}", "prepare")).into_owned()],
        Notice::CaseEnds { unwritten: Some(error), .. } => vec![format!("error: {error}")],
        Notice::CaseEnds { unsealed: Some(error), .. } => vec![format!("error: no manifest: {error}")],
        Notice::Host { host, what, is_warning } => {
            let level = if *is_warning { "warning: " } else { "" };
            vec![one_line(&format!("  {level}host {host} {what}")).into_owned()]
        }
        Notice::ReplicaEvent { replica, phase, event } => {
            let lines = raw_lines(&Notice::Event { phase: *phase, event });
            lines.iter().map(|line| format!("  [{replica}]{}", line.strip_prefix(' ').unwrap_or(line))).collect()
        }
        Notice::Event { event: Event::StepEnd { step, time_s }, .. } => {
            vec![format!("  {:<10} {}", step.name(), duration(*time_s))]
        }
        Notice::Event { event: Event::EpochLosses(losses), .. } => {
            // A step that mixed precision skipped, or of a program that does not report it, has none.
            let finite: Vec<f64> = losses.loss.iter().copied().filter(|loss| loss.is_finite()).collect();
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            let line =
                format!("  {:<10} {mean:.4}, the mean of {}", "loss", plural(finite.len() as u64, "step", "steps"));
            if finite.is_empty() { Vec::new() } else { vec![line] }
        }
        Notice::Event { event: Event::Evaluation(found), .. } => {
            let epochs = plural(found.epochs.into(), "epoch", "epochs");
            let steps = plural(found.steps, "step", "steps");
            let metrics: String =
                found.metrics.iter().take(METRICS_SHOWN).map(|(name, value)| format!(", {name} {value:.4}")).collect();
            vec![one_line(&format!("  {:<10} after {epochs}, {steps}{metrics}", "evaluation")).into_owned()]
        }
        Notice::Event { event: Event::TrialBegin { trial, scheduled, queries_per_s }, .. } => {
            let queries = scheduled.map_or_else(|| "queries".to_owned(), |count| plural(count, "query", "queries"));
            let rate =
                queries_per_s.map_or_else(String::new, |found| format!(" at {}/s", rate(SamplesPerSecond(found))));
            vec![format!("  {:<10} trial {}: {queries}{rate}", "scenario", trial + 1)]
        }
        Notice::Event { event: Event::SampleFailed { sample, reason }, .. } => {
            vec![one_line(&format!("  warning: sample `{sample}` failed: {reason}")).into_owned()]
        }
        Notice::Event { event: Event::Log { level, source, message }, .. } if *level >= Level::Warning => {
            let name = if *level == Level::Error { "error" } else { "warning" };
            vec![one_line(&format!("  {name}: {source}: {message}")).into_owned()]
        }
        Notice::Event { event: Event::Failed(failure), .. } => {
            // A reason may have several lines, such as the source line of a script.
            let hint = (!failure.hint.is_empty()).then(|| format!("  hint: {}", indent_lines(&failure.hint)));
            std::iter::once(format!("  error: {}", indent_lines(&first_lines(&failure.reason)))).chain(hint).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the first lines of a reason: the report, which follows, has all of them.
fn first_lines(reason: &str) -> String {
    let (first, more) = (reason.lines().take(REASON_LINES), reason.lines().count().saturating_sub(REASON_LINES));
    let rest = (more > 0).then(|| format!("({more} more lines follow in the report)"));
    first.map(str::to_owned).chain(rest).collect::<Vec<_>>().join("\n")
}

/// Aligns further lines with the text of the first, so that none can imitate a notice.
fn indent_lines(text: &str) -> String {
    text.replace('\n', "\n         ")
}

fn plain_lines(notice: &Notice<'_>) -> Vec<String> {
    match notice {
        Notice::Event { event: Event::StepBegin { step, detail }, .. } => {
            vec![one_line(&display_text(&format!("  {:<10} {detail}", step.name()))).into_owned()]
        }
        Notice::Event { event, .. } if event.is_progress() => {
            LoopProgress::from_event(event).map(|p| p.line()).into_iter().collect()
        }
        Notice::ReplicaEvent { replica, event, .. } if event.is_progress() => {
            let progress = LoopProgress::from_event(event);
            progress.map(|progress| format!("  [{replica}]{}", &progress.line()[1..])).into_iter().collect()
        }
        _ => notice_lines(notice),
    }
}

/// Progress of a measured loop, or of a trial of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoopProgress {
    pub(super) name: String,
    /// The epoch of a training, `repetition 2/3, epoch 1/20`, or the trial of a scenario.
    pub(super) part: Option<String>,
    /// Batches done, in all passes; milliseconds of a trial.
    pub(super) done: u64,
    /// Number of batches of all passes, or milliseconds; 0 when unknown.
    pub(super) total: u64,
    pub(super) pass: String,
    pub(super) rate: Option<SamplesPerSecond>,
    /// What is counted per second.
    pub(super) unit: &'static str,
    pub(super) left: Option<Seconds>,
}

impl LoopProgress {
    /// Creates the progress from an event of progress; returns `None` for any other event.
    pub(super) fn from_event(event: &Event) -> Option<Self> {
        if let Event::TrialProgress { trial, answered, elapsed_s, expected_s } = event {
            let milliseconds = |time: f64| (time * 1e3) as u64;
            let part = format!("trial {}", trial + 1);
            return Some(LoopProgress {
                name: "scenario".to_owned(),
                pass: format!("{part}  {}", plural(*answered, "query", "queries")),
                part: Some(part),
                done: milliseconds(elapsed_s.0.min(expected_s.0)),
                total: milliseconds(expected_s.0),
                rate: SamplesPerSecond::of(*answered, *elapsed_s),
                unit: "queries/s",
                // Some queries are answered after the last has arrived.
                left: Some(Seconds(expected_s.0 - elapsed_s.0)).filter(|left| left.0 > 0.0),
            });
        }
        let Event::Progress { step, warmup, pass, passes, batch, batches, samples, elapsed_s, repetition } = event
        else {
            return None;
        };
        let done = u64::from(*pass) * batches + batch;
        let total = u64::from(*passes) * batches;
        let left = (done > 0 && total >= done).then(|| Seconds(elapsed_s.0 / done as f64 * (total - done) as f64));
        let (name, unit) = (step.name().to_owned(), "samples/s");
        if *warmup {
            let (name, pass) =
                (format!("{name} warm-up"), format!("{}, not measured", plural(*batch, "step", "steps")));
            return Some(LoopProgress { name, part: None, done, total: 0, pass, rate: None, unit, left: None });
        }
        let repetition = repetition.map_or_else(String::new, |[number, all]| format!("repetition {number}/{all}, "));
        let part = (*step == Step::Training).then(|| format!("{repetition}epoch {}/{passes}", pass + 1));
        let pass = part.clone().unwrap_or_else(|| format!("pass {}/{passes}", pass + 1));
        let pass = format!("{pass}  batch {batch}/{batches}");
        let rate = SamplesPerSecond::of(*samples, *elapsed_s);
        Some(LoopProgress { name, part, done, total, pass, rate, unit, left })
    }

    fn line(&self) -> String {
        let text = format!("  {:<10} {}  {}", self.name, self.pass, self.rate_text());
        text.trim_end().to_owned()
    }

    /// The text beside a bar: `1234.5 samples/s, 12.3 s left`, or `3 steps, not measured` during warm-up. It begins with the number of an
    /// epoch or a trial.
    pub(super) fn bar_text(&self) -> String {
        match (&self.part, self.total, self.rate) {
            (Some(part), ..) => format!("{part}, {}", self.rate_text()),
            (None, 0, None) => self.pass.clone(),
            _ => self.rate_text(),
        }
    }

    /// `1234.5 samples/s, 12.3 s left`; empty during warm-up, whose samples are not counted.
    pub(super) fn rate_text(&self) -> String {
        let rate = self.rate.map(|r| format!("{} {}", rate(r), self.unit));
        // After the last batch, the audit runs.
        let left = self.left.map(|left| match left.0 {
            0.0 => "checking".to_owned(),
            // It may reach its target earlier.
            _ if self.name == Step::Training.name() => format!("at most {} left", duration(left)),
            _ => format!("{} left", duration(left)),
        });
        rate.into_iter().chain(left).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{EpochLosses, Evaluation};
    use flagperf_core::step::{Phase, Step};

    fn progress(warmup: bool) -> Event {
        Event::Progress {
            step: Step::Inference,
            warmup,
            pass: 1,
            passes: 4,
            batch: 5,
            batches: 10,
            samples: 120,
            elapsed_s: Seconds(3.0),
            repetition: None,
        }
    }

    #[test]
    fn the_progress_of_a_training_has_the_repetition_and_the_epoch() {
        let Event::Progress { batch, batches, samples, elapsed_s, .. } = progress(false) else { unreachable!() };
        let (step, repetition) = (Step::Training, Some([2, 3]));
        let event =
            Event::Progress { step, warmup: false, pass: 1, passes: 4, batch, batches, samples, elapsed_s, repetition };
        let progress = LoopProgress::from_event(&event).unwrap();
        insta::assert_snapshot!(format!("{}\n{}", progress.line(), progress.bar_text()), @r"
          training   repetition 2/3, epoch 2/4  batch 5/10  40.0 samples/s, at most 5.00 s left
        repetition 2/3, epoch 2/4, 40.0 samples/s, at most 5.00 s left
        ");
    }

    #[test]
    fn the_progress_of_a_trial_has_its_queries_and_the_time_in_which_they_arrive() {
        let text = |elapsed| {
            let (elapsed_s, expected_s) = (Seconds(elapsed), Seconds(10.0));
            let event = Event::TrialProgress { trial: 2, answered: 24, elapsed_s, expected_s };
            let progress = LoopProgress::from_event(&event).unwrap();
            format!("{}\n{}, {} of {}", progress.line(), progress.bar_text(), progress.done, progress.total)
        };
        insta::assert_snapshot!(format!("{}\n{}", text(4.0), text(12.0)), @r"");
    }

    #[test]
    fn a_training_shows_its_losses_and_evaluations() {
        let mut lines = LineDisplay::new(Vec::new());
        let mut show = |event: &Event| lines.show(&Notice::Event { phase: Phase::Train, event });
        show(&Event::EpochLosses(Box::new(EpochLosses { loss: vec![0.5, 0.25], ..EpochLosses::default() })));
        let metrics = [("top1".to_owned(), 0.75)].into();
        show(&Event::Evaluation(Evaluation { epochs: 1, steps: 2, metrics, ..Evaluation::default() }));
        insta::assert_snapshot!(String::from_utf8(lines.out).unwrap(), @r"
          loss       0.3750, the mean of 2 steps
          evaluation after 1 epoch, 2 steps, top1 0.7500
        ");
    }

    #[test]
    fn text_from_outside_cannot_control_or_flood_the_terminal() {
        let mut lines = LineDisplay::new(Vec::new());
        let mut show = |event: &Event| lines.show(&Notice::Event { phase: Phase::Infer, event });
        show(&Event::StepBegin { step: Step::Inference, detail: "with \x1b]0;title\x07".into() });
        show(&Event::SampleFailed { sample: "a\n  error: forged".into(), reason: "\x1b[2J".into() });
        show(&Event::Log { level: Level::Warning, source: "script".into(), message: "x".repeat(1 << 19) });
        let reason = "at line 3:\nresults in /tmp\x1b[A".to_owned();
        show(&Event::Failed(flagperf_core::event::Failure { step: None, reason, hint: String::new() }));
        let text = String::from_utf8(lines.out).unwrap().replace(&"x".repeat(900), "[900 x]");
        insta::assert_snapshot!(text, @r"
          inference  with \u{1b}]0;title\u{7}
          warning: sample `a\n  error: forged` failed: \u{1b}[2J
          warning: script: [900 x]xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx... (523307 more bytes)
          error: at line 3:
                 results in /tmp\u{1b}[A
        ");
    }

    #[test]
    fn the_folder_of_the_results_is_displayed_once_it_is_certain_that_something_is_run() {
        let mut lines = LineDisplay::new(Vec::new());
        let folder = std::path::Path::new("result/run1");
        lines.show(&Notice::RunBegins { folder });
        assert_eq!(lines.out, b"");
        lines.show(&Notice::RunIsReady { folder });
        assert_eq!(lines.out, b"results in result/run1\n");
    }

    #[test]
    fn a_progress_line_has_throughput_and_remaining_time() {
        let mut lines = LineDisplay::new(Vec::new());
        lines.show(&Notice::Event { phase: Phase::Infer, event: &progress(false) });
        lines.show(&Notice::Event { phase: Phase::Infer, event: &progress(true) });
        let text = String::from_utf8(lines.out).unwrap();
        assert_eq!(
            text,
            "  inference  pass 2/4  batch 5/10  40.0 samples/s, 5.00 s left\n  inference warm-up 5 steps, not measured\n"
        );
    }
}
