//! The keys of configurations.yaml, which are the same in every case.

use super::{ConfigKey, Owner, ValueKind};
use flagperf_core::precision::Precision;

/// The keys of configurations.yaml: those of FlagPerf, `flops_per_multiply_add` and `precision`.
pub const SETTINGS: &[ConfigKey] = &[
    ConfigKey {
        name: "batch_size",
        kind: ValueKind::Count,
        default: None,
        about: "samples per batch",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "flops",
        kind: ValueKind::Flops,
        default: None,
        about: "floating-point operations per sample: `4.12e9`, `2*512*0.33e9`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "flops_per_multiply_add",
        kind: ValueKind::OneOrTwo,
        default: Some("null"),
        about: "whether `flops` counts a multiply-add as 1 operation or as 2; null states neither",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "fp16",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether to compute in fp16; otherwise in fp32",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "precision",
        kind: ValueKind::OptionalWord(&Precision::NAMES),
        default: Some("null"),
        about: "the precision to compute in; null: as `fp16` states",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "compiler",
        kind: ValueKind::OptionalText,
        default: None,
        about: "a compiler of the vendor; null ends the case after validation",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "num_workers",
        kind: ValueKind::Threads,
        default: Some("4"),
        about: "threads that load data; 0 loads data in the thread of the main loop, between steps",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "log_freq",
        kind: ValueKind::Count,
        default: Some("30"),
        about: "steps from one line of progress to the next",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "repeat",
        kind: ValueKind::Count,
        default: None,
        about: "passes over the dataset",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "no_validation",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "skips the model, validation and export; requires `exist_onnx_path`",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "exist_onnx_path",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "an ONNX file to compile instead of the exported one",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "exist_compiler_path",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "a file that the compiler wrote earlier, to load instead of compiling",
        owner: Owner::CaseOrVendor,
    },
];
