//! Tests of importing single files, broken input, and into a checkout that has some of the files already.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use flagperf_config::fixture::Checkout;
use flagperf_plan::Catalogue;

const CONFIGURATIONS: &str = "batch_size: 8\nfp16: true\nflops: 1e9\ncompiler: fast\nnum_workers: 0\nlog_freq: 30\nrepeat: 1\n\
    no_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n";
const CLASS: &str = "class InferModel:\n    def __init__(self, config, onnx_path, model):\n        open(onnx_path)\n";

/// A source with the case `new` and its overlay of the vendor `acme`.
struct Source(TempDir);

impl Source {
    fn new() -> Self {
        let source = Source(tempfile::tempdir().unwrap());
        source
            .with("configs/host.yaml", "FLAGPERF_PATH: /theirs\nVENDOR: acme\nCASES:\n    \"new:frame_1.2\": /data\n")
            .with("configs/new/configurations.yaml", CONFIGURATIONS)
            .with("configs/new/parameters.yaml", "random_seed: 3\nsteps: 50\n")
            .with("configs/new/vendor_config/acme_configurations.yaml", "compiler: fast\nfused: {a: [x, 1]}\n")
            .with("inference_engine/acme/fast.py", CLASS)
            .with("docker_images/acme/frame_1.2/Dockerfile", "FROM scratch\n")
    }

    fn with(self, path: &str, text: &str) -> Self {
        self.write(path, text.as_bytes());
        self
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join("inference").join(path)
    }

    /// Imports into a checkout; `arguments` may contain `force` and `dry-run`.
    fn import(&self, checkout: &Path, arguments: &[&str]) -> ImportReport {
        let source = SourceTree::open(self.0.path()).unwrap();
        let catalogue = &Catalogue::read(checkout, Vec::new());
        let (replaces, is_dry_run) = (arguments.contains(&"force"), arguments.contains(&"dry-run"));
        import(&Import { source: &source, checkout, catalogue, replaces, is_dry_run }).unwrap()
    }

    /// Returns the problems as `path:line: message`.
    fn problems(&self) -> Vec<String> {
        let checkout = Checkout::new();
        let report = self.import(checkout.root(), &[]);
        let root = format!("{}/", self.path("").display());
        let root = root.trim_end_matches('/').to_owned() + "/";
        let line = |problem: &ProblemReport| {
            let file = problem.file.clone().unwrap_or_default().replace(&root, "");
            let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{file}{line}: {}", problem.message)
        };
        report.problems.iter().map(line).collect()
    }
}

fn text(checkout: &Checkout, path: &str) -> String {
    fs::read_to_string(checkout.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn outcome(report: &ImportReport, path: &str) -> (FileOutcome, Vec<String>) {
    let file = report.files.iter().find(|file| file.path == Path::new(path));
    let file = file.unwrap_or_else(|| panic!("{path}: {:?}", report.files));
    (file.outcome, file.differences.clone())
}

/// Returns the keys with a change, as `key` or `key -> new name`.
fn keys(report: &ImportReport, change: KeyChange) -> Vec<String> {
    let keys = report.keys.iter().filter(|key| key.change == change);
    keys.map(|key| key.to.as_ref().map_or_else(|| key.key.clone(), |to| format!("{} -> {to}", key.key))).collect()
}

#[test]
fn a_new_case_and_a_new_vendor_are_written_where_this_program_reads_them() {
    let (source, checkout) = (Source::new(), Checkout::new());
    let report = source.import(checkout.root(), &[]);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let case = CaseReport { case: "new".to_owned(), needs_scripts: true, vendors: vec!["acme".to_owned()] };
    assert_eq!(report.cases, [case]);
    let configurations = text(&checkout, "configs/new/configurations.yaml");
    let header = "# yaml-language-server: $schema=../../docs/schemas/configurations.json\n# Imported by";
    assert!(configurations.starts_with(header) && configurations.ends_with(CONFIGURATIONS), "{configurations}");
    assert!(text(&checkout, "configs/new/parameters.yaml").ends_with("\nseed: 3\nsteps: 50\n"));
    assert_eq!(keys(&report, KeyChange::Renamed), ["random_seed -> seed"]);
    let overlay = text(&checkout, "configs/new/vendor_config/acme_configurations.yaml");
    assert!(overlay.ends_with("\ncompiler: fast\nfused: {a: [x, 1]}\n"), "{overlay}");
    let vendor = text(&checkout, "vendors/acme/vendor.yaml");
    assert!(vendor.contains("\n    frame: {engine: interpreter, options: {threads: 0}}\n"), "{vendor}");
    assert!(
        vendor.contains("\n    fast: {command: [python3, \"-m\", flagperf_sidecar, engines/fast.py], engine: sidecar, options: {threads: 0}}\n")
            || vendor.contains("\n    fast: {engine: sidecar, command: [python3, \"-m\", flagperf_sidecar, engines/fast.py], options: {threads: 0}}\n"),
        "{vendor}"
    );
    flagperf_config::Vendor::read(checkout.root(), "acme").unwrap();
    assert_eq!(text(&checkout, "vendors/acme/engines/fast.py"), CLASS);
    assert_eq!(text(&checkout, "docker_images/acme/frame_1.2/Dockerfile"), "FROM scratch\n");
    // The host.yaml of the checkout stays, and that of FlagPerf names its own folder.
    let differences = ["VENDOR", "CASES", "CONTAINER"].map(str::to_owned).to_vec();
    assert_eq!(outcome(&report, "configs/host.yaml"), (FileOutcome::Kept, differences));
    assert_eq!(keys(&report, KeyChange::NoEquivalent), ["FLAGPERF_PATH"]);
}

#[test]
fn a_second_import_changes_nothing_and_one_by_force_replaces_what_differs() {
    let (source, checkout) = (Source::new(), Checkout::new());
    source.import(checkout.root(), &[]);
    let again = source.import(checkout.root(), &[]);
    assert_eq!(again.count(FileOutcome::Created) + again.count(FileOutcome::Replaced), 0, "{:?}", again.files);
    assert_eq!(again.count(FileOutcome::Kept), 1, "host.yaml");
    let path = "configs/new/configurations.yaml";
    let own = text(&checkout, path).replace("batch_size: 8", "batch_size: 9") + "flops_per_multiply_add: 2\n";
    fs::write(checkout.path(path), &own).unwrap();
    let kept = source.import(checkout.root(), &[]);
    assert_eq!(outcome(&kept, path), (FileOutcome::Kept, vec!["batch_size".to_owned()]));
    let planned = source.import(checkout.root(), &["force", "dry-run"]);
    assert_eq!(outcome(&planned, path).0, FileOutcome::Replaced);
    assert_eq!(text(&checkout, path), own, "a dry run writes nothing");
    source.import(checkout.root(), &["force"]);
    let replaced = text(&checkout, path);
    assert!(replaced.contains("batch_size: 8\n") && replaced.ends_with("flops_per_multiply_add: 2\n"), "{replaced}");
    assert!(text(&checkout, "configs/host.yaml").contains("CASES: {\"new:frame_1.2\": /data}\n"));
}

#[test]
fn a_dry_run_reports_what_an_import_does_and_writes_nothing() {
    let (source, checkout) = (Source::new(), Checkout::new());
    let planned = source.import(checkout.root(), &["dry-run"]);
    assert!(!checkout.path("configs/new").exists() && !checkout.path("vendors/acme").exists());
    let done = source.import(checkout.root(), &[]);
    assert_eq!((&planned.files, &planned.keys), (&done.files, &done.keys));
}

#[test]
fn a_key_whose_name_a_parameter_of_the_case_has_becomes_an_option_of_the_compiler() {
    let overlay =
        "compiler: fast\nimage_size: 448\nimage_mode: x\nflops: 2e9\ntarget_accuracy: {top1: 0}\nshm_size: 1G\n";
    let source = Source::new()
        .with("configs/toy/configurations.yaml", CONFIGURATIONS)
        .with("configs/toy/parameters.yaml", "image_size: 224\nimage_mean: 1\n")
        .with("configs/toy/vendor_config/acme_configurations.yaml", "image_size: 448\n")
        .with("configs/toy/vendor_config/chip_configurations.yaml", overlay);
    let checkout = Checkout::new();
    let report = source.import(checkout.root(), &[]);
    // FlagPerf has it as a parameter, too, and refuses the overlay: so does this program.
    assert!(text(&checkout, "configs/toy/vendor_config/acme_configurations.yaml").ends_with("\nimage_size: 448\n"));
    source.write("configs/toy/parameters.yaml", b"image_mean: 1\n");
    let checkout = Checkout::new();
    let report_of_options = source.import(checkout.root(), &["force"]);
    let renamed = keys(&report_of_options, KeyChange::Renamed);
    assert!(renamed.contains(&"image_size -> fast.image_size".to_owned()), "{renamed:?}");
    let written = text(&checkout, "configs/toy/vendor_config/chip_configurations.yaml");
    assert!(written.ends_with("\ncompiler: fast\nfast.image_size: 448\nimage_mode: x\n"), "{written}");
    let dropped = keys(&report, KeyChange::NoEquivalent);
    for key in ["flops", "target_accuracy", "shm_size", "image_mean"] {
        assert!(dropped.contains(&key.to_owned()), "{key}: {dropped:?}");
    }
}

#[test]
fn the_scripts_of_a_case_keep_their_parameters() {
    let source = Source::new()
        .with("configs/toy/configurations.yaml", CONFIGURATIONS)
        .with("configs/toy/parameters.yaml", "image_size: 448\ntarget_accuracy: {top1: 0.5}\nweight_dir: w\n");
    let checkout = Checkout::new();
    let before = text(&checkout, "configs/toy/parameters.yaml");
    let report = source.import(checkout.root(), &["force"]);
    assert_eq!(text(&checkout, "configs/toy/parameters.yaml"), before);
    assert_eq!(keys(&report, KeyChange::Kept), ["image_size"]);
    assert!(keys(&report, KeyChange::NoEquivalent).contains(&"weight_dir".to_owned()));
}

#[test]
fn a_vendor_that_exists_gets_a_compiler_only_by_force() {
    let source =
        Source::new().with("inference_engine/chip/quick.py", CLASS).with("inference_engine/chip/fast.py", CLASS);
    let checkout = Checkout::new();
    let before = text(&checkout, "vendors/chip/vendor.yaml");
    let report = source.import(checkout.root(), &[]);
    assert_eq!(text(&checkout, "vendors/chip/vendor.yaml"), before);
    let reason = &report.keys.iter().find(|key| key.key == "quick").unwrap().reason;
    assert!(reason.starts_with("vendors/chip/vendor.yaml has no such compiler: copy the file"), "{reason}");
    source.import(checkout.root(), &["force"]);
    let vendor = flagperf_config::Vendor::read(checkout.root(), "chip").unwrap();
    assert_eq!(vendor.compilers["quick"].command, ["python3", "-m", "flagperf_sidecar", "engines/quick.py"]);
    assert_eq!(vendor.compilers["fast"].engine, "rten", "an entry that exists stays");
    assert!(checkout.path("vendors/chip/engines/quick.py").exists());
}

/// A vendor.yaml with nothing but a monitor.
const MONITORED: &str = "name: acme\nabout: cards\nframeworks:\n    interpreter: {engine: interpreter}\n# Later.\ncompilers: {}\n\
    devices: []\nmonitor_command: {command: [acme-smi]}\n";

#[test]
fn a_second_import_by_force_keeps_what_a_vendor_added() {
    for checkout in [Checkout::new(), Checkout::new().with("vendors/acme/vendor.yaml", MONITORED)] {
        let source = Source::new();
        source.import(checkout.root(), &[]);
        let device = "devices:\n    - {name: A, matches: [ACME A], source: sheet} # ours\n";
        let vendor = text(&checkout, "vendors/acme/vendor.yaml").replace("devices: []\n", device)
            + "visible_devices: ACME_VISIBLE\n";
        let vendor = vendor.replace("monitor: null\n", "monitor_command: {command: [acme-smi, --csv]}\n");
        let overlay = "configs/new/vendor_config/acme_configurations.yaml";
        for (path, text) in [
            ("vendors/acme/vendor.yaml", vendor.clone()),
            ("vendors/acme/engines/fast.py", format!("{CLASS}# mended\n")),
            (overlay, text(&checkout, overlay) + "batch_size: 96\n"),
        ] {
            fs::write(checkout.path(path), text).unwrap();
        }
        let again = source.import(checkout.root(), &["force"]);
        assert_eq!(text(&checkout, "vendors/acme/vendor.yaml"), vendor);
        assert!(text(&checkout, overlay).ends_with("batch_size: 96\n"));
        assert_eq!(outcome(&again, "vendors/acme/engines/fast.py").0, FileOutcome::Kept);
        // A class that is new in the source is added, and the rest stays.
        source.with("inference_engine/acme/slow.py", CLASS).import(checkout.root(), &["force"]);
        let extended = text(&checkout, "vendors/acme/vendor.yaml");
        assert!(extended.contains("    slow: {") && extended.contains(device), "{extended}");
    }
}

#[test]
fn a_vendor_with_a_monitor_keeps_the_framework_that_works_as_its_default() {
    let checkout = Checkout::new().with("vendors/acme/vendor.yaml", MONITORED);
    let report = Source::new().import(checkout.root(), &[]);
    assert_eq!(outcome(&report, "vendors/acme/vendor.yaml").0, FileOutcome::Replaced);
    let vendor = flagperf_config::Vendor::read(checkout.root(), "acme").unwrap();
    assert_eq!(vendor.default_framework.as_deref(), Some("interpreter"));
    assert_eq!(vendor.frameworks.keys().collect::<Vec<_>>(), ["frame", "interpreter"]);
    assert!(vendor.compilers.contains_key("fast"));
    let text = text(&checkout, "vendors/acme/vendor.yaml");
    assert!(text.contains("# Later.\n") && text.contains("command: [acme-smi]"), "{text}");
}

#[test]
fn what_prepares_python_and_images_is_copied_or_named() {
    let source = Source::new()
        .with("inference_engine/acme/fast.py", &format!("from .parts import x\n{CLASS}"))
        .with("inference_engine/acme/parts.py", "x = 1\n")
        .with("inference_engine/acme/kernels/one.py", "y = 1\n")
        .with("inference_engine/acme/environment_variables.sh", "export A=1\n")
        .with("inference_engine/chip/fast.py", CLASS)
        .with("benchmarks/new/frame/requirements.txt", "big\n")
        .with("benchmarks/new/frame/acme_requirements.txt", "small\n")
        .with("docker_images/acme/frame_1.2/frame_install.sh", "pip install x\n")
        .with("docker_images/acme/frame_1.2/packages/README.md", "Ask us.\n")
        .with("docker_images/acme/acme_monitor.py", "");
    source.write("docker_images/acme/frame_1.2/packages/x.whl", b"\xff");
    let checkout = Checkout::new();
    let report = source.import(checkout.root(), &[]);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    for (path, content) in [
        ("vendors/acme/engines/parts.py", "x = 1\n"),
        ("vendors/acme/engines/kernels/one.py", "y = 1\n"),
        ("vendors/acme/environment_variables.sh", "export A=1\n"),
        ("scripts/new/frame/acme_requirements.txt", "small\n"),
        ("docker_images/acme/frame_1.2/frame_install.sh", "pip install x\n"),
        ("docker_images/acme/frame_1.2/packages/README.md", "Ask us.\n"),
    ] {
        assert_eq!(text(&checkout, path), content);
    }
    let left_out = keys(&report, KeyChange::NoEquivalent);
    for name in ["requirements.txt", "acme_monitor.py", "x.whl"] {
        assert!(left_out.contains(&name.to_owned()), "{name}: {left_out:?}");
    }
    // The vendor `chip` has a compiler `fast` with another engine.
    assert_eq!(keys(&report, KeyChange::Kept), ["fast"]);
    assert!(!checkout.path("scripts/new/frame/requirements.txt").exists());
}

#[test]
fn containers_are_set_as_in_flagperf_unless_the_checkout_sets_them() {
    let (source, checkout) = (Source::new(), Checkout::new().without("configs/host.yaml"));
    source.import(checkout.root(), &[]);
    assert!(text(&checkout, "configs/host.yaml").contains("\nCONTAINER: docker\n"));
    let checkout = checkout.with("configs/host.yaml", "VENDOR: chip\nCONTAINER: none\n");
    let report = source.import(checkout.root(), &["force"]);
    assert!(text(&checkout, "configs/host.yaml").contains("\nCONTAINER: none\n"));
    assert_eq!(keys(&report, KeyChange::Kept), ["CONTAINER"]);
}

#[test]
fn a_host_yaml_whose_cases_do_not_exist_leaves_those_of_the_checkout() {
    let host = "VENDOR: acme\nCASES:\n    \"computation-FP32\": pytorch_2.3\n";
    let checkout = Checkout::new();
    Source::new().with("configs/host.yaml", host).import(checkout.root(), &["force"]);
    let written = text(&checkout, "configs/host.yaml");
    assert!(written.contains("VENDOR: acme\n") && written.contains("toy:frame"), "{written}");
}

#[test]
fn a_vendor_file_that_cannot_be_read_is_a_problem() {
    let checkout = Checkout::new().with("vendors/acme/vendor.yaml", "name: [\n");
    let report = Source::new().import(checkout.root(), &["force"]);
    assert_eq!(report.problems.len(), 1);
    assert_eq!(report.problems[0].file.as_deref(), Some("vendors/acme/vendor.yaml"));
    assert_eq!(text(&checkout, "vendors/acme/vendor.yaml"), "name: [\n");
}

#[test]
fn a_class_that_does_not_use_the_onnx_file_gets_the_model() {
    let class = "class InferModel:\n    def __init__(self, config, onnx_path, model):\n        self.model = model\n";
    let checkout = Checkout::new();
    Source::new().with("inference_engine/acme/fast.py", class).import(checkout.root(), &[]);
    let vendor = flagperf_config::Vendor::read(checkout.root(), "acme").unwrap();
    assert!(!vendor.compilers["fast"].opens_onnx);
}

#[test]
fn broken_files_are_reported_with_their_lines_and_the_rest_is_converted() {
    let broken = [
        ("not yaml", "a: [1\nb: 2\n", ":2: "),
        ("a duplicate key", "batch_size: 1\nbatch_size: 2\n", ":2: key `batch_size` is given twice"),
        ("a tab", "a:\n\tb: 1\n", ":2: "),
        (
            "a merge",
            "a: 1\n<<<<<<< HEAD\nb: 1\n=======\nb: 2\n>>>>>>> other\n",
            ":2: the file contains the marks of an unfinished merge",
        ),
        ("a list", "- a\n", ":1: must be a mapping"),
        ("an alias", "a: &x 1\nb: *x\n", "aliases are not supported"),
    ];
    for (what, text, message) in broken {
        for path in [
            "configs/bad/configurations.yaml",
            "configs/new/vendor_config/bad_configurations.yaml",
            "configs/host.yaml",
        ] {
            let problems = Source::new().with(path, text).problems();
            assert!(
                problems.iter().any(|problem| problem.starts_with(path) && problem.contains(message)),
                "{what}: {problems:?}"
            );
            let checkout = Checkout::new();
            Source::new().with(path, text).import(checkout.root(), &[]);
            assert!(checkout.path("configs/new/vendor_config/acme_configurations.yaml").exists(), "{what}");
        }
    }
}

#[test]
fn wrong_values_are_reported_with_their_lines_and_other_keys_are_converted() {
    let text = CONFIGURATIONS.replace("batch_size: 8", "batch_size: many").replace("repeat: 1\n", "");
    let source = Source::new().with("configs/new/configurations.yaml", &format!("{text}has_dynamic_axis: true\n"));
    let problems = source.problems();
    let path = "configs/new/configurations.yaml";
    assert!(
        problems.contains(&format!("{path}:1: `batch_size` must be a whole number from 1 to 4294967295, not `many`")),
        "{problems:?}"
    );
    assert!(problems.contains(&format!("{path}:1: `repeat` is missing")), "{problems:?}");
    let checkout = Checkout::new();
    let report = source.import(checkout.root(), &[]);
    let written = self::text(&checkout, path);
    assert!(written.contains("fp16: true\n") && !written.contains("batch_size"), "{written}");
    assert!(keys(&report, KeyChange::NoEquivalent).contains(&"has_dynamic_axis".to_owned()));
}

#[test]
fn links_large_files_and_other_kinds_of_files_are_reported() {
    let source = Source::new();
    source.write("configs/large/configurations.yaml", &vec![b'#'; (1 << 20) + 1]);
    source.write("configs/bytes/configurations.yaml", b"a: \xff\n");
    symlink("/etc", source.path("configs/link")).unwrap();
    symlink("/etc/passwd", source.path("configs/new/vendor_config/other_configurations.yaml")).unwrap();
    fs::create_dir_all(source.path("configs/folder/configurations.yaml")).unwrap();
    fs::create_dir_all(source.path("configs/bad name")).unwrap();
    fs::create_dir_all(source.path("configs/empty")).unwrap();
    let problems = source.problems();
    for (path, message) in [
        ("configs/large/configurations.yaml: ", "the limit for a configuration file"),
        ("configs/bytes/configurations.yaml: ", "is not UTF-8 text (line 1)"),
        ("configs/link: ", "a symbolic link"),
        ("configs/new/vendor_config/other_configurations.yaml: ", "a symbolic link"),
        ("configs/folder/configurations.yaml: ", "cannot be read"),
        ("configs/bad name: ", "cannot be the name of a case"),
        ("configs/empty/configurations.yaml: ", "cannot be read"),
    ] {
        let is_it = |problem: &&String| problem.starts_with(path) && problem.contains(message);
        assert_eq!(problems.iter().filter(is_it).count(), 1, "{path}{message}: {problems:#?}");
    }
}

#[test]
fn an_entry_of_cases_without_a_case_is_left_out() {
    let host = "VENDOR: acme\nCASES:\n    \"new:frame\": /data\n    \"gone:frame\": /data\n    \"new\": /data\n";
    let source = Source::new().with("configs/host.yaml", host);
    let problems = source.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("configs/host.yaml:4: `CASES`: case `gone` has no folder"), "{problems:?}");
    assert!(problems[1].starts_with("configs/host.yaml:5: `new` is not a case key"), "{problems:?}");
}

#[test]
fn nothing_is_written_through_a_link_of_the_checkout() {
    let (source, checkout) = (Source::new(), Checkout::new());
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), checkout.path("configs/new")).unwrap();
    let report = source.import(checkout.root(), &["force"]);
    assert!(report.has_unwritten_files);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert_eq!(outcome(&report, "configs/new/configurations.yaml").0, FileOutcome::Unwritten);
    assert!(checkout.path("vendors/acme/vendor.yaml").exists(), "the rest is written");
}

#[test]
fn a_folder_that_is_not_flagperf_and_the_checkout_itself_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    // FlagPerf's `base` has a host.yaml and no case.
    fs::create_dir_all(empty.path().join("configs")).unwrap();
    fs::write(empty.path().join("configs/host.yaml"), "VENDOR: nvidia\n").unwrap();
    let error = SourceTree::open(empty.path()).unwrap_err();
    assert!(matches!(error, ImportError::NotFlagPerf(_)) && !error.hint().is_empty());
    let checkout = Checkout::new();
    let source = SourceTree::open(checkout.root()).unwrap();
    let catalogue = &Catalogue::read(checkout.root(), Vec::new());
    let request = Import { source: &source, checkout: checkout.root(), catalogue, replaces: true, is_dry_run: false };
    assert!(matches!(import(&request), Err(ImportError::OwnCheckout(_))));
}
