//! Tests of planning: a configuration and a catalogue in, jobs or messages out.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::json;

use super::*;
use flagperf_config::fixture::{Checkout, HOST, case, messages_of, set};
use flagperf_config::{Overrides, display_value};
use flagperf_core::description::{Delivery, EngineDescription, Roles};
use flagperf_core::event::Level;
use flagperf_core::step::Phase;
use flagperf_core::tensor::DType;
use flagperf_core::units::{Bytes, Seconds};

pub(super) fn engines() -> Vec<EngineDescription> {
    engines_with(true)
}

/// Returns the engines; the caller decides whether they accept a compiled file.
fn engines_with(loads_compiled: bool) -> Vec<EngineDescription> {
    let row = |name: &'static str, framework, compiler, precisions: &'static [DType]| EngineDescription {
        roles: Roles { framework, compiler },
        precisions,
        loads_compiled,
        delivery: match name {
            "plugin" => Delivery::Library,
            "sidecar" => Delivery::Command,
            _ => Delivery::BuiltIn,
        },
        options: None,
        ..EngineDescription::unrestricted(name, "")
    };
    vec![
        row("interpreter", true, false, &[DType::F32, DType::F16]),
        row("plugin", true, true, &[DType::F32, DType::F16]),
        row("rten", false, true, &[DType::F32]),
        row("sidecar", true, true, &[DType::F32, DType::F16]),
    ]
}

pub(super) fn catalogue(root: &Path) -> Catalogue {
    Catalogue { monitors: vec!["nvml", "processor"], device_monitors: vec!["nvml"], ..Catalogue::read(root, engines()) }
}

pub(super) fn planned(checkout: &Checkout, overrides: &Overrides) -> Result<Plan, PlanErrors> {
    plan(&checkout.load(overrides)?, &catalogue(checkout.root()))
}

pub(super) fn errors(checkout: &Checkout, overrides: &Overrides) -> Vec<String> {
    messages_of(Level::Error, &planned(checkout, overrides).expect_err("something is wrong").0)
}

/// Returns a checkout whose case runs on `chip`: rten does not support f16.
pub(super) fn runnable() -> Checkout {
    Checkout::new().overlay("fp16: false\nbatch_size: 8\n")
}

#[test]
fn a_case_becomes_a_job_for_validation_and_one_for_inference() {
    let checkout = runnable();
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let [toy] = plan.cases.as_slice() else { panic!("{:?}", plan.cases) };
    let [validate, infer] = toy.jobs.as_slice() else { panic!("{:?}", toy.jobs) };
    let folder = Path::new("toy_frame/localhost_noderank0");
    assert_eq!((validate.phase(), infer.phase()), (Phase::Validate, Phase::Infer));
    assert_eq!(validate.task, Task::Validate { export: Some(folder.join("toy_bs8_frame_fp16False.onnx")) });
    let exported = ModelInput::Exported(folder.join("toy_bs8_frame_fp16False.graphs.json"));
    assert_eq!(infer.task, Task::Infer { model: exported });
    assert_eq!((validate.engine.name.as_str(), validate.engine.engine.as_str()), ("frame", "interpreter"));
    assert_eq!((infer.engine.name.as_str(), infer.engine.engine.as_str(), infer.engine.threads), ("fast", "rten", 2));
    assert!(infer.engine.options.is_empty(), "a null option is left to an engine that is no sidecar");
    assert_eq!([&validate.scripts, &validate.data_dir], [&checkout.path("scripts/toy"), &checkout.path("data")]);
    assert_eq!(validate.parameters.target_accuracy, IndexMap::from([("top1".to_owned(), 0.5)]));
    assert_eq!((validate.settings.flops_per_sample, validate.settings.log_freq), (4.12e9, 30));
    assert_eq!(
        json!(validate.config),
        json!({"batch_size": 8, "flops": "4.12e9", "flops_per_multiply_add": null, "fp16": false, "precision": "fp32", "compiler": "fast", "num_workers": 8, "prefetch": null, "search_loading": false, "decoder": null,
               "log_freq": 30, "repeat": 5, "queue_delay_us": 0, "no_validation": false, "exist_onnx_path": null, "exist_compiler_path": null, "switches": [], "forward": null, "evaluator": null, "image_size": 224, "target_accuracy": {"top1": 0.5}, "target_samples": 0, "target_index": null,
               "agreement": {}, "bad_samples": "fail", "unit": "sample", "preloaded": false, "trace": false, "scenario": {"kind": "offline"}, "input_cost": "fixed", "needs_network": false, "keep_f32": [], "weights": null, "default_data": null, "seed": 0, "vendor": "chip", "case": "toy", "framework": "frame"})
    );
    let [validate, infer] = &toy.jobs_in(Path::new("/run"))[..] else { panic!() };
    assert_eq!(validate.log_dir, Path::new("/run/toy_frame/localhost_noderank0"));
    assert_eq!([&validate.outputs, &infer.outputs], [&Some(validate.log_dir.join("outputs.safetensors")); 2]);
}

#[test]
fn a_departure_is_in_the_plan_with_its_value() {
    let plan = planned(&runnable(), &set(&["batch_size=4", "threads=3"])).unwrap();
    assert_eq!(plan.cases[0].departures, [("batch_size".to_owned(), json!(4)), ("threads".to_owned(), json!(3))]);
    let threads: Vec<u32> = plan.cases[0].jobs.iter().map(|job| job.engine.threads).collect();
    assert_eq!(threads, [3, 3], "an option reaches every engine that accepts it");
}

#[test]
fn an_engine_gets_only_the_options_that_it_accepts() {
    let checkout = Checkout::new().overlay("fp16: false\nlevel: 3\ntmp_path: t\n");
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let [validate, infer] = plan.cases[0].jobs.as_slice() else { panic!() };
    assert_eq!((json!(infer.engine.options), validate.engine.options.len()), (json!({"level": 3}), 0));
    assert_eq!(validate.config["tmp_path"], json!("t"), "scripts see every key");
}

#[test]
fn an_option_that_no_engine_of_the_case_accepts_is_a_warning_with_its_position() {
    let warnings = |overlay: &str| {
        let plan = planned(&Checkout::new().overlay(overlay), &Overrides::default()).unwrap();
        messages_of(Level::Warning, &plan.findings)
    };
    let expected = "configs/toy/vendor_config/chip_configurations.yaml:3: option `level` has no effect: no engine of this \
                    case accepts it (frame)";
    let without_fast = warnings("fp16: false\ncompiler: null\nlevel: 3\nthreads: 2\n");
    assert!(without_fast.iter().any(|warning| warning.starts_with(expected)), "{without_fast:?}");
    assert!(!without_fast.iter().any(|warning| warning.contains("option `threads`")), "{without_fast:?}");
    for accepted in ["fp16: false\nlevel: 3\n", "fp16: false\ncompiler: null\nlevel: null\n"] {
        assert!(!warnings(accepted).iter().any(|warning| warning.contains("has no effect")), "{accepted}");
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
fn an_unknown_vendor_is_reported_with_the_known_ones() {
    let overrides = Overrides { vendor: Some("chop".to_owned()), ..Overrides::default() };
    assert_eq!(
        errors(&runnable(), &overrides),
        ["--vendor: unknown vendor `chop` (known: chip, other)\n  hint: did you mean `chip`?"]
    );
    let overrides = Overrides { vendor: Some("../chip".to_owned()), ..Overrides::default() };
    assert!(errors(&runnable(), &overrides)[0].starts_with("--vendor: unknown vendor `../chip` (known: chip, other)"));
}

#[test]
fn unknown_frameworks_and_compilers_are_reported_with_those_of_the_vendor() {
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
        ["--set compiler=tensorrt: vendor `chip` has no compiler `tensorrt` (known: fast, raw, rare)\n  hint: the \
          engines are listed in vendors/chip/vendor.yaml"]
    );
}

#[test]
fn an_engine_that_is_not_in_this_build_or_does_not_support_the_role_is_an_error() {
    assert_eq!(
        errors(&runnable(), &set(&["compiler=rare"])),
        ["vendors/chip/vendor.yaml:8: compiler `rare` needs engine `xla`, which this build does not contain (known: \
             interpreter, plugin, rten, sidecar)\n  hint: \
          `flagperf list engines` lists them"]
    );
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: rten}}\ncompilers: {fast: {engine: rten}}\n";
    let checkout = runnable().with("vendors/chip/vendor.yaml", vendor);
    assert_eq!(errors(&checkout, &Overrides::default()), ["configs/host.yaml:3: engine `rten` cannot be a framework"]);
}

/// Returns the errors for a case whose compiler has this entry in vendor.yaml, written on two lines.
fn errors_with(checkout: Checkout, entry: &str) -> Vec<String> {
    let vendor =
        format!("name: chip\nabout: a\nframeworks: {{frame: {{engine: interpreter}}}}\ncompilers:\n    fast:\n{entry}");
    errors(&checkout.with("vendors/chip/vendor.yaml", &vendor), &Overrides::default())
}

#[test]
fn a_missing_or_unexpected_plug_in_library_is_an_error_with_its_position() {
    assert_eq!(
        errors_with(runnable(), "        engine: plugin\n"),
        ["vendors/chip/vendor.yaml:5: compiler `fast` has no `library`, but engine `plugin` needs one\n  hint: \
             add, for example, `library: engines/libmychip.so` (relative to the vendor's folder)"]
    );
    let checkout = runnable();
    let missing = checkout.path("vendors/chip/libfast.so");
    assert_eq!(
        errors_with(checkout, "        engine: plugin\n        library: libfast.so\n"),
        [format!(
            "vendors/chip/vendor.yaml:7: plug-in `{}` does not exist\n  hint: build it first: the README in the \
             vendor's folder or the beginning of its source describes how",
            missing.display()
        )]
    );
    assert_eq!(
        errors_with(runnable(), "        engine: rten\n        library: libfast.so\n"),
        [
            "vendors/chip/vendor.yaml:7: compiler `fast` has a `library`, but engine `rten` does not accept one\n  hint: \
          only `engine: plugin` loads a library"
        ]
    );
}

#[test]
fn the_library_of_a_plug_in_reaches_the_job() {
    let checkout = runnable().with("vendors/chip/libfast.so", "");
    let vendor = "name: chip\nabout: a\nframeworks: {frame: {engine: interpreter}}\n\
                  compilers: {fast: {engine: plugin, library: libfast.so}}\n";
    let checkout = checkout.with("vendors/chip/vendor.yaml", vendor);
    let plan = planned(&checkout, &Overrides::default()).unwrap();
    let engine = &plan.cases[0].jobs[1].engine;
    assert_eq!(engine.folder.join(engine.library.as_ref().unwrap()), checkout.path("vendors/chip/libfast.so"));
}

/// Plans a case with a plug-in in this backend, where `torch` is installed and `other` is not.
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
fn a_plug_in_in_a_backend_has_the_installed_path_and_the_requested_version() {
    let plan = in_backend("backend:torch").unwrap();
    let engine = &plan.cases[0].jobs[0].engine;
    assert_eq!(engine.folder.join(engine.library.as_ref().unwrap()), Path::new("/cache/libtorch.so"));
    assert_eq!((engine.name.as_str(), engine.version.as_deref()), ("frame_2.11", Some("2.11")));
    assert_eq!(plan.cases[0].jobs[1].engine.version, None, "compilers have no versions in their names");
}

#[test]
fn a_backend_that_is_unknown_or_not_installed_is_an_error_with_a_hint() {
    let message = |library| messages_of(Level::Error, &in_backend(library).unwrap_err().0).remove(0);
    assert_eq!(
        message("backend:other"),
        "vendors/chip/vendor.yaml:3: framework `frame_2.11` needs backend `other`, which is not installed\n  hint: \
         run `flagperf backend install other`"
    );
    assert_eq!(
        message("backend:touch"),
        "vendors/chip/vendor.yaml:3: framework `frame_2.11` needs the unknown backend `touch` (known: other, \
         torch)\n  hint: `flagperf backend list` lists the backends"
    );
}

#[test]
fn options_that_leave_nothing_to_do_or_no_model_are_errors() {
    let found = errors(&runnable(), &set(&["compiler=null", "no_validation=true"]));
    assert_eq!(
        found,
        ["--set no_validation=true: `compiler: null` together with `no_validation: true` leaves nothing to \
             do\n  hint: change one of the two settings"]
    );
    assert_eq!(
        errors(&runnable(), &set(&["no_validation=true"])),
        ["--set no_validation=true: `no_validation: true` needs `exist_onnx_path`\n  hint: name an ONNX file, or \
             any text if the compiler does not open ONNX files"]
    );
}

#[test]
fn a_compiled_file_for_a_compiler_that_cannot_load_one_is_refused_with_its_position() {
    let checkout = runnable().with("m.plan", "");
    let config = checkout.load(&set(&["exist_compiler_path=m.plan"])).unwrap();
    let errors = plan(&config, &Catalogue::read(checkout.root(), engines_with(false))).unwrap_err();
    assert_eq!(
        messages_of(Level::Error, &errors.0),
        ["--set exist_compiler_path=m.plan: compiler `fast` cannot load a compiled file (engine `rten`)\n  \
          hint: it compiles in every run: set `exist_compiler_path: null`, or use an engine that loads this file"]
    );
}

#[test]
fn a_missing_data_directory_is_an_error_unless_it_is_generated_on_first_use() {
    let data = |path: &str| Overrides { data: Some(path.into()), ..Overrides::default() };
    assert_eq!(
        errors(&runnable(), &data("/nowhere")),
        ["--data: data directory `/nowhere` does not exist\n  hint: give --data an existing folder, or change `CASES`"]
    );
    let checkout = runnable().with("drawn/dataset.yaml", "generator: flagperf\n");
    assert!(planned(&checkout, &data(checkout.path("drawn/generated").to_str().unwrap())).is_ok());
}

#[test]
fn a_generated_dataset_grows_to_eight_batches_and_another_one_does_not() {
    let folder = |generator: &str, set: &[&str]| {
        let text = format!(
            "name: drawn\nabout: a\nsource: s\nlicence: l\n{generator}samples: 64\nlayout: {{generated: files}}\n\
             folders: [{{glob: 'generated/*', count: 64}}]\n"
        );
        let checkout = runnable().with("drawn/dataset.yaml", &text).with("drawn/generated/a", "");
        let data = Some(checkout.path("drawn/generated"));
        let plan = planned(&checkout, &Overrides { data, ..super::tests::set(set) }).unwrap();
        plan.cases[0].jobs[0].data_dir.file_name().unwrap().to_string_lossy().into_owned()
    };
    let drawn = "generator: flagperf\n";
    assert_eq!(folder(drawn, &["batch_size=8"]), "generated");
    assert_eq!(folder(drawn, &["batch_size=9"]), "generated-72");
    assert_eq!(folder(drawn, &["batch_size=256"]), "generated-2048");
    assert_eq!(folder(drawn, &["batch_size=300"]), "generated-2048");
    assert_eq!(folder("", &["batch_size=256"]), "generated");
}

#[test]
fn a_case_without_scripts_is_an_error() {
    let checkout = runnable().without("scripts/toy/model.rhai");
    assert_eq!(
        errors(&checkout, &Overrides::default()),
        ["configs/toy/configurations.yaml: case `toy` has no scripts/toy/model.rhai"]
    );
    let no_model = set(&["no_validation=true", "exist_onnx_path=data/list.txt"]);
    assert!(planned(&checkout, &no_model).is_ok(), "no model is built without validation");
    let checkout = checkout.without("scripts/toy/dataloader.rhai");
    assert_eq!(
        errors(&checkout, &no_model),
        ["configs/toy/configurations.yaml: case `toy` has no scripts/toy/dataloader.rhai"]
    );
}

#[test]
fn exactly_one_script_serves_a_stage() {
    let parameters = |text: &str| runnable().with("configs/toy/parameters.yaml", text);
    let shared = |checkout: Checkout| {
        checkout
            .with("scripts/lib/classification.rhai", "")
            .with("scripts/lib/notes.txt", "")
            .without("scripts/toy/forward.rhai")
    };
    assert_eq!(
        errors(&shared(parameters("image_size: 224\n")), &Overrides::default()),
        [
            "configs/toy/parameters.yaml: case `toy` has neither scripts/toy/forward.rhai nor `forward: lib/NAME` in its \
             parameters.yaml\n  hint: write forward.rhai, or name the shared script in scripts/lib that serves the case"
        ]
    );
    assert_eq!(
        errors(&parameters("forward: lib/classification\n"), &Overrides::default()),
        ["configs/toy/parameters.yaml:1: `forward` names a shared script, but case `toy` has \
             scripts/toy/forward.rhai, too\n  hint: delete the line or forward.rhai"]
    );
    assert_eq!(
        errors(&shared(parameters("forward: lib/clasification\n")), &Overrides::default()),
        ["configs/toy/parameters.yaml:1: unknown shared script `lib/clasification` (known: lib/classification)\n  \
             hint: did you mean `lib/classification`?"]
    );
    for path in ["../toy/model", "lib/../x", "/lib/x", "5"] {
        let found = errors(&parameters(&format!("evaluator: {path}\n")), &Overrides::default()).join("\n");
        let expected = "configs/toy/parameters.yaml:1: `evaluator` must be a shared script such as \
                        `lib/classification`, or null, not `";
        assert!(found.starts_with(expected), "{found}");
    }
    let plan = planned(&shared(parameters("forward: lib/classification\n")), &Overrides::default()).unwrap();
    assert_eq!(plan.cases[0].jobs[1].parameters.forward.as_deref(), Some("lib/classification"));
    let overlay = shared(parameters("")).overlay("fp16: false\nforward: lib/classification\n");
    let refused = errors(&overlay, &Overrides::default()).join("\n");
    assert!(
        refused.contains("vendor_config/chip_configurations.yaml:2: `forward` is a case parameter")
            || refused.contains("vendor_config/chip_configurations.yaml:2: `forward` cannot be set by a vendor"),
        "{refused}"
    );
}

#[test]
fn the_folder_of_shared_scripts_is_no_case() {
    let checkout = runnable().with("scripts/lib/dataloader.rhai", "").with("configs/lib/parameters.yaml", "");
    assert!(catalogue(checkout.root()).cases.get("lib").is_none_or(|case| case.scripts.is_empty()));
    let found = errors(&checkout, &case("lib:frame")).join("\n");
    assert!(found.starts_with("--case lib:frame: unknown case `lib` (known: toy)"), "{found}");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let checkout = runnable()
        .overlay("fp16: false\nrepeat: 5\n")
        .with("configs/host.yaml", "VENDR: chip\nVENDOR: chip\nCASES:\n  \"toy:frame\": nowhere\n");
    let found = errors(&checkout, &set(&["compiler=fats", "colour=red"]));
    let about = ["unknown key `VENDR`", "`repeat` is already `5`", "no key `colour`", "nowhere", "compiler `fats`"];
    assert_eq!(found.len(), about.len(), "{found:#?}");
    found.iter().zip(about).for_each(|(message, part)| assert!(message.contains(part), "{message}"));
}

#[test]
fn every_effective_value_is_listed_with_its_origin() {
    let checkout = runnable();
    let config = checkout.load(&set(&["repeat=1"])).unwrap();
    let listed: Vec<String> = effective_values(&config)
        .into_iter()
        .filter(|row| row.section != "site")
        .map(|EffectiveValue { section, key, value, origin }| {
            format!("{section} {key} = {} ({origin})", display_value(&value))
        })
        .collect();
    let overlay = "configs/toy/vendor_config/chip_configurations.yaml";
    assert_eq!(
        listed,
        [
            format!("toy:frame data = {} (configs/host.yaml:3)", checkout.path("data").display()),
            "toy:frame framework = frame (configs/host.yaml:3)".to_owned(),
            format!("toy:frame batch_size = 8 ({overlay}:2)"),
            "toy:frame flops = 4.12e9 (configs/toy/configurations.yaml:2)".to_owned(),
            "toy:frame flops_per_multiply_add = null (default)".to_owned(),
            format!("toy:frame fp16 = false ({overlay}:1)"),
            format!("toy:frame precision = fp32 ({overlay}:1)"),
            "toy:frame compiler = fast (configs/toy/configurations.yaml:4)".to_owned(),
            "toy:frame num_workers = 8 (configs/toy/configurations.yaml:5)".to_owned(),
            "toy:frame prefetch = null (default)".to_owned(),
            "toy:frame search_loading = false (default)".to_owned(),
            "toy:frame decoder = null (default)".to_owned(),
            "toy:frame log_freq = 30 (default)".to_owned(),
            "toy:frame repeat = 1 (--set repeat=1)".to_owned(),
            "toy:frame queue_delay_us = 0 (default)".to_owned(),
            "toy:frame no_validation = false (default)".to_owned(),
            "toy:frame exist_onnx_path = null (default)".to_owned(),
            "toy:frame exist_compiler_path = null (default)".to_owned(),
            "toy:frame switches = [] (default)".to_owned(),
            "toy:frame forward = null (default)".to_owned(),
            "toy:frame evaluator = null (default)".to_owned(),
            "toy:frame target_accuracy = {\"top1\":0.5} (configs/toy/parameters.yaml:2)".to_owned(),
            "toy:frame target_samples = 0 (default)".to_owned(),
            "toy:frame target_index = null (default)".to_owned(),
            "toy:frame agreement = {} (default)".to_owned(),
            "toy:frame bad_samples = fail (default)".to_owned(),
            "toy:frame unit = sample (default)".to_owned(),
            "toy:frame preloaded = false (default)".to_owned(),
            "toy:frame trace = false (default)".to_owned(),
            "toy:frame scenario = {\"kind\":\"offline\"} (default)".to_owned(),
            "toy:frame input_cost = fixed (default)".to_owned(),
            "toy:frame needs_network = false (default)".to_owned(),
            "toy:frame keep_f32 = [] (default)".to_owned(),
            "toy:frame weights = null (default)".to_owned(),
            "toy:frame default_data = null (default)".to_owned(),
            "toy:frame seed = null (default)".to_owned(),
            "toy:frame image_size = 224 (configs/toy/parameters.yaml:1)".to_owned(),
            "toy:frame frame.engine = interpreter (vendors/chip/vendor.yaml:4)".to_owned(),
            "toy:frame frame.threads = 0 (vendors/chip/vendor.yaml:4)".to_owned(),
            "toy:frame fast.engine = rten (vendors/chip/vendor.yaml:6)".to_owned(),
            "toy:frame fast.threads = 2 (vendors/chip/vendor.yaml:6)".to_owned(),
            "toy:frame fast.level = null (vendors/chip/vendor.yaml:6)".to_owned(),
        ]
    );
}
