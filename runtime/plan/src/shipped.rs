//! Tests of the files in the repository: its host.yaml, cases and vendors. Knows no rule of planning.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use flagperf_config::{Overrides, SETTINGS, SITE, SettingsFile, find_root, load};
use flagperf_core::description::{Delivery, EngineDescription};
use flagperf_core::event::Level;
use flagperf_core::metric::AgreementLimits;
use flagperf_core::precision::Precision;

fn repository() -> PathBuf {
    find_root(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the tests run in the repository")
}

/// Returns a catalogue with every engine that the vendors use, in every precision, and every backend installed.
fn catalogue(root: &Path) -> Catalogue {
    let mut catalogue = Catalogue { monitors: vec!["nvml", "processor"], ..Catalogue::read(root, Vec::new()) };
    let vendors = catalogue.vendors.values().flatten();
    let entries = vendors.flat_map(|vendor| vendor.frameworks.values().chain(vendor.compilers.values()));
    let names: BTreeSet<String> = entries.map(|entry| entry.engine.clone()).collect();
    let backends = catalogue.vendors.values().flatten();
    let backends = backends.flat_map(|vendor| vendor.frameworks.values().chain(vendor.compilers.values()));
    let installed = |name: &str| (name.to_owned(), Some(PathBuf::from("lib.so")));
    catalogue.backends = backends.filter_map(|entry| entry.backend().map(installed)).collect();
    catalogue.engines = names
        .into_iter()
        .map(|name| EngineDescription {
            loads_compiled: name != "rten",
            delivery: match name.as_str() {
                "plugin" => Delivery::Library,
                "sidecar" => Delivery::Command,
                _ => Delivery::BuiltIn,
            },
            options: None,
            ..EngineDescription::unrestricted(name.leak(), "")
        })
        .collect();
    catalogue
}

fn planned(root: &Path, case: &str, vendor: &str) -> Plan {
    let data = tempfile::tempdir().unwrap();
    let overrides = Overrides {
        cases: vec![case.to_owned()],
        vendor: Some(vendor.to_owned()),
        data: Some(data.path().to_owned()),
        ..Overrides::default()
    };
    let config = load(root, &overrides).unwrap_or_else(|errors| panic!("{case} on {vendor}: {errors}"));
    plan(&config, &catalogue(root)).unwrap_or_else(|errors| panic!("{case} on {vendor}: {errors}"))
}

#[test]
fn every_case_has_both_phases_on_every_vendor_with_an_overlay_for_it() {
    let root = repository();
    let catalogue = catalogue(&root);
    assert!(catalogue.vendors.values().all(Option::is_some), "every vendor.yaml can be read");
    for (case, folder) in &catalogue.cases {
        assert!(folder.configured && !folder.scripts.is_empty(), "{case} has both its folders");
        let Some(overlays) = folder.overlays(&SettingsFile::INFERENCE) else { continue };
        assert!(!overlays.is_empty(), "{case} has an overlay");
        for vendor in overlays {
            let plan = planned(&root, case, vendor);
            assert_eq!(plan.cases[0].jobs.len(), 2, "{case} on {vendor}");
            let warnings: Vec<_> = plan.findings.iter().filter(|finding| finding.level > Level::Info).collect();
            assert_eq!(warnings, Vec::<&flagperf_config::Finding>::new(), "{case} on {vendor}");
        }
    }
}

#[test]
fn the_standard_case_has_the_values_of_flagperf() {
    let root = repository();
    let text = fs::read_to_string(root.join("configs/resnet50/configurations.yaml")).unwrap();
    let values: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(
        values,
        serde_json::json!({"batch_size": 256, "flops": 4.12e9, "flops_per_multiply_add": 1, "fp16": true, "compiler": "tensorrt", "num_workers": 8,
            "log_freq": 30, "repeat": 5, "no_validation": false, "exist_onnx_path": null, "exist_compiler_path": null})
    );
    // `precision` would only repeat `fp16`, and FlagPerf has none of the others.
    let own = ["precision", "prefetch", "search_loading", "decoder", "queue_delay_us", "switches"];
    for setting in SETTINGS.iter().filter(|setting| !own.contains(&setting.name)) {
        assert!(values.get(setting.name).is_some(), "{}", setting.name);
    }
}

#[test]
fn every_standard_case_states_how_its_flops_count_a_multiply_add() {
    let root = repository();
    let cases = Catalogue::read(&root, Vec::new()).cases;
    for case in cases.iter().filter_map(|(name, case)| case.overlays(&SettingsFile::INFERENCE).map(|_| name)) {
        let text = fs::read_to_string(root.join("configs").join(case).join("configurations.yaml")).unwrap();
        assert!(text.lines().any(|line| line.starts_with("flops_per_multiply_add: ")), "{case}");
    }
}

#[test]
fn host_yaml_mentions_every_key() {
    let text = fs::read_to_string(repository().join("configs/host.yaml")).unwrap();
    for key in SITE {
        assert!(
            text.lines().any(|line| line.trim_start_matches('#').starts_with(&format!("{}:", key.name))),
            "{}",
            key.name
        );
    }
}

#[test]
fn the_readme_of_configs_contains_the_limits_of_agreement() {
    let text = fs::read_to_string(repository().join("configs/README.md")).unwrap();
    let default = Precision::ALL.map(AgreementLimits::default_for);
    for (name, limit) in [
        ("relative_l2", default.map(|limits| limits.relative_l2)),
        ("worst_sample", default.map(|limits| limits.worst_sample)),
        ("cosine", default.map(|limits| limits.cosine)),
        ("correlation", default.map(|limits| limits.correlation)),
        ("variation", default.map(|limits| limits.variation)),
        ("mismatches", default.map(|limits| limits.mismatches)),
    ] {
        let [fp32, fp16, bf16, tf32] = limit;
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        assert!(row.ends_with(&format!("| {fp32} | {fp16} | {bf16} | {tf32} |")), "{row}");
    }
}

#[test]
fn a_copy_of_mock_under_another_name_is_a_vendor() {
    let repository = repository();
    let home = tempfile::tempdir().unwrap();
    for folder in ["configs", "scripts", "vendors"] {
        copy(&repository.join(folder), &home.path().join(folder));
    }
    let (mine, overlays) = (home.path().join("vendors/mine"), home.path().join("configs/resnet50/vendor_config"));
    copy(&repository.join("vendors/mock"), &mine);
    let description = fs::read_to_string(mine.join("vendor.yaml")).unwrap();
    fs::write(mine.join("vendor.yaml"), description.replace("name: mock\n", "name: mine\n")).unwrap();
    fs::write(overlays.join("mine_configurations.yaml"), "compiler: mock\n").unwrap();
    let plan = planned(home.path(), "resnet50", "mine");
    assert_eq!((plan.vendor.name.as_str(), plan.cases[0].jobs.len()), ("mine", 2));
    assert!(plan.vendor.peak("null", "f16").is_some());
    let steps = fs::read_to_string(mine.join("README.md")).unwrap();
    assert!(steps.lines().count() <= 20, "how to add a vendor fits in 20 lines");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
