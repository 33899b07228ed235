//! Tests of importing trainings: Python as data, overlays with sections, the site, and training programs.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::python::PythonFile;
use super::*;
use flagperf_config::fixture::Checkout;
use flagperf_config::{Config, Overrides, load};
use flagperf_plan::Catalogue;

const TRAINING: &str = "batch_size: 64\neval_batch_size: 64\nlearning_rate: 0.1\nmax_epochs: 3\ntarget: {top1: 0.7}\n";
const BASE: &str = "\
# Values of every vendor.
vendor: str = None
name: str = \"toy\"
train_batch_size: int = 8
eval_batch_size: int = 8
lr: float = 0.1
num_workers: int = 32
max_epoch: int = 4
target_top1: float = 0.7
seed: int = 5
depth = 50
";
const MUTABLE: &str = "mutable_params = [\n    'train_batch_size', 'eval_batch_size',  # both\n    'lr', 'fp16',\n]\n\nmutable_params += [\"depth\"]\n";
const TEST_CONF: &str = "\
'''The cases.'''
VENDOR = \"chip\"
ACCE_CONTAINER_OPT = \" --gpus all\"
FLAGPERF_PATH = \"/home/FlagPerf/training\"
FLAGPERF_LOG_PATH = FLAGPERF_PATH + \"/result/\"
FLAGPERF_LOG_LEVEL = 'debug'
SHM_SIZE = \"32G\"
CLEAR_CACHES = True
'''
CASES = {}
'''
CASES = {
    # \"gone:pytorch:A100:1:8:1\": \"/data/gone\",
    \"toy:pytorch_1.8:A100:1:8:2\": \"/data/toy/\",
    \"big:megatron_core:A100:1:8:1:more\": \"/data/big\",   ## one host
    \"toy:pytorch:A100:4:8:1\": \"/data/toy\",
}
";
const CLUSTER_CONF: &str = "HOSTS = [\"10.1.2.2\", \"10.1.2.3\"]\nMASTER_PORT = \"29502\"\nSSH_PORT = \"22\"\n";

/// A tree with the trainings `toy`, which exists here, and `big`, which does not.
struct Source(TempDir);

impl Source {
    fn new() -> Self {
        Source(tempfile::tempdir().unwrap())
            .with("run_benchmarks/config/test_conf.py", TEST_CONF)
            .with("run_benchmarks/config/cluster_conf.py", CLUSTER_CONF)
            .with("benchmarks/toy/pytorch/run_pretraining.py", "")
            .with("benchmarks/toy/pytorch/config/_base.py", BASE)
            .with("benchmarks/toy/pytorch/config/mutable_params.py", MUTABLE)
            .with("chip/toy-pytorch/config/config_common.py", "vendor = 'chip'\nfp16 = True\n")
            .with(
                "chip/toy-pytorch/config/config_A100x1x1.py",
                "from config_common import *\ntrain_batch_size = 2 ** 5\n",
            )
            .with(
                "chip/toy-pytorch/config/config_A100x1x8.py",
                "train_batch_size = 8\neval_batch_size = train_batch_size\n",
            )
            .with("benchmarks/big/megatron/run_pretraining.py", "")
            .with("chip/big-megatron/config/config_A100x1x8.py", "localbs = 2\nlr = [0.1]\nscale = f\"{localbs}/x\"\n")
            .with("new/big-megatron/config/config_X1x1x16.py", "learning_rate = 1e-5\n")
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join("training").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn import(&self, checkout: &Path, replaces: bool) -> ImportReport {
        let source = SourceTree::open(self.0.path()).unwrap();
        let catalogue = &Catalogue::read(checkout, Vec::new());
        import(&Import { source: &source, checkout, catalogue, replaces, is_dry_run: false }).unwrap()
    }
}

/// Returns a checkout in which `toy` is trained.
fn checkout() -> Checkout {
    let checkout = Checkout::new().with("configs/toy/training.yaml", TRAINING);
    checkout.with("configs/toy/parameters.yaml", "seed: 0\n").without("configs/host.yaml")
}

fn text(checkout: &Checkout, path: &str) -> String {
    fs::read_to_string(checkout.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the keys with a change as `file:line key`.
fn keys(report: &ImportReport, change: KeyChange) -> Vec<String> {
    let file = |key: &KeyReport| Path::new(&key.file).file_name().unwrap().to_string_lossy().into_owned();
    let key = |key: &KeyReport| format!("{}:{} {}", file(key), key.line.unwrap_or(0), key.key);
    report.keys.iter().filter(|key| key.change == change).map(key).collect()
}

/// Loads the configuration of one case of a vendor, whose overlay has no error.
fn load_case(checkout: &Checkout, vendor: &str, case: &str) -> Config {
    let overrides = Overrides { vendor: Some(vendor.to_owned()), cases: vec![case.to_owned()], ..Overrides::default() };
    load(checkout.root(), &overrides).unwrap()
}

const OVERLAY: &str = "configs/toy/vendor_config/chip_training.yaml";
const SECTIONS: &str = "A100x1x1:\n    batch_size: 32\n    eval_batch_size: 8\n    precision: fp16\n# As the standard case.\nA100x1x8: {}\n";

#[test]
fn an_overlay_has_a_section_for_each_size_with_what_differs_from_the_standard_case() {
    let (source, checkout) = (Source::new(), checkout());
    let report = source.import(checkout.root(), false);
    let overlay = text(&checkout, OVERLAY);
    assert!(
        overlay
            .starts_with("# yaml-language-server: $schema=../../../docs/schemas/training_overlay.json\n# Imported by")
    );
    assert!(overlay.ends_with(SECTIONS), "{overlay}");
    let config = load_case(&checkout, "chip", "toy:frame:A100:1:1:1");
    let settings = &config.cases[0].settings;
    assert_eq!((&settings["batch_size"].value, &settings["precision"].value), (&32.into(), &"fp16".into()));
    let problems: Vec<_> = report.problems.iter().map(|problem| problem.message.as_str()).collect();
    let missing = "`CASES`: `toy:pytorch:A100:4:8:1`: no vendor has a configuration for the size A100x4x8";
    assert_eq!(problems, [missing], "the rest is converted");
    assert_eq!(report.problems[0].line, Some(12));
}

#[test]
fn names_that_a_vendor_may_not_set_and_unknown_names_are_reported_with_their_lines() {
    let source = Source::new().with(
        "chip/toy-pytorch/config/config_A100x2x8.py",
        "import os\nfrom torch.cuda.amp import GradScaler\nlr = 0.2\ngrad_scaler = GradScaler(init_scale=2.0,\n    enabled=True)\n\
         num_workers = 4\nseed = 9\ntarget_top1 = 0.6\nlayers = 3\ndef memory():\n    return 1\ntraining_event = None\n",
    );
    let (checkout, file) = (checkout(), "config_A100x2x8.py");
    let report = source.import(checkout.root(), false);
    assert!(
        text(&checkout, OVERLAY)
            .contains("A100x2x8:\n    batch_size: 128\n    eval_batch_size: 128\n    learning_rate: 0.2\n")
    );
    let refused = keys(&report, KeyChange::Refused);
    assert_eq!(refused, ["6 num_workers", "7 seed", "8 target_top1"].map(|key| format!("{file}:{key}")));
    let left_out = keys(&report, KeyChange::NoEquivalent);
    for key in ["4 grad_scaler", "9 layers", "10 def memory():..."] {
        assert!(left_out.contains(&format!("{file}:{key}")), "{key}: {left_out:?}");
    }
    assert!(left_out.contains(&"_base.py:11 depth".to_owned()), "{left_out:?}");
    assert!(!left_out.iter().any(|key| key.contains("training_event")), "None sets nothing");
    let kept = keys(&report, KeyChange::Kept);
    for key in ["7 num_workers", "8 max_epoch", "9 target_top1", "10 seed"] {
        assert!(kept.contains(&format!("_base.py:{key}")), "{key}: {kept:?}");
    }
}

#[test]
fn a_value_that_must_be_computed_is_a_problem_with_its_line() {
    let source = Source::new().with("chip/toy-pytorch/config/config_A100x2x8.py", "fp16 = False\nlr = float('0.1')\n");
    let report = source.import(checkout().root(), false);
    let problem = report.problems.iter().find(|problem| problem.message.contains("`lr`")).unwrap();
    assert_eq!(problem.message, "the value of `lr` is not imported: it is computed by a call (`float`)");
    assert_eq!(problem.line, Some(2));
}

#[test]
fn what_a_vendor_has_in_its_overlay_stays() {
    let source = Source::new();
    let own = "# Ours.\nprecision: bf16\nA100x1x1:\n    batch_size: 48\n    num_workers: 2\n";
    let checkout = checkout().with(OVERLAY, own);
    let report = source.import(checkout.root(), false);
    let extended = text(&checkout, OVERLAY);
    assert!(extended.starts_with(own) && extended.ends_with("# As the standard case.\nA100x1x8: {}\n"), "{extended}");
    let of_section = |key: &str| format!("config:0 A100x1x1.{key}");
    let kept = keys(&report, KeyChange::Kept);
    for key in ["batch_size", "eval_batch_size", "precision"] {
        assert!(kept.contains(&of_section(key)), "{key}: {kept:?}");
    }
    let again = source.import(checkout.root(), false);
    assert_eq!(text(&checkout, OVERLAY), extended);
    assert_eq!(again.count(FileOutcome::Created) + again.count(FileOutcome::Replaced), 0, "{:?}", again.files);
    source.import(checkout.root(), true);
    let forced = text(&checkout, OVERLAY);
    assert!(forced.contains("precision: bf16\n") && forced.contains("batch_size: 32, num_workers: 2"), "{forced}");
    load_case(&checkout, "chip", "toy:frame:A100:1:1:1");
}

#[test]
fn the_site_has_the_hosts_and_the_cases_under_their_names_here() {
    let checkout = checkout();
    let report = Source::new().import(checkout.root(), false);
    let host = text(&checkout, "configs/host.yaml");
    for line in [
        "VENDOR: chip\n",
        "HOSTS: [\"10.1.2.2\", \"10.1.2.3\"]\n",
        "MASTER_PORT: \"29502\"\n",
        "FLAGPERF_LOG_PATH: \"/home/FlagPerf/training/result/\"\n",
        "\"toy:pytorch_1.8:A100:1:8:2\": \"/data/toy/\"",
        "\"big_megatron:program:A100:1:1:1\": \"/data/big\"",
        "CONTAINER: docker\n",
    ] {
        assert!(host.contains(line), "{line}: {host}");
    }
    let renamed = report.keys.iter().find(|key| key.change == KeyChange::Renamed).unwrap();
    assert_eq!(renamed.key, "big:megatron_core:A100:1:8:1:more");
    assert!(renamed.reason.ends_with(": nnodes=1, nproc=8"), "{}", renamed.reason);
    assert!(keys(&report, KeyChange::NoEquivalent).contains(&"test_conf.py:4 FLAGPERF_PATH".to_owned()));
}

#[test]
fn hosts_of_the_training_replace_only_a_host_yaml_that_names_this_machine() {
    for (hosts, expected) in [("127.0.0.1", "HOSTS: [\"10.1.2.2\", \"10.1.2.3\"]\n"), ("node7", "HOSTS: [node7]\n")] {
        let source = Source::new();
        let inference = source.0.path().join("inference/configs");
        fs::create_dir_all(inference.join("toy")).unwrap();
        fs::write(inference.join("host.yaml"), format!("VENDOR: chip\nHOSTS: [\"{hosts}\"]\n")).unwrap();
        fs::write(inference.join("toy/configurations.yaml"), flagperf_config::fixture::CONFIGURATIONS).unwrap();
        let checkout = checkout();
        source.import(checkout.root(), false);
        let host = text(&checkout, "configs/host.yaml");
        assert!(host.replace('"', "").contains(&expected.replace('"', "")), "{host}");
        assert!(host.contains("toy:pytorch_1.8:A100:1:8:2"), "{host}");
    }
}

#[test]
fn a_case_that_does_not_exist_starts_the_program_of_flagperf() {
    let checkout = checkout();
    let report = Source::new().import(checkout.root(), false);
    let case = report.cases.iter().find(|case| case.case == "big_megatron").unwrap();
    assert_eq!((case.needs_scripts, &case.vendors[..]), (false, &["chip".to_owned(), "new".to_owned()][..]));
    let training = text(&checkout, "configs/big_megatron/training.yaml");
    assert!(training.contains("command_folder: \"{flagperf_folder}/benchmarks/big/megatron\"\n"), "{training}");
    let config = "\"--flagperf_config_file={flagperf_folder}/{vendor}/big-megatron/config/config_{hardware}x{nnodes}x{nproc}.py\"]";
    assert!(
        training.contains("command: [python3, \"-u\", run_pretraining.py, ") && training.contains(config),
        "{training}"
    );
    let parameters = text(&checkout, "configs/big_megatron/parameters.yaml");
    assert!(parameters.ends_with("nnodes: 1\nnproc: 8\n"), "{parameters}");
    assert!(
        text(&checkout, "vendors/new/vendor.yaml")
            .contains("\ndefault_framework: interpreter\nframeworks:\n    program: {engine: program}\n")
    );
    assert!(
        text(&checkout, "configs/big_megatron/vendor_config/new_training.yaml")
            .contains("X1x1x16:\n    learning_rate: ")
    );
    let config = load_case(&checkout, "new", "big_megatron:program:X1:1:1:1");
    assert_eq!(config.cases[0].key.value.to_string(), "big_megatron:program:X1:1:1:1");
    // The vendor `chip` has frameworks of its own.
    let missing = report.keys.iter().find(|key| key.key == "program").unwrap();
    assert!(missing.reason.contains("add `program: {engine: program}`"), "{}", missing.reason);
    let not_read = report.keys.iter().find(|key| key.reason.contains("`lr`")).unwrap();
    assert_eq!(not_read.line, Some(2));
}

#[test]
fn cases_that_flagperf_starts_in_another_way_and_files_that_it_does_not_read_are_named() {
    let source = Source::new()
        .with("benchmarks/far/in_container/run_pretraining.py", "")
        .with("benchmarks/bare/pytorch/config/_base.py", "lr = 1\n")
        .with("chip/far-in_container/config/config_A100x1x8.py", "")
        .with("chip/toy-pytorch/config/config_A100x1x8py", "")
        .with("chip/toy-pytorch/config/requirements.txt", "");
    let left_out = keys(&source.import(checkout().root(), false), KeyChange::NoEquivalent);
    for key in [
        "in_container:0 far",
        "pytorch:0 bare",
        "far-in_container:0 far-in_container",
        "config_A100x1x8py:0 config_A100x1x8py",
        "requirements.txt:0 requirements.txt",
    ] {
        assert!(left_out.contains(&key.to_owned()), "{key}: {left_out:?}");
    }
}

#[test]
fn python_is_read_as_python_reads_it() {
    let text = "\
        lr = (base := 3) if False else 1\n\
        batch = 0x10\n\
        name = 'caf\\u00e9' \"\\x41\" rf'\\d{batch}' # joined\n\
        one = two = -2 ** 2\n\
        batch *= 2\n\
        raw = b'bytes'\n\
        half = f'{batch:>4}'\n\
        path = os.path.join('a', 'b')\n";
    let source = tempfile::tempdir().unwrap();
    fs::create_dir_all(source.path().join("benchmarks")).unwrap();
    fs::create_dir_all(source.path().join("run_benchmarks")).unwrap();
    fs::write(source.path().join("a.py"), text).unwrap();
    fs::write(source.path().join("b.py"), "from .a import batch as size, one\n").unwrap();
    let tree = SourceTree::open(source.path()).unwrap();
    let read = |name: &str| PythonFile::read(&tree, Path::new(name), &mut Vec::new()).unwrap();
    let file = read("a.py");
    let value = |name: &str| file.names[name].value.clone();
    assert_eq!(value("batch"), Ok(32.into()));
    assert_eq!(value("name"), Ok("caf\u{e9}A\\d16".into()));
    assert_eq!((value("one"), value("two")), (Ok((-4).into()), Ok((-4).into())));
    for (name, reason) in [
        ("lr", "it is computed (`(base := 3) if False else 1`)"),
        ("raw", "it is computed (`b'bytes'`)"),
        ("half", "it is computed within a text (`{batch:>4}`)"),
        ("path", "it is computed by a call (`os.path.join`)"),
    ] {
        assert_eq!(value(name), Err(reason.to_owned()));
    }
    let file = read("b.py");
    assert_eq!(file.names.keys().collect::<Vec<_>>(), ["size", "one"]);
    assert_eq!((file.value("size"), file.names["size"].line), (Some(&32.into()), 5));
}

#[test]
fn python_that_is_hostile_or_broken_is_named_and_takes_no_time() {
    let doubling: String = (1..60).map(|n| format!("a{n} = [a{0}, a{0}]\n", n - 1)).collect();
    let texts = (0..10_000).fold("1".to_owned(), |text, _| format!("f'{{{text}}}'"));
    for (text, message) in [
        (format!("a0 = [1]\n{doubling}lr = a59\n"), "it needs `a59`, which is not read"),
        (format!("lr = {}1\n", "(".repeat(60_000)), "has more than 100 open brackets at one place"),
        (format!("lr = {texts}\n"), "has more than 100 open brackets at one place"),
        (format!("lr = f'{}", "{1:".repeat(20_000)), "has more than 100 open brackets at one place"),
        ("lr = 10 ** 10 ** 10\n".to_owned(), "it is computed by `**`"),
        (format!("lr = {}\n", "9".repeat(60_000)), "its number is too large"),
        ("lr = 'text\n".to_owned(), "this is not Python: missing closing quote in string literal"),
        ("lr = 1\0\n".to_owned(), "this is not Python: Got unexpected token"),
        ("lr = -".to_owned(), "this is not Python: Expected an expression"),
        (format!("lr = {}1\n", "-".repeat(60_000)), "it is nested too deeply"),
        (format!("lr = 1{}\n", "+1".repeat(30_000)), "it is nested too deeply"),
        (format!("lr = a{}\n", ".a".repeat(30_000)), "it is computed (`a.a.a"),
        ("lr = 1 if True else 2\n".to_owned(), "it is computed (`1 if True else 2`)"),
        ("lr = {'a': [1\n".to_owned(), "this is not Python: unexpected EOF while parsing"),
        ("#".repeat(65_537), "has 65537 bytes; the limit for a Python file is 65536"),
        ("#".repeat(2 << 20), "has 2097152 bytes; the limit for a configuration file is 1048576"),
    ] {
        let source = Source::new().with("chip/toy-pytorch/config/config_A100x1x8.py", &text);
        let report = source.import(checkout().root(), false);
        let found = report.problems.iter().any(|problem| problem.message.contains(message));
        assert!(found, "{message}: {:?}", report.problems);
    }
    // Files that import each other end.
    let source = Source::new().with("chip/toy-pytorch/config/config_common.py", "from config_A100x1x1 import *\n");
    let report = source.import(checkout().root(), false);
    let left_out = keys(&report, KeyChange::NoEquivalent);
    assert!(left_out.contains(&"config_common.py:1 from config_A100x1x1 import *".to_owned()), "{left_out:?}");
}
