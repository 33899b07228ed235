//! The course of a run as plain lines: for logs, pipes and `--plain`.

use std::io::Write;

use super::text::{duration, rate, shown};
use crate::event::{Event, Level};
use crate::run::Notice;
use crate::text::one_line;
use crate::units::{SamplesPerSecond, Seconds};

/// Lines that one notice may have.
const LINES_MAX: usize = 100;

/// Writes a line for what matters.
#[derive(Debug)]
pub struct Lines<W> {
    out: W,
}

impl<W: Write> Lines<W> {
    /// Lines to `out`.
    pub const fn new(out: W) -> Self {
        Lines { out }
    }

    /// Takes a notice. That nobody reads the lines any more stops nothing.
    pub fn notice(&mut self, notice: &Notice<'_>) {
        for line in lines(notice) {
            let _ = self.out.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The lines that say what happened, but for progress. What scripts, files and engines say in them cannot steer the
/// terminal, and is cut where it is long.
pub(super) fn event_lines(notice: &Notice<'_>) -> Vec<String> {
    let lines = said(notice);
    lines.iter().flat_map(|line| line.split('\n')).take(LINES_MAX).map(|line| shown(line).into_owned()).collect()
}

fn said(notice: &Notice<'_>) -> Vec<String> {
    match notice {
        Notice::RunBegins { folder } => vec![format!("results in {}", folder.display())],
        Notice::CaseBegins { key, number, count } => vec![format!("case {key} ({number} of {count})")],
        Notice::CaseEnds { unwritten: Some(error), .. } => vec![format!("error: {error}")],
        Notice::Event { event: Event::StepEnd { step, time_s }, .. } => {
            vec![format!("  {:<10} {}", step.name(), duration(*time_s))]
        }
        Notice::Event { event: Event::SampleFailed { sample, reason }, .. } => {
            vec![one_line(&format!("  warning: sample `{sample}` failed: {reason}")).into_owned()]
        }
        Notice::Event { event: Event::Log { level, source, message }, .. } if *level >= Level::Warning => {
            let name = if *level == Level::Error { "error" } else { "warning" };
            vec![one_line(&format!("  {name}: {source}: {message}")).into_owned()]
        }
        Notice::Event { event: Event::Failed(failure), .. } => {
            // A reason may have lines of its own: the line of a script.
            let hint = (!failure.hint.is_empty()).then(|| format!("  hint: {}", indented(&failure.hint)));
            std::iter::once(format!("  error: {}", indented(&failure.reason))).chain(hint).collect()
        }
        _ => Vec::new(),
    }
}

/// Further lines stand below the first one's text, so that none passes for a notice.
fn indented(text: &str) -> String {
    text.replace('\n', "\n         ")
}

fn lines(notice: &Notice<'_>) -> Vec<String> {
    match notice {
        Notice::Event { event: Event::StepBegin { step, detail }, .. } => {
            vec![one_line(&shown(&format!("  {:<10} {detail}", step.name()))).into_owned()]
        }
        Notice::Event { event: event @ Event::Progress { .. }, .. } => {
            Progress::of(event).map(|p| p.line()).into_iter().collect()
        }
        _ => event_lines(notice),
    }
}

/// Where a measured loop stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) name: String,
    /// Batches done and to do, over all passes; to do is 0 when unknown.
    pub(super) done: u64,
    pub(super) all: u64,
    pass: String,
    pub(super) rate: Option<SamplesPerSecond>,
    pub(super) left: Option<Seconds>,
}

impl Progress {
    /// From an event of progress; `None` from any other.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let Event::Progress { step, warmup, pass, passes, batch, batches, samples, elapsed_s } = event else {
            return None;
        };
        let done = u64::from(*pass) * batches + batch;
        let all = u64::from(*passes) * batches;
        let left = (done > 0 && all >= done).then(|| Seconds(elapsed_s.0 / done as f64 * (all - done) as f64));
        let name = if *warmup { format!("{} warm-up", step.name()) } else { step.name().to_owned() };
        let pass = if *warmup {
            format!("step {batch}")
        } else {
            format!("pass {}/{passes}  batch {batch}/{batches}", pass + 1)
        };
        let (all, left) = if *warmup { (0, None) } else { (all, left) };
        Some(Progress { name, done, all, pass, rate: SamplesPerSecond::of(*samples, *elapsed_s), left })
    }

    fn line(&self) -> String {
        format!("  {:<10} {}  {}", self.name, self.pass, self.speed())
    }

    /// `1234.5 samples/s, 12.3 s left`.
    pub(super) fn speed(&self) -> String {
        let speed = self.rate.map(|r| format!("{} samples/s", rate(r)));
        let left = self.left.map(|left| format!("{} left", duration(left)));
        speed.into_iter().chain(left).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Phase, Step};

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
        }
    }

    #[test]
    fn what_others_say_cannot_steer_the_terminal_or_fill_it() {
        let mut lines = Lines::new(Vec::new());
        let mut say = |event: &Event| lines.notice(&Notice::Event { phase: Phase::Infer, event });
        say(&Event::StepBegin { step: Step::Inference, detail: "with \x1b]0;title\x07".into() });
        say(&Event::SampleFailed { sample: "a\n  error: forged".into(), reason: "\x1b[2J".into() });
        say(&Event::Log { level: Level::Warning, source: "script".into(), message: "x".repeat(1 << 19) });
        let reason = "at line 3:\nresults in /tmp\x1b[A".to_owned();
        say(&Event::Failed(crate::event::Failure { step: None, reason, hint: String::new() }));
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
    fn a_line_of_progress_has_throughput_and_time_left() {
        let mut lines = Lines::new(Vec::new());
        lines.notice(&Notice::Event { phase: Phase::Infer, event: &progress(false) });
        lines.notice(&Notice::Event { phase: Phase::Infer, event: &progress(true) });
        let text = String::from_utf8(lines.out).unwrap();
        assert_eq!(
            text,
            "  inference  pass 2/4  batch 5/10  40.0 samples/s, 5.00 s left\n  inference warm-up step 5  40.0 samples/s\n"
        );
    }
}
