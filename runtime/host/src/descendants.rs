//! Finds all processes that a child has started, wherever they moved: in /proc by their parents, and by an environment
//! variable that all of them inherit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::bounded::run_for;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::text;
use flagperf_core::units::Seconds;

/// Environment variable that a child and all its descendants inherit; its value is unique to the child.
pub(super) const MARKER: &str = "FLAGPERF_PROCESS";
/// End of the marker of a command whose output is captured, such as the command of a monitor.
const COMMAND_SUFFIX: &str = "-command";
/// Maximum number of bytes of an environment that are searched for the marker.
const ENVIRONMENT_BYTES: u64 = 8 << 20;
/// Maximum number of bytes of a command line that are kept.
const COMMAND_BYTES: usize = 300;

/// Whether orphaned descendants become children of this process.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Children that this module's siblings have started and wait for. Every other child is an adopted orphan.
static CHILDREN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static MARKERS: AtomicU64 = AtomicU64::new(0);

/// A process that outlived the child from which it descends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverProcess {
    /// Process id.
    pub pid: i32,
    /// Its command line.
    pub command: String,
    /// Whether it has ended; a process that is stuck in the kernel stays.
    pub ended: bool,
    /// Whether it was started by a command whose output is captured, such as the command of a monitor, and not by a worker.
    pub of_command: bool,
}

/// Makes this process the parent of its orphaned descendants from now on, so that it can find and kill them.
///
/// Every child that exists later and was not started by this module's siblings counts as an orphan. Process 1, which
/// gets the orphans of all processes, recognises its own only by their environment.
///
/// # Errors
/// Fails when the system call fails.
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let own = std::process::id();
    waited_children().extend(children_of(own.cast_signed()));
    ADOPTS.store(own != 1, Ordering::Relaxed);
    Ok(())
}

/// Returns a value of [`MARKER`] that no other process has.
pub(super) fn new_marker() -> String {
    let number = MARKERS.fetch_add(1, Ordering::Relaxed);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The start time of this process (field 22), because process ids are reused.
    let started = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or("0").to_owned();
    format!("{}-{started}-{number}", std::process::id())
}

/// Returns a value of [`MARKER`] for a command whose output is captured. No other process has it.
pub(super) fn new_command_marker() -> String {
    new_marker() + COMMAND_SUFFIX
}

/// Returns the running processes that a command with this marker has started, in whatever group they are. Gives up after
/// `polls` polls, because reading /proc of a process that is stuck in the kernel may block.
pub(super) fn started_processes(marker: &str, polls: u32) -> Vec<LeftoverProcess> {
    let marker = marker.to_owned();
    let found = run_for(polls, move || with_marker(&marker).into_iter().map(LeftoverProcess::describe).collect());
    found.unwrap_or_default()
}

/// Returns the children for which their starters wait. The lock is held while a child is started, so that no new child
/// looks like an orphan.
pub(super) fn waited_children() -> MutexGuard<'static, BTreeSet<i32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds every running process with this marker, every adopted orphan, and all their descendants.
pub(super) fn find_related(marker: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let found = with_descendants(orphans().into_iter().chain(with_marker(marker)).collect());
    found.into_iter().filter(|pid| *pid != own && is_running(*pid)).collect()
}

/// Returns `root`, the adopted orphans, and all their descendants. Uses only parent links, which is cheap enough for
/// frequent polling.
pub(super) fn tree(root: i32) -> BTreeSet<i32> {
    with_descendants(orphans().into_iter().chain([root]).collect())
}

fn with_descendants(mut next: Vec<i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    while let Some(pid) = next.pop() {
        if found.insert(pid) {
            next.extend(children_of(pid));
        }
    }
    found
}

/// How long one call searches for processes to stop: a process that forks without end escapes some of the searches.
const STOP_TIME: Seconds = Seconds(1.0);
/// Number of consecutive searches that find nothing new before the result counts as complete.
const QUIET_SEARCHES: u32 = 3;

/// The processes that a search found.
#[derive(Default)]
pub(super) struct FoundProcesses {
    pub(super) processes: Vec<i32>,
    /// Whether they were stopped.
    pub(super) are_stopped: bool,
    /// Whether there are no others.
    pub(super) is_complete: bool,
}

/// Stops (SIGSTOP) every process that [`find_related`] finds, because a stopped process cannot fork, so that afterwards
/// all of them can be killed.
pub(super) fn stop_related(marker: &str) -> FoundProcesses {
    stop_all(orphans, marker)
}

/// Stops each process as soon as it is found, until several searches find no running process and no new one: when a
/// process forks and ends, a search may see only the process that has ended.
fn stop_all(roots: impl Fn() -> Vec<i32>, marker: &str) -> FoundProcesses {
    let clock = MonotonicClock::start();
    let start = clock.now();
    let (mut seen, mut quiet) = (BTreeSet::new(), 0);
    loop {
        let (mut found, mut running) = stop_with_descendants(roots());
        // Reading the environment of every process is slow, so it waits until all processes known by their parents are
        // stopped.
        if !running {
            let (marked, marked_running) = stop_with_descendants(with_marker(marker));
            found.extend(marked);
            running = marked_running;
        }
        let is_new = found.iter().filter(|pid| seen.insert(**pid)).count() > 0;
        quiet = if running || is_new { 0 } else { quiet + 1 };
        let is_complete = quiet == QUIET_SEARCHES;
        if is_complete || clock.now().since(start) > STOP_TIME {
            let processes = found.into_iter().filter(|pid| is_running(*pid)).collect();
            return FoundProcesses { processes, are_stopped: true, is_complete };
        }
        // Not earlier: a process that has ended is visible until its parent waits for it.
        reap_orphans();
    }
}

/// Stops processes and their descendants. Returns them, and whether one of them was still running.
fn stop_with_descendants(mut next: Vec<i32>) -> (BTreeSet<i32>, bool) {
    let (mut found, mut running) = (BTreeSet::new(), false);
    while let Some(pid) = next.pop() {
        if !is_own(pid) && found.insert(pid) {
            // The signal comes before any look at the process: a moment later it may have forked and ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            // A process in an uninterruptible system call (`D`) stops before it returns from the call.
            running |= !matches!(state(pid), None | Some('T' | 't' | 'D' | 'Z' | 'X'));
            next.extend(children_of(pid));
        }
    }
    (found, running)
}

fn is_own(pid: i32) -> bool {
    pid == std::process::id().cast_signed()
}

/// Kills a process that [`find_related`] or [`stop_related`] found. An error is ignored: the process may have ended
/// already.
pub(super) fn kill_process(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Reaps adopted orphans, for which nobody else waits.
pub(super) fn reap_orphans() {
    for pid in orphans() {
        let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// Kills every descendant of this process and every process with the marker of this process, but not this process
/// itself.
pub(super) fn kill_own_descendants() {
    let own = std::process::id().cast_signed();
    let marker = marker_of(own);
    let marked = stop_all(|| children_of(own), marker.as_deref().unwrap_or_default());
    for pid in tree(own).into_iter().chain(marked.processes).filter(|pid| *pid != own) {
        kill_process(pid);
    }
}

/// Returns the marker in the environment of a process.
fn marker_of(pid: i32) -> Option<String> {
    let environment = read_proc_file(&format!("/proc/{pid}/environ"));
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| Some(String::from_utf8_lossy(entry).strip_prefix(MARKER)?.strip_prefix('=')?.to_owned()))
}

impl LeftoverProcess {
    /// Describes a process by its id and its command line on one line.
    pub(super) fn describe(pid: i32) -> Self {
        let mut command = read_proc_file(&format!("/proc/{pid}/cmdline"));
        if command.is_empty() {
            command = read_proc_file(&format!("/proc/{pid}/comm"));
        }
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        LeftoverProcess {
            pid,
            command: text::truncate(&text::one_line(command.trim()), COMMAND_BYTES).into_owned(),
            ended: false,
            of_command: marker_of(pid).is_some_and(|marker| marker.ends_with(COMMAND_SUFFIX)),
        }
    }
}

/// Returns the children of this process for which nobody waits.
fn orphans() -> Vec<i32> {
    if !ADOPTS.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let waited_for = waited_children();
    children_of(std::process::id().cast_signed()).into_iter().filter(|pid| !waited_for.contains(pid)).collect()
}

/// Returns the processes whose environment contains this marker.
pub(super) fn with_marker(marker: &str) -> Vec<i32> {
    if marker.is_empty() {
        return Vec::new();
    }
    let entry = format!("{MARKER}={marker}").into_bytes();
    let has =
        |pid: &i32| read_proc_file(&format!("/proc/{pid}/environ")).split(|byte| *byte == 0).any(|has| has == entry);
    numeric_entries("/proc").filter(has).collect()
}

/// Returns the children of a process. The kernel lists them separately for each thread of the parent.
fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for thread in numeric_entries(&format!("/proc/{pid}/task")) {
        let list = read_proc_file(&format!("/proc/{pid}/task/{thread}/children"));
        children.extend(String::from_utf8_lossy(&list).split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    children
}

/// Returns whether a process is running, not a zombie.
fn is_running(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Returns the state of a process as a letter (`T`: stopped, `Z`: a zombie); `None` when the process is gone.
fn state(pid: i32) -> Option<char> {
    let stat = read_proc_file(&format!("/proc/{pid}/stat"));
    String::from_utf8_lossy(&stat).rsplit(") ").next().and_then(|rest| rest.chars().next())
}

/// Returns the entries of a folder of /proc whose names are numbers.
fn numeric_entries(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Reads a file of /proc; returns nothing when the process has ended or belongs to another user.
fn read_proc_file(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(ENVIRONMENT_BYTES).read_to_end(&mut bytes);
    }
    bytes
}
