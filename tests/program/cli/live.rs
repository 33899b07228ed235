//! `run --live`: what it refuses, and that it gives the terminal back however a run ends.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

use super::{bash, checkout, transcript};
use crate::support::program;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A run on a terminal of 80 columns and 24 rows.
struct LiveRun {
    child: Child,
    terminal: OwnedFd,
    output: JoinHandle<String>,
}

impl LiveRun {
    fn start(checkout: &Path, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
        let mut command = program::command(checkout, &[&["run", "--live"], arguments].concat());
        let stdio = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.env("TERM", "xterm");
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().expect("the program starts");
        // The descriptors of the command would keep the terminal open.
        drop(command);
        let output = thread::spawn(move || {
            let (mut text, mut part, mut master) = (Vec::new(), [0; 4096], File::from(master));
            // Reading fails when the last process has closed the terminal.
            while let Ok(count @ 1..) = master.read(&mut part) {
                text.extend(&part[..count]);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        LiveRun { child, terminal: slave, output }
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.terminal).expect("modes").local_flags.contains(LocalFlags::ECHO)
    }

    /// Waits until the terminal is drawn on.
    fn wait_for_picture(&self) {
        let is_drawn = (0..3000).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !self.echoes()
        });
        assert!(is_drawn, "nothing was drawn within a minute");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().expect("an id")), signal).expect("the program runs");
    }

    /// Returns the exit code, and what was written before and after the terminal was given back.
    fn end(mut self) -> (Option<i32>, String, String) {
        let code = self.child.wait().expect("the program ends").code();
        assert!(self.echoes(), "what is typed is shown again");
        drop(self.terminal);
        let text = self.output.join().expect("no panic");
        assert_eq!(text.matches(ENTER).count(), text.matches(LEAVE).count(), "{text:?}");
        let (before, after) = text.rsplit_once(LEAVE).unwrap_or_else(|| panic!("{text:?}"));
        (code, before.to_owned(), after.to_owned())
    }
}

/// Waits until a worker has started, and returns its process id.
fn worker(checkout: &Path) -> Pid {
    for _ in 0..600 {
        let (out, _) = bash(checkout, "cat result/*/*/*/events.jsonl | grep -om1 '\"pid\":[0-9]*[,}]'");
        let digits: String = out.chars().filter(char::is_ascii_digit).collect();
        if let Ok(pid) = digits.parse() {
            return Pid::from_raw(pid);
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("no worker has started within a minute");
}

#[test]
fn a_live_display_is_refused_without_a_terminal_and_with_other_outputs_before_anything_runs() {
    let checkout = checkout();
    insta::assert_snapshot!(transcript(checkout.path(), &["run", "--live"]), @r"
    $ flagperf run --live
    exit code 2
    --- stdout
    --- stderr
    error: --live draws on a terminal, but standard output or standard error is none, or a dumb one (TERM)
      hint: without --live, the run prints its progress as lines
    ");
    for other in ["--json", "--plain", "--submit=slurm", "--operator=mm:FP16"] {
        let text = transcript(checkout.path(), &["run", "--live", other]);
        assert!(text.contains("exit code 2\n") && text.contains("cannot be used with"), "{text}");
    }
    assert!(!checkout.path().join("result").exists());
}

#[test]
fn after_a_live_display_the_report_is_printed_as_without_it() {
    let checkout = checkout();
    let (code, picture, report) = LiveRun::start(checkout.path(), &["--set", "sleep_ms=200"]).end();
    assert_eq!(code, Some(0), "{report}");
    assert!(picture.contains("Ctrl-C ends the run"), "{picture:?}");
    assert!(report.contains("case tiny:mock (1 of 1)") && report.contains("verdict"), "{report}");
}

#[test]
fn ctrl_c_gives_the_terminal_back_and_leaves_a_report() {
    let checkout = checkout();
    let run = LiveRun::start(checkout.path(), &["--set", "sleep_ms=600000"]);
    run.wait_for_picture();
    run.signal(Signal::SIGINT);
    let (code, _, report) = run.end();
    assert_eq!(code, Some(130), "{report}");
    assert!(report.contains("interrupted") && report.contains("flagperf resume"), "{report}");
}

#[test]
fn a_second_ctrl_c_gives_the_terminal_back_too() {
    let checkout = checkout();
    let run = LiveRun::start(checkout.path(), &["--set", "sleep_ms=600000"]);
    run.wait_for_picture();
    // A worker that is stopped does not react, so that the run waits for it.
    let worker = worker(checkout.path());
    kill(worker, Signal::SIGSTOP).expect("the worker runs");
    run.signal(Signal::SIGINT);
    thread::sleep(Duration::from_millis(500));
    run.signal(Signal::SIGINT);
    let (code, _, after) = run.end();
    let _ = kill(worker, Signal::SIGCONT);
    assert_eq!(code, Some(130), "{after}");
    assert!(!after.contains("verdict") && after.contains("\x1b[?25h"), "the cursor is shown: {after:?}");
}
