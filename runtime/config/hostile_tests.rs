//! Tests of files that are not what a configuration file should be: each is refused at once, by its name and with what it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::Overrides;
use super::fixture::Checkout;
use crate::event::Level;

/// Every file that is read for the case `toy` on the vendor `chip`.
const FILES: [&str; 5] = [
    "configs/host.yaml",
    "configs/toy/configurations.yaml",
    "configs/toy/parameters.yaml",
    "configs/toy/vendor_config/chip_configurations.yaml",
    "vendors/chip/vendor.yaml",
];

/// What is said when `make` has made something else of a file.
fn said(file: &str, make: impl Fn(&Path)) -> String {
    let checkout = Checkout::new().overlay("# nothing\n");
    let path = checkout.path(file);
    fs::remove_file(&path).unwrap();
    make(&path);
    checkout.said(Level::Error, &Overrides::default()).join("\n")
}

#[test]
fn a_file_that_is_not_a_regular_one_is_refused_by_what_it_is() {
    for file in FILES.iter().filter(|file| **file != "configs/host.yaml") {
        let fifo = said(file, |path| mkfifo(path, Mode::S_IRWXU).unwrap());
        assert_eq!(fifo, format!("{file}:1: cannot be read: is a FIFO, not a regular file"));
        let device = said(file, |path| symlink("/dev/zero", path).unwrap());
        assert_eq!(device, format!("{file}:1: cannot be read: is a device, not a regular file"));
        let folder = said(file, |path| fs::create_dir(path).unwrap());
        assert_eq!(folder, format!("{file}:1: cannot be read: is a folder, not a regular file"));
        let unreadable = said(file, |path| symlink(path, path).unwrap());
        assert_eq!(unreadable, format!("{file}:1: cannot be read: Too many levels of symbolic links (os error 40)"));
    }
    let host = said("configs/host.yaml", |path| mkfifo(path, Mode::S_IRWXU).unwrap());
    assert_eq!(host, "configs/host.yaml:1: cannot be read: is a FIFO, not a regular file");
}

#[test]
fn a_file_beyond_the_limit_is_refused_by_its_size() {
    for file in FILES {
        let large = said(file, |path| fs::File::create(path).unwrap().set_len(20 << 20).unwrap());
        let message = "is 20971520 bytes large; a configuration file may have 1048576";
        assert_eq!(large, format!("{file}:1: {message}\n  hint: long lists belong in a file of the data directory"));
    }
}

#[test]
fn a_byte_order_mark_is_skipped_in_every_file() {
    let checkout = Checkout::new().overlay("batch_size: 8\n");
    for file in FILES {
        let path = checkout.path(file);
        let text = fs::read(&path).unwrap();
        fs::write(path, [b"\xef\xbb\xbf".as_slice(), &text].concat()).unwrap();
    }
    let config = checkout.load(&Overrides::default()).unwrap();
    assert_eq!(checkout.said(Level::Error, &Overrides::default()), Vec::<String>::new());
    assert_eq!(config.cases[0].settings["batch_size"].value, 8);
    assert_eq!(config.cases[0].parameters["image_size"].value, 224);
}

#[test]
fn text_in_another_encoding_is_refused_with_the_line() {
    for file in FILES {
        let refused = said(file, |path| fs::write(path, b"# fine\nname: \xff\xfe\n").unwrap());
        assert_eq!(refused, format!("{file}:1: cannot be read: is not UTF-8 text (line 2)"));
    }
}

#[test]
fn yaml_that_is_made_to_fill_memory_or_the_stack_is_refused_with_its_line() {
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    for (text, line, message) in [
        (bomb.to_owned(), 2, "aliases are not used in configuration files"),
        ("- ".repeat(100_000), 1, "nested too deep"),
        ("[".repeat(100_000), 1, "recursion limit exceeded"),
        ("{a: ".repeat(100_000), 1, "recursion limit exceeded"),
        ("? ".repeat(100_000), 1, "a key must be a single word"),
        (format!("{}: 1\n", "k".repeat(1000)), 1, "a key of 1000 bytes (at most 256)"),
        (format!("{}: 1\n", "k".repeat(100_000)), 1, "mapping values are not allowed in this context"),
        ((0..2000).map(|n| format!("k{n}: 1\n")).collect(), 1001, "more than 1000 keys"),
        ("a: 1\n<<: {b: 2}\na: 2\n".to_owned(), 3, "key `a` is given twice (first in line 1)"),
    ] {
        for file in FILES {
            let refused = said(file, |path| fs::write(path, &text).unwrap());
            assert_eq!(refused, format!("{file}:{line}: {message}"));
        }
    }
}

#[test]
fn a_long_value_is_shown_by_its_beginning() {
    let refused = said("configs/toy/parameters.yaml", |path| {
        fs::write(path, format!("seed: {}\n", "s".repeat(500_000))).unwrap();
    });
    let shown = "s".repeat(80);
    let takes = "`seed` must be a whole number from 0 to 9223372036854775807";
    assert_eq!(refused, format!("configs/toy/parameters.yaml:1: {takes}, not `{shown}...`"));
}
