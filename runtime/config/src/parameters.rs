//! The keys of parameters.yaml that the host reads. All other keys are free: only the case's scripts read them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::ConfigFile;
use super::key::{defaults, read_key};
use super::overlay::check_key_owner;
use super::{ConfigKey, Finding, Origin, Owner, SettingsFile, Sourced, ValueKind, Values, merge_layers, nearest};
use flagperf_core::measure::Scenario;
use flagperf_core::metric;
use flagperf_core::suggestion::one_letter_off;

/// The keys of parameters.yaml that the host reads. Each has a field of the same name in [`Parameters`].
pub const PARAMETERS: &[ConfigKey] = &[
    ConfigKey {
        name: "forward",
        kind: ValueKind::SharedScript,
        default: Some("null"),
        about: "the shared script that serves a case without `forward.rhai`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "evaluator",
        kind: ValueKind::SharedScript,
        default: Some("null"),
        about: "the shared script that serves a case without `evaluator.rhai`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "target_accuracy",
        kind: ValueKind::Targets,
        default: Some("{}"),
        about: "the minimum of each metric (of `perplexity` and of errors the maximum) with real weights and data; the case fails beyond it",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "target_samples",
        kind: ValueKind::WholeNumber,
        default: Some("0"),
        about: "the number of samples of the dataset for which `target_accuracy` holds; 0 if the author of the case does not know it",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "target_index",
        kind: ValueKind::OptionalSha256,
        default: Some("null"),
        about: "`dataset.index_sha256` of a phase in a record of that dataset; null if only the number of samples is known",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "agreement",
        kind: ValueKind::Limits,
        default: Some("{}"),
        about: "limits of the agreement of inference with validation, by precision; the case fails beyond them",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "bad_samples",
        kind: ValueKind::Word(&["fail", "count"]),
        default: Some("fail"),
        about: "what happens to a sample that cannot be read: it fails the case, or it is counted and excluded from accuracy",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "unit",
        kind: ValueKind::Word(&["sample", "image", "question", "sequence", "step", "token"]),
        default: Some("sample"),
        about: "what one sample counts as: the report shows throughput in this unit per second",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "preloaded",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether the dataset is read once and kept in memory, so that no pass loads data",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "trace",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether some batches run again after the measurement, with the profile of the engine, for `flagperf trace`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "scenario",
        kind: ValueKind::Scenario,
        default: Some("offline"),
        about: "how queries arrive after the passes, whose latency is then measured: `{kind: server, latency_bound_s: 0.015}`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "input_cost",
        kind: ValueKind::Word(&["fixed", "variable"]),
        default: Some("fixed"),
        about: "whether every input takes the same time, whatever its content; the audit then compares the times of inputs",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "needs_network",
        kind: ValueKind::Flag,
        default: Some("false"),
        about: "whether a worker in a container has a network",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "keep_f32",
        kind: ValueKind::TextList,
        default: Some("[]"),
        about: "layers that stay in fp32 when the case computes in fp16 or bf16",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "weights",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "weights in the data directory, a file or a folder with safetensors; null draws random weights from `seed`",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "default_data",
        kind: ValueKind::OptionalText,
        default: Some("null"),
        about: "a folder in the checkout: the data directory if none is given",
        owner: Owner::Case,
    },
    ConfigKey {
        name: "seed",
        kind: ValueKind::Seed,
        default: Some("null"),
        about: "the seed of the random values of a case; null: 0, and drawn anew for each repetition of a training",
        owner: Owner::Case,
    },
];

/// The parameters that the host reads, with their types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Shared script that replaces `forward.rhai`: `lib/classification`.
    #[serde(default)]
    pub forward: Option<String>,
    /// Shared script that replaces `evaluator.rhai`.
    #[serde(default)]
    pub evaluator: Option<String>,
    /// Minimum of each metric with real weights and data.
    pub target_accuracy: IndexMap<String, f64>,
    /// Number of samples of the dataset for which the minimum holds; 0 if it is unknown.
    #[serde(default)]
    pub target_samples: u64,
    /// SHA-256 over the index of that dataset, hexadecimal.
    #[serde(default)]
    pub target_index: Option<String>,
    /// Limits of the agreement of inference with validation, by precision and name; limits not given keep their
    /// defaults.
    pub agreement: IndexMap<String, IndexMap<String, f64>>,
    /// Handling of a sample that cannot be read.
    pub bad_samples: BadSamplePolicy,
    /// What one sample counts as, such as `image`.
    #[serde(default = "default_unit")]
    pub unit: String,
    /// Whether the dataset is read once and kept in memory.
    pub preloaded: bool,
    /// Whether some batches are traced after the measurement.
    #[serde(default)]
    pub trace: bool,
    /// How queries arrive after the passes.
    #[serde(default)]
    pub scenario: Scenario,
    /// Whether every input takes the same time.
    #[serde(default)]
    pub input_cost: InputCost,
    /// Whether a worker in a container has a network.
    #[serde(default)]
    pub needs_network: bool,
    /// Layers that stay in fp32 in a half-precision model.
    pub keep_f32: Vec<String>,
    /// File or folder with weights in the data directory; `None` for random weights.
    pub weights: Option<String>,
    /// Data directory, relative to the checkout, of a case for which none is given.
    #[serde(default)]
    pub default_data: Option<String>,
    /// Seed of the case's random values; `None` is 0, and of a training drawn for each repetition.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// Returns the default of the key `unit`.
pub fn default_unit() -> String {
    "sample".to_owned()
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            forward: None,
            evaluator: None,
            target_accuracy: IndexMap::new(),
            target_samples: 0,
            target_index: None,
            agreement: IndexMap::new(),
            bad_samples: BadSamplePolicy::default(),
            unit: default_unit(),
            preloaded: false,
            trace: false,
            scenario: Scenario::default(),
            input_cost: InputCost::default(),
            needs_network: false,
            keep_f32: Vec::new(),
            weights: None,
            default_data: None,
            seed: None,
        }
    }
}

/// Handling of a sample that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadSamplePolicy {
    /// The sample fails its batch with an error.
    #[default]
    Fail,
    /// The sample's row is zeroed, and the batch lists it as failed.
    Count,
}

/// Whether the time that an input takes depends on its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputCost {
    /// Every input of the same shape takes the same time.
    #[default]
    Fixed,
    /// The time depends on the content, as in a loop that ends at a token.
    Variable,
}

impl Parameters {
    /// Returns the typed parameters of a case from its values, which were read by their types; a missing key has its
    /// default.
    pub fn from_values(values: &Values) -> Self {
        let known =
            PARAMETERS.iter().filter_map(|key| Some((key.name.to_owned(), values.get(key.name)?.value.clone())));
        let known = defaults(PARAMETERS).into_iter().map(|(name, default)| (name, default.value)).chain(known);
        serde_json::from_value(Value::Object(known.collect())).expect("every key of the table was read by its type")
    }
}

/// Returns the key of [`PARAMETERS`] with this name.
pub fn find_parameter(name: &str) -> Option<&'static ConfigKey> {
    PARAMETERS.iter().find(|key| key.name == name)
}

/// Reads the values of parameters.yaml and adds the defaults. Values that do not fit become findings; their keys are left
/// out.
pub(super) fn read_parameters(file: &ConfigFile, findings: &mut Vec<Finding>) -> Values {
    let mut values = Values::new();
    let mut defaults = defaults(PARAMETERS);
    for (name, node) in &file.entries {
        if let Some(key) = find_parameter(name) {
            match read_key(key, node, file, findings) {
                Some(value) => {
                    findings.extend(misspelled_metrics(key, &value));
                    values.insert(name.clone(), value);
                }
                None => drop(defaults.shift_remove(name)),
            }
            continue;
        }
        match check_parameter_name(name) {
            Ok(()) => {
                findings.extend(misspelled_parameter(name, file.origin(node)));
                values.insert(name.clone(), Sourced::new(node.value(), file.origin(node)));
            }
            Err(refused) => findings.push(refused.at(file.origin(node))),
        }
    }
    merge_layers([defaults, values])
}

/// Refuses a free key of parameters.yaml whose name belongs to another file.
pub fn check_parameter_name(name: &str) -> Result<(), Finding> {
    match SettingsFile::of_key(name) {
        Some(file) => Err(Finding::unplaced(format!("`{name}` belongs to {}", file.name))
            .with_hint("choose another name for the parameter")),
        None => check_key_owner(name),
    }
}

/// Returns a warning when a free key differs in one letter from a key of the table, so that it may be misspelled: the
/// host does not read free keys.
fn misspelled_parameter(name: &str, origin: Origin) -> Option<Finding> {
    let near = one_letter_off(name, PARAMETERS.iter().map(|key| key.name))?;
    let message = format!("`{name}` is read only by scripts (nearest key that the host reads: `{near}`)");
    Some(Finding::warning(origin, message).with_hint("`flagperf plan` lists the keys that the host reads"))
}

/// Returns a warning for each target whose metric the host does not compute but whose name is similar to one that it
/// does.
pub(super) fn misspelled_metrics(key: &ConfigKey, value: &Sourced<Value>) -> Vec<Finding> {
    let metrics = value.value.as_object().filter(|_| key.kind == ValueKind::Targets);
    let unknown = metrics.into_iter().flatten().map(|(name, _)| name).filter(|name| metric::find(name).is_none());
    let near = unknown.filter_map(|name| Some((name, nearest(name, metric::examples())?)));
    near.map(|(name, near)| {
        let message =
            format!("`{}`: only a script can report `{name}` (nearest metric of the host: `{near}`)", key.name);
        Finding::warning(value.origin.clone(), message).with_hint("a metric that no script reports misses its target")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_and_the_struct_have_the_same_defaults() {
        assert_eq!(Parameters::from_values(&defaults(PARAMETERS)), Parameters::default());
        assert_eq!(Parameters::from_values(&Values::new()), Parameters::default());
    }

    #[test]
    fn every_key_of_the_table_is_a_field_and_every_field_a_key() {
        let fields = serde_json::to_value(Parameters::default()).unwrap();
        let fields: BTreeSet<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let keys: BTreeSet<&str> = PARAMETERS.iter().map(|key| key.name).collect();
        assert_eq!(fields, keys);
        assert!(
            PARAMETERS.iter().all(|key| key.owner == Owner::Case),
            "a vendor must not change the rules of measuring"
        );
    }
}
