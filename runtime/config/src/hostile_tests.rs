//! Tests of files that are not valid configuration files: each is refused at once, with its name and the reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::Overrides;
use super::fixture::Checkout;
use flagperf_core::event::Level;

/// Every file that is read for the case `toy` on the vendor `chip`.
const FILES: [&str; 5] = [
    "configs/host.yaml",
    "configs/toy/configurations.yaml",
    "configs/toy/parameters.yaml",
    "configs/toy/vendor_config/chip_configurations.yaml",
    "vendors/chip/vendor.yaml",
];

/// Returns the errors after `make` has replaced a file.
fn errors(file: &str, make: impl Fn(&Path)) -> String {
    let checkout = Checkout::new().overlay("# nothing\n");
    let path = checkout.path(file);
    fs::remove_file(&path).unwrap();
    make(&path);
    checkout.messages(Level::Error, &Overrides::default()).join("\n")
}

#[test]
fn anything_but_a_regular_file_is_refused_with_its_kind() {
    for file in FILES.iter().filter(|file| **file != "configs/host.yaml") {
        let fifo = errors(file, |path| mkfifo(path, Mode::S_IRWXU).unwrap());
        assert_eq!(fifo, format!("{file}: cannot be read: is a FIFO, not a regular file"));
        let device = errors(file, |path| symlink("/dev/zero", path).unwrap());
        assert_eq!(device, format!("{file}: cannot be read: is a device, not a regular file"));
        let folder = errors(file, |path| fs::create_dir(path).unwrap());
        assert_eq!(folder, format!("{file}: cannot be read: is a folder, not a regular file"));
        let unreadable = errors(file, |path| symlink(path, path).unwrap());
        assert_eq!(unreadable, format!("{file}: cannot be read: Too many levels of symbolic links (os error 40)"));
    }
    let host = errors("configs/host.yaml", |path| mkfifo(path, Mode::S_IRWXU).unwrap());
    assert_eq!(host, "configs/host.yaml: cannot be read: is a FIFO, not a regular file");
}

#[test]
fn a_file_above_the_size_limit_is_refused_with_its_size() {
    for file in FILES {
        let large = errors(file, |path| fs::File::create(path).unwrap().set_len(20 << 20).unwrap());
        let message = "has 20971520 bytes; the limit for a configuration file is 1048576";
        assert_eq!(
            large,
            format!("{file}: {message}\n  hint: is it the right file? It contains only keys and short values")
        );
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
    assert_eq!(checkout.messages(Level::Error, &Overrides::default()), Vec::<String>::new());
    assert_eq!(config.cases[0].settings["batch_size"].value, 8);
    assert_eq!(config.cases[0].parameters["image_size"].value, 224);
}

#[test]
fn text_in_another_encoding_is_refused_with_the_line() {
    for file in FILES {
        let refused = errors(file, |path| fs::write(path, b"# fine\nname: \xff\xfe\n").unwrap());
        assert_eq!(refused, format!("{file}: cannot be read: is not UTF-8 text (line 2)"));
    }
}

#[test]
fn yaml_that_would_exhaust_memory_or_the_stack_is_refused_with_its_line() {
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    for (text, line, message) in [
        (bomb.to_owned(), 2, "aliases are not supported in configuration files"),
        ("- ".repeat(100_000), 1, "nested too deeply"),
        ("[".repeat(100_000), 1, "recursion limit exceeded"),
        ("{a: ".repeat(100_000), 1, "recursion limit exceeded"),
        ("? ".repeat(100_000), 1, "a key must be a single word"),
        (format!("{}: 1\n", "k".repeat(1000)), 1, "a key has 1000 bytes (limit: 256)"),
        (
            format!("{}: 1\n", "k".repeat(100_000)),
            1,
            "mapping values are not allowed in this context (check quotes and indentation, which must be spaces)",
        ),
        ((0..2000).map(|n| format!("k{n}: 1\n")).collect(), 1001, "more than 1000 keys"),
        ("a: 1\n<<: {b: 2}\na: 2\n".to_owned(), 3, "key `a` is given twice (first on line 1)"),
    ] {
        for file in FILES {
            let refused = errors(file, |path| fs::write(path, &text).unwrap());
            assert_eq!(refused, format!("{file}:{line}: {message}"));
        }
    }
}

#[test]
fn only_the_beginning_of_a_long_value_is_shown() {
    let refused = errors("configs/toy/parameters.yaml", |path| {
        fs::write(path, format!("seed: {}\n", "s".repeat(500_000))).unwrap();
    });
    let shown = "s".repeat(80);
    let expected = "`seed` must be a non-negative integer below 2^63, or null";
    assert_eq!(refused, format!("configs/toy/parameters.yaml:1: {expected}, not `{shown}...`"));
}
