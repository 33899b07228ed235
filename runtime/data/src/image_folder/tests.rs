//! Tests of opening and reading a folder of images.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::{Geometry, Pipeline, SampleSource, Transform};

/// Creates a data directory with these files, each of which begins like a JPEG file.
fn directory(files: &[&str]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for file in files {
        let path = home.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"\xff\xd8\xff").unwrap();
    }
    home
}

fn pipeline(classes: Option<&str>) -> Pipeline {
    let transforms =
        vec![Transform::Geometry(Geometry::CenterCrop((2, 2))), Transform::Normalize { mean: [0.0; 3], std: [1.0; 3] }];
    let source = SampleSource::ImageFolder { images: "images".into(), classes: classes.map(PathBuf::from) };
    Pipeline { source, transforms }
}

fn open(home: &Path, classes: Option<&str>) -> Result<Arc<dyn Dataset>, DataError> {
    pipeline(classes).open(home, DType::F32)
}

fn open_error(home: &Path, classes: Option<&str>) -> String {
    open(home, classes).err().unwrap().to_string()
}

fn read(dataset: &dyn Dataset, index: usize) -> (i64, Result<(), SampleError>) {
    let (mut image, mut label) = (vec![0f32; 12], [0; 8]);
    let outcome = dataset.read(index, &mut [bytemuck::cast_slice_mut(&mut image), &mut label]);
    (i64::from_ne_bytes(label), outcome)
}

#[test]
fn samples_are_in_byte_order_and_their_class_is_the_line_of_their_folder() {
    let home = directory(&["images/b/2.jpg", "images/b/10.jpg", "images/a/x.jpg", "images/B/y.jpg", "images/note.txt"]);
    fs::write(home.path().join("list.txt"), "c\nb\nB\na\n").unwrap();
    fs::write(home.path().join("images/a/.hidden"), "").unwrap();
    let dataset = open(home.path(), Some("list.txt")).unwrap();
    let seen: Vec<_> = (0..dataset.len()).map(|i| (dataset.sample_name(i), read(dataset.as_ref(), i).0)).collect();
    let expected = [("B/y.jpg", 2), ("a/x.jpg", 3), ("b/10.jpg", 1), ("b/2.jpg", 1)];
    assert_eq!(seen, expected.map(|(name, class)| (name.to_owned(), class)));
}

#[test]
fn a_sample_that_became_a_fifo_fails_without_blocking() {
    let home = directory(&["images/a/0.jpg"]);
    let dataset = open(home.path(), None).unwrap();
    let path = home.path().join("images/a/0.jpg");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = read(dataset.as_ref(), 0).1.unwrap_err();
    assert_eq!(error.to_string(), "a/0.jpg: is a FIFO, not a regular file");
    assert!(
        open_error(home.path(), None)
            .ends_with("0.jpg` is not a regular file: a class folder may contain only samples")
    );
}

#[test]
fn circular_links_are_refused() {
    let home = directory(&["images/a/0.jpg"]);
    symlink("loop", home.path().join("images/loop")).unwrap();
    assert!(open_error(home.path(), None).contains("images/loop"), "{}", open_error(home.path(), None));
    fs::remove_file(home.path().join("images/loop")).unwrap();
    symlink("..", home.path().join("images/up")).unwrap();
    assert!(open_error(home.path(), None).ends_with("is not a regular file: a class folder may contain only samples"));
}

#[test]
fn without_a_list_the_class_is_the_rank_of_the_folder() {
    let home = directory(&["images/b/2.jpg", "images/a/1.jpg"]);
    fs::create_dir(home.path().join("images/aa")).unwrap();
    let dataset = open(home.path(), None).unwrap();
    assert_eq!((read(dataset.as_ref(), 0).0, read(dataset.as_ref(), 1).0), (0, 2));
}

#[test]
fn opening_reads_no_sample_and_reading_reports_the_bad_one() {
    let home = directory(&["images/a/0.jpg", "images/a/1.jpg", "images/a/2.jpg", "images/a/3.txt"]);
    fs::write(home.path().join("images/a/1.jpg"), "").unwrap();
    fs::write(home.path().join("images/a/3.txt"), "no image").unwrap();
    let dataset = open(home.path(), None).unwrap();
    fs::remove_file(home.path().join("images/a/2.jpg")).unwrap();
    let reason = |index| read(dataset.as_ref(), index).1.unwrap_err().to_string();
    assert_eq!(reason(0), "a/0.jpg: damaged JPEG: the file is truncated");
    assert_eq!(reason(1), "a/1.jpg: the file is empty");
    assert!(reason(2).starts_with("a/2.jpg: No such file"), "{}", reason(2));
    assert_eq!(reason(3), "a/3.txt: unknown image format (supported: BMP, GIF, JPEG, PNG, WebP)");
}

#[test]
fn a_class_folder_missing_from_the_list_is_reported_with_the_nearest_line() {
    let home = directory(&["images/n01440765/1.jpg"]);
    fs::write(home.path().join("list.txt"), "n01440764\n").unwrap();
    assert_eq!(
        open_error(home.path(), Some("list.txt")),
        "class folder `n01440765` is not in `list.txt` (nearest: `n01440764` on line 1)"
    );
}

#[test]
fn a_missing_or_empty_dataset_is_an_error() {
    let home = directory(&["images/note.txt"]);
    assert!(open_error(home.path(), None).starts_with("no samples in `"));
    let missing = open(Path::new("/nowhere"), None).err().unwrap();
    assert!(missing.hint().contains("from --data"), "{missing}");
    assert!(open_error(home.path(), Some("list.txt")).starts_with("there is no `list.txt` in the data directory `"));
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
        let error = open_error(home.path(), None);
        assert!(error.contains(&format!("`{link}` is outside the data directory")), "{error}");
        assert!(error.ends_with(": a symbolic link"), "{error}");
    }
}

#[test]
fn a_folder_in_a_class_folder_is_refused() {
    let home = directory(&["images/a/deeper/1.jpg"]);
    assert!(
        open_error(home.path(), None)
            .ends_with("images/a/deeper` is not a regular file: a class folder may contain only samples")
    );
}

#[test]
fn the_hash_of_the_index_depends_on_names_sizes_and_classes() {
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

#[test]
fn a_check_finds_the_faults_of_folders_and_class_list_and_does_not_list_the_samples() {
    let home = directory(&["images/a/x.jpg", "images/b/y.jpg"]);
    fs::create_dir(home.path().join("images/a/folder")).unwrap();
    fs::write(home.path().join("list.txt"), "a\nb\n").unwrap();
    assert!(pipeline(Some("list.txt")).check(home.path(), DType::F32).is_ok());
    assert!(open_error(home.path(), Some("list.txt")).contains("images/a/folder"), "only opening lists the samples");
    let check_error = |classes| pipeline(classes).check(home.path(), DType::F32).unwrap_err().to_string();
    fs::write(home.path().join("list.txt"), "a\n").unwrap();
    assert!(check_error(Some("list.txt")).starts_with("class folder `b` is not in `list.txt`"));
    assert!(check_error(Some("gone.txt")).contains("there is no `gone.txt`"));
    symlink("/etc", home.path().join("images/c")).unwrap();
    assert!(check_error(None).contains("is outside the data directory"));
    fs::remove_dir_all(home.path().join("images")).unwrap();
    fs::create_dir_all(home.path().join("images/empty")).unwrap();
    assert!(check_error(None).contains("no samples in `"));
}
