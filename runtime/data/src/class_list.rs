//! Class lists: the class of a folder is its line in the list.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{DataError, DataRoot};

/// Largest size of a class list in bytes; that of ImageNet has 10,000.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Largest length of a folder name in bytes. Longer lines are not compared for suggestions: comparing needs memory quadratic
/// in the length.
const NAME_BYTES_MAX: usize = 255;

/// The class of every folder name.
pub struct ClassList {
    /// Path of the list as the pipeline has it.
    file: PathBuf,
    lines: Vec<String>,
    classes: HashMap<String, u32>,
}

impl ClassList {
    /// Reads a list with one folder name per line; blank lines count as lines but have no folder.
    ///
    /// # Errors
    /// When the file is missing, not a regular file, not text, larger than 16 MiB, outside the data directory, or lists
    /// a folder twice.
    pub fn read(root: &DataRoot, file: &Path) -> Result<Self, DataError> {
        let text = flagperf_core::regular_file::read_regular_text(&root.resolve(file)?, LIST_BYTES_MAX)
            .map_err(|error| DataError::Unreadable { path: file.to_owned(), reason: error.to_string() })?;
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        let mut classes = HashMap::with_capacity(lines.len());
        for (class, name) in lines.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let duplicate = |first: u32| DataError::DuplicateClass {
                class: name.clone(),
                file: file.to_owned(),
                first: first as usize + 1,
                second: class + 1,
            };
            classes.insert(name.clone(), class as u32).map(duplicate).map_or(Ok(()), Err)?;
        }
        Ok(ClassList { file: file.to_owned(), lines, classes })
    }

    /// Returns the class of `folder`: its line, from 0.
    ///
    /// # Errors
    /// [`DataError::UnknownClass`] when the folder is not in the list; the error contains the nearest line.
    pub fn class(&self, folder: &str) -> Result<u32, DataError> {
        self.classes.get(folder).copied().ok_or_else(|| {
            let nearest = self
                .lines
                .iter()
                .enumerate()
                .filter(|(_, line)| (1..=NAME_BYTES_MAX).contains(&line.len()))
                .min_by_key(|(_, line)| strsim::damerau_levenshtein(folder, line));
            DataError::UnknownClass {
                folder: folder.to_owned(),
                file: self.file.clone(),
                nearest: nearest.map_or_else(
                    || "the list is empty".to_owned(),
                    |(line, name)| format!("nearest: `{name}` on line {}", line + 1),
                ),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<ClassList, DataError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("classes.txt"), text).unwrap();
        ClassList::read(&DataRoot::open(folder.path()).unwrap(), Path::new("classes.txt"))
    }

    #[test]
    fn the_class_of_a_folder_is_its_line() {
        let list = list("n01\nn02\r\n\nn04\n").unwrap();
        assert_eq!((list.class("n01").unwrap(), list.class("n02").unwrap(), list.class("n04").unwrap()), (0, 1, 3));
    }

    #[test]
    fn a_list_that_is_not_a_regular_file_or_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("classes.txt");
        let reason = || {
            let list = ClassList::read(&DataRoot::open(folder.path()).unwrap(), Path::new("classes.txt"));
            list.err().unwrap().to_string()
        };
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(reason(), "cannot read `classes.txt`: is a FIFO, not a regular file");
        std::fs::remove_file(&path).unwrap();
        std::fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
        assert_eq!(reason(), "cannot read `classes.txt`: is larger than 16777216 bytes");
    }

    #[test]
    fn a_line_too_long_for_a_folder_name_is_not_suggested() {
        let error = list(&format!("{}\nn02\n", "x".repeat(10 << 20))).unwrap().class("xxx").unwrap_err();
        assert_eq!(error.to_string(), "class folder `xxx` is not in `classes.txt` (nearest: `n02` on line 2)");
    }

    #[test]
    fn a_byte_order_mark_before_the_first_class_is_ignored() {
        assert_eq!(list("\u{feff}n01\nn02\n").unwrap().class("n01").unwrap(), 0);
    }

    #[test]
    fn an_unknown_folder_is_reported_with_the_file_and_the_nearest_line() {
        let error = list("n01440764\nn02085620\n").unwrap().class("n02085621").unwrap_err();
        assert_eq!(
            error.to_string(),
            "class folder `n02085621` is not in `classes.txt` (nearest: `n02085620` on line 2)"
        );
    }

    #[test]
    fn a_folder_listed_twice_is_refused_with_both_lines() {
        let error = list("cat\ndog\ncat\n").err().unwrap();
        assert_eq!(error.to_string(), "`classes.txt` lists `cat` twice (lines 1 and 3)");
    }
}
