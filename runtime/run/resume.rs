//! Cases that a run has from before it was cut off: those with a record are finished, and one without is set aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::case::RunContext;
use super::conduct::seal;
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

/// Looks for an earlier run of a case. One that was cut off gets a record of what it had measured and another folder, so that
/// the case can be run again.
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
        "the process of the run ended before the case did: it was killed, or the machine lost its power".to_owned();
    let record =
        lost_record((run.plan, run.rows, case), run.folder, &folder, reason, "the case was run again afterwards");
    let written = write_record(&record, &folder.join("record.json"));
    if let Err(error) = written
        .map_err(|error| error.to_string())
        .and_then(|()| seal(&record, &folder, true).map_err(|error| error.to_string()))
    {
        tracing::warn!(error, "what the case had measured has no complete record");
    }
    match rename_aside(&folder) {
        Ok(kept) => EarlierCase::CutOff(kept),
        Err(error) => {
            tracing::warn!(%error, "the folder of the case cannot be renamed");
            EarlierCase::None
        }
    }
}

/// Renames a folder to a name that does not exist: `localhost_noderank0_cut_off`, `localhost_noderank0_cut_off2`.
fn rename_aside(folder: &Path) -> io::Result<PathBuf> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: u32| if number == 1 { String::new() } else { number.to_string() };
    let names = (1..=TIMES_MAX).map(|number| folder.with_file_name(format!("{name}_cut_off{}", numbered(number))));
    let free = names.into_iter().find(|name| fs::symlink_metadata(name).is_err());
    let free = free.ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(folder, &free).map(|()| free)
}
