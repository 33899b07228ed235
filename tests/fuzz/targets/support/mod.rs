//! What the targets share: files for parsers that read files, and seeds.

#![allow(dead_code, reason = "each target uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The folder of this process for the files that parsers read. `tests/fuzz/run` removes it.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder").keep());

/// Writes a file in [`FOLDER`] and returns its path.
pub fn write(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = FOLDER.join(name);
    fs::create_dir_all(path.parent().expect("the file is in a folder")).expect("a folder");
    // Unlike a file that is rewritten in place, a new one does not change under a mapping of the old one.
    let _ = fs::remove_file(&path);
    fs::write(&path, content).expect("a file");
    path
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is in tests/fuzz")
}

/// Returns the content of every file below `folder` of the repository whose name has this end, in order.
pub fn repository_files(folder: &str, end: &str) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        entries.sort();
        let (inner, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
        folders.extend(inner);
        let own = others.into_iter().filter(|path| path.to_string_lossy().ends_with(end));
        files.extend(own.map(|path| fs::read(path).expect("a file")));
    }
    files
}

/// Returns the seed that selects the kind `kind` of input, a letter in front of its text.
pub fn seed_of_kind(kind: usize, text: impl AsRef<[u8]>) -> Vec<u8> {
    [&[b'a' + kind as u8], text.as_ref()].concat()
}

/// Splits an input into the kind that its first byte selects, of `kinds`, and the rest.
pub fn split_kind(input: &[u8], kinds: usize) -> Option<(usize, &[u8])> {
    let (first, rest) = input.split_first()?;
    Some((usize::from(first.wrapping_sub(b'a')) % kinds, rest))
}

/// If the variable `FLAGPERF_FUZZ_SEEDS` names a folder, writes the seeds to it and exits.
pub fn write_seeds(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("FLAGPERF_FUZZ_SEEDS").map(PathBuf::from) else { return };
    fs::create_dir_all(&folder).expect("a folder");
    for (number, seed) in seeds().into_iter().enumerate() {
        fs::write(folder.join(format!("seed{number}")), seed).expect("a file");
    }
    std::process::exit(0);
}
