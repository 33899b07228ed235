//! One file of a small FlagPerf tree, which the input replaces: imported into an empty checkout. Every YAML file that the import
//! writes must parse.

#![no_main]

mod support;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use flagperf_config::parse_yaml;
use flagperf_engine::TABLE;
use flagperf_import::{Import, SourceTree, import};
use flagperf_plan::Catalogue;
use libfuzzer_sys::fuzz_target;

/// The files of the tree with their contents. The input replaces one of them.
const FILES: &[(&str, &str)] = &[
    (
        "training/run_benchmarks/config/test_conf.py",
        "VENDOR = \"chip\"\nFLAGPERF_PATH = \"/home/FlagPerf/training\"\nFLAGPERF_LOG_PATH = FLAGPERF_PATH + \"/result/\"\nCASES = {\n    # \"gone:pytorch:A100:1:8:1\": \"/gone\",\n    \"toy:pytorch_1.8:A100:1:8:2\": \"/data/toy/\",\n}\n",
    ),
    ("training/run_benchmarks/config/cluster_conf.py", "HOSTS = [\"10.1.2.2\"]\nSSH_PORT = \"22\"\n"),
    (
        "training/benchmarks/toy/pytorch/config/_base.py",
        "vendor: str = None\ntrain_batch_size: int = 8\nlr: float = 0.1\nmax_epoch: int = 2 ** 2\ntarget_top1: float = 0.7\n",
    ),
    (
        "training/benchmarks/toy/pytorch/config/mutable_params.py",
        "mutable_params = [\n    'train_batch_size', 'lr',\n]\nmutable_params += [\"vendor\"]\n",
    ),
    ("training/chip/toy-pytorch/config/config_common.py", "vendor = 'chip'\nfp16 = True\n"),
    (
        "training/chip/toy-pytorch/config/config_A100x1x8.py",
        "from config_common import *\ntrain_batch_size = 8\nscale = f\"{train_batch_size}/x\"\n",
    ),
    ("inference/configs/host.yaml", "FLAGPERF_PATH: /theirs\nVENDOR: acme\nCASES:\n    \"new:frame_1.2\": /data\n"),
    (
        "inference/configs/new/configurations.yaml",
        "batch_size: 4\nflops: 1e6\nfp16: false\ncompiler: fast\nnum_workers: 1\nlog_freq: 1\nrepeat: 3\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n",
    ),
    ("inference/configs/new/parameters.yaml", "random_seed: 3\nsteps: 50\n"),
    ("inference/configs/new/vendor_config/acme_configurations.yaml", "compiler: fast\nfused: {a: [x, 1]}\n"),
    (
        "inference/inference_engine/acme/fast.py",
        "class InferModel:\n    def __init__(self, config, onnx_path, model):\n        pass\n",
    ),
];

static SOURCE: LazyLock<SourceTree> = LazyLock::new(|| {
    for (path, text) in FILES {
        support::write(&format!("flagperf/{path}"), text);
    }
    support::write("flagperf/training/benchmarks/toy/pytorch/run_pretraining.py", "");
    support::write("flagperf/inference/docker_images/acme/frame_1.2/Dockerfile", "FROM scratch\n");
    SourceTree::open(&support::FOLDER.join("flagperf")).expect("a tree of FlagPerf")
});

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, text)) = support::split_kind(input, FILES.len()) else { return };
    let source = &*SOURCE;
    let (path, own) = FILES[kind];
    support::write(&format!("flagperf/{path}"), text);
    let checkout = support::FOLDER.join("checkout");
    let _ = fs::remove_dir_all(&checkout);
    for folder in ["configs", "scripts"] {
        fs::create_dir_all(checkout.join(folder)).expect("a folder");
    }
    let catalogue = Catalogue::read(&checkout, TABLE.iter().map(|engine| engine.description()).collect());
    let report = import(&Import { source, checkout: &checkout, catalogue: &catalogue, replaces: true, is_dry_run: false });
    let report = report.expect("the source is not the checkout");
    assert!(report.problems.iter().all(|problem| !problem.message.is_empty()));
    check_written(&checkout);
    support::write(&format!("flagperf/{path}"), own);
});

/// Parses every YAML file below a folder.
fn check_written(folder: &Path) {
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            check_written(&path);
        } else if path.extension().is_some_and(|end| end == "yaml") {
            let text = fs::read_to_string(&path).expect("a text");
            assert!(parse_yaml(&text).is_ok(), "{}: {text}", path.display());
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    FILES.iter().enumerate().map(|(kind, (_, text))| support::seed_of_kind(kind, text)).collect()
}
