//! Processes that a child has started, wherever they moved: found in /proc by their parents, and by a variable of the
//! environment that all of them inherit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::measure::{Clock, MonotonicClock};
use crate::text;
use crate::units::Seconds;

/// The variable that a child and all that it starts inherit; its value is the child's own.
pub(super) const MARKER: &str = "FLAGPERF_PROCESS";
/// Bytes of an environment that are searched for the marker.
const ENVIRONMENT_BYTES: u64 = 8 << 20;
/// Bytes of a command line that are kept.
const COMMAND_BYTES: usize = 300;

/// Whether orphans among the descendants of this process become its children.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Children that this module's siblings have started and wait for; every other child is an adopted orphan.
static CHILDREN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static MARKERS: AtomicU64 = AtomicU64::new(0);

/// A process that outlived the child that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Process id.
    pub pid: i32,
    /// Its command line.
    pub command: String,
    /// Whether it is gone now; one that is stuck in the kernel stays.
    pub ended: bool,
}

/// From now on orphans among the descendants of this process become its children, so that it can find and end them.
///
/// Every child that this module's siblings have not started, and that is not there already, counts as an orphan. Process
/// 1, which is given the orphans of everybody, knows those of its own by their environment only.
///
/// # Errors
/// When the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let own = std::process::id();
    children().extend(children_of(own.cast_signed()));
    ADOPTS.store(own != 1, Ordering::Relaxed);
    Ok(())
}

/// A value of [`MARKER`] that no other process has.
pub(super) fn new_marker() -> String {
    let number = MARKERS.fetch_add(1, Ordering::Relaxed);
    let boot = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The time this process started at (field 22): process ids are used again.
    let started = boot.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or("0").to_owned();
    format!("{}-{started}-{number}", std::process::id())
}

/// The children that are waited for by who started them. Held while one is started, so that none looks like an orphan.
pub(super) fn children() -> MutexGuard<'static, BTreeSet<i32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every running process with this marker, every adopted orphan, and their descendants.
pub(super) fn find(marker: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let found = with_descendants(orphans().into_iter().chain(marked(marker)).collect());
    found.into_iter().filter(|pid| *pid != own && is_running(*pid)).collect()
}

/// `root` and its descendants by parents alone, adopted orphans included: cheap enough to be looked at all the time.
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

/// How long processes are looked for to be stopped, at a time: one that forks without end gets away from some looks.
const FREEZE: Seconds = Seconds(2.0);

/// Stops what [`find`] finds: what is stopped forks no more, and then all of it can be killed. Gives what was found; not
/// empty while something still runs.
pub(super) fn freeze(marker: &str) -> Vec<i32> {
    freeze_below(orphans, marker)
}

/// Stops each process as soon as it is found, until a look finds nothing that still runs.
fn freeze_below(roots: impl Fn() -> Vec<i32>, marker: &str) -> Vec<i32> {
    let clock = MonotonicClock::start();
    let began = clock.now();
    // Searching every process takes long: only when nothing is found among those that are known by their parents.
    while clock.now().since(began) < FREEZE {
        reap_orphans();
        let (mut found, mut runs) = stop(roots());
        if !runs {
            let (marked, runs_marked) = stop(marked(marker));
            found.extend(marked);
            runs = runs_marked;
        }
        if !runs {
            found.retain(|pid| is_running(*pid));
            return found.into_iter().collect();
        }
    }
    with_descendants(roots().into_iter().chain(marked(marker)).collect())
        .into_iter()
        .filter(|pid| !is_own(*pid))
        .collect()
}

/// Stops processes and their descendants; gives them, and whether one of them still ran.
fn stop(mut next: Vec<i32>) -> (BTreeSet<i32>, bool) {
    let (mut found, mut runs) = (BTreeSet::new(), false);
    while let Some(pid) = next.pop() {
        if !is_own(pid) && found.insert(pid) {
            // Before anything is asked of it: a moment later it may be gone, and a child of it there.
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            // One in the kernel's hands (`D`) is stopped before it leaves them.
            runs |= !matches!(state(pid), None | Some('T' | 't' | 'D' | 'Z' | 'X'));
            next.extend(children_of(pid));
        }
    }
    (found, runs)
}

fn is_own(pid: i32) -> bool {
    pid == std::process::id().cast_signed()
}

/// Kills a process that [`find`] found. One that is gone already is what was wanted.
pub(super) fn end(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Takes the ends of adopted orphans, which nobody else waits for.
pub(super) fn reap_orphans() {
    for pid in orphans() {
        let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// Kills every descendant of this process and every process that has the marker of this one, but not itself.
pub(super) fn end_own() {
    let own = std::process::id().cast_signed();
    let environment = read(&format!("/proc/{own}/environ"));
    let marker = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| Some(String::from_utf8_lossy(entry).strip_prefix(MARKER)?.strip_prefix('=')?.to_owned()));
    let marked = freeze_below(|| children_of(own), marker.as_deref().unwrap_or_default());
    for pid in tree(own).into_iter().chain(marked).filter(|pid| *pid != own) {
        end(pid);
    }
}

impl LeftBehind {
    /// What a process is; its command line as one line.
    pub(super) fn of(pid: i32) -> Self {
        let mut command = read(&format!("/proc/{pid}/cmdline"));
        if command.is_empty() {
            command = read(&format!("/proc/{pid}/comm"));
        }
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        LeftBehind {
            pid,
            command: text::cut(&text::one_line(command.trim()), COMMAND_BYTES).into_owned(),
            ended: false,
        }
    }
}

/// Children of this process that nobody waits for.
fn orphans() -> Vec<i32> {
    if !ADOPTS.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let waited_for = children();
    children_of(std::process::id().cast_signed()).into_iter().filter(|pid| !waited_for.contains(pid)).collect()
}

/// Processes whose environment has this marker.
fn marked(marker: &str) -> Vec<i32> {
    if marker.is_empty() {
        return Vec::new();
    }
    let entry = format!("{MARKER}={marker}").into_bytes();
    let has = |pid: &i32| read(&format!("/proc/{pid}/environ")).split(|byte| *byte == 0).any(|has| has == entry);
    numbers("/proc").filter(has).collect()
}

/// Children by the system's own list, which each thread of the parent has a part of.
fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for thread in numbers(&format!("/proc/{pid}/task")) {
        let list = read(&format!("/proc/{pid}/task/{thread}/children"));
        children.extend(String::from_utf8_lossy(&list).split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    children
}

/// Whether a process is there and not only waited for.
fn is_running(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The state of a process as a letter (`T`: stopped, `Z`: ended, and nobody has taken its end); `None` when it is gone.
fn state(pid: i32) -> Option<char> {
    let stat = read(&format!("/proc/{pid}/stat"));
    String::from_utf8_lossy(&stat).rsplit(") ").next().and_then(|rest| rest.chars().next())
}

/// The entries of a folder of /proc that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A file of /proc; empty when the process is gone, or somebody else's.
fn read(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(ENVIRONMENT_BYTES).read_to_end(&mut bytes);
    }
    bytes
}
