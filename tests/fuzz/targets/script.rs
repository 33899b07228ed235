//! One script of a case, which the input replaces: parsed, compiled and called in the sandbox with small limits.

#![no_main]

mod support;

use std::sync::{Arc, LazyLock, Mutex};

use flagperf_core::limits::Limits;
use flagperf_core::measure::MonotonicClock;
use flagperf_core::tensor::{DType, Tensor};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::{Artifact, LoadOptions, find};
use flagperf_script::{
    CaseScripts, ForwardKind, HostServices, ScriptChoice, ScriptConfig, ScriptError, ScriptParser, Sessions,
    StepOutput, run_on_script_stack,
};
use indexmap::IndexMap;
use libfuzzer_sys::fuzz_target;

/// The scripts of the case with their contents. The input replaces one of them.
const SCRIPTS: &[(&str, &str)] = &[
    ("dataloader", include_str!("../../cases/tiny/dataloader.rhai")),
    ("model", include_str!("../../cases/tiny/model.rhai")),
    ("forward", include_str!("../../cases/tiny/forward.rhai")),
    ("evaluator", include_str!("../../cases/tiny/evaluator.rhai")),
    ("export", "fn export_model(model, config) {\n    model\n}\n"),
];
/// Bytes of stack beyond those of a worker, because AddressSanitizer enlarges frames.
const STACK: u64 = 1 << 30;

static LIMITS: LazyLock<Limits> = LazyLock::new(|| Limits {
    script_operations: 100_000,
    script_time_s: Seconds(2.0),
    script_memory_bytes: Bytes(64 << 20),
    ..Limits::default()
});

fuzz_target!(init: support::write_seeds(seeds), |input: &[u8]| {
    let Some((kind, text)) = support::split_kind(input, SCRIPTS.len()) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    for (number, (name, own)) in SCRIPTS.iter().enumerate() {
        support::write(&format!("scripts/tiny/{name}.rhai"), if number == kind { text } else { own });
    }
    run_on_script_stack(STACK, || {
        let _ = ScriptParser::new(Arc::new(MonotonicClock::start())).parse(text);
        if let Err(error) = run_case() {
            assert!(!error.to_string().is_empty());
        }
    })
    .expect("no script makes the host panic");
});

fn run_case() -> Result<(), ScriptError> {
    let services = HostServices { log: Arc::new(|_, _, _| {}), clock: Arc::new(MonotonicClock::start()) };
    let folder = support::FOLDER.join("scripts/tiny");
    let scripts = CaseScripts::load(&folder, &ScriptChoice::default(), &LIMITS, services)?;
    let config = config();
    let _ = (scripts.unset_keys(&config), scripts.read_keys());
    let _ = scripts.build_dataloader(&config)?;
    let model = scripts.create_model(&config, &support::FOLDER)?;
    let model = scripts.export_model(model, &config)?;
    let batch = IndexMap::from([("images".to_owned(), zeros(&[2, 3, 8, 8], DType::F32))]);
    let truth = IndexMap::from([("labels".to_owned(), zeros(&[2], DType::I64))]);
    let engine = find("null").expect("the engine that computes nothing");
    let options = LoadOptions { batch_size: 2, ..LoadOptions::default() };
    let sessions = model.graphs.iter().map(|(name, graph)| {
        let session = engine.load(Artifact::Graph(graph), &options).ok()?;
        Some((name.clone(), Arc::new(Mutex::new(session))))
    });
    let Some(sessions) = sessions.collect::<Option<Sessions>>() else { return Ok(()) };
    let mut forward = scripts.forward(ForwardKind::Model, sessions).with_config(&config)?;
    let mut evaluator = scripts.evaluator().with_config(&config)?;
    for _ in 0..2 {
        let _ = forward.call(&batch)?;
        let _ = (forward.take_rows(), forward.take_runs(), forward.take_spans());
        let metrics = evaluator.call(&StepOutput::One(zeros(&[2, 1000], DType::F32)), &truth)?;
        let _ = metrics.names().count();
    }
    Ok(())
}

fn config() -> ScriptConfig {
    let text =
        r#"{"case": "tiny", "samples": 10, "weights": null, "seed": 0, "batch_size": 2, "rate": 0.5, "names": ["a"]}"#;
    serde_json::from_str(text).expect("JSON")
}

fn zeros(shape: &[usize], dtype: DType) -> Tensor {
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
    Tensor::from_bytes(shape, dtype, &bytes).expect("a tensor")
}

fn seeds() -> Vec<Vec<u8>> {
    let own = SCRIPTS.iter().enumerate().map(|(kind, (_, text))| support::seed_of_kind(kind, text));
    let others = SCRIPTS.iter().enumerate().flat_map(|(kind, (name, _))| {
        let files = support::repository_files("scripts", &format!("{name}.rhai"));
        files.into_iter().map(move |text| support::seed_of_kind(kind, text))
    });
    own.chain(others).filter(|seed| seed.len() < 8 << 10).collect()
}
