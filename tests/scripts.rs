//! The cases of the repository: their real weights, and the steps of "How to add a case".

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

mod support;

use std::path::Path;
use std::sync::Arc;

use flagperf::config::{self, Overrides};
use flagperf::engine::TABLE;
use flagperf::measure::MonotonicClock;
use flagperf::plan::{Catalogue, KnownEngine, Limits, plan};
use flagperf::script::{CaseScripts, HostServices, ScriptConfig};
use serde_json::json;

fn load(dir: &Path) -> CaseScripts {
    let host = HostServices { log: Arc::new(|_, _, _| {}), clock: Arc::new(MonotonicClock::start()) };
    CaseScripts::load(dir, &Limits::default(), host).unwrap_or_else(|error| panic!("{error}"))
}

fn parameters(root: &Path, case: &str) -> ScriptConfig {
    let file = root.join("configs").join(case).join("parameters.yaml");
    serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn efficientnet_lite0_loads_every_weight_of_its_file() {
    let Some(data) = support::shared_data() else { return };
    let config = parameters(support::root(), "efficientnet_lite0");
    let scripts = load(&support::root().join("scripts/efficientnet_lite0"));
    let model = scripts.create_model(&config, &data).unwrap_or_else(|error| panic!("{error}"));
    assert!(!model.graphs["model"].weights_are_random());
}

/// Returns the shell commands under "How to add a case".
fn commands_to_add_a_case() -> Vec<String> {
    let text = std::fs::read_to_string(support::root().join("scripts/README.md")).unwrap();
    let section = text.split("## How to add a case").nth(1).unwrap().split("\n## ").next().unwrap();
    assert!(section.trim().lines().count() <= 20, "the section must have at most 20 lines");
    section
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with("cp ") || l.starts_with("flagperf "))
        .map(Into::into)
        .collect()
}

#[test]
fn the_steps_of_the_readme_add_a_case() {
    let checkout = support::checkout();
    let (copies, commands): (Vec<_>, Vec<_>) =
        commands_to_add_a_case().into_iter().partition(|line| line.starts_with("cp "));
    assert_eq!((copies.len(), commands.len()), (2, 3));
    for line in copies {
        assert_cmd::Command::new("sh").args(["-c", &line]).current_dir(checkout.path()).assert().success();
    }

    let config = parameters(checkout.path(), "mycase");
    let scripts = load(&checkout.path().join("scripts/mycase"));
    scripts.build_dataloader(&config).unwrap();
    assert_eq!(scripts.create_model(&config, checkout.path()).unwrap().graphs.len(), 1);

    std::fs::create_dir(checkout.path().join("images")).unwrap();
    let words: Vec<&str> = commands[0].split_whitespace().collect();
    let option = |name: &str| words.iter().position(|w| *w == name).map(|at| words[at + 1].to_owned());
    let overrides = Overrides {
        cases: option("--case").into_iter().collect(),
        vendor: option("--vendor"),
        data: Some(checkout.path().to_owned()),
        ..Overrides::default()
    };
    let row = |engine: &&dyn flagperf::engine::Engine| KnownEngine {
        name: engine.name().to_owned(),
        about: engine.facts().about.to_owned(),
        framework: engine.roles().framework,
        compiler: engine.roles().compiler,
        precisions: engine.precisions().to_vec(),
        takes_library: engine.facts().takes_library,
        takes_compiled: engine.facts().takes_compiled,
        takes_command: engine.facts().takes_command,
    };
    let engines = TABLE.iter().map(row).collect();
    let config = config::load(checkout.path(), &overrides).unwrap();
    let plan = plan(&config, &Catalogue::read(checkout.path(), engines)).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan.cases.len(), 1);
    assert_eq!(plan.cases[0].jobs.len(), 2);
    assert_eq!(json!(plan.cases[0].jobs[0].config["classes"]), json!(1000));
}
