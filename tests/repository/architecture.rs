//! Checks the structure of the code: the order of the crates and of the modules in a crate, file names and sizes, and each module's description.
//!
//! Every rule is a function of a file's text and is itself tested on a sample that violates it.

use std::fs;
use std::path::Path;

use flagperf_config::Vendor;
use flagperf_engine::TABLE;

/// The largest number of lines in a file, tests included.
const LINES_MAX: usize = 450;

/// Files that may be longer, each with the reason.
const LONG_FILES: [(&str, &str); 1] = [("runtime/serve/src/messages.rs", "generated from the protocol of gRPC")];

/// File names that do not describe the contents.
const VAGUE_NAMES: [&str; 5] = ["utils", "helpers", "common", "misc", "manager"];

/// Crates whose `lib.rs` contains logic: the entry of the program, the macro that exports a plug-in, and an example.
const HAVE_LOGIC: [&str; 3] =
    ["runtime/cli/src/lib.rs", "runtime/plugin/src/lib.rs", "runtime/plugin/examples/interpreter/src/lib.rs"];

/// Names that a vendor.yaml claims and that the host may contain nevertheless: name, beginning of the files' paths,
/// reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("cpu", "runtime/", "every machine has a processor"),
    ("mock", "runtime/scaffold/", "a new vendor's first compiler, on the engine `null`; no product has this name"),
    ("pytorch", "runtime/onnx-exec/src/resolve/", "`pytorch_half_pixel` is a mode of ONNX's operator `Resize`"),
    ("pytorch", "runtime/onnx/src/weights/", "the program that writes `.pth` files"),
    ("pytorch", "runtime/engine/src/backend.rs", "the name of libtorch's project, which belongs to no vendor"),
    ("pytorch", "runtime/libtorch/", "the same"),
    ("pytorch", "runtime/import/src/training", "a framework in the paths of FlagPerf, for every vendor"),
    ("tensorrt", "runtime/engine/src/onnxruntime", "the name of an execution provider of ONNX Runtime"),
    ("tensorrt", "runtime/engine/src/backend.rs", "the same: it names the providers of a package of ONNX Runtime"),
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

/// Returns a message for each use of a module that the `lib.rs` of its crate lists after the file's own module.
fn uses_of_later_modules(order: &[&str], path: &str, text: &str) -> Vec<String> {
    let own = path.split('/').nth(3).unwrap_or_default().trim_end_matches(".rs");
    let Some(rank) = order.iter().position(|module| *module == own) else { return Vec::new() };
    let code = strip_comments(text);
    let later = crate_paths(&code).into_iter().filter(|name| order[rank + 1..].contains(name));
    later.map(|name| format!("{path}: `{own}` uses `{name}`, which lib.rs lists after it")).collect()
}

/// Returns the folders of the crates, in the order in which Cargo.toml lists them as members.
fn crate_order(workspace: &str) -> Vec<&str> {
    workspace.lines().filter_map(|line| line.strip_prefix("    \"runtime/")?.strip_suffix("\",")).collect()
}

/// Returns a message for each crate of this workspace that a crate needs although Cargo.toml lists it later. Tests may
/// need any crate.
fn needs_of_later_crates(order: &[&str], own: &str, manifest: &str) -> Vec<String> {
    let needed = manifest.split("\n[dev-dependencies]").next().unwrap_or(manifest);
    let needed = needed.split("\n[dependencies]").nth(1).unwrap_or_default();
    let rank = order.iter().position(|name| *name == own).expect("each crate is a member");
    let later = order[rank + 1..].iter().filter(|name| {
        needed
            .lines()
            .any(|line| line.strip_prefix("flagperf-").and_then(|line| line.split(['.', ' ']).next()) == Some(**name))
    });
    later.map(|name| format!("runtime/{own}/Cargo.toml: needs `{name}`, which Cargo.toml lists after it")).collect()
}

/// A name that belongs to a vendor: the words of it, and the vendor.
type ClaimedName = (Vec<String>, String);

/// Returns the lower-case words of a text: its sequences of letters and digits.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns the names that belong to a vendor: that of its folder, its engines and libraries, and its devices, whose model
/// is the first word. Rows of the table of engines are the host's own names; OpenVINO is one of them, although only one
/// vendor uses it.
fn claimed_names(vendor: &Vendor) -> Vec<ClaimedName> {
    let entries = vendor.frameworks.iter().chain(&vendor.compilers);
    let engines = entries.map(|(name, _)| name).chain(vendor.backends.keys());
    let devices = vendor.devices.iter().flat_map(|device| device.matches.iter().chain([&device.name]));
    let models = vendor.devices.iter().filter_map(|device| words(&device.name).into_iter().next());
    let names = [&vendor.name].into_iter().chain(engines).chain(devices).map(|name| words(name));
    let is_row = |name: &Vec<String>| TABLE.iter().any(|engine| words(engine.name()) == *name);
    let names = names.chain(models.map(|model| vec![model])).filter(|name| !is_row(name));
    names.map(|words| (words, vendor.name.clone())).collect()
}

/// Returns the names that belong to the vendors of the repository.
fn names_of_vendors() -> Vec<ClaimedName> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = fs::read_dir(root.join("vendors")).unwrap().map(|entry| entry.unwrap().path());
    let vendors = folders.filter(|folder| folder.is_dir());
    let names = vendors.map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned());
    let mut claimed: Vec<_> = names.flat_map(|name| claimed_names(&Vendor::read(root, &name).unwrap())).collect();
    claimed.sort();
    claimed.dedup_by(|a, b| a.0 == b.0);
    claimed
}

/// Returns the names of vendors in the production code of a file.
fn found_names<'n>(claimed: &'n [ClaimedName], text: &str) -> Vec<&'n ClaimedName> {
    let code = words(&strip_comments(production_code(text)));
    claimed.iter().filter(|(name, _)| code.windows(name.len()).any(|words| words == name.as_slice())).collect()
}

/// Returns a message for each name of a vendor in the production code of a file, except where [`EXCEPTIONS`] allow it.
fn named_vendors(claimed: &[ClaimedName], path: &str, text: &str) -> Vec<String> {
    let found = found_names(claimed, text).into_iter().map(|(name, vendor)| (name.join(" "), vendor));
    let faults =
        found.filter(|(name, _)| !EXCEPTIONS.iter().any(|(own, prefix, _)| own == name && path.starts_with(prefix)));
    faults
        .map(|(name, vendor)| {
            format!("{path}: contains `{name}`, which vendors/{vendor} claims; vendor-specific code belongs there")
        })
        .collect()
}

/// Returns a message for each fault in the size, the name or the first line of a file.
fn shape_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    let may_be_longer = LONG_FILES.iter().any(|(file, _)| *file == path);
    if (lines > LINES_MAX) != may_be_longer {
        faults.push(format!(
            "{path}: {lines} lines (at most {LINES_MAX}; exceptions are listed in tests/repository/architecture.rs)"
        ));
    }
    if path.split(['/', '.']).any(|part| VAGUE_NAMES.contains(&part)) {
        faults.push(format!("{path}: the file name does not describe the contents"));
    }
    if !text.starts_with("//! ") {
        faults.push(format!("{path}: does not begin with a `//!` line that describes it"));
    }
    if path.starts_with("runtime/") && path.ends_with("/src/lib.rs") && !HAVE_LOGIC.contains(&path) {
        faults.extend(module_faults(path, text));
    }
    faults
}

/// Checks that a `lib.rs` states what its crate does and what it does not know, and contains no logic.
fn module_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.lines().filter(|line| line.starts_with("//! ")).count() < 2 {
        faults.push(format!("{path}: does not state both what the crate does and what it does not know"));
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

/// Returns the paths of the files, without `.rs`, that only tests compile: modules under `#[cfg(test)]`.
fn test_modules(files: &[SourceFile]) -> Vec<String> {
    let declared = |file: &SourceFile| {
        let whole = file.path.trim_end_matches(".rs");
        let folder =
            ["/mod", "/lib", "/main"].iter().find_map(|end| whole.strip_suffix(end)).unwrap_or(whole).to_owned();
        let lines = file.text.lines().zip(file.text.lines().skip(1)).filter(|(line, _)| line.trim() == "#[cfg(test)]");
        let names = lines
            .filter_map(|(_, next)| next.trim_start_matches("pub(crate) ").strip_prefix("mod ")?.strip_suffix(';'));
        names.map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    files.iter().flat_map(declared).collect()
}

/// Returns the files of the host that are compiled without tests.
fn host_files() -> Vec<SourceFile> {
    let files = source_files("runtime");
    let tests = test_modules(&files);
    let is_test = |file: &SourceFile| {
        file.path.contains("/tests/") || tests.iter().any(|module| file.path.strip_prefix(module) == Some(".rs"))
    };
    files.into_iter().filter(|file| !is_test(file)).collect()
}

#[test]
fn each_crate_needs_only_those_listed_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let order = crate_order(&workspace);
    assert!(order.len() > 20, "Cargo.toml must list each crate on a line of its own");
    let manifest = |name: &&str| fs::read_to_string(root.join("runtime").join(name).join("Cargo.toml")).unwrap();
    assert_none(
        &order.iter().flat_map(|name| needs_of_later_crates(&order, name, &manifest(name))).collect::<Vec<_>>(),
    );
}

#[test]
fn each_module_of_the_vocabulary_uses_only_those_listed_before_it() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/core/src/lib.rs")).unwrap();
    let order = module_order(&lib);
    assert!(order.len() > 10, "runtime/core/src/lib.rs must list the modules as `pub mod name;`");
    let files = source_files("runtime/core/src");
    assert_none(
        &files.iter().flat_map(|file| uses_of_later_modules(&order, &file.path, &file.text)).collect::<Vec<_>>(),
    );
}

#[test]
fn the_host_names_no_vendor() {
    let (claimed, files) = (names_of_vendors(), host_files());
    assert_none(&files.iter().flat_map(|file| named_vendors(&claimed, &file.path, &file.text)).collect::<Vec<_>>());
}

#[test]
fn each_exception_for_a_name_is_needed() {
    let (claimed, files) = (names_of_vendors(), host_files());
    for (name, prefix, _) in EXCEPTIONS {
        let named: Vec<_> = claimed.iter().filter(|(words, _)| words.join(" ") == *name).cloned().collect();
        let mut inside = files.iter().filter(|file| file.path.starts_with(prefix));
        assert!(inside.any(|file| !found_names(&named, &file.text).is_empty()), "`{name}` in {prefix} is not needed");
    }
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
    let faults = |path: &str, text: &str| uses_of_later_modules(&order, path, text);
    let expected = "runtime/core/src/units.rs: `units` uses `plan`, which lib.rs lists after it";
    assert_eq!(faults("runtime/core/src/units.rs", text)[0], expected);
    assert_eq!(faults("runtime/core/src/plan/job.rs", text).len(), 1);
    assert_eq!(faults("runtime/core/src/run/mod.rs", text), Vec::<String>::new());
    assert_eq!(faults("runtime/core/src/plan/job.rs", "fn f() { crate::run::start() }").len(), 1);
}

#[test]
fn a_need_of_a_later_crate_is_found() {
    let order =
        crate_order("members = [\n    \".\",\n    \"runtime/core\",\n    \"runtime/plan\",\n    \"runtime/run\",\n]\n");
    assert_eq!(order, ["core", "plan", "run"]);
    let manifest = "[package]\n\n[dependencies]\nflagperf-core.workspace = true\nflagperf-run = { workspace = true }\n\n[dev-dependencies]\n";
    assert_eq!(
        needs_of_later_crates(&order, "plan", manifest),
        ["runtime/plan/Cargo.toml: needs `run`, which Cargo.toml lists after it"]
    );
    assert_eq!(needs_of_later_crates(&order, "run", manifest), [""; 0]);
}

#[test]
fn a_vendor_name_in_the_code_is_found() {
    let claimed = names_of_vendors();
    let faults = |text: &str| named_vendors(&claimed, "runtime/a.rs", text).len();
    assert_eq!(faults("let x = \"nvidia_smi\";"), 1);
    assert_eq!(
        faults("if name == \"H200\" { tensorrt_rtx() }"),
        3,
        "a device, an engine and the beginning of its name"
    );
    assert_eq!(
        faults("match \"Intel\" { \"interpreter\" | \"rten\" => 1 }"),
        1,
        "rows of the table belong to the host"
    );
    assert_eq!(faults("// as nvidia does\n#[cfg(test)]\nlet x = \"nvidia\";"), 0);
}

#[test]
fn a_badly_shaped_file_is_found() {
    assert_eq!(shape_faults("runtime/utils.rs", "fn f() {}").len(), 2);
    assert_eq!(shape_faults("runtime/a/src/lib.rs", "//! One line.\nfn f() {}\n").len(), 2);
    assert_eq!(shape_faults("runtime/a.rs", &"//! Long.\n".repeat(LINES_MAX + 1)).len(), 1);
    assert_eq!(shape_faults("runtime/a/src/lib.rs", "//! Adds.\n//!\n//! Knows no file.\n\nmod b;\n").len(), 0);
}
