//! Checks the structure of the code: the order of the modules, file names and sizes, and each module's description.
//!
//! Every rule is a function of a file's text and is itself tested on a sample that violates it.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

use std::fs;
use std::path::Path;

/// The largest number of lines in a file, tests included.
const LINES_MAX: usize = 450;

/// Files that may be longer, each with the reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// File names that do not describe the contents.
const VAGUE_NAMES: [&str; 5] = ["utils", "helpers", "common", "misc", "manager"];

/// Vendors of FlagPerf; `cpu` and `mock` are not names of companies.
const VENDORS: [&str; 11] = [
    "nvidia",
    "intel",
    "iluvatar",
    "kunlunxin",
    "cambricon",
    "ascend",
    "metax",
    "mthreads",
    "moore",
    "enflame",
    "hygon",
];

struct SourceFile {
    path: String,
    text: String,
}

/// Returns every Rust file under `folder` of the repository, or none if the folder does not exist.
fn source_files(folder: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten();
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(SourceFile { path: path.strip_prefix(root).unwrap().display().to_string(), text });
            }
        }
    }
    found
}

/// Returns the text without comments. A `//` inside a string also cuts the line, so a rule only checks less of it.
fn strip_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the part of a file before its unit tests.
fn production_code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Returns the modules that `lib.rs` lists, in its order.
fn module_order(lib: &str) -> Vec<&str> {
    lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect()
}

/// Returns the first name of every path that begins with `crate::`, including each path inside `crate::{a::B, c}`.
fn crate_paths(code: &str) -> Vec<&str> {
    let name = |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut names = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(&rest[..name(rest)]);
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    names.push(&group[at..at + name(&group[at..])]);
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// Returns a message for each use of a module that `lib.rs` lists after the file's own module.
fn uses_of_later_modules(order: &[&str], path: &str, text: &str) -> Vec<String> {
    let own = path.split('/').nth(1).unwrap_or_default().trim_end_matches(".rs");
    let Some(rank) = order.iter().position(|module| *module == own) else { return Vec::new() };
    let code = strip_comments(text);
    let later = crate_paths(&code).into_iter().filter(|name| order[rank + 1..].contains(name));
    later.map(|name| format!("{path}: `{own}` uses `{name}`, which runtime/lib.rs lists after it")).collect()
}

/// Returns a message for each vendor that the production code of a file names.
fn named_vendors(path: &str, text: &str) -> Vec<String> {
    let code = strip_comments(production_code(text)).to_lowercase();
    let words: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let named = VENDORS.iter().filter(|vendor| words.contains(vendor));
    named
        .map(|vendor| format!("{path}: names the vendor `{vendor}`; vendor-specific code belongs in vendors/"))
        .collect()
}

/// Returns a message for each fault in the size, the name or the first line of a file.
fn shape_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    let may_be_longer = LONG_FILES.iter().any(|(file, _)| *file == path);
    if (lines > LINES_MAX) != may_be_longer {
        faults.push(format!(
            "{path}: {lines} lines (at most {LINES_MAX}; exceptions are listed in tests/architecture.rs)"
        ));
    }
    if path.split(['/', '.']).any(|part| VAGUE_NAMES.contains(&part)) {
        faults.push(format!("{path}: the file name does not describe the contents"));
    }
    if !text.starts_with("//! ") {
        faults.push(format!("{path}: does not begin with a `//!` line that describes it"));
    }
    // Only top-level modules of the host: in nested folders and separate crates, `mod.rs` may be the main file.
    if path.starts_with("runtime/") && path.ends_with("/mod.rs") && path.matches('/').count() == 2 {
        faults.extend(module_faults(path, text));
    }
    faults
}

/// Checks that a `mod.rs` states what its module does and what it does not know, and contains no logic.
fn module_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.lines().filter(|line| line.starts_with("//! ")).count() < 2 {
        faults.push(format!("{path}: does not state both what the module does and what it does not know"));
    }
    let logic = ["fn ", "pub fn ", "impl ", "impl<", "macro_rules!"];
    if let Some(line) = production_code(text).lines().find(|line| logic.iter().any(|begin| line.starts_with(begin))) {
        faults.push(format!("{path}: contains logic: `{line}`"));
    }
    faults
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn each_module_uses_only_those_listed_before_it() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/lib.rs")).unwrap();
    let order = module_order(&lib);
    assert!(order.len() > 10, "runtime/lib.rs must list the modules as `pub mod name;`");
    let files = source_files("runtime");
    assert!(files.len() > order.len());
    assert_none(
        &files.iter().flat_map(|file| uses_of_later_modules(&order, &file.path, &file.text)).collect::<Vec<_>>(),
    );
}

#[test]
fn the_host_names_no_vendor() {
    assert_none(
        &source_files("runtime").iter().flat_map(|file| named_vendors(&file.path, &file.text)).collect::<Vec<_>>(),
    );
}

#[test]
fn files_are_short_and_well_named_and_begin_with_a_description() {
    let files = ["runtime", "tests", "benches"].map(source_files);
    assert_none(&files.iter().flatten().flat_map(|file| shape_faults(&file.path, &file.text)).collect::<Vec<_>>());
}

#[test]
fn a_use_of_a_later_module_is_found() {
    let order = module_order("pub mod units;\npub mod plan;\npub mod run;\n");
    let text = "// crate::run is fine in a comment\nuse crate::units::Bytes;\nuse crate::{plan, run::{Host, plan}};\n";
    let expected = "runtime/units.rs: `units` uses `plan`, which runtime/lib.rs lists after it";
    assert_eq!(uses_of_later_modules(&order, "runtime/units.rs", text)[0], expected);
    assert_eq!(uses_of_later_modules(&order, "runtime/plan/job.rs", text).len(), 1);
    assert_eq!(uses_of_later_modules(&order, "runtime/run/mod.rs", text), Vec::<String>::new());
    assert_eq!(uses_of_later_modules(&order, "runtime/plan/job.rs", "fn f() { crate::run::start() }").len(), 1);
}

#[test]
fn a_vendor_name_in_the_code_is_found() {
    assert_eq!(named_vendors("runtime/a.rs", "let x = \"nvidia_smi\";").len(), 1);
    assert_eq!(named_vendors("runtime/a.rs", "// as nvidia does\n#[cfg(test)]\nlet x = \"nvidia\";").len(), 0);
}

#[test]
fn a_badly_shaped_file_is_found() {
    assert_eq!(shape_faults("runtime/utils.rs", "fn f() {}").len(), 2);
    assert_eq!(shape_faults("runtime/a/mod.rs", "//! One line.\nfn f() {}\n").len(), 2);
    assert_eq!(shape_faults("runtime/a.rs", &"//! Long.\n".repeat(LINES_MAX + 1)).len(), 1);
    assert_eq!(shape_faults("runtime/a/mod.rs", "//! Adds.\n//!\n//! Knows no file.\n\nmod b;\n").len(), 0);
}
