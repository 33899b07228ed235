//! The keys of configurations.yaml and of training.yaml, which are the same in every case.

use super::{ConfigKey, Owner, ValueKind};
use flagperf_core::precision::Precision;

/// A file with the settings of a case: what a case is run for decides which one is read. Each has an overlay of its own,
/// `vendor_config/<vendor>_<name>`.
#[derive(Clone, Copy, Debug)]
pub struct SettingsFile {
    /// Name of the file in the case's folder in configs/.
    pub name: &'static str,
    pub keys: &'static [ConfigKey],
    /// What the file is for, for a message.
    pub purpose: &'static str,
    /// Whether an overlay may have a section of keys for each size, such as `A100x1x8`.
    pub has_sections: bool,
}

impl SettingsFile {
    pub const INFERENCE: SettingsFile =
        SettingsFile { name: "configurations.yaml", keys: SETTINGS, purpose: "inference", has_sections: false };
    pub const TRAINING: SettingsFile =
        SettingsFile { name: "training.yaml", keys: TRAINING_SETTINGS, purpose: "training", has_sections: true };
    /// Every file of settings. A case has at least one of them.
    pub const ALL: [SettingsFile; 2] = [SettingsFile::INFERENCE, SettingsFile::TRAINING];

    /// Returns the key with this name.
    pub fn find(&self, key: &str) -> Option<&'static ConfigKey> {
        self.keys.iter().find(|setting| setting.name == key)
    }

    /// Returns the file that has this key; of several, the first one.
    pub fn of_key(key: &str) -> Option<SettingsFile> {
        SettingsFile::ALL.into_iter().find(|file| file.find(key).is_some())
    }

    /// Returns the path in a checkout of the file of a case.
    pub fn path(&self, case: &str) -> String {
        format!("configs/{case}/{}", self.name)
    }

    /// Returns the name of the overlay of a vendor.
    pub fn overlay_name(&self, vendor: &str) -> String {
        format!("{vendor}_{}", self.name)
    }

    /// Returns the path in a checkout of the overlay of a vendor for a case.
    pub fn overlay_path(&self, case: &str, vendor: &str) -> String {
        format!("configs/{case}/vendor_config/{}", self.overlay_name(vendor))
    }

    /// Returns the vendor whose overlay has this name.
    pub fn vendor_of_overlay<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_suffix(self.name)?.strip_suffix('_')
    }
}

const BATCH_SIZE: ConfigKey = ConfigKey {
    name: "batch_size",
    kind: ValueKind::Count,
    default: None,
    about: "samples per batch",
    owner: Owner::CaseOrVendor,
};

const FLOPS_PER_MULTIPLY_ADD: ConfigKey = ConfigKey {
    name: "flops_per_multiply_add",
    kind: ValueKind::OneOrTwo,
    default: Some("null"),
    about: "whether `flops` counts a multiply-add as 1 operation or as 2; null states neither",
    owner: Owner::Case,
};

const FP16: ConfigKey = ConfigKey {
    name: "fp16",
    kind: ValueKind::Flag,
    default: Some("false"),
    about: "whether to compute in fp16; otherwise in fp32",
    owner: Owner::CaseOrVendor,
};

const PRECISION: ConfigKey = ConfigKey {
    name: "precision",
    kind: ValueKind::OptionalWord(&Precision::NAMES),
    default: Some("null"),
    about: "the precision to compute in; null: as `fp16` states",
    owner: Owner::CaseOrVendor,
};

const NUM_WORKERS: ConfigKey = ConfigKey {
    name: "num_workers",
    kind: ValueKind::Threads,
    default: Some("4"),
    about: "threads that load data; 0 loads data in the thread of the main loop, between steps",
    owner: Owner::CaseOrVendor,
};

const LOG_FREQ: ConfigKey = ConfigKey {
    name: "log_freq",
    kind: ValueKind::Count,
    default: Some("30"),
    about: "steps from one line of progress to the next",
    owner: Owner::CaseOrVendor,
};

/// The keys of configurations.yaml: those of FlagPerf and some of our own.
pub const SETTINGS: &[ConfigKey] = &[
    BATCH_SIZE,
    ConfigKey {
        name: "flops",
        kind: ValueKind::Flops,
        default: None,
        about: "floating-point operations per sample: `4.12e9`, `2*512*0.33e9`",
        owner: Owner::Case,
    },
    FLOPS_PER_MULTIPLY_ADD,
    FP16,
    PRECISION,
    ConfigKey {
        name: "compiler",
        kind: ValueKind::OptionalText,
        default: None,
        about: "a compiler of the vendor; null ends the case after validation",
        owner: Owner::CaseOrVendor,
    },
    NUM_WORKERS,
    ConfigKey {
        name: "prefetch",
        kind: ValueKind::OptionalCount,
        default: Some("null"),
        about: "batches that are read ahead, at least 1; null: two, or more if batches are small",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "search_loading",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether to search for more `num_workers` and `prefetch` before the measurement, from these upwards; the record has \
                what was found",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "decoder",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "a decoder of the vendor, which decodes and resizes JPEG images on the device; null: the processor does",
        owner: Owner::CaseOrVendor,
    },
    LOG_FREQ,
    ConfigKey {
        name: "repeat",
        kind: ValueKind::Count,
        default: None,
        about: "passes over the dataset",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "queue_delay_us",
        kind: ValueKind::WholeNumber,
        default: Some("0"),
        about: "microseconds for which a query of a scenario waits at most for others, to run in one batch with them",
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
    ConfigKey {
        name: "switches",
        kind: ValueKind::Switches,
        default: Some("[]"),
        about: "settings whose effects `flagperf ablate` measures, in this order: `[{name: amp, off: {fp16: false}, on: {fp16: true}}]`",
        owner: Owner::CaseOrVendor,
    },
];

/// The keys of training.yaml: those of FlagPerf's `_base.py` that the host reads, under one name in every case.
pub const TRAINING_SETTINGS: &[ConfigKey] = &[
    BATCH_SIZE,
    ConfigKey {
        name: "eval_batch_size",
        kind: ValueKind::OptionalCount,
        default: Some("null"),
        about: "samples per batch of an evaluation; null: `batch_size`",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "learning_rate",
        kind: ValueKind::PositiveNumber,
        default: None,
        about: "the learning rate from which the schedule of the case starts",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "gradient_accumulation_steps",
        kind: ValueKind::Count,
        default: Some("1"),
        about: "batches whose mean gradient makes one update of the parameters",
        owner: Owner::CaseOrVendor,
    },
    ConfigKey {
        name: "sync_batch_norm",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether batch normalizations use the statistics of the batches of all devices that train together; otherwise each device \
                uses its own",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "shard_optimizer",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether each of the devices that train together keeps what the optimizer remembers of its part of the parameters only (ZeRO \
                stage 1)",
        owner: Owner::CaseOrVendor,
    },
    FP16,
    ConfigKey {
        about: "the precision of products; losses, normalizations, parameters and the optimizer stay in fp32. null: as `fp16` \
                states",
        ..PRECISION
    },
    NUM_WORKERS,
    LOG_FREQ,
    ConfigKey {
        name: "flops",
        kind: ValueKind::OptionalFlops,
        default: Some("null"),
        about: "floating-point operations per trained sample, forward and backward; null declares none",
        owner: Owner::Case,
    },
    FLOPS_PER_MULTIPLY_ADD,
    ConfigKey {
        name: "max_epochs",
        kind: ValueKind::Count,
        default: None,
        about: "epochs after which a training ends that has not reached its target",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "max_steps",
        kind: ValueKind::OptionalCount,
        default: Some("null"),
        about: "steps after which it ends, if that is earlier; a step is that of one batch. null: `max_epochs` alone ends it",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "eval_interval",
        kind: ValueKind::Count,
        default: Some("1"),
        about: "epochs from one evaluation to the next; a checkpoint follows each epoch",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "eval_steps",
        kind: ValueKind::OptionalCount,
        default: Some("null"),
        about: "steps from one evaluation, with a checkpoint after it, to the next; null: `eval_interval` epochs",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "target",
        kind: ValueKind::Targets,
        default: None,
        about: "the metric and its value that end the training, such as `{top1: 0.755}`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "train_samples",
        kind: ValueKind::WholeNumber,
        default: Some("0"),
        about: "the number of samples of the dataset of training.rhai; 0 if the author of the case does not know it",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "train_index",
        kind: ValueKind::OptionalSha256,
        default: Some("null"),
        about: "`training.dataset.index_sha256` of a phase in a record of that dataset; null if only the number of samples is known",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "command",
        kind: ValueKind::TextList,
        default: Some("[]"),
        about: "of a framework with `engine: program`: the training program and its arguments; `{NAME}` is the value of a key",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "command_folder",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "the folder in which `command` starts, relative to the data directory; null: the data directory",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "patterns",
        kind: ValueKind::TextMap,
        default: Some("{}"),
        about: "regular expressions whose first group is a figure in the lines of `command`: `step`, `samples`, `loss`, `learning_rate`, \
                or a metric",
        owner: Owner::Case,
    },
];
