//! Displays a run on a terminal: a bar for the current step with throughput and remaining time.

use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::lines::{LoopProgress, notice_lines};
use super::text::{display_text, wrap};
use flagperf_core::event::Event;
use flagperf_core::text::one_line;
use flagperf_run::Notice;

const LOOP: &str = "  {prefix:<20} {wide_bar} {msg}";
const SPINNER: &str = "  {prefix:<20} {spinner} {elapsed} {wide_msg}";
const TICK: Duration = Duration::from_millis(120);

/// Draws a bar on standard error, or one for each host and device; completed steps and warnings remain as lines above.
#[derive(Debug, Default)]
pub struct BarDisplay {
    bar: Option<ProgressBar>,
    replicas: ReplicaBars,
}

/// The bars of a case on several hosts or devices.
#[derive(Debug, Default)]
struct ReplicaBars {
    all: MultiProgress,
    bars: BTreeMap<String, ProgressBar>,
}

impl ReplicaBars {
    /// Draws the bar of a replica anew after an event.
    fn show(&mut self, replica: &str, event: &Event) {
        let name = display_text(replica).into_owned();
        match event {
            Event::StepBegin { step, detail } => {
                let bar = self.bars.entry(name.clone()).or_insert_with(|| self.all.add(ProgressBar::no_length()));
                bar.reset();
                bar.unset_length();
                bar.set_style(style(SPINNER));
                bar.set_prefix(format!("{name} {}", step.name()));
                bar.set_message(one_line(&display_text(detail)).into_owned());
                bar.enable_steady_tick(TICK);
            }
            event if event.is_progress() => {
                if let (Some(bar), Some(progress)) = (self.bars.get(&name), LoopProgress::from_event(event)) {
                    update(bar, &LoopProgress { name: format!("{name} {}", progress.name), ..progress });
                }
            }
            _ => {}
        }
    }

    fn clear(&mut self) {
        for (_, bar) in std::mem::take(&mut self.bars) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }
}

impl BarDisplay {
    /// Displays a notice.
    pub fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::ReplicaEvent { replica, event, .. } => {
                self.replicas.show(replica, event);
                self.print_lines(notice);
            }
            Notice::Event { event: Event::StepBegin { step, detail }, .. } => {
                self.bar = Some(spinner(step.name(), detail));
            }
            Notice::Event { event, .. } if event.is_progress() => {
                if let (Some(bar), Some(progress)) = (&self.bar, LoopProgress::from_event(event)) {
                    update(bar, &progress);
                }
            }
            Notice::Event { event: Event::StepEnd { .. } | Event::Failed(_), .. } | Notice::CaseEnds { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                if matches!(notice, Notice::CaseEnds { .. }) {
                    self.replicas.clear();
                }
                self.print_lines(notice);
            }
            _ => self.print_lines(notice),
        }
    }

    fn print_lines(&self, notice: &Notice<'_>) {
        let columns = console::Term::stderr().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
        for line in notice_lines(notice).iter().map(|line| wrap(line, columns)) {
            match &self.bar {
                Some(bar) => bar.println(line),
                None if !self.replicas.bars.is_empty() => drop(self.replicas.all.println(line)),
                // A closed standard error does not stop the run.
                None => drop(writeln!(stderr(), "{line}")),
            }
        }
    }
}

impl Drop for BarDisplay {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.replicas.clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a test parses the constant templates")
}

fn spinner(name: &str, detail: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style(SPINNER));
    bar.set_prefix(name.to_owned());
    bar.set_message(one_line(&display_text(detail)).into_owned());
    bar.enable_steady_tick(TICK);
    bar
}

fn update(bar: &ProgressBar, progress: &LoopProgress) {
    if progress.total > 0 && bar.length() != Some(progress.total) {
        bar.set_style(style(LOOP));
        bar.set_length(progress.total);
    }
    bar.set_prefix(progress.name.clone());
    bar.set_message(progress.bar_text());
    bar.set_position(progress.done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [LOOP, SPINNER] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
