//! `flagperf dataset`: the list, the check of files, and what it refuses.

use std::fs;
use std::path::Path;

use super::{checkout, flagperf, transcript};

const HEAD: &str =
    "name: toys\nabout: two files\nsource: https://example.org\nlicence: none\nlayout: {a.bin: letters}\n";
/// SHA-256 of `abc`.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Writes a folder with a description and the file `a.bin`, which contains `abc`.
fn write_folder(checkout: &Path, rest: &str) {
    let folder = checkout.join("files");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("a.bin"), "abc").expect("a file");
    fs::write(folder.join("dataset.yaml"), format!("{HEAD}{rest}")).expect("a file");
}

#[test]
fn each_item_of_a_dataset_has_a_line_and_the_hint_is_the_command_that_gets_them() {
    let checkout = checkout();
    let items = format!(
        "fetch: sh get.sh {{}}/x\nfiles:\n    - {{path: a.bin, bytes: 3, sha256: {ABC}}}\n    - {{path: b.bin, required: false}}\n"
    );
    write_folder(checkout.path(), &items);
    insta::assert_snapshot!(transcript(checkout.path(), &["dataset", "check", "files"]), @r"
    $ flagperf dataset check files
    exit code 0
    --- stdout
     ok              a.bin  3 bytes
     optional        b.bin  not found
    --- stderr
    ");
    let wrong = items.replace("bytes: 3, ", "").replace("ba78", "ba79").replace("required: false", "bytes: 1");
    write_folder(checkout.path(), &format!("{wrong}folders: [{{glob: '*.bin', count: 2}}]\n"));
    insta::assert_snapshot!(transcript(checkout.path(), &["dataset", "check", "files"]), @r"
    $ flagperf dataset check files
    exit code 1
    --- stdout
     wrong checksum  a.bin  SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, expected ba7916bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
     missing         b.bin  not found
     wrong number    *.bin  1 files, expected 2
    --- stderr
    error: dataset `toys`: 3 of 3 items are missing or wrong
      hint: get them with `sh get.sh files/x`
    ");
}

#[test]
fn a_folder_is_checked_by_the_description_of_a_named_dataset() {
    let checkout = checkout();
    fs::create_dir(checkout.path().join("squad")).expect("a folder");
    fs::write(checkout.path().join("squad/dev-v1.1.json"), "{}").expect("a file");
    insta::assert_snapshot!(transcript(checkout.path(), &["dataset", "check", "squad", "--of", "squad"]), @r"
    $ flagperf dataset check squad --of squad
    exit code 1
    --- stdout
     wrong size      dev-v1.1.json  2 bytes, expected 4854279
     missing         tokenizer.json  not found
    --- stderr
    error: dataset `squad`: 2 of 2 items are missing or wrong
      hint: get them with `curl -o squad/dev-v1.1.json https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json -Lo squad/tokenizer.json https://huggingface.co/google-bert/bert-large-uncased/resolve/main/tokenizer.json`
    ");
    let committed = flagperf(checkout.path(), &["dataset", "check", "datasets/sample_tokens"]);
    assert_eq!(committed.status.code(), Some(0), "{}", String::from_utf8_lossy(&committed.stdout));
    let list = flagperf(checkout.path(), &["dataset", "list"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    for name in ["drawn", "imagenet", "smollm2_135m", "squad"] {
        assert!(list.lines().any(|line| line.starts_with(&format!(" {name} "))), "{list}");
    }
}

#[test]
fn a_wrong_folder_name_or_description_is_refused() {
    let checkout = checkout();
    write_folder(checkout.path(), "files: [{path: a.bin, byte: 3}]\n");
    fs::create_dir(checkout.path().join("pipe")).expect("a folder");
    let pipe = checkout.path().join("pipe/dataset.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let refusals = [
        &["dataset", "check", "files"][..],
        &["dataset", "check", "pipe"],
        &["dataset", "check", "data"],
        &["dataset", "check", "nowhere"],
        &["dataset", "check", "files/a.bin"],
        &["dataset", "check", "files", "--of", "drwan"],
    ];
    let text: Vec<String> = refusals.iter().map(|arguments| transcript(checkout.path(), arguments)).collect();
    insta::assert_snapshot!(text.concat(), @r"
    $ flagperf dataset check files
    exit code 2
    --- stdout
    --- stderr
    error: files/dataset.yaml:6: unknown key `files[0].byte` (nearest: `bytes`)
      hint: known keys: path, bytes, sha256, required; was the file written for another version of flagperf?
    $ flagperf dataset check pipe
    exit code 2
    --- stdout
    --- stderr
    error: pipe/dataset.yaml: cannot be read: is a FIFO, not a regular file
    $ flagperf dataset check data
    exit code 2
    --- stdout
    --- stderr
    error: there is no `data/dataset.yaml`
      hint: name the dataset with --of NAME (known: bert_tokens, digits, drawn, drawn_boxes, drawn_masks, imagenet, imagenet_samples, mmlu, sample_tokens, smollm2_135m, squad, stable_diffusion_v1_4)
    $ flagperf dataset check nowhere
    exit code 2
    --- stdout
    --- stderr
    error: `nowhere` is missing
      hint: give the folder that contains the files of the dataset
    $ flagperf dataset check files/a.bin
    exit code 2
    --- stdout
    --- stderr
    error: `files/a.bin` is not a folder
      hint: give the folder that contains the files of the dataset
    $ flagperf dataset check files --of drwan
    exit code 2
    --- stdout
    --- stderr
    error: unknown dataset `drwan` (known: bert_tokens, digits, drawn, drawn_boxes, drawn_masks, imagenet, imagenet_samples, mmlu, sample_tokens, smollm2_135m, squad, stable_diffusion_v1_4; nearest: drawn)
    ");
}
