//! Displays a run on the whole terminal (`--live`): its cases, hosts and progress, what the monitors read, and the distribution of the step
//! times as it grows.
//!
//! The conductor only notes what it is notified of. A thread of its own draws a copy of that, so that a slow terminal delays no event of
//! a worker. Lines that other displays print are kept while the terminal is in use, and printed when it is left.

mod curve;
mod draw;
mod monitors;
mod screen;
mod view;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::lines::notice_lines;
use draw::{Picture, draw};
use flagperf_config::CaseKey;
use flagperf_core::measure::Clock;
use flagperf_run::{Interrupt, Notice};
use monitors::Monitors;
use screen::Screen;
use view::View;

/// Time between two pictures.
const INTERVAL: Duration = Duration::from_millis(250);
/// Pictures for each reading of the monitors' files.
const PICTURES_PER_READING: u32 = 4;

/// Draws a run on the terminal of standard error while a case runs.
#[derive(Debug)]
pub struct LiveDisplay {
    view: Arc<Mutex<View>>,
    screen: Arc<Screen>,
    clock: Arc<dyn Clock>,
    /// Ends the drawing thread when it is dropped.
    _open: Sender<()>,
}

impl LiveDisplay {
    /// Creates the display of a run of these cases. A second signal and a panic give the terminal back.
    pub fn new(cases: &[CaseKey], clock: Arc<dyn Clock>, interrupt: &Interrupt) -> Self {
        let view = Arc::new(Mutex::new(View::new(cases, clock.now())));
        let screen = Arc::new(Screen::default());
        let (open, closed) = channel();
        let left = Arc::clone(&screen);
        interrupt.before_exit(move || left.close());
        let (left, report) = (Arc::clone(&screen), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            left.close();
            report(panic);
        }));
        let drawing =
            Drawing { view: view.clone(), screen: screen.clone(), clock: clock.clone(), interrupt: interrupt.clone() };
        thread::spawn(move || drawing.run(&closed));
        LiveDisplay { view, screen, clock, _open: open }
    }

    /// Displays a notice.
    pub fn show(&mut self, notice: &Notice<'_>) {
        let lines = notice_lines(notice);
        let is_running = {
            let mut view = lock(&self.view);
            view.note(notice, &lines, self.clock.now());
            view.is_running()
        };
        if is_running {
            self.screen.enter();
        }
        lines.into_iter().for_each(|line| self.screen.print(line));
        // The report of a result is printed after its notice.
        if matches!(notice, Notice::CaseEnds { .. } | Notice::SummaryEnds { .. } | Notice::FinishedBefore { .. }) {
            self.screen.leave();
        }
    }
}

impl Drop for LiveDisplay {
    fn drop(&mut self) {
        self.screen.leave();
    }
}

/// What the drawing thread needs.
struct Drawing {
    view: Arc<Mutex<View>>,
    screen: Arc<Screen>,
    clock: Arc<dyn Clock>,
    interrupt: Interrupt,
}

impl Drawing {
    /// Draws until the display is dropped.
    fn run(&self, closed: &Receiver<()>) {
        let (mut monitors, mut pictures) = (Monitors::default(), 0_u32);
        while closed.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if !self.screen.is_active() {
                continue;
            }
            let view = lock(&self.view).clone();
            if pictures.is_multiple_of(PICTURES_PER_READING) {
                monitors.read(view.case_folder.as_deref());
            }
            pictures = pictures.wrapping_add(1);
            let (now, is_ending) = (self.clock.now(), self.interrupt.is_set());
            let picture = Picture { view: &view, monitors: &monitors, now, is_ending };
            self.screen.draw(|frame| draw(frame, &picture));
        }
    }
}

/// Locks a mutex and ignores poisoning: what is displayed is not what is measured.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
