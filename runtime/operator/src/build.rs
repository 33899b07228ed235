//! Runs the command that builds an operator's library.

use std::path::PathBuf;

use flagperf_config::OperatorDescription;
use flagperf_core::suggestion::list_names;
use flagperf_host::{Ending, ProcessError, run_to_end};

/// The header that an operator includes.
const HEADER: &str = include_str!("../../plugin/include/flagperf_operator.h");

/// Why an operator cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no command for the device.
    #[error("`build` has no command for `{device}` (known: {known})")]
    NoCommand { device: String, known: String },
    /// There is no folder for the library.
    #[error("there is no folder for caches; set XDG_CACHE_HOME")]
    NoCache,
    /// The folder of the library cannot be written.
    #[error("cannot write to `{}`: {source}", .folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    /// The program cannot be started.
    #[error("{0}")]
    Start(#[from] ProcessError),
    /// The program failed; it printed why.
    #[error("`{program}` {}", .ending.predicate())]
    Failed { program: String, ending: Ending },
    /// The program succeeded without writing the library.
    #[error("`{program}` succeeded, but wrote no `{}`", .output.display())]
    NoLibrary { program: String, output: PathBuf },
}

/// Builds the library for a kind of device, in the user's cache, and returns its path. The compiler prints to the
/// standard streams of this process. An existing library stays until the new one is complete.
///
/// # Errors
/// When there is no command for the device, or it fails.
pub fn build(operator: &OperatorDescription, device: &str) -> Result<PathBuf, BuildError> {
    let known = || list_names(operator.build.keys().map(String::as_str));
    let entry = operator.build.get(device);
    let entry = entry.ok_or_else(|| BuildError::NoCommand { device: device.to_owned(), known: known() })?;
    let library = operator.library(device).ok_or(BuildError::NoCache)?;
    let folder = library.parent().unwrap_or(&operator.folder);
    let include = folder.join("include");
    let failed = |source| BuildError::Folder { folder: folder.to_owned(), source };
    std::fs::create_dir_all(&include).map_err(failed)?;
    std::fs::write(include.join("flagperf_operator.h"), HEADER).map_err(failed)?;
    let unfinished = folder.join(format!("{device}.{}.so", std::process::id()));
    let place = |argument: &String| {
        argument.replace("{output}", &unfinished.to_string_lossy()).replace("{include}", &include.to_string_lossy())
    };
    let argv: Vec<String> = entry.command.iter().map(place).collect();
    let ending = run_to_end(&argv, Some(&operator.folder))?;
    let program = argv[0].clone();
    let finished = match ending {
        Ending::Exited(0) if std::fs::metadata(&unfinished).is_ok_and(|file| file.is_file() && file.len() > 0) => {
            std::fs::rename(&unfinished, &library).map_err(failed)
        }
        Ending::Exited(0) => Err(BuildError::NoLibrary { program, output: unfinished.clone() }),
        ending => Err(BuildError::Failed { program, ending }),
    };
    if finished.is_err() {
        // Whatever a failed compiler has left is no library.
        let _ = std::fs::remove_file(&unfinished).or_else(|_| std::fs::remove_dir_all(&unfinished));
    }
    finished.map(|()| library)
}
