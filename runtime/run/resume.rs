//! Cases that a run has from before it was cut off: those with a record are finished, and one without is set aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::case::RunContext;
use super::lost_record;
use crate::plan::CasePlan;
use crate::result::write_record;

/// Largest number of times that the folder of one case is set aside.
const TIMES_MAX: u32 = 100;

/// What a run has of a case before it runs it.
pub(super) enum EarlierCase {
    /// Nothing.
    None,
    /// Its record.
    Finished,
    /// What it had measured when it was cut off, which is now in this folder.
    CutOff(PathBuf),
}

/// Looks for an earlier run of a case. One that was cut off gets a record of what it had measured and is moved, so that the case
/// can be run again. It has no manifest: its events may lack their end.
pub(super) fn set_aside(run: &RunContext<'_>, case: &CasePlan) -> EarlierCase {
    let folder = run.folder.join(&case.folder);
    // A new run has nothing.
    if run.options.folder.is_none() {
        return EarlierCase::None;
    }
    if folder.join("record.json").exists() {
        return EarlierCase::Finished;
    }
    if !folder.exists() {
        return EarlierCase::None;
    }
    let reason =
        "the main process of the run ended before the case was complete: it was killed, or the machine lost power"
            .to_owned();
    let record =
        lost_record((run.plan, run.rows, case), run.folder, &folder, reason, "the case was run again afterwards");
    if let Err(error) = write_record(&record, &folder.join("record.json")) {
        tracing::warn!(%error, "the record of the earlier measurements of the case cannot be written");
    }
    match move_aside(run.folder, &case.folder) {
        Ok(kept) => EarlierCase::CutOff(kept),
        Err(error) => {
            tracing::warn!(%error, "the folder of the earlier measurements of the case cannot be moved");
            EarlierCase::None
        }
    }
}

/// Moves the folder of a case, a path in the folder `run`, into `cut_off` or, where that has it already, `cut_off2`.
fn move_aside(run: &Path, case: &Path) -> io::Result<PathBuf> {
    let numbered = |number: u32| if number == 1 { String::new() } else { number.to_string() };
    let mut names = (1..=TIMES_MAX).map(|number| run.join(format!("cut_off{}", numbered(number))).join(case));
    let free = names.find(|name| fs::symlink_metadata(name).is_err()).ok_or(io::ErrorKind::AlreadyExists)?;
    fs::create_dir_all(free.parent().unwrap_or(run))?;
    fs::rename(run.join(case), &free).map(|()| free)
}
