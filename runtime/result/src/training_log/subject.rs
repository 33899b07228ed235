//! What the logs state of a case besides its events.

use flagperf_config::{CaseKey, default_unit};
use flagperf_core::hash::Seed;
use flagperf_core::metric;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Record;

/// A case that trains.
pub(super) struct Subject {
    /// Name of the host.
    pub host: String,
    pub case: String,
    /// The key of the training.
    pub key: String,
    pub vendor: String,
    /// The hardware in the key.
    pub hardware: String,
    /// Begin of the case in milliseconds since 1970.
    pub started_ms: i64,
    /// Number of trainings.
    pub rounds: u32,
    /// Every setting by its name.
    pub config: IndexMap<String, Value>,
    /// What one sample counts as.
    pub unit: String,
    /// The value of each metric that ends the training.
    pub target: IndexMap<String, f64>,
    /// Samples of the datasets, once they are known.
    pub training_samples: Option<u64>,
    pub evaluation_samples: Option<u64>,
    /// Samples of a step in this process, whose samples and rates are in the logs.
    pub batch_size: u64,
    /// Samples of a step in all processes that train together.
    pub global_batch_size: u64,
    /// The seed of the run, from which those of the trainings follow.
    run_seed: Seed,
    log_freq: u64,
}

impl Subject {
    /// Returns the case of a record, of which only what is known from the beginning is read.
    pub fn of(record: &Record, host: &str) -> Self {
        let config: IndexMap<String, Value> =
            record.settings.iter().map(|(key, setting)| (key.clone(), setting.value.clone())).collect();
        let key = record.key();
        let training = key.parse::<CaseKey>().ok().and_then(|key| key.training);
        let global_batch_size: u64 = setting(&config, "batch_size").unwrap_or_default();
        let started = record.started.parse::<Timestamp>();
        Subject {
            host: host.to_owned(),
            case: record.case.clone(),
            vendor: record.vendor.clone(),
            hardware: training.as_ref().map(|training| training.hardware.clone()).unwrap_or_default(),
            started_ms: started.map_or(0, Timestamp::as_millisecond),
            rounds: record.repeat(),
            unit: setting(&config, "unit").unwrap_or_else(default_unit),
            target: setting(&config, "target").unwrap_or_default(),
            global_batch_size,
            batch_size: global_batch_size.checked_div(record.processes()).unwrap_or_default(),
            run_seed: record.provenance.run_seed,
            log_freq: setting(&config, "log_freq").unwrap_or_default(),
            training_samples: None,
            evaluation_samples: None,
            key,
            config,
        }
    }

    /// Returns a setting; `None` when it is missing or null.
    pub fn setting(&self, key: &str) -> Option<&Value> {
        self.config.get(key).filter(|value| !value.is_null())
    }

    /// Returns the seed of a training.
    pub fn seed(&self, round: u32) -> Value {
        self.setting("seed").cloned().unwrap_or_else(|| self.run_seed.of_training(round).into())
    }

    /// Returns whether a step has lines: FlagPerf writes the first and every `log_freq`-th.
    pub fn is_logged(&self, step: u64) -> bool {
        step == 1 || self.log_freq > 0 && step.is_multiple_of(self.log_freq)
    }

    /// Returns whether an epoch ends with this step. What a training program calls an epoch is not known, so its passes count as such.
    pub fn ends_epoch(&self, step: u64) -> bool {
        let steps =
            self.training_samples.and_then(|samples| samples.checked_div(self.global_batch_size)).unwrap_or_default();
        steps == 0 || step.is_multiple_of(steps)
    }

    /// Returns whether metrics reach the target; never without a target.
    pub fn is_reached(&self, metrics: Option<&IndexMap<String, f64>>) -> bool {
        let reached = |(name, target): (&String, &f64)| {
            metrics.and_then(|metrics| metrics.get(name)).is_some_and(|value| metric::is_reached(name, *value, *target))
        };
        !self.target.is_empty() && self.target.iter().all(reached)
    }
}

fn setting<T: DeserializeOwned>(config: &IndexMap<String, Value>, key: &str) -> Option<T> {
    serde_json::from_value(config.get(key)?.clone()).ok()
}
