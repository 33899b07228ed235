//! `flagperf import flagperf`: a tree with FlagPerf's layout, names and defects is imported, and `lint` finds the pairs that
//! cannot work there.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{checkout, flagperf, record};
use crate::support;

/// The standard settings of a case, with FlagPerf's keys.
fn configurations(batch_size: u32, fp16: bool, flops: &str, compiler: &str) -> String {
    format!(
        "batch_size: {batch_size}\n# fp16 or fp32\nfp16: {fp16}\nflops: {flops}\ncompiler: {compiler}\nnum_workers: 8\nlog_freq: 30\n\
         repeat: 5\nno_validation: false\nexist_onnx_path: null\nexist_compiler_path: null\n"
    )
}

/// An engine class that reads the options of the compiler `xtcl` one after the other.
const XTCL: &str = "\
import os


class InferModel:
    def __init__(self, config, onnx_path, model):
        self.config = config
        self.engine = self.build(config, onnx_path)

    def build(self, config, onnx_path):
        options = {\"vm\": config.vm_enable, \"disabled\": config.disabled_pass}
        # Only one case needs it.
        if config.resnet50_fuse:
            os.environ[\"FUSE\"] = \"1\"
        return onnx_path, options, config.build_config

    def __call__(self, model_inputs):
        return model_inputs, 0
";
/// An engine class that compiles the file into another one.
const IXRT: &str = "\
class InferModel:
    def __init__(self, config, onnx_path, model):
        self.plan = config.exist_compiler_path or config.log_dir + config.ixrt_tmp_path
        self.compile(onnx_path, config.has_dynamic_axis)

    def compile(self, onnx_path, is_dynamic):
        open(onnx_path)
";
/// An engine class that takes the model.
const TORCHTRT: &str = "\
class InferModel:
    def __init__(self, config, onnx_path, model):
        self.model, self.is_full = model, config.torchtrt_full_compile
";

const XTCL_OPTIONS: &str = "compiler: xtcl\nvm_enable: false\nbuild_config: {FuseWithoutPattern: [a], pattern_match: [b, c]}\ndisabled_pass: [x]\n";

/// Creates a tree with FlagPerf's layout in which some overlays cannot load or run.
fn flagperf_tree() -> TempDir {
    let tree = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |path: &str, text: &str| {
        let path = tree.path().join("inference").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let overlay = |case: &str, vendor: &str, text: &str| {
        write(&format!("configs/{case}/vendor_config/{vendor}_configurations.yaml"), text);
    };
    let host = "# The site.\nFLAGPERF_PATH: \"/home/me/FlagPerf/inference\"\nFLAGPERF_LOG_PATH: \"result\"\nVENDOR: \"nvidia\"\n\
                FLAGPERF_LOG_LEVEL: \"INFO\"\nLOG_CALL_INFORMATION: True\nHOSTS: [\"127.0.0.1\"]\nSSH_PORT: \"22\"\nHOSTS_PORTS: [\"2222\"]\n\
                MASTER_PORT: \"29501\"\nSHM_SIZE: \"32G\"\nACCE_CONTAINER_OPT: \" --gpus all\"\nPIP_SOURCE: \"https://pip.example.org/simple\"\n\
                CLEAR_CACHES: True\nACCE_VISIBLE_DEVICE_ENV_NAME: \"CUDA_VISIBLE_DEVICES\"\nCASES:\n    \
                \"resnet50:pytorch_1.13\": \"/data/images/\"\n    # \"bertLarge:pytorch_1.13\": \"/data/bert/\"\n";
    write("configs/host.yaml", host);
    for (case, text) in [
        ("resnet50", configurations(256, true, "4.12e9", "tensorrt")),
        ("swinTransformer", configurations(256, true, "1.55e10", "tensorrt")),
        ("vit_l_16", configurations(32, false, "6.16e10", "tensorrt")),
        ("bertLarge", configurations(32, true, "2*512*0.33e9", "tensorrt").replace("repeat: 5", "repeat: 10")),
        ("sam_l", configurations(4, true, "3.1e12", "tensorrt")),
        ("stable_diffusion_v2_1", configurations(2, false, "6.78e11", "tensorrt")),
        ("llama2_70b_mmlu", configurations(1, true, "2*7e9", "inductor").replace("num_workers: 8", "num_workers: 0")),
    ] {
        write(&format!("configs/{case}/configurations.yaml"), &text);
        write(&format!("configs/{case}/parameters.yaml"), "");
    }
    let bert = "seq_length: 512\nmask_ratio: 0.10\nweight_dir: bert_large\neval_file: eval.txt\nrandom_seed: 0\n";
    write("configs/bertLarge/parameters.yaml", bert);
    write("configs/llama2_70b_mmlu/parameters.yaml", "random_seed: 0\nfew_shots: 5\n");
    // What works there.
    overlay("resnet50", "kunlunxin", &format!("{XTCL_OPTIONS}resnet50_fuse: true\n"));
    overlay("resnet50", "nvidia", "trt_tmp_path: nvidia_tmp/resnet50.trt\ndynamo_wamrup_iters: 3\n");
    overlay("vit_l_16", "iluvatar", "compiler: ixrt\nixrt_tmp_path: tmp/vit.engine\nhas_dynamic_axis: false\n");
    overlay(
        "resnet50",
        "zixiao",
        "compiler: zxrt\nno_validation: true\nexist_onnx_path: placeholder\nbatch_size: 50000\nrepeat: 1\nzixiao_test_batch_size: 32\n",
    );
    // Redundant: the standard value again.
    overlay("swinTransformer", "kunlunxin", &format!("{XTCL_OPTIONS}fp16: true\nresnet50_fuse: false\n"));
    overlay(
        "stable_diffusion_v2_1",
        "kunlunxin",
        &format!("{XTCL_OPTIONS}no_validation: false\nresnet50_fuse: false\n"),
    );
    // No compiler: the vendor lacks the standard one.
    overlay("resnet50", "iluvatar", "ixrt_tmp_path: tmp/resnet50.engine\nhas_dynamic_axis: false\nimage_size: 224\n");
    // A key that the class reads is missing.
    for case in ["bertLarge", "sam_l", "vit_l_16"] {
        overlay(case, "kunlunxin", XTCL_OPTIONS);
    }
    write("inference_engine/kunlunxin/xtcl.py", XTCL);
    write("inference_engine/iluvatar/ixrt.py", IXRT);
    write("inference_engine/nvidia/torchtrt.py", TORCHTRT);
    write("inference_engine/nvidia/tensorrt.py", IXRT);
    write("inference_engine/zixiao/zxrt.py", &TORCHTRT.replace("torchtrt_full_compile", "zixiao_test_batch_size"));
    for image in
        ["nvidia/pytorch_1.13", "nvidia/pytorch_2.1", "kunlunxin/pytorch_1.13", "iluvatar/pytorch", "zixiao/pytorch"]
    {
        write(&format!("docker_images/{image}/Dockerfile"), "FROM base.example.org/image\n");
    }
    write("docker_images/nvidia/pytorch_1.13/pytorch1.13_install.sh", "pip install x\n");
    tree
}

/// Imports a tree and returns the report and the exit code.
fn import(checkout: &Path, tree: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let tree = tree.to_str().expect("a path that is text");
    let output = flagperf(checkout, &[&["import", "flagperf", tree, "--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout);
    (report.unwrap_or_else(|error| panic!("no JSON: {error}\n{errors}")), output.status.code())
}

/// Checks JSON against a schema of docs/schemas.
fn check_by_schema(name: &str, value: &Value) {
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    let file = support::root().join(format!("docs/schemas/{name}.json"));
    let index = compiler.compile(file.to_str().expect("a path"), &mut schemas).expect("a schema");
    assert_eq!(schemas.validate(value, index).err().map(|error| format!("{error:#}")), None);
}

/// Returns the keys of an import's report that have a change, each with its new name or null.
fn keys<'r>(report: &'r Value, change: &str) -> Vec<(&'r str, &'r Value)> {
    let keys = report["keys"].as_array().expect("a list").iter().filter(|key| key["change"] == change);
    keys.map(|key| (key["key"].as_str().expect("a key"), &key["to"])).collect()
}

#[test]
fn lint_finds_every_pair_of_an_imported_tree_whose_files_cannot_work() {
    let (checkout, tree) = (checkout(), flagperf_tree());
    let (report, code) = import(checkout.path(), tree.path(), &[]);
    check_by_schema("import", &report);
    assert_eq!((&report["problems"], code), (&json!([]), Some(0)));
    let output = flagperf(checkout.path(), &["lint", "--json", "--vendor", "kunlunxin", "--vendor", "iluvatar"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let lint: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_by_schema("lint", &lint);
    let findings = lint["findings"].as_array().expect("a list");
    let has_error = |case: &str, vendor: &str, part: &str| {
        findings.iter().any(|finding| {
            let is_of_pair = |pair: &Value| pair["case"] == case && pair["vendor"] == vendor;
            let message = format!("{}: {}", finding["origin"].as_str().unwrap_or_default(), finding["message"]);
            finding["level"] == "error"
                && message.contains(part)
                && finding["pairs"].as_array().is_some_and(|pairs| pairs.iter().any(is_of_pair))
        })
    };
    for (case, vendor, part) in [
        ("swinTransformer", "kunlunxin", "`fp16` is already `true`"),
        ("stable_diffusion_v2_1", "kunlunxin", "`no_validation` is already `false`"),
        ("resnet50", "iluvatar", "vendor `iluvatar` has no compiler `tensorrt`"),
        ("sam_l", "kunlunxin", "dataloader.rhai"),
    ] {
        assert!(has_error(case, vendor, part), "{case} {vendor} {part}\n{findings:#?}");
    }
    // `lint` runs no Python, so it does not know that `vit_l_16` lacks a key which the class of `kunlunxin` reads.
    for (case, vendor) in [("resnet50", "kunlunxin"), ("vit_l_16", "iluvatar"), ("vit_l_16", "kunlunxin")] {
        assert!(!has_error(case, vendor, ""), "{case} {vendor}\n{findings:#?}");
    }
    // A key that only the vendor knows is kept, and named with its pair.
    let is_new =
        |finding: &&Value| finding["message"].as_str().is_some_and(|text| text.contains("new key `ixrt_tmp_path`"));
    assert_eq!(findings.iter().filter(is_new).count(), 2, "{findings:#?}");
}

#[test]
fn every_key_of_an_imported_tree_is_written_or_reported() {
    let (checkout, tree) = (checkout(), flagperf_tree());
    let (report, _) = import(checkout.path(), tree.path(), &[]);
    assert_eq!(
        keys(&report, "renamed"),
        [("random_seed", &json!("seed")), ("image_size", &json!("tensorrt.image_size"))]
    );
    let left_out: Vec<&str> = keys(&report, "no_equivalent").into_iter().map(|(key, _)| key).collect();
    assert_eq!(left_out, ["weight_dir", "eval_file", "FLAGPERF_PATH", "torchtrt"]);
    let needs = |case: &Value| case["needs_scripts"].as_bool().expect("a flag");
    let cases: Vec<_> = report["cases"].as_array().expect("a list").iter().filter(|case| needs(case)).collect();
    let names: Vec<_> = cases.iter().map(|case| case["case"].as_str().expect("a name")).collect();
    assert_eq!(names, ["llama2_70b_mmlu", "sam_l", "stable_diffusion_v2_1"]);
    let files = report["files"].as_array().expect("a list");
    let outcome = |path: &str| files.iter().find(|file| file["path"] == path).map(|file| file["outcome"].clone());
    for (path, expected) in [
        ("configs/resnet50/configurations.yaml", "unchanged"),
        ("configs/bertLarge/configurations.yaml", "unchanged"),
        ("configs/resnet50/vendor_config/nvidia_configurations.yaml", "kept"),
        ("configs/host.yaml", "kept"),
        ("configs/llama2_70b_mmlu/configurations.yaml", "created"),
        ("vendors/zixiao/vendor.yaml", "replaced"),
        ("docker_images/kunlunxin/pytorch_1.13/Dockerfile", "created"),
    ] {
        assert_eq!(outcome(path), Some(json!(expected)), "{path}\n{files:#?}");
    }
    let line = report["keys"].as_array().expect("a list").iter().find(|key| key["key"] == "eval_file").expect("a key");
    assert!(line["file"].as_str().is_some_and(|file| file.ends_with("inference/configs/bertLarge/parameters.yaml")));
    assert_eq!(line["line"], 4);
}

#[test]
fn the_text_of_an_import_lists_files_keys_and_what_to_do_next() {
    let (checkout, tree) = (checkout(), flagperf_tree());
    let folder = tree.path().to_str().expect("a path that is text");
    let output = flagperf(checkout.path(), &["import", "flagperf", folder, "--dry-run"]);
    let text = String::from_utf8_lossy(&output.stdout).replace(folder, "[TREE]");
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("", Some(0)), "{text}");
    for part in [
        " vendors/zixiao/vendor.yaml",
        "would be created",
        "would be replaced",
        "\nRenamed:\n",
        "[TREE]/inference/configs/resnet50/vendor_config/iluvatar_configurations.yaml: `image_size` (line 3) becomes `tensorrt.image_size`: ",
        "These cases need scripts, which FlagPerf has in Python: llama2_70b_mmlu, sam_l, stable_diffusion_v2_1\n",
        "\n  --force replaces files with another content, but no code of an engine\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let vendor = fs::read_to_string(checkout.path().join("vendors/zixiao/vendor.yaml")).expect("its monitor");
    assert!(!vendor.contains("zxrt"), "{vendor}");
}

#[test]
fn an_imported_case_without_loading_threads_runs() {
    let (checkout, tree) = (checkout(), tempfile::tempdir().expect("a temporary folder"));
    let text = configurations(4, false, "1e6", "rten").replace("num_workers: 8", "num_workers: 0");
    fs::create_dir_all(tree.path().join("configs/tiny")).expect("a folder");
    fs::write(tree.path().join("configs/tiny/configurations.yaml"), text.replace("repeat: 5", "repeat: 2"))
        .expect("a file");
    let (report, code) = import(checkout.path(), tree.path(), &["--force"]);
    // Without a host.yaml, its sites and cases are those of the checkout.
    assert_eq!((code, report["problems"].as_array().map(Vec::len)), (Some(1), Some(1)));
    let written = fs::read_to_string(checkout.path().join("configs/tiny/configurations.yaml")).expect("a file");
    assert!(written.contains("\nnum_workers: 0\n"), "{written}");
    let run = flagperf(checkout.path(), &["run", "--plain"]);
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
    let (_, record) = record(checkout.path());
    assert_eq!((&record["status"], &record["settings"]["num_workers"]["value"]), (&json!("ok"), &json!(0)));
}

#[test]
fn a_folder_that_cannot_be_imported_is_refused_with_a_hint() {
    let (checkout, empty) = (checkout(), tempfile::tempdir().expect("a temporary folder"));
    let folder = empty.path().to_str().expect("a path that is text");
    let refused = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["import", "flagperf"], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&[folder]).contains("is not FlagPerf: ") && refused(&["gone"]).contains("hint: give the folder"));
    assert!(refused(&["."]).contains("is the checkout into which it would be imported"));
    let tree = flagperf_tree();
    let tree = tree.path().to_str().expect("a path that is text");
    assert!(refused(&[tree, "--output", folder]).contains("is not a checkout of flagperf"));
}

#[test]
fn broken_files_are_reported_and_the_exit_code_is_1() {
    let (checkout, tree) = (checkout(), flagperf_tree());
    let path = "inference/configs/vit_l_16/vendor_config/iluvatar_configurations.yaml";
    fs::write(tree.path().join(path), "compiler: ixrt\ncompiler: ixrt\n").expect("a file");
    let folder = tree.path().to_str().expect("a path that is text");
    let output = flagperf(checkout.path(), &["import", "flagperf", folder]);
    let errors = String::from_utf8_lossy(&output.stderr).replace(folder, "[TREE]");
    assert_eq!(errors, format!("error: [TREE]/{path}:2: key `compiler` is given twice (first on line 1)\n"));
    assert_eq!(output.status.code(), Some(1));
    assert!(checkout.path().join("configs/bertLarge/vendor_config/kunlunxin_configurations.yaml").exists());
}
