//! Removes what an agent's store no longer needs: old programs, checkouts, files and sessions. What a process on this host
//! uses stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::forwarder::is_running;
use super::session::{CHECKPOINTS, SessionTask, TASK_FILE};
use super::store::Store;
use flagperf_core::regular_file::read_regular;

/// Age of what nobody has used, or whose results nobody has fetched, from which on it is removed: a week.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Age below which nothing is removed that another agent may be about to use.
const YOUNG: Duration = Duration::from_secs(3600);
/// Number of programs and of checkouts, the ones used last, that stay until they are [`AGE_MAX`] old.
const PROGRAMS_KEPT: usize = 3;
const CHECKOUTS_KEPT: usize = 8;
/// Largest size of a task in bytes.
const TASK_BYTES_MAX: u64 = 16 << 20;

/// An entry of a folder of the store.
struct Entry {
    path: PathBuf,
    /// Time since it was last used.
    age: Duration,
}

/// Removes what is old, and the programs and checkouts beyond the last few. `own` is the program of this agent.
pub(super) fn clean(store: &Store, own: Option<&Path>) {
    let old = |folder: &str| entries(&store.root().join(folder)).into_iter().filter(|entry| entry.age > AGE_MAX);
    let lists = ["sessions", CHECKPOINTS, "ended", "reservations", "files"].map(old);
    remove(lists.into_iter().flatten().filter(|entry| !is_running(&entry.path)));
    let tasks = running_tasks(store);
    let checkouts: BTreeSet<PathBuf> = tasks.iter().map(|task| task.root.clone()).collect();
    remove(surplus(entries(&store.root().join("trees")), CHECKOUTS_KEPT, |path| checkouts.contains(path)));
    let programs: BTreeSet<PathBuf> = tasks.into_iter().map(|task| task.program).chain(running_programs()).collect();
    let programs = programs.iter().map(PathBuf::as_path).chain(own);
    let in_use: BTreeSet<&Path> = programs.filter_map(Path::parent).collect();
    own.and_then(Path::parent).into_iter().for_each(note_use);
    let folders = entries(&store.root().join("bin"));
    // What a broken transfer has left behind.
    let is_part = |entry: &Entry| {
        entry.path.file_stem().is_some_and(|name| name == "flagperf") && !entry.path.ends_with("flagperf")
    };
    let parts = folders.iter().flat_map(|entry| entries(&entry.path)).filter(is_part);
    remove(parts.filter(|entry| entry.age > YOUNG).collect::<Vec<_>>());
    remove(surplus(folders, PROGRAMS_KEPT, |path| in_use.contains(path)));
}

/// Notes that a file or folder of the store is used now.
pub(super) fn note_use(path: &Path) {
    // It may belong to another user of a common folder.
    let _ = fs::File::open(path).and_then(|file| file.set_modified(jiff::Timestamp::now().into()));
}

/// Returns the entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> Vec<Entry> {
    let age = |entry: &fs::DirEntry| -> io::Result<Duration> {
        Ok(entry.metadata()?.modified()?.elapsed().unwrap_or_default())
    };
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| Entry { path: entry.path(), age: age(&entry).unwrap_or_default() }).collect()
}

/// Returns the entries that nobody needs: neither in use, nor young, nor among the `kept` ones that were used last.
fn surplus(mut entries: Vec<Entry>, kept: usize, is_used: impl Fn(&Path) -> bool) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.age);
    let unused = entries.into_iter().enumerate().filter(|(_, entry)| entry.age > YOUNG && !is_used(&entry.path));
    unused.filter(|(place, entry)| *place >= kept || entry.age > AGE_MAX).map(|(_, entry)| entry).collect()
}

/// Returns the tasks of the sessions that run, also on other hosts with the same folder.
fn running_tasks(store: &Store) -> Vec<SessionTask> {
    let sessions = entries(&store.root().join("sessions")).into_iter().filter(|entry| is_running(&entry.path));
    let task =
        |entry: Entry| serde_json::from_slice(&read_regular(&entry.path.join(TASK_FILE), TASK_BYTES_MAX).ok()?).ok();
    sessions.filter_map(task).collect()
}

/// Returns the programs of the processes of this host, as far as this user may know them.
fn running_programs() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok()).collect()
}

fn remove(entries: impl IntoIterator<Item = Entry>) {
    for Entry { path, .. } in entries {
        // This fails if another agent removes the same entry.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    /// Creates a file that was last used so many seconds ago, and returns the entry of the store that contains it.
    fn add(store: &Store, path: &str, age_s: u64) -> PathBuf {
        let file = store.root().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        let entry: PathBuf = store.root().join(path.split('/').take(2).collect::<PathBuf>());
        let used = std::time::SystemTime::from(jiff::Timestamp::now()) - Duration::from_secs(age_s);
        for path in [&file, &entry] {
            fs::File::open(path).unwrap().set_modified(used).unwrap();
        }
        entry
    }

    #[test]
    fn the_last_programs_and_those_in_use_stay_and_the_rest_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("flagperf")).unwrap();
        let programs: Vec<PathBuf> =
            (0..7).map(|number| add(&store, &format!("bin/{number}/flagperf"), (number + 1) * 2 * 3600)).collect();
        let of_session = add(&store, "bin/session/flagperf", 2 * DAY);
        let ancient = add(&store, "bin/ancient/flagperf", 8 * DAY);
        let part = store.root().join("bin/0/flagperf.77");
        add(&store, "bin/0/flagperf.77", 2 * 3600);
        add(&store, "bin/0/flagperf", 2 * 3600);
        let own = programs[6].join("flagperf");
        let session = add(&store, "sessions/s/task.json", 0);
        let task = SessionTask { program: of_session.join("flagperf"), ..SessionTask::default() };
        fs::write(session.join(TASK_FILE), serde_json::to_vec(&task).unwrap()).unwrap();
        let lock = fs::File::create(session.join(super::super::session::LOCK_FILE)).unwrap();
        lock.try_lock().unwrap();
        clean(&store, Some(&own));
        let kept: Vec<bool> = programs.iter().map(|path| path.exists()).collect();
        assert_eq!(kept, [true, true, false, false, false, false, true], "its own is one of the last three");
        assert!(of_session.exists() && !ancient.exists() && !part.exists());
        let own_folder =
            entries(&store.root().join("bin")).into_iter().find(|entry| entry.path == programs[6]).unwrap();
        assert!(own_folder.age < YOUNG, "the program of an agent is one of those used last");
    }

    #[test]
    fn checkouts_files_and_sessions_that_nobody_uses_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("flagperf")).unwrap();
        let old =
            ["files/a", "trees/b/configs", "sessions/c/task.json", "ended/d"].map(|path| add(&store, path, 8 * DAY));
        let new = ["files/e", "sessions/f/task.json", "ended/g"].map(|path| add(&store, path, 6 * DAY));
        let checkouts: Vec<PathBuf> =
            (0..10).map(|number| add(&store, &format!("trees/{number}/configs"), (number + 1) * 2 * 3600)).collect();
        clean(&store, None);
        assert!(old.iter().all(|path| !path.exists()) && new.iter().all(|path| path.exists()));
        assert_eq!(checkouts.iter().filter(|path| path.exists()).count(), CHECKOUTS_KEPT);
    }
}
