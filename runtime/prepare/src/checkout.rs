//! Finds the checkout that a command uses.

use std::io;
use std::path::{Path, PathBuf};

use flagperf_config::find_root;

/// The checkout that a command uses.
#[derive(Debug)]
pub struct Checkout {
    /// Its folder.
    pub root: PathBuf,
    /// The current directory, when it is in no checkout and `root` is the checkout that contains the program.
    pub outside: Option<PathBuf>,
}

/// Finds the checkout that contains the current directory, or else the one that contains the program.
///
/// # Errors
/// When the current directory no longer exists.
pub fn locate_checkout() -> io::Result<Checkout> {
    let here = std::env::current_dir()?;
    if let Some(root) = find_root(&here) {
        return Ok(Checkout { root, outside: None });
    }
    let program = std::env::current_exe().ok();
    Ok(match program.as_deref().and_then(Path::parent).and_then(find_root) {
        Some(root) => Checkout { root, outside: Some(here) },
        None => Checkout { root: here, outside: None },
    })
}
