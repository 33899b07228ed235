//! Tests of loading: a checkout and a command line in; values with origins, and messages, out.

mod refused_values;

use serde_json::json;

use super::fixture::{Checkout, HOST, case, set};
use super::{Container, Environment, Overrides, find_root};
use flagperf_core::event::Level;
use flagperf_core::units::{Bytes, FlopsPerSecond, Seconds};

fn errors(checkout: &Checkout) -> Vec<String> {
    checkout.messages(Level::Error, &Overrides::default())
}

#[test]
fn a_fresh_checkout_has_no_findings_and_every_value_has_an_origin() {
    let checkout = Checkout::new();
    let config = checkout.load(&Overrides::default()).unwrap();
    let others = config.findings.iter().filter(|finding| !finding.message.contains("has no overlay"));
    assert_eq!(others.count(), 0, "{:?}", config.findings);
    let [toy] = config.cases.as_slice() else { panic!() };
    let origin = |key: &str| toy.settings[key].origin.to_string();
    assert_eq!(origin("batch_size"), "configs/toy/configurations.yaml:1");
    assert_eq!(origin("log_freq"), "default");
    assert_eq!(toy.parameters["image_size"].origin.to_string(), "configs/toy/parameters.yaml:1");
    assert_eq!(toy.key.origin.to_string(), "configs/host.yaml:3");
    assert_eq!(toy.data_dir.value, checkout.path("data"));
    assert_eq!(config.site_values["VENDOR"].origin.to_string(), "configs/host.yaml:1");
}

#[test]
fn host_yaml_has_the_keys_and_types_of_flagperf_with_defaults() {
    let host = "FLAGPERF_LOG_PATH: logs\nVENDOR: \"chip\"\nFLAGPERF_LOG_LEVEL: \"debug\"\nLOG_CALL_INFORMATION: no\n\
                SSH_PORT: \"22\"\nHOSTS_PORTS: [\"2222\", 2223]\nSHM_SIZE: \"1G\"\nACCE_CONTAINER_OPT: \" --gpus all\"\n\
                PHASE_TIMEOUT: 60\nWORKER_MEMORY: 2g\nCASES:\n  toy:frame_1.2: /abs/data\n";
    let checkout = Checkout::new().with("configs/host.yaml", host);
    let config = checkout.load(&Overrides::default()).unwrap();
    let others = config.findings.iter().filter(|finding| !finding.message.contains("has no overlay"));
    assert_eq!(others.count(), 0, "{:?}", config.findings);
    let site = config.site;
    assert_eq!(site.flagperf_path, checkout.root());
    assert_eq!(site.flagperf_log_path, checkout.path("logs"));
    assert_eq!((site.flagperf_log_level.as_str(), site.log_call_information), ("DEBUG", false));
    assert_eq!((site.ssh_port, site.hosts_ports, site.master_port), (22, vec![2222, 2223], 29501));
    assert_eq!((site.shm_size, site.worker_memory), (Some(Bytes(1 << 30)), Some(Bytes(2 << 30))));
    assert_eq!(site.acce_container_opt.as_deref(), Some(" --gpus all"));
    assert_eq!(
        (site.hosts, site.container, site.phase_timeout),
        (vec!["localhost".to_owned()], Container::None, Seconds(60.0))
    );
    assert_eq!(config.cases[0].key.value.framework, "frame_1.2");
    assert_eq!(config.cases[0].data_dir.value.to_str(), Some("/abs/data"));
}

#[test]
fn a_mistake_in_host_yaml_is_reported_with_its_line() {
    let host = "VENDR: chip\nSSH_PORT: \"http\"\nLOG_CALL_INFORMATION: maybe\nCONTAINER: podman\nHOSTS: []\n\
                CASES:\n  toy: data\n  \"tpy:frame\": data\n";
    let found = errors(&Checkout::new().with("configs/host.yaml", host));
    assert!(found[0].starts_with(
        "configs/host.yaml:1: unknown key `VENDR` (nearest: `VENDOR`)\n  hint: known keys: FLAGPERF_PATH, "
    ));
    assert_eq!(
        found[1..],
        [
            "configs/host.yaml:2: `SSH_PORT` must be a port from 1 to 65535, not the string `\"http\"`",
            "configs/host.yaml:3: `LOG_CALL_INFORMATION` must be true or false, not `maybe`",
            "configs/host.yaml:4: `CONTAINER` must be `none` or `docker`, not `podman`",
            "configs/host.yaml:5: `HOSTS` must be a non-empty list of strings, not a list",
            "configs/host.yaml:7: `toy` is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)",
            "configs/host.yaml:8: unknown case `tpy` (known: toy)\n  hint: did you mean `toy`?",
        ]
    );
}

#[test]
fn a_missing_or_malformed_host_yaml_is_an_error() {
    let checkout = Checkout::new().without("configs/host.yaml");
    assert_eq!(
        errors(&checkout),
        [
            "configs/host.yaml: cannot be read: No such file or directory (os error 2)\n  hint: run inside a checkout, or \
          give the folder of host.yaml with --config or FLAGPERF_CONFIG"
        ]
    );
    let malformed = |text: &str| errors(&Checkout::new().with("configs/host.yaml", text)).join("\n");
    assert_eq!(
        malformed("VENDOR: chip\nVENDOR: chip\n"),
        "configs/host.yaml:2: key `VENDOR` is given twice (first on line 1)"
    );
    assert_eq!(malformed("- chip\n"), "configs/host.yaml:1: must be a mapping of keys to values");
    assert!(
        malformed("HOSTS: [a\nCASES: {}\n").starts_with("configs/host.yaml:2: "),
        "{}",
        malformed("HOSTS: [a\nCASES: {}\n")
    );
    assert!(malformed("VENDOR: chip\n").contains("configs/host.yaml:1: `CASES` is empty"));
}

#[test]
fn environment_and_command_line_override_host_yaml() {
    let checkout =
        Checkout::new().with("site/host.yaml", "VENDOR: chip\nCASES: {\"toy:frame\": data}\nMASTER_PORT: 7\n");
    let environment = Environment {
        config: Some(checkout.path("site")),
        log_level: Some("error".to_owned()),
        log_call_information: Some("maybe".to_owned()),
        slurm_nodes: None,
    };
    let overrides =
        Overrides { vendor: Some("other".to_owned()), environment: environment.clone(), ..Overrides::default() };
    let config = checkout.load(&overrides).unwrap();
    let shown = |key: &str| (config.site_values[key].value.clone(), config.site_values[key].origin.to_string());
    assert_eq!(shown("VENDOR"), (json!("other"), "--vendor".to_owned()));
    assert_eq!(shown("FLAGPERF_LOG_LEVEL"), (json!("ERROR"), "$FLAGPERF_LOG_LEVEL".to_owned()));
    assert_eq!(shown("MASTER_PORT"), (json!(7), "site/host.yaml:3".to_owned()));
    assert_eq!(
        checkout.messages(Level::Error, &overrides),
        ["$LOG_CALL_INFORMATION: `LOG_CALL_INFORMATION` must be true or false, not `maybe`"]
    );
    let flag = Overrides { config: Some(checkout.path("configs/host.yaml")), environment, ..Overrides::default() };
    assert_eq!(checkout.load(&flag).unwrap().site.master_port, 29501, "--config overrides FLAGPERF_CONFIG");
}

#[test]
fn flagperf_path_selects_the_checkout_and_must_be_one() {
    let elsewhere = Checkout::new();
    let here = Checkout::new();
    let host = |path: &str| format!("FLAGPERF_PATH: {path}\n{HOST}");
    let here = here.with("configs/host.yaml", &host(elsewhere.root().to_str().unwrap()));
    let config = here.load(&Overrides::default()).unwrap();
    assert_eq!(config.cases[0].data_dir.value, elsewhere.path("data"));
    let here = here.with("configs/host.yaml", &host("data"));
    assert_eq!(
        errors(&here),
        [format!(
            "configs/host.yaml:1: `{}` is not a flagperf checkout: configs/ or scripts/ is missing",
            here.path("data").display()
        )]
    );
    assert_eq!(find_root(&here.path("scripts/toy")), Some(here.root().to_owned()));
    assert_eq!(find_root(std::path::Path::new("/")), None);
}

#[test]
fn a_mistake_in_configurations_yaml_is_reported_with_its_line() {
    let text = "batchsize: 8\nbatch_size: 0\nflops: 2*exit(1)\nfp16: \"true\"\ncompiler: [fast]\nnum_workers: 2.5\n";
    let found = errors(&Checkout::new().with("configs/toy/configurations.yaml", text));
    let file = "configs/toy/configurations.yaml";
    assert_eq!(
        found,
        [
            format!(
                "{file}:1: unknown key `batchsize` (nearest: `batch_size`)\n  hint: known keys: batch_size, flops, \
                 flops_per_multiply_add, fp16, precision, \
                 compiler, num_workers, prefetch, search_loading, decoder, log_freq, repeat, queue_delay_us, no_validation, exist_onnx_path, exist_compiler_path, switches"
            ),
            format!("{file}:2: `batch_size` must be a whole number from 1 to 4294967295, not `0`"),
            format!(
                "{file}:3: `flops`: `2*exit(1)`: `exit(1)` at character 3 is not a number\n  hint: write numbers \
                 joined by `*` and `+`, such as `4.12e9` or `2*512*0.33e9`"
            ),
            format!("{file}:4: `fp16` must be true or false, not the string `\"true\"`"),
            format!("{file}:5: `compiler` must be a string or null, not a list"),
            format!("{file}:6: `num_workers` must be a whole number from 0 to 1024, not `2.5`"),
            format!("{file}:1: `repeat` is missing\n  hint: passes over the dataset"),
        ]
    );
}

#[test]
fn parameters_may_have_any_name_except_those_that_belong_elsewhere() {
    let checkout =
        Checkout::new().with("configs/toy/parameters.yaml", "anything: {a: [1]}\nrepeat: 2\nvendor: x\nhosts: [y]\n");
    assert_eq!(
        errors(&checkout),
        [
            "configs/toy/parameters.yaml:2: `repeat` belongs to configurations.yaml\n  hint: choose another name for the parameter",
            "configs/toy/parameters.yaml:3: `vendor` is set by the host itself",
            "configs/toy/parameters.yaml:4: `hosts` belongs to host.yaml (`HOSTS`)\n  hint: site settings are \
             allowed only in host.yaml",
        ]
    );
    let missing = Checkout::new().without("configs/toy/parameters.yaml");
    assert_eq!(
        errors(&missing),
        ["configs/toy/parameters.yaml: cannot be read: No such file or directory (os error 2)\n  hint: each case has \
          configurations.yaml and parameters.yaml in its folder; only the second may be empty"]
    );
}

const OVERLAY: &str = "configs/toy/vendor_config/chip_configurations.yaml";

#[test]
fn an_overlay_that_sets_a_parameter_is_an_error() {
    assert_eq!(
        errors(&Checkout::new().overlay("image_size: 192\n")),
        [format!(
            "{OVERLAY}:1: `image_size` is a case parameter (configs/toy/parameters.yaml:1); an overlay cannot change it\n  \
             hint: delete the line"
        )]
    );
}

#[test]
fn an_overlay_that_sets_a_key_of_host_yaml_in_any_letter_case_is_an_error() {
    let hint = "hint: site settings are allowed only in host.yaml";
    assert_eq!(
        errors(&Checkout::new().overlay("shm_size: 1G\nSSH_PORT: 1\n")),
        [
            format!("{OVERLAY}:1: `shm_size` belongs to host.yaml (`SHM_SIZE`)\n  {hint}"),
            format!("{OVERLAY}:2: `SSH_PORT` belongs to host.yaml (`SSH_PORT`)\n  {hint}"),
        ]
    );
}

#[test]
fn an_overlay_that_sets_a_key_of_the_host_itself_is_an_error() {
    for key in ["perf_dir", "data_dir", "log_dir", "vendor", "case", "framework"] {
        let found = errors(&Checkout::new().overlay(&format!("# note\n{key}: x\n")));
        assert_eq!(found, [format!("{OVERLAY}:2: `{key}` is set by the host itself")]);
    }
}

#[test]
fn an_overlay_that_sets_an_equal_typed_value_is_an_error() {
    let base = |line: usize| format!("configs/toy/configurations.yaml:{line}");
    for (text, value, base) in [
        ("batch_size: 256", "256", base(1)),
        ("fp16: Yes", "true", base(3)),
        ("compiler: \"fast\"", "fast", base(4)),
        ("log_freq: 30", "30", "default".to_owned()),
        ("exist_onnx_path:", "null", "default".to_owned()),
    ] {
        let key = text.split(':').next().unwrap();
        assert_eq!(
            errors(&Checkout::new().overlay(text)),
            [format!(
                "{OVERLAY}:1: `{key}` is already `{value}` ({base}); an overlay must change the value\n  hint: delete the line"
            )]
        );
    }
}

#[test]
fn an_overlay_of_the_wrong_type_is_an_error() {
    let found = errors(&Checkout::new().overlay("batch_size: many\n"));
    assert_eq!(found, [format!("{OVERLAY}:1: `batch_size` must be a whole number from 1 to 4294967295, not `many`")]);
}

#[test]
fn a_new_key_of_an_overlay_is_kept_with_a_warning() {
    let checkout = Checkout::new().overlay("tmp_path: t\nbatchsize: 8\nlevel: 3\n");
    assert_eq!(
        checkout.messages(Level::Warning, &Overrides::default()),
        [
            format!("{OVERLAY}:1: new key `tmp_path` of vendor `chip`"),
            format!("{OVERLAY}:2: new key `batchsize` of vendor `chip` (nearest: `batch_size`)"),
        ]
    );
    let noted = checkout.messages(Level::Info, &Overrides::default());
    assert_eq!(noted, [format!("{OVERLAY}:3: new key `level` of vendor `chip`")], "an option of the vendor");
    let vendor_values = &checkout.load(&Overrides::default()).unwrap().cases[0].vendor_values;
    assert_eq!((&vendor_values["tmp_path"].value, &vendor_values["level"].value), (&json!("t"), &json!(3)));
}

#[test]
fn a_changed_key_of_an_overlay_is_noted() {
    let checkout = Checkout::new().overlay("batch_size: 8\nfp16: no\n");
    assert_eq!(
        checkout.messages(Level::Info, &Overrides::default()),
        [
            format!("{OVERLAY}:1: `batch_size`: `256` (configs/toy/configurations.yaml:1) becomes `8`"),
            format!("{OVERLAY}:2: `fp16`: `true` (configs/toy/configurations.yaml:3) becomes `false`"),
        ]
    );
    assert_eq!(checkout.load(&Overrides::default()).unwrap().cases[0].settings["batch_size"].value, json!(8));
}

#[test]
fn an_empty_overlay_is_accepted() {
    assert_eq!(errors(&Checkout::new().overlay("")), [""; 0]);
    assert_eq!(errors(&Checkout::new().overlay("# nothing differs\n")), [""; 0]);
}

#[test]
fn set_overrides_every_layer_with_typed_values_and_marks_a_departure() {
    let checkout = Checkout::new().overlay("batch_size: 8\n");
    let overrides =
        set(&["batch_size=4", "image_size=192", "target_accuracy={top1: 1}", "threads=3", "exist_onnx_path=m.onnx"]);
    let config = checkout.load(&overrides).unwrap();
    let toy = &config.cases[0];
    assert_eq!(toy.settings["batch_size"].value, json!(4));
    assert_eq!(toy.settings["batch_size"].origin.to_string(), "--set batch_size=4");
    assert_eq!(toy.parameters["image_size"].value, json!(192));
    assert_eq!(toy.parameters["target_accuracy"].value, json!({"top1": 1}));
    assert_eq!(toy.vendor_values["threads"].value, json!(3), "an option of the vendor's engines");
    assert_eq!(toy.departures, ["batch_size", "image_size", "target_accuracy", "threads", "exist_onnx_path"]);
    assert_eq!(
        checkout.messages(Level::Warning, &set(&["batch_size=4"])),
        [format!(
            "--set batch_size=4: `batch_size`: `8` ({OVERLAY}:1) becomes `4`: a departure from the standard configuration"
        )]
    );
}

#[test]
fn case_selects_cases_and_frameworks() {
    let host = "VENDOR: chip\nCASES:\n  \"toy:frame\": data\n  \"toy:frame_2\": more\n  \"toy:slide\": data\n";
    let checkout = Checkout::new().with("configs/host.yaml", host);
    let chosen = |overrides: &Overrides| -> Vec<String> {
        let config = checkout.load(overrides).unwrap();
        config.cases.iter().map(|case| format!("{} {}", case.key.value, case.data_dir.value.display())).collect()
    };
    let data = |name: &str| checkout.path(name).display().to_string();
    assert_eq!(chosen(&Overrides::default()).len(), 3);
    assert_eq!(
        chosen(&case("toy")),
        [format!("toy:frame {}", data("data")), format!("toy:frame_2 {}", data("more"))],
        "only frameworks that the vendor has"
    );
    assert_eq!(chosen(&case("toy:frame_2")), [format!("toy:frame_2 {}", data("more"))]);
    assert_eq!(
        chosen(&case("toy:frame_3")),
        [format!("toy:frame_3 {}", data("data"))],
        "the data folder of the same case"
    );
    let elsewhere = Overrides { data: Some("/elsewhere".into()), ..case("toy:frame") };
    assert_eq!(chosen(&elsewhere), ["toy:frame /elsewhere"]);
}

#[test]
fn a_case_without_a_framework_runs_with_the_only_one_of_the_vendor() {
    let overrides = Overrides { vendor: Some("other".to_owned()), ..case("toy") };
    let checkout = Checkout::new();
    assert_eq!(checkout.load(&overrides).unwrap().cases[0].key.value.to_string(), "toy:slide");
    assert_eq!(
        checkout.messages(Level::Info, &overrides)[0],
        "vendors/other/vendor.yaml:4: case `toy` runs with `slide`, the only framework of vendor `other`"
    );
}

#[test]
fn a_case_that_cannot_be_chosen_is_an_error() {
    let checkout = Checkout::new();
    let message = |overrides: &Overrides| checkout.messages(Level::Error, overrides).join("\n");
    assert_eq!(message(&case("tyo")), "--case tyo: unknown case `tyo` (known: toy)\n  hint: did you mean `toy`?");
    assert_eq!(
        message(&case("bert:frame")),
        "--case bert:frame: unknown case `bert` (known: toy)\n  hint: a case has a folder in configs/ and one in scripts/"
    );
    assert_eq!(
        message(&case("toy:")),
        "--case toy:: `toy:` is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)"
    );
    let empty = Checkout::new().with("configs/host.yaml", "VENDOR: chip\n");
    let place = |checkout: &Checkout| {
        let data = checkout.load(&case("toy")).unwrap().cases[0].data_dir.clone();
        assert!(data.value.ends_with("datasets/toy"), "{data:?}");
        data.origin.to_string()
    };
    assert_eq!(place(&empty), "configs/host.yaml:1", "a missing folder is reported only if the case reads a file");
    let listed = Checkout::new().with("configs/host.yaml", "VENDOR: chip\nCASES:\n    \"other:frame\": data\n");
    assert_eq!(place(&listed), "configs/host.yaml:2");
    let two = empty.with(
        "vendors/chip/vendor.yaml",
        "name: chip\nabout: a\nframeworks: {a: {engine: x}, b: {engine: x}}\ncompilers: {}\n",
    );
    assert_eq!(
        two.messages(Level::Error, &case("toy")),
        ["--case toy: no framework for case `toy`\n  hint: give --case toy:FRAMEWORK (known: a, b)"]
    );
}

#[test]
fn a_case_without_a_data_directory_reads_its_default_data() {
    let checkout = Checkout::new()
        .with("configs/host.yaml", "VENDOR: chip\n")
        .with("configs/toy/parameters.yaml", "image_size: 8\ndefault_data: datasets/few/generated\n");
    let data = |overrides: &Overrides| {
        let data = checkout.load(overrides).unwrap().cases[0].data_dir.clone();
        format!("{}: {}", data.origin, data.value.strip_prefix(checkout.root()).unwrap_or(&data.value).display())
    };
    assert_eq!(data(&case("toy")), "configs/toy/parameters.yaml:2: datasets/few/generated");
    let other = Overrides { set: vec!["default_data=other".to_owned()], ..case("toy") };
    assert_eq!(data(&other), "--set default_data=other: other");
    assert_eq!(data(&Overrides { data: Some("/own".into()), ..case("toy") }), "--data: /own");
    std::fs::create_dir_all(checkout.path("datasets/toy")).unwrap();
    assert_eq!(data(&case("toy")), "default: datasets/toy", "real data come first");
}

#[test]
fn a_vendor_with_several_frameworks_may_have_a_default_one() {
    let vendor = "name: chip\nabout: a\ndefault_framework: b\nframeworks:\n    a: {engine: x}\n    b: {engine: x}\n\
                  compilers: {}\n";
    let data = tempfile::tempdir().unwrap();
    let overrides = Overrides { data: Some(data.path().to_owned()), ..case("toy") };
    let checkout = Checkout::new().with("configs/host.yaml", "VENDOR: chip\n").with("vendors/chip/vendor.yaml", vendor);
    assert_eq!(checkout.load(&overrides).unwrap().cases[0].key.value.to_string(), "toy:b");
    let note = "vendors/chip/vendor.yaml:6: case `toy` runs with `b`, the default framework of vendor `chip`";
    assert!(checkout.messages(Level::Info, &overrides).contains(&note.to_owned()));
}

#[test]
fn a_mistake_in_vendor_yaml_is_reported_with_its_line() {
    let message = |text: &str| errors(&Checkout::new().with("vendors/chip/vendor.yaml", text)).join("\n");
    let head = "name: chip\nabout: a\nframeworks: {}\ncompilers: {}\n";
    assert_eq!(
        message(&format!("{head}device: []\n")),
        "vendors/chip/vendor.yaml:5: unknown key `device` (nearest: `devices`)\n  hint: known keys: name, about, \
         default_framework, frameworks, compilers, devices, visible_devices, container_options, monitor, \
         monitor_command, backends, operator_shells, decoders; was the file written for another version of flagperf?"
    );
    assert_eq!(
        message(&head.replace("compilers: {}", "compilers: {fast: {engine: [rten]}}")),
        "vendors/chip/vendor.yaml:4: `compilers.fast.engine` must be a string, not a list"
    );
    assert_eq!(
        message(&head.replace("chip", "chop")),
        "vendors/chip/vendor.yaml:1: `name` is `chop`, but the folder is `chip`"
    );
}

#[test]
fn the_peak_of_a_device_and_precision_is_found_or_unknown() {
    let vendor = Checkout::new().load(&Overrides::default()).unwrap().vendor.unwrap();
    let peak = vendor.peak("dev:0 Chip-1 80GB", "f16").unwrap();
    assert_eq!(
        (peak.device.as_str(), peak.flops_per_s, peak.source.as_str()),
        ("Chip 1", FlopsPerSecond(200e12), "sheet")
    );
    assert_eq!(vendor.peak("dev:0 Chip-1 80GB", "f32"), None, "the data sheet has no such figure");
    for other in ["Chip-2", "Chip-1", "Chip-1 80GB slice 1", "Super Chip-1 80GB"] {
        assert_eq!(vendor.peak(other, "f16"), None, "another device");
    }
}
