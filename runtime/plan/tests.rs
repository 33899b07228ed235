//! Tests of planning: a configuration and a catalogue in, jobs or messages out.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::json;

use super::*;
use crate::config::Overrides;
use crate::config::fixture::{Checkout, HOST, case, said, set};
use crate::event::Level;
use crate::step::Phase;
use crate::tensor::DType;
use crate::units::{Bytes, Seconds};

fn engines() -> Vec<KnownEngine> {
    engines_with(true)
}

/// The engines; whether rten takes a compiled file is the test's choice.
fn engines_with(takes_compiled: bool) -> Vec<KnownEngine> {
    let row = |name: &str, framework, compiler, precisions: &[DType]| KnownEngine {
        name: name.to_owned(),
        about: String::new(),
        framework,
        compiler,
        precisions: precisions.to_vec(),
        takes_library: name == "plugin",
        takes_compiled,
        takes_command: name == "sidecar",
    };
    vec![
        row("candle", true, false, &[DType::F32, DType::F16]),
        row("plugin", true, true, &[DType::F32, DType::F16]),
        row("rten", false, true, &[DType::F32]),
        row("sidecar", true, true, &[DType::F32, DType::F16]),
    ]
}

fn catalogue(root: &Path) -> Catalogue {
    Catalogue { monitors: vec!["nvml", "processor"], ..Catalogue::read(root, engines()) }
}

pub(super) fn planned(checkout: &Checkout, overrides: &Overrides) -> Result<Plan, PlanErrors> {
    plan(&checkout.load(overrides)?, &catalogue(checkout.root()))
}

pub(super) fn errors(checkout: &Checkout, overrides: &Overrides) -> Vec<String> {
    said(Level::Error, &planned(checkout, overrides).expect_err("something is wrong").0)
}

/// A checkout whose case runs on `chip`: rten has no f16.
pub(super) fn runnable() -> Checkout {
    Checkout::new().overlay("fp16: false\nbatch_size: 8\n")
}

#[test]
fn a_case_becomes_a_validating_and_an_inferring_job() {
    let checkout = runnable();
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let [toy] = plan.cases.as_slice() else { panic!("{:?}", plan.cases) };
    let [validate, infer] = toy.jobs.as_slice() else { panic!("{:?}", toy.jobs) };
    let folder = Path::new("toy_frame/localhost_noderank0");

    assert_eq!((validate.phase, infer.phase), (Phase::Validate, Phase::Infer));
    assert_eq!(validate.export, Some(folder.join("toy_bs8_frame_fp16False.onnx")));
    assert_eq!(infer.model, Some(ModelInput::Exported(folder.join("toy_bs8_frame_fp16False.graphs.json"))));
    assert_eq!((validate.engine.name.as_str(), validate.engine.engine.as_str()), ("frame", "candle"));
    assert_eq!((infer.engine.name.as_str(), infer.engine.engine.as_str(), infer.engine.threads), ("fast", "rten", 2));
    assert!(infer.engine.options.is_empty(), "an option that is null is left to the engine");
    assert_eq!(validate.scripts, checkout.path("scripts/toy"));
    assert_eq!(validate.data_dir, checkout.path("data"));
    assert_eq!(validate.parameters.target_accuracy, IndexMap::from([("top1".to_owned(), 0.5)]));
    assert_eq!(validate.settings.flops_per_sample, 4.12e9);
    assert_eq!(validate.settings.log_freq, 30);
    assert_eq!(
        json!(validate.config),
        json!({"batch_size": 8, "flops": "4.12e9", "fp16": false, "compiler": "fast", "num_workers": 8,
               "log_freq": 30, "repeat": 5, "no_validation": false, "exist_onnx_path": null,
               "exist_compiler_path": null, "image_size": 224, "target_accuracy": {"top1": 0.5},
               "agreement": {}, "bad_samples": "fail", "preloaded": false, "keep_f32": [], "weights": null, "seed": 0,
               "vendor": "chip", "case": "toy", "framework": "frame"})
    );
    let [validate, infer] = &toy.jobs_in(Path::new("/run"))[..] else { panic!() };
    assert_eq!(validate.log_dir, Path::new("/run/toy_frame/localhost_noderank0"));
    assert_eq!(validate.outputs, Some("/run/toy_frame/localhost_noderank0/outputs.safetensors".into()));
    assert_eq!(validate.outputs, infer.outputs);
}

#[test]
fn a_departure_is_in_the_plan_with_its_value() {
    let plan = planned(&runnable(), &set(&["batch_size=4", "threads=3"])).unwrap();
    assert_eq!(plan.cases[0].departures, [("batch_size".to_owned(), json!(4)), ("threads".to_owned(), json!(3))]);
    let threads: Vec<u32> = plan.cases[0].jobs.iter().map(|job| job.engine.threads).collect();
    assert_eq!(threads, [3, 3], "an option goes to every engine that knows it");
}

#[test]
fn only_options_that_an_engine_knows_reach_it() {
    let checkout = Checkout::new().overlay("fp16: false\nlevel: 3\ntmp_path: t\n");
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let [validate, infer] = plan.cases[0].jobs.as_slice() else { panic!() };
    assert_eq!(json!(infer.engine.options), json!({"level": 3}));
    assert!(validate.engine.options.is_empty());
    assert_eq!(validate.config["tmp_path"], json!("t"), "scripts see every key");
}

#[test]
fn an_option_that_no_engine_of_the_run_takes_is_a_warning_where_it_is_set() {
    let warnings = |overlay: &str| {
        let plan = planned(&Checkout::new().overlay(overlay), &Overrides::default()).unwrap();
        said(Level::Warning, &plan.findings)
    };
    let expected = "configs/toy/vendor_config/chip_configurations.yaml:3: option `level` has no effect: the engines of \
                    this run do not take it (frame)";
    let without_fast = warnings("fp16: false\ncompiler: null\nlevel: 3\nthreads: 2\n");
    assert!(without_fast.iter().any(|warning| warning.starts_with(expected)), "{without_fast:?}");
    assert!(!without_fast.iter().any(|warning| warning.contains("option `threads`")), "{without_fast:?}");
    for taken in ["fp16: false\nlevel: 3\n", "fp16: false\ncompiler: null\nlevel: null\n"] {
        assert!(!warnings(taken).iter().any(|warning| warning.contains("has no effect")), "{taken}");
    }
}

#[test]
fn limits_come_from_the_site() {
    let host = format!("{HOST}PHASE_TIMEOUT: 60\nWORKER_MEMORY: 1G\n");
    let plan = planned(&runnable().with("configs/host.yaml", &host), &Overrides::default()).unwrap();
    let limits = plan.cases[0].jobs[0].limits;
    assert_eq!((limits.phase_time_s, limits.worker_memory_bytes), (Seconds(60.0), Bytes(1 << 30)));
}

#[test]
fn an_unknown_vendor_is_named_with_the_known_ones() {
    let overrides = Overrides { vendor: Some("chop".to_owned()), ..Overrides::default() };
    assert_eq!(
        errors(&runnable(), &overrides),
        ["--vendor: unknown vendor `chop` (known: chip, other)\n  hint: did you mean `chip`?"]
    );
    let overrides = Overrides { vendor: Some("../chip".to_owned()), ..Overrides::default() };
    assert!(errors(&runnable(), &overrides)[0].starts_with("--vendor: unknown vendor `../chip` (known: chip, other)"));
}

#[test]
fn unknown_frameworks_and_compilers_are_named_with_the_vendors_own() {
    let checkout = runnable().overlay("fp16: false\ncompiler: fats\n");
    assert_eq!(
        errors(&checkout, &case("toy:farme")),
        [
            "--case toy:farme: vendor `chip` has no framework `farme` (known: frame)\n  hint: did you mean `frame`?",
            "configs/toy/vendor_config/chip_configurations.yaml:2: vendor `chip` has no compiler `fats` (known: fast, raw, \
             rare)\n  hint: did you mean `fast`?",
        ]
    );
    assert_eq!(
        errors(&runnable(), &set(&["compiler=tensorrt"])),
        [
            "--set compiler=tensorrt: vendor `chip` has no compiler `tensorrt` (known: fast, raw, rare)\n  hint: compilers are \
          listed in vendors/chip/vendor.yaml"
        ]
    );
}

#[test]
fn an_engine_that_this_build_lacks_or_that_cannot_take_the_side_is_an_error() {
    assert_eq!(
        errors(&runnable(), &set(&["compiler=rare"])),
        [
            "--set compiler=rare: compiler `rare` needs engine `tract`, which this build lacks (it has: candle, plugin, rten, sidecar)\n  hint: \
          `flagperf doctor` says how to get it"
        ]
    );
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: rten}}\ncompilers: {fast: {engine: rten}}\n";
    let checkout = runnable().with("vendors/chip/vendor.yaml", vendor);
    assert_eq!(errors(&checkout, &Overrides::default()), ["configs/host.yaml:3: engine `rten` cannot be a framework"]);
}

/// What is wrong with a case whose compiler is this entry of vendor.yaml, written on two lines.
fn errors_with(checkout: Checkout, entry: &str) -> Vec<String> {
    let vendor =
        format!("name: chip\nabout: a\nframeworks: {{frame: {{engine: candle}}}}\ncompilers:\n    fast:\n{entry}");
    errors(&checkout.with("vendors/chip/vendor.yaml", &vendor), &Overrides::default())
}

#[test]
fn a_plug_in_without_its_library_is_an_error_that_says_where() {
    assert_eq!(
        errors_with(runnable(), "        engine: plugin\n"),
        [
            "vendors/chip/vendor.yaml:5: compiler `fast` names no `library`, which engine `plugin` needs\n  hint: `library: \
          engines/libmychip.so` counts from the vendor's folder"
        ]
    );
    let checkout = runnable();
    let missing = checkout.path("vendors/chip/libfast.so");
    assert_eq!(
        errors_with(checkout, "        engine: plugin\n        library: libfast.so\n"),
        [format!(
            "vendors/chip/vendor.yaml:7: plug-in `{}` does not exist\n  hint: build it first: the README of the vendor's \
             folder says how",
            missing.display()
        )]
    );
    assert_eq!(
        errors_with(runnable(), "        engine: rten\n        library: libfast.so\n"),
        ["vendors/chip/vendor.yaml:7: compiler `fast` names a `library`, which engine `rten` does not take\n  hint: \
          `engine: plugin` loads a library"]
    );
}

#[test]
fn the_library_of_a_plug_in_reaches_the_job() {
    let checkout = runnable().with("vendors/chip/libfast.so", "");
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: candle}}\n\
                  compilers: {fast: {engine: plugin, library: libfast.so}}\n";
    let checkout = checkout.with("vendors/chip/vendor.yaml", vendor);
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let engine = &plan.cases[0].jobs[1].engine;
    assert_eq!(engine.folder.join(engine.library.as_ref().unwrap()), checkout.path("vendors/chip/libfast.so"));
}

/// What comes of a plug-in in this backend, where `torch` is installed and `other` is not.
fn in_backend(library: &str) -> Result<Plan, PlanErrors> {
    let vendor = format!(
        "name: chip\nabout: a\nframeworks: {{frame: {{engine: plugin, library: \"{library}\"}}}}\n\
         compilers: {{fast: {{engine: rten}}}}\n"
    );
    let checkout = runnable().with("vendors/chip/vendor.yaml", &vendor);
    let host = HOST.replace("toy:frame", "toy:frame_2.11");
    let checkout = checkout.with("configs/host.yaml", &host);
    let backends = vec![("other".to_owned(), None), ("torch".to_owned(), Some("/cache/libtorch.so".into()))];
    let catalogue = Catalogue { backends, ..catalogue(checkout.root()) };
    plan(&checkout.load(&Overrides::default())?, &catalogue)
}

#[test]
fn a_plug_in_in_a_backend_is_where_that_is_installed_with_the_version_asked_for() {
    let plan = in_backend("backend:torch").unwrap();
    let engine = &plan.cases[0].jobs[0].engine;
    assert_eq!(engine.folder.join(engine.library.as_ref().unwrap()), Path::new("/cache/libtorch.so"));
    assert_eq!((engine.name.as_str(), engine.version.as_deref()), ("frame_2.11", Some("2.11")));
    assert_eq!(plan.cases[0].jobs[1].engine.version, None, "compilers have no versions in their names");
}

#[test]
fn a_backend_that_is_not_installed_or_not_known_is_an_error_that_says_what_to_do() {
    let said = |library| said(Level::Error, &in_backend(library).unwrap_err().0).remove(0);
    assert_eq!(
        said("backend:other"),
        "vendors/chip/vendor.yaml:3: framework `frame_2.11` is in backend `other`, which is not installed\n  hint: \
         `flagperf backend install other` gets it"
    );
    assert_eq!(
        said("backend:touch"),
        "vendors/chip/vendor.yaml:3: framework `frame_2.11` is in backend `touch`, which there is not (known: other, \
         torch)\n  hint: `flagperf backend list` lists them"
    );
}

#[test]
fn a_precision_that_an_engine_lacks_is_an_error() {
    assert_eq!(
        errors(&Checkout::new(), &Overrides::default()),
        ["configs/toy/configurations.yaml:3: compiler `fast` does not compute in `f16` (it has: f32)\n  hint: `fp16: \
          false` computes in f32; a vendor sets it in its overlay"]
    );
}

#[test]
fn options_that_leave_nothing_to_do_or_no_model_are_errors() {
    let found = errors(&runnable(), &set(&["compiler=null", "no_validation=true"]));
    assert_eq!(
        found,
        [
            "--set no_validation=true: `compiler: null` together with `no_validation: true` leaves nothing to do\n  hint: set \
          one of them otherwise"
        ]
    );
    assert_eq!(
        errors(&runnable(), &set(&["no_validation=true"])),
        [
            "--set no_validation=true: `no_validation: true` needs `exist_onnx_path`\n  hint: name an ONNX file, or anything \
          when the compiler opens none"
        ]
    );
}

#[test]
fn a_compiled_file_for_a_compiler_that_takes_none_is_refused_where_it_is_said() {
    let checkout = runnable().with("m.plan", "");
    let config = checkout.load(&set(&["exist_compiler_path=m.plan"])).unwrap();
    let errors = plan(&config, &Catalogue::read(checkout.root(), engines_with(false))).unwrap_err();
    assert_eq!(
        said(Level::Error, &errors.0),
        ["--set exist_compiler_path=m.plan: compiler `fast` loads no file that it made earlier (engine `rten`)\n  \
          hint: leave `exist_compiler_path: null`: it compiles every time"]
    );
}

#[test]
fn a_missing_data_directory_is_an_error_unless_it_is_made_on_first_use() {
    let data = |path: &str| Overrides { data: Some(path.into()), ..Overrides::default() };
    assert_eq!(
        errors(&runnable(), &data("/nowhere")),
        ["--data: data directory `/nowhere` does not exist\n  hint: give --data DIR, or change `CASES`"]
    );
    let checkout = runnable().with("drawn/dataset.yaml", "generator: flagperf\n");
    assert!(planned(&checkout, &data(checkout.path("drawn/generated").to_str().unwrap())).is_ok());
}

#[test]
fn a_case_without_scripts_is_an_error() {
    let checkout = runnable().without("scripts/toy/model.rhai");
    assert_eq!(
        errors(&checkout, &Overrides::default()),
        ["configs/host.yaml:3: case `toy` has no scripts/toy/model.rhai"]
    );
    let no_model = set(&["no_validation=true", "exist_onnx_path=data/list.txt"]);
    assert!(planned(&checkout, &no_model).is_ok(), "no model is made without validation");
    let checkout = checkout.without("scripts/toy/dataloader.rhai");
    assert_eq!(errors(&checkout, &no_model), ["configs/host.yaml:3: case `toy` has no scripts/toy/dataloader.rhai"]);
}

#[test]
fn other_machines_and_containers_are_not_supported_yet_and_the_recipe_is_looked_for_first() {
    let host = format!("{HOST}HOSTS: [localhost, 10.1.2.155]\nCONTAINER: docker\n");
    let checkout = runnable().with("configs/host.yaml", &host);
    let remote = "configs/host.yaml:4: host `10.1.2.155` is not this machine, and other machines are not supported yet\n  \
                  hint: set `HOSTS: [localhost]`";
    let docker = "configs/host.yaml:5: `CONTAINER: docker` is not supported yet\n  hint: set `CONTAINER: none`";
    let recipe = "configs/host.yaml:3: no container recipe docker_images/chip/frame/Dockerfile";
    assert_eq!(errors(&checkout, &Overrides::default()), [remote, recipe, docker]);
    let checkout = checkout.with("docker_images/chip/frame/Dockerfile", "FROM scratch\n");
    assert_eq!(errors(&checkout, &Overrides::default()), [remote, docker]);
}

#[test]
fn everything_wrong_is_found_at_once() {
    let checkout = runnable()
        .overlay("fp16: false\nrepeat: 5\n")
        .with("configs/host.yaml", "VENDR: chip\nVENDOR: chip\nHOSTS: [far]\nCASES:\n  \"toy:frame\": nowhere\n");
    let found = errors(&checkout, &set(&["compiler=fats", "colour=red"]));
    let about = [
        "unknown key `VENDR`",
        "`repeat` is `5` already",
        "no key `colour`",
        "host `far`",
        "nowhere",
        "compiler `fats`",
    ];
    assert_eq!(found.len(), about.len(), "{found:#?}");
    for (message, part) in found.iter().zip(about) {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn every_effective_value_is_listed_with_its_place() {
    let checkout = runnable();
    let config = checkout.load(&set(&["repeat=1"])).unwrap();
    let listed: Vec<String> = rows(&config)
        .into_iter()
        .filter(|row| row.section != "site")
        .map(|Row { section, key, value, origin }| format!("{section} {key} = {value} ({origin})"))
        .collect();
    let overlay = "configs/toy/vendor_config/chip_configurations.yaml";
    assert_eq!(
        listed,
        [
            format!("toy:frame data = {} (configs/host.yaml:3)", checkout.path("data").display()),
            "toy:frame framework = frame (configs/host.yaml:3)".to_owned(),
            format!("toy:frame batch_size = 8 ({overlay}:2)"),
            "toy:frame flops = 4.12e9 (configs/toy/configurations.yaml:2)".to_owned(),
            format!("toy:frame fp16 = false ({overlay}:1)"),
            "toy:frame compiler = fast (configs/toy/configurations.yaml:4)".to_owned(),
            "toy:frame num_workers = 8 (configs/toy/configurations.yaml:5)".to_owned(),
            "toy:frame log_freq = 30 (default)".to_owned(),
            "toy:frame repeat = 1 (--set repeat=1)".to_owned(),
            "toy:frame no_validation = false (default)".to_owned(),
            "toy:frame exist_onnx_path = null (default)".to_owned(),
            "toy:frame exist_compiler_path = null (default)".to_owned(),
            "toy:frame target_accuracy = {\"top1\":0.5} (configs/toy/parameters.yaml:2)".to_owned(),
            "toy:frame agreement = {} (default)".to_owned(),
            "toy:frame bad_samples = fail (default)".to_owned(),
            "toy:frame preloaded = false (default)".to_owned(),
            "toy:frame keep_f32 = [] (default)".to_owned(),
            "toy:frame weights = null (default)".to_owned(),
            "toy:frame seed = 0 (default)".to_owned(),
            "toy:frame image_size = 224 (configs/toy/parameters.yaml:1)".to_owned(),
            "toy:frame frame.engine = candle (vendors/chip/vendor.yaml:4)".to_owned(),
            "toy:frame frame.threads = 0 (vendors/chip/vendor.yaml:4)".to_owned(),
            "toy:frame fast.engine = rten (vendors/chip/vendor.yaml:6)".to_owned(),
            "toy:frame fast.threads = 2 (vendors/chip/vendor.yaml:6)".to_owned(),
            "toy:frame fast.level = null (vendors/chip/vendor.yaml:6)".to_owned(),
        ]
    );
}
