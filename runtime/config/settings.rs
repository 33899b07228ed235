//! The keys of configurations.yaml, alike in every case.

use super::{Key, Kind, Owner};

/// The keys of configurations.yaml, as FlagPerf has them.
pub const SETTINGS: &[Key] = &[
    Key { name: "batch_size", kind: Kind::Count, default: None, about: "samples a batch", owner: Owner::CaseOrVendor },
    Key {
        name: "flops",
        kind: Kind::Flops,
        default: None,
        about: "floating-point operations of one sample: `4.12e9`, `2*512*0.33e9`",
        owner: Owner::Case,
    },
    Key {
        name: "fp16",
        kind: Kind::Flag,
        default: None,
        about: "half precision: true or false",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "compiler",
        kind: Kind::OptionalText,
        default: None,
        about: "a compiler of the vendor; null ends the case after validation",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "num_workers",
        kind: Kind::Threads,
        default: Some("4"),
        about: "threads that load data; 0 loads in the thread of the loop, between its steps",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "log_freq",
        kind: Kind::Count,
        default: Some("30"),
        about: "a line of progress every so many steps",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "repeat",
        kind: Kind::Count,
        default: None,
        about: "passes over the dataset",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "no_validation",
        kind: Kind::Flag,
        default: Some("false"),
        about: "leaves out model, validation and export; `exist_onnx_path` must be given",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "exist_onnx_path",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "an ONNX file that is compiled in place of the exported one",
        owner: Owner::CaseOrVendor,
    },
    Key {
        name: "exist_compiler_path",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "a file that the compiler made earlier, loaded in place of compiling",
        owner: Owner::CaseOrVendor,
    },
];
