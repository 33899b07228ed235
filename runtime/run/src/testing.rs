//! A job for tests.

use indexmap::IndexMap;

use flagperf_config::Parameters;
use flagperf_core::hash::Seed;
use flagperf_core::limits::Limits;
use flagperf_core::precision::Precision;
use flagperf_plan::{AuditScope, CaseSettings, EngineChoice, Job, ModelInput, Task};

/// Creates a job for the null engine, with folders that do not exist.
pub fn job() -> Job {
    Job {
        case: "case".into(),
        vendor: "mock".into(),
        monitor: None,
        task: Task::Infer { model: ModelInput::Compiled("model".into()) },
        scripts: "scripts/case".into(),
        data_dir: "data".into(),
        log_dir: "log".into(),
        settings: CaseSettings {
            batch_size: 4,
            flops: "1e9".into(),
            flops_per_sample: 1e9,
            flops_per_multiply_add: None,
            precision: Precision::Fp32,
            compiler: Some("null".into()),
            num_workers: 1,
            prefetch: None,
            queue_delay_us: 0,
            search_loading: false,
            decoder: None,
            log_freq: 1,
            repeat: 1,
            no_validation: true,
            exist_onnx_path: None,
            exist_compiler_path: None,
        },
        config: IndexMap::new(),
        parameters: Parameters::default(),
        engine: EngineChoice { name: "null".into(), engine: "null".into(), ..EngineChoice::default() },
        process_group: None,
        decoder: None,
        outputs: None,
        outputs_sha256: None,
        run_seed: Seed::default(),
        checkpoints: IndexMap::new(),
        audit: AuditScope::default(),
        waits: false,
        has_live_display: false,
        environment: IndexMap::new(),
        limits: Limits::default(),
    }
}
