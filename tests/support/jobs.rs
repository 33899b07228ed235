//! Jobs of the case `tiny` for a worker, without configuration files.

use std::path::{Path, PathBuf};

use flagperf_config::Parameters;
use flagperf_core::limits::Limits;
use flagperf_core::precision::Precision;
use flagperf_core::step::Phase;
use flagperf_plan::{CaseSettings, EngineChoice, Job, Manifest, ModelInput, Task};
use indexmap::IndexMap;
use serde_json::{Value, json};

/// Returns a job of the case `tiny` in `folder`: two passes over `samples` synthetic images in batches of `batch_size`.
pub fn tiny(folder: &Path, phase: Phase, engine: &str, samples: u32, batch_size: u32) -> Job {
    let config = json!({"samples": samples, "weights": null, "seed": 0, "case": "tiny", "vendor": "mock"});
    let onnx = folder.join("tiny.onnx");
    let task = match phase {
        Phase::Validate => Task::Validate { export: Some(onnx) },
        Phase::Infer => Task::Infer { model: ModelInput::Exported(Manifest::path_beside(&onnx)) },
        Phase::Train => panic!("the case `tiny` does not train"),
    };
    Job {
        audit: flagperf_plan::AuditScope::default(),
        case: "tiny".to_owned(),
        vendor: "mock".to_owned(),
        monitor: None,
        task,
        scripts: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/tiny"),
        data_dir: folder.to_owned(),
        log_dir: folder.to_owned(),
        settings: settings(batch_size),
        config: serde_json::from_value(config).expect("an object"),
        parameters: Parameters::default(),
        engine: engine_choice(engine, IndexMap::new()),
        outputs_sha256: None,
        decoder: None,
        process_group: None,
        outputs: Some(folder.join("outputs.safetensors")),
        run_seed: flagperf_core::hash::Seed::default(),
        checkpoints: IndexMap::new(),
        waits: false,
        has_live_display: false,
        environment: IndexMap::new(),
        limits: Limits::default(),
    }
}

/// Returns the choice of an engine by the name of its row, with options.
pub fn engine_choice(engine: &str, options: IndexMap<String, Value>) -> EngineChoice {
    EngineChoice { name: engine.to_owned(), engine: engine.to_owned(), threads: 1, options, ..EngineChoice::default() }
}

fn settings(batch_size: u32) -> CaseSettings {
    CaseSettings {
        batch_size,
        flops: "1e3".to_owned(),
        flops_per_sample: 1e3,
        flops_per_multiply_add: None,
        precision: Precision::Fp32,
        compiler: Some("null".to_owned()),
        num_workers: 1,
        prefetch: None,
        queue_delay_us: 0,
        search_loading: false,
        decoder: None,
        log_freq: 1,
        repeat: 2,
        no_validation: false,
        exist_onnx_path: None,
        exist_compiler_path: None,
    }
}
