//! What opening and reading a folder of images promises.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::data::{Pipeline, SampleSource, Transform};

/// A data directory with these files; a name that ends in `.jpg` begins as a JPEG file does.
fn directory(files: &[&str]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for file in files {
        let path = home.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"\xff\xd8\xff").unwrap();
    }
    home
}

fn open(home: &Path, classes: Option<&str>) -> Result<Arc<dyn Dataset>, DataError> {
    let transforms = vec![Transform::CenterCrop { size: 2 }, Transform::Normalize { mean: [0.0; 3], std: [1.0; 3] }];
    let source = SampleSource::ImageFolder { images: "images".into(), classes: classes.map(PathBuf::from) };
    Pipeline { source, transforms }.open(home, DType::F32)
}

fn refused(home: &Path, classes: Option<&str>) -> String {
    open(home, classes).err().unwrap().to_string()
}

fn read(dataset: &dyn Dataset, index: usize) -> (i64, Result<(), SampleError>) {
    let (mut image, mut label) = (vec![0f32; 12], [0; 8]);
    let outcome = dataset.read(index, &mut [bytemuck::cast_slice_mut(&mut image), &mut label]);
    (i64::from_ne_bytes(label), outcome)
}

#[test]
fn samples_come_in_byte_order_and_their_class_is_the_line_of_their_folder() {
    let home = directory(&["images/b/2.jpg", "images/b/10.jpg", "images/a/x.jpg", "images/B/y.jpg", "images/note.txt"]);
    fs::write(home.path().join("list.txt"), "c\nb\nB\na\n").unwrap();
    fs::write(home.path().join("images/a/.hidden"), "").unwrap();
    let dataset = open(home.path(), Some("list.txt")).unwrap();
    let seen: Vec<_> = (0..dataset.len()).map(|i| (dataset.sample_name(i), read(dataset.as_ref(), i).0)).collect();
    let expected = [("B/y.jpg", 2), ("a/x.jpg", 3), ("b/10.jpg", 1), ("b/2.jpg", 1)];
    assert_eq!(seen, expected.map(|(name, class)| (name.to_owned(), class)));
}

#[test]
fn a_sample_that_became_another_kind_of_file_fails_and_does_not_wait() {
    let home = directory(&["images/a/0.jpg"]);
    let dataset = open(home.path(), None).unwrap();
    let path = home.path().join("images/a/0.jpg");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = read(dataset.as_ref(), 0).1.unwrap_err();
    assert_eq!(error.to_string(), "a/0.jpg: is a FIFO, not a regular file");
    assert!(refused(home.path(), None).ends_with("0.jpg` is no file: a class folder holds samples only"));
}

#[test]
fn links_that_lead_to_themselves_end() {
    let home = directory(&["images/a/0.jpg"]);
    symlink("loop", home.path().join("images/loop")).unwrap();
    assert!(refused(home.path(), None).contains("images/loop"), "{}", refused(home.path(), None));
    fs::remove_file(home.path().join("images/loop")).unwrap();
    symlink("..", home.path().join("images/up")).unwrap();
    assert!(refused(home.path(), None).ends_with("is no file: a class folder holds samples only"));
}

#[test]
fn without_a_list_a_class_is_the_rank_of_its_folder() {
    let home = directory(&["images/b/2.jpg", "images/a/1.jpg"]);
    fs::create_dir(home.path().join("images/aa")).unwrap();
    let dataset = open(home.path(), None).unwrap();
    assert_eq!((read(dataset.as_ref(), 0).0, read(dataset.as_ref(), 1).0), (0, 2));
}

#[test]
fn opening_reads_no_sample_and_reading_names_the_one_that_is_bad() {
    let home = directory(&["images/a/0.jpg", "images/a/1.jpg", "images/a/2.jpg", "images/a/3.txt"]);
    fs::write(home.path().join("images/a/1.jpg"), "").unwrap();
    fs::write(home.path().join("images/a/3.txt"), "no image").unwrap();
    let dataset = open(home.path(), None).unwrap();
    fs::remove_file(home.path().join("images/a/2.jpg")).unwrap();
    let reason = |index| read(dataset.as_ref(), index).1.unwrap_err().to_string();
    assert_eq!(reason(0), "a/0.jpg: damaged JPEG: the file is cut short");
    assert_eq!(reason(1), "a/1.jpg: the file is empty");
    assert!(reason(2).starts_with("a/2.jpg: No such file"), "{}", reason(2));
    assert_eq!(reason(3), "a/3.txt: no image (known: JPEG, PNG)");
}

#[test]
fn a_class_folder_that_the_list_lacks_is_named_with_the_nearest_line() {
    let home = directory(&["images/n01440765/1.jpg"]);
    fs::write(home.path().join("list.txt"), "n01440764\n").unwrap();
    assert_eq!(
        refused(home.path(), Some("list.txt")),
        "class folder `n01440765` is not in `list.txt` (nearest: `n01440764` on line 1)"
    );
}

#[test]
fn nothing_to_load_is_an_error() {
    let home = directory(&["images/note.txt"]);
    assert!(refused(home.path(), None).starts_with("no samples in `"));
    assert!(refused(Path::new("/nowhere"), None).contains("--data DIR"));
    assert!(refused(home.path(), Some("list.txt")).starts_with("there is no `list.txt` in the data directory `"));
}

#[test]
fn a_link_out_of_the_data_directory_is_refused_at_every_level() {
    let outside = directory(&["a/1.jpg"]);
    let out = outside.path();
    for (link, target) in
        [("images", out.to_owned()), ("images/a", out.join("a")), ("images/b/1.jpg", out.join("a/1.jpg"))]
    {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(link).parent().unwrap()).unwrap();
        symlink(target, home.path().join(link)).unwrap();
        let error = refused(home.path(), None);
        assert!(error.contains(&format!("`{link}` leaves the data directory")), "{error}");
        assert!(error.ends_with("by a symbolic link"), "{error}");
    }
}

#[test]
fn a_folder_in_a_class_folder_is_refused() {
    let home = directory(&["images/a/deeper/1.jpg"]);
    assert!(refused(home.path(), None).ends_with("images/a/deeper` is no file: a class folder holds samples only"));
}

#[test]
fn the_hash_of_the_index_knows_names_sizes_and_classes() {
    let files = ["images/a/1.jpg", "images/b/2.jpg"];
    let hash = |home: &TempDir, list| open(home.path(), list).unwrap().facts().index_sha256.clone();
    let first = directory(&files);
    let before = hash(&first, None);
    assert_eq!(before.len(), 64);
    assert_eq!(before, hash(&directory(&files), None));
    assert_ne!(before, hash(&directory(&["images/a/1.jpg", "images/b/3.jpg"]), None));
    fs::write(first.path().join("list.txt"), "b\na\n").unwrap();
    assert_ne!(before, hash(&first, Some("list.txt")));
    fs::write(first.path().join("images/a/1.jpg"), "longer").unwrap();
    assert_ne!(before, hash(&first, None));
}
