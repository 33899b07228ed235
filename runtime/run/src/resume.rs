//! Resumes a run: finds the cases that were finished, and moves the files of a case that was cut off to another folder.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use flagperf_core::event::Event;
use flagperf_core::regular_file::{open_regular, read_regular_text};
use indexmap::IndexMap;

use super::case::RunContext;
use super::lost::LostCase;
use flagperf_core::run_files::{CHECKPOINTS_FOLDER, EVENTS_FILE, RECORD_FILE};
use flagperf_plan::CasePlan;
use flagperf_result::{ChainReader, ChainedEvent, Provenance, RECORD_BYTES_MAX, Record, Status, write_record};

/// The begin of the text of an ending that is no kill.
const EXITED: &str = "exited";
/// Largest number of attempts at one case that are kept.
const TIMES_MAX: u32 = 100;

/// The earlier attempt of a resumed run at a case.
pub(super) enum EarlierAttempt {
    /// There was none.
    None,
    /// The case was finished and has this record.
    Finished(Box<Record>),
    /// The case was cut off. Its files are now in this folder; the hashes of its checkpoints are those that its events state.
    CutOff { kept: PathBuf, checkpoints: IndexMap<String, String> },
}

/// Reads the record of a case that was finished, from its folder.
///
/// # Errors
/// When the folder has no record, or the record cannot be read.
pub fn finished_record(folder: &Path) -> io::Result<Record> {
    let text = read_regular_text(&folder.join(RECORD_FILE), RECORD_BYTES_MAX)?;
    Ok(serde_json::from_str(&text)?)
}

/// Looks for an earlier attempt at a case. If it was cut off, this writes a record of its measurements and moves its folder, so
/// that the case can be run again. Such a record has no manifest, because the last events may be missing.
pub(super) fn set_aside(run: &RunContext<'_>, case: &CasePlan) -> EarlierAttempt {
    let folder = run.folder.join(&case.folder);
    // A new run has no earlier attempts.
    if run.options.folder.is_none() {
        return EarlierAttempt::None;
    }
    if !folder.exists() {
        return EarlierAttempt::None;
    }
    let reason = match finished_record(&folder) {
        // An interrupted case has a record of what it had measured.
        Ok(record) if record.status == Status::Interrupted || is_killed(&record, &folder) => {
            return keep_aside(run.folder, case);
        }
        Ok(record) => return EarlierAttempt::Finished(Box::new(record)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "the main process of the run ended before the case was complete: it was killed, or the machine lost power"
                .to_owned()
        }
        Err(error) => format!("the record that the run had written cannot be read: {error}"),
    };
    let RunContext { plan, rows, options, .. } = *run;
    let (run_folder, unknown) = (run.folder, Provenance::default());
    let program = options.resumed.as_ref().unwrap_or(&unknown);
    let lost =
        LostCase { plan, rows, case, run: run_folder, folder: &folder, program, is_resumed: true, host_doubts: &[] };
    let record = lost.record(reason, "the case was run again afterwards");
    if let Err(error) = write_record(&record, &folder.join(RECORD_FILE)) {
        tracing::warn!(%error, "the record of the earlier measurements of the case cannot be written");
    }
    keep_aside(run.folder, case)
}

/// Returns whether the worker of a training was killed and left checkpoints.
pub(super) fn is_killed(record: &Record, folder: &Path) -> bool {
    was_killed(record) && folder.join(CHECKPOINTS_FOLDER).is_dir()
}

/// Returns whether the worker of a training was killed.
pub fn was_killed(record: &Record) -> bool {
    let ending = record.phases.last().and_then(|phase| phase.ending.as_ref());
    let is_exit = ending.is_none_or(|ending| ending.starts_with(EXITED));
    record.status == Status::Failed && record.training().is_some() && !is_exit
}

/// Moves the folder of a case, which is run again, aside.
fn keep_aside(run: &Path, case: &CasePlan) -> EarlierAttempt {
    match move_aside(run, &case.folder).and_then(|kept| take_checkpoints(&kept, &run.join(&case.folder)).map(|()| kept))
    {
        Ok(kept) => EarlierAttempt::CutOff { checkpoints: checkpoint_hashes(&kept.join(EVENTS_FILE)), kept },
        Err(error) => {
            tracing::warn!(%error, "the folder of the earlier measurements of the case cannot be moved");
            EarlierAttempt::None
        }
    }
}

/// Returns the hashes of the checkpoints of a training, by their names, from its events; none if these cannot be read.
pub fn checkpoint_hashes(path: &Path) -> IndexMap<String, String> {
    let Ok(file) = open_regular(path) else { return IndexMap::new() };
    let mut reader = ChainReader::new(BufReader::new(file));
    let events = std::iter::from_fn(|| reader.read().ok().flatten());
    let hash = |event: ChainedEvent| match event.event {
        Event::Checkpoint { name, sha256 } => Some((name, sha256)),
        _ => None,
    };
    events.filter_map(hash).collect()
}

/// Moves the checkpoints of a training that was cut off to the folder in which the case is run again: it goes on from the newest.
fn take_checkpoints(kept: &Path, folder: &Path) -> io::Result<()> {
    let checkpoints = kept.join(CHECKPOINTS_FOLDER);
    if !checkpoints.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::rename(checkpoints, folder.join(CHECKPOINTS_FOLDER))
}

/// Lets a process that trains with others find the checkpoints of its host in its own folder. One that cannot be linked is logged.
pub(super) fn link_checkpoints(store: &Path, folder: &Path) {
    let link = |checkpoint: &fs::DirEntry| -> io::Result<()> {
        let own = folder.join(CHECKPOINTS_FOLDER).join(checkpoint.file_name());
        fs::create_dir_all(&own)?;
        for file in fs::read_dir(checkpoint.path())?.flatten() {
            // Nothing writes to the files of a checkpoint.
            fs::hard_link(file.path(), own.join(file.file_name()))?;
        }
        Ok(())
    };
    for checkpoint in fs::read_dir(store).into_iter().flatten().flatten() {
        if let Err(error) = link(&checkpoint) {
            tracing::warn!(%error, "the checkpoint `{}` cannot be linked", checkpoint.path().display());
        }
    }
}

/// Stores the checkpoints of a process that trained with others where the next attempt finds them, if it has written them. Those of a
/// training that is complete are removed.
pub(super) fn store_checkpoints(folder: &Path, store: &Path, writes_checkpoints: bool, is_complete: bool) {
    let own = folder.join(CHECKPOINTS_FOLDER);
    let stored = match own.is_dir() {
        true if writes_checkpoints && !is_complete => {
            let _ = fs::remove_dir_all(store);
            fs::create_dir_all(store.parent().unwrap_or(store)).and_then(|()| fs::rename(&own, store))
        }
        true => fs::remove_dir_all(&own),
        false => Ok(()),
    };
    if let Err(error) = stored {
        tracing::warn!(%error, "the checkpoints in `{}` cannot be stored", own.display());
    }
    if is_complete && writes_checkpoints {
        let _ = fs::remove_dir_all(store);
        // The folder of the run stays while another case has checkpoints.
        let _ = fs::remove_dir(store.parent().unwrap_or(store));
    }
}

/// Moves the folder of a case, a path relative to the folder `run`, to `cut_off`, or to `cut_off2` if `cut_off` contains one. Returns
/// the new folder.
///
/// # Errors
/// When the folder cannot be moved.
pub fn move_aside(run: &Path, case: &Path) -> io::Result<PathBuf> {
    let numbered = |number: u32| if number == 1 { String::new() } else { number.to_string() };
    let mut names = (1..=TIMES_MAX).map(|number| run.join(format!("cut_off{}", numbered(number))).join(case));
    let free = names.find(|name| fs::symlink_metadata(name).is_err()).ok_or(io::ErrorKind::AlreadyExists)?;
    fs::create_dir_all(free.parent().unwrap_or(run))?;
    fs::rename(run.join(case), &free).map(|()| free)
}
