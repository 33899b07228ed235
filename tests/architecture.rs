//! Holds the shape of the code: the order of the modules, names, sizes, and what each module must say of itself.
//!
//! Every rule is a function of a file's text and is itself tried on a sample that breaks it.

#![expect(clippy::unwrap_used, reason = "functions of tests, too, may panic")]

use std::fs;
use std::path::Path;

/// Longest file, tests included.
const LINES_MAX: usize = 450;

/// Files that may be longer, with the reason.
const LONGER: [(&str, &str); 0] = [];

/// File names that say nothing about what is inside.
const VAGUE: [&str; 5] = ["utils", "helpers", "common", "misc", "manager"];

/// Vendors of FlagPerf; `cpu` and `mock` are no vendor's name.
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

struct Source {
    path: String,
    text: String,
}

/// Every Rust file under `folder` of the repository; none when there is no such folder.
fn sources(folder: &str) -> Vec<Source> {
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
                found.push(Source { path: path.strip_prefix(root).unwrap().display().to_string(), text });
            }
        }
    }
    found
}

/// The text without comments. A `//` inside a string cuts too, which only makes a rule see less of that line.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What comes before the unit tests.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// The modules that `lib.rs` lists, in its order.
fn order(lib: &str) -> Vec<&str> {
    lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect()
}

/// The first names of the paths that begin with `crate::`, those of `crate::{a::B, c}` included.
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

/// The modules below `path`'s own that its text uses.
fn reaches_down(order: &[&str], path: &str, text: &str) -> Vec<String> {
    let own = path.split('/').nth(1).unwrap_or_default().trim_end_matches(".rs");
    let Some(rank) = order.iter().position(|module| *module == own) else { return Vec::new() };
    let code = code(text);
    let below = crate_paths(&code).into_iter().filter(|name| order[rank + 1..].contains(name));
    below.map(|name| format!("{path}: `{own}` uses `{name}`, which stands below it in runtime/lib.rs")).collect()
}

/// The vendors that the production code of a file names.
fn vendors_named(path: &str, text: &str) -> Vec<String> {
    let code = code(production(text)).to_lowercase();
    let words: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let named = VENDORS.iter().filter(|vendor| words.contains(vendor));
    named.map(|vendor| format!("{path}: names the vendor `{vendor}`; what is a vendor's belongs in vendors/")).collect()
}

/// What is wrong with the size, name or opening of a file.
fn shape_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    let may_be_longer = LONGER.iter().any(|(file, _)| *file == path);
    if (lines > LINES_MAX) != may_be_longer {
        faults.push(format!(
            "{path}: {lines} lines (at most {LINES_MAX}; exceptions are listed in tests/architecture.rs)"
        ));
    }
    if path.split(['/', '.']).any(|part| VAGUE.contains(&part)) {
        faults.push(format!("{path}: the name does not say what is inside"));
    }
    if !text.starts_with("//! ") {
        faults.push(format!("{path}: does not open with a line of `//!` on what it does"));
    }
    // The modules of the host; below them, and in crates of their own, a folder's `mod.rs` may be its main file.
    if path.starts_with("runtime/") && path.ends_with("/mod.rs") && path.matches('/').count() == 2 {
        faults.extend(module_faults(path, text));
    }
    faults
}

/// A `mod.rs` says what its module does and what it does not know, and holds no logic.
fn module_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.lines().filter(|line| line.starts_with("//! ")).count() < 2 {
        faults.push(format!("{path}: says not both what the module does and what it does not know"));
    }
    let logic = ["fn ", "pub fn ", "impl ", "impl<", "macro_rules!"];
    if let Some(line) = production(text).lines().find(|line| logic.iter().any(|begin| line.starts_with(begin))) {
        faults.push(format!("{path}: holds logic: `{line}`"));
    }
    faults
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn each_module_uses_only_those_above_it() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/lib.rs")).unwrap();
    let order = order(&lib);
    assert!(order.len() > 10, "runtime/lib.rs lists the modules as `pub mod name;`");
    let files = sources("runtime");
    assert!(files.len() > order.len());
    assert_none(&files.iter().flat_map(|file| reaches_down(&order, &file.path, &file.text)).collect::<Vec<_>>());
}

#[test]
fn the_host_names_no_vendor() {
    assert_none(&sources("runtime").iter().flat_map(|file| vendors_named(&file.path, &file.text)).collect::<Vec<_>>());
}

#[test]
fn files_are_short_well_named_and_say_what_they_do() {
    let files = ["runtime", "tests", "benches"].map(sources);
    assert_none(&files.iter().flatten().flat_map(|file| shape_faults(&file.path, &file.text)).collect::<Vec<_>>());
}

#[test]
fn a_module_that_reaches_down_is_found() {
    let order = order("pub mod units;\npub mod plan;\npub mod run;\n");
    let text = "// crate::run is fine in a comment\nuse crate::units::Bytes;\nuse crate::{plan, run::{Host, plan}};\n";
    let expected = "runtime/units.rs: `units` uses `plan`, which stands below it in runtime/lib.rs";
    assert_eq!(reaches_down(&order, "runtime/units.rs", text)[0], expected);
    assert_eq!(reaches_down(&order, "runtime/plan/job.rs", text).len(), 1);
    assert_eq!(reaches_down(&order, "runtime/run/mod.rs", text), Vec::<String>::new());
    assert_eq!(reaches_down(&order, "runtime/plan/job.rs", "fn f() { crate::run::start() }").len(), 1);
}

#[test]
fn a_vendor_in_the_code_is_found() {
    assert_eq!(vendors_named("runtime/a.rs", "let x = \"nvidia_smi\";").len(), 1);
    assert_eq!(vendors_named("runtime/a.rs", "// as nvidia does\n#[cfg(test)]\nlet x = \"nvidia\";").len(), 0);
}

#[test]
fn a_badly_shaped_file_is_found() {
    assert_eq!(shape_faults("runtime/utils.rs", "fn f() {}").len(), 2);
    assert_eq!(shape_faults("runtime/a/mod.rs", "//! One line.\nfn f() {}\n").len(), 2);
    assert_eq!(shape_faults("runtime/a.rs", &"//! Long.\n".repeat(LINES_MAX + 1)).len(), 1);
    assert_eq!(shape_faults("runtime/a/mod.rs", "//! Adds.\n//!\n//! Knows no file.\n\nmod b;\n").len(), 0);
}
