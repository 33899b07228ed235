//! The terminal while it is drawn on: its alternate screen and its modes, which are given back exactly once.
//!
//! Raw mode is not used, because it would turn Ctrl-C into a character. Instead, the terminal no longer shows what is typed, and no key
//! stops the output or the program.

use std::collections::VecDeque;
use std::io::{BufWriter, Stderr, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use nix::sys::termios::{
    FlushArg, InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};

use super::lock;
use crate::text::wrap;

/// The value of a special character that no key has.
const NO_KEY: u8 = 0;
/// How often the end of a picture that is being drawn is waited for, and the time between.
const WAITS: u32 = 50;
const WAIT: Duration = Duration::from_millis(10);
/// Most lines that are kept until the terminal is left. The log of the case has all.
const LINES_MAX: usize = 1000;

/// The terminal of standard error.
#[derive(Debug, Default)]
pub(super) struct Screen {
    terminal: Mutex<Option<Terminal<CrosstermBackend<BufWriter<Stderr>>>>>,
    /// The modes to give back; `None` while the terminal is not drawn on.
    modes: Mutex<Option<Termios>>,
    kept: Mutex<KeptLines>,
    /// Whether nothing is drawn any more.
    is_closed: AtomicBool,
}

/// Lines that are printed when the terminal is left.
#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<String>,
    left_out: usize,
}

impl Screen {
    /// Whether the terminal is drawn on.
    pub(super) fn is_active(&self) -> bool {
        lock(&self.modes).is_some()
    }

    /// Begins to draw. On an error, which a terminal that has closed causes, lines are printed as without this display.
    pub(super) fn enter(&self) {
        let mut kept_modes = lock(&self.modes);
        if kept_modes.is_some() || self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(modes) = tcgetattr(stderr()) else { return };
        let Ok(terminal) = Terminal::new(CrosstermBackend::new(BufWriter::new(stderr()))) else { return };
        let mut quiet = modes.clone();
        quiet.local_flags.remove(LocalFlags::ECHO);
        quiet.input_flags.remove(InputFlags::IXON);
        quiet.control_chars[SpecialCharacterIndices::VSUSP as usize] = NO_KEY;
        if tcsetattr(stderr(), SetArg::TCSANOW, &quiet).is_err() {
            return;
        }
        let _ = execute!(stderr(), EnterAlternateScreen, Hide);
        *lock(&self.terminal) = Some(terminal);
        *kept_modes = Some(modes);
    }

    /// Draws a picture, unless the terminal is not drawn on.
    pub(super) fn draw(&self, render: impl FnOnce(&mut Frame<'_>)) {
        if let Some(terminal) = lock(&self.terminal).as_mut() {
            // A closed terminal does not stop the run.
            let _ = terminal.draw(render);
        }
    }

    /// Gives the terminal back and prints the lines that were kept. Does nothing if it was given back before.
    pub(super) fn leave(&self) {
        // Held to the end, so that a second signal does not end the program before the terminal is given back.
        let mut kept_modes = lock(&self.modes);
        let Some(modes) = kept_modes.take() else { return };
        // A picture takes milliseconds, unless this thread has panicked while it drew.
        for _ in 0..WAITS {
            match self.terminal.try_lock() {
                Err(TryLockError::WouldBlock) => thread::sleep(WAIT),
                Err(TryLockError::Poisoned(_)) => break,
                Ok(mut terminal) => {
                    drop(terminal.take());
                    break;
                }
            }
        }
        let _ = execute!(stderr(), LeaveAlternateScreen, Show);
        // What was typed meanwhile was not meant for the shell.
        let _ = tcflush(stderr(), FlushArg::TCIFLUSH);
        let _ = tcsetattr(stderr(), SetArg::TCSANOW, &modes);
        let KeptLines { lines, left_out } = std::mem::take(&mut *lock(&self.kept));
        let note = (left_out > 0).then(|| format!("note: {left_out} earlier lines are left out"));
        note.iter().chain(&lines).for_each(|line| print_line(line));
    }

    /// Gives the terminal back for good: the program ends, or the drawing thread has panicked.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// Prints a line, or keeps it until the terminal is given back.
    pub(super) fn print(&self, line: String) {
        if !self.is_active() {
            print_line(&line);
            return;
        }
        let mut kept = lock(&self.kept);
        kept.lines.push_back(line);
        if kept.lines.len() > LINES_MAX {
            kept.lines.pop_front();
            kept.left_out += 1;
        }
    }
}

/// Writes a line to standard error, as the other displays do. An error is ignored: nobody may be reading.
fn print_line(line: &str) {
    let columns = console::Term::stderr().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    let _ = writeln!(stderr(), "{}", wrap(line, columns));
}
