//! The course of a run on a terminal: one bar for the step under way, with throughput and time left.

use std::io::{Write, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::lines::{Progress, event_lines};
use super::text::shown;
use crate::event::Event;
use crate::run::Notice;
use crate::text::one_line;

const LOOP: &str = "  {prefix:<20} {wide_bar} {msg}";
const SPINNER: &str = "  {prefix:<20} {spinner} {elapsed} {wide_msg}";
const TICK: Duration = Duration::from_millis(120);

/// Draws on standard error; what has passed stays as lines above the bar.
#[derive(Debug, Default)]
pub struct Bars {
    bar: Option<ProgressBar>,
}

impl Bars {
    /// Takes a notice.
    pub fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Event { event: Event::StepBegin { step, detail }, .. } => {
                self.bar = Some(spinner(step.name(), detail));
            }
            Notice::Event { event: event @ Event::Progress { .. }, .. } => {
                if let (Some(bar), Some(progress)) = (&self.bar, Progress::of(event)) {
                    draw(bar, &progress);
                }
            }
            Notice::Event { event: Event::StepEnd { .. } | Event::Failed(_), .. } | Notice::CaseEnds { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                self.say(notice);
            }
            _ => self.say(notice),
        }
    }

    fn say(&self, notice: &Notice<'_>) {
        for line in event_lines(notice) {
            match &self.bar {
                Some(bar) => bar.println(line),
                // That nobody reads the lines any more stops nothing.
                None => drop(writeln!(stderr(), "{line}")),
            }
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn spinner(name: &str, detail: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(SPINNER).expect("the template is a constant that a test draws"));
    bar.set_prefix(name.to_owned());
    bar.set_message(one_line(&shown(detail)).into_owned());
    bar.enable_steady_tick(TICK);
    bar
}

fn draw(bar: &ProgressBar, progress: &Progress) {
    if progress.all > 0 && bar.length().is_none() {
        bar.set_style(ProgressStyle::with_template(LOOP).expect("the template is a constant that a test draws"));
        bar.set_length(progress.all);
    }
    bar.set_prefix(progress.name.clone());
    bar.set_message(progress.speed());
    bar.set_position(progress.done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_well_formed() {
        for template in [LOOP, SPINNER] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
