//! The Markdown files of the repository.

use std::fs;
use std::path::Path;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of a file.
pub fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// Returns the paths of all pages, sorted.
pub fn pages() -> Vec<String> {
    let mut pages = pages_below(root());
    pages.sort();
    pages
}

fn pages_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        // Git's files, virtual environments, and what builds and runs write.
        let skipped = name.starts_with('.') || ["target", "result", "node_modules"].contains(&name);
        if path.is_dir() && !path.is_symlink() && !skipped {
            found.extend(pages_below(&path));
        } else if name.ends_with(".md") {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}
