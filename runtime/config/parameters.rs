//! The keys of parameters.yaml that the host reads. All others are free: only the case's scripts read them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::File;
use super::key::{defaults, read_key};
use super::overlay::{refuse_foreign, setting};
use super::{ConfigProblem, Finding, Key, Kind, Owner, Sourced, Values, effective, nearest};
use crate::metric;

/// The keys of parameters.yaml that the host reads. Each has a field of the same name in [`Parameters`].
pub const PARAMETERS: &[Key] = &[
    Key {
        name: "target_accuracy",
        kind: Kind::Targets,
        default: Some("{}"),
        about: "the least value of each metric with real weights and data; below it the case fails",
        owner: Owner::Case,
    },
    Key {
        name: "agreement",
        kind: Kind::Limits,
        default: Some("{}"),
        about: "limits of the agreement of inference with validation, by precision; beyond them the case fails",
        owner: Owner::Case,
    },
    Key {
        name: "bad_samples",
        kind: Kind::Word(&["fail", "count"]),
        default: Some("fail"),
        about: "what a sample that cannot be read does: fail the case, or be counted and left out of accuracy",
        owner: Owner::Case,
    },
    Key {
        name: "preloaded",
        kind: Kind::Flag,
        default: Some("false"),
        about: "whether the dataset is read once and kept in memory: then no pass loads anything",
        owner: Owner::Case,
    },
    Key {
        name: "keep_f32",
        kind: Kind::Names,
        default: Some("[]"),
        about: "layers that stay in f32 when `fp16` is true",
        owner: Owner::Case,
    },
    Key {
        name: "weights",
        kind: Kind::OptionalText,
        default: Some("null"),
        about: "a file of weights under the data directory; null is random weights from `seed`",
        owner: Owner::Case,
    },
    Key {
        name: "seed",
        kind: Kind::Seed,
        default: Some("0"),
        about: "where the random values of a case begin",
        owner: Owner::Case,
    },
];

/// What the host reads of parameters.yaml, typed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The least value of each metric with real weights and data.
    pub target_accuracy: IndexMap<String, f64>,
    /// Limits of the agreement of inference with validation, by precision and name; the others keep their defaults.
    pub agreement: IndexMap<String, IndexMap<String, f64>>,
    /// What a sample that cannot be read does.
    pub bad_samples: OnBadSample,
    /// Whether the whole dataset is read once and kept.
    pub preloaded: bool,
    /// Layers that stay in f32 in a model of half precision.
    pub keep_f32: Vec<String>,
    /// The file of weights under the data directory; `None` is random weights.
    pub weights: Option<String>,
    /// Where the random values of a case begin.
    pub seed: u64,
}

/// What a sample that cannot be read does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadSample {
    /// It fails its batch with an error.
    #[default]
    Fail,
    /// Its row is zeroed and listed in the batch as failed.
    Count,
}

impl Parameters {
    /// The typed parameters of a case: the keys of [`PARAMETERS`] among its values, which were read by their types.
    pub fn of(values: &Values) -> Self {
        let known =
            PARAMETERS.iter().filter_map(|key| Some((key.name.to_owned(), values.get(key.name)?.value.clone())));
        let known = defaults(PARAMETERS).into_iter().map(|(name, default)| (name, default.value)).chain(known);
        serde_json::from_value(Value::Object(known.collect())).expect("every key of the table was read by its type")
    }
}

/// The key of the table of this name.
pub(super) fn parameter(name: &str) -> Option<&'static Key> {
    PARAMETERS.iter().find(|key| key.name == name)
}

/// The values of parameters.yaml over the defaults of the table; what does not fit becomes findings.
pub(super) fn read_parameters(file: &File, findings: &mut Vec<Finding>) -> Values {
    let mut values = Values::new();
    for (name, node) in &file.entries {
        let problem = match (parameter(name), setting(name)) {
            (Some(key), _) => {
                if let Some(value) = read_key(key, node, file, findings) {
                    findings.extend(doubtful_targets(key, &value));
                    values.insert(name.clone(), value);
                }
                continue;
            }
            (None, Some(_)) => Err(ConfigProblem::BelongsToSettings { key: name.clone() }),
            (None, None) => refuse_foreign(name),
        };
        match problem {
            Ok(()) => {
                findings.extend(slip(name).map(|problem| Finding::warning(file.origin(node), problem)));
                values.insert(name.clone(), Sourced::new(node.value(), file.origin(node)));
            }
            Err(problem) => findings.push(Finding::error(file.origin(node), problem)),
        }
    }
    effective([defaults(PARAMETERS), values])
}

/// A free key that is so near to one of the table that it may be meant: the host would not read it.
fn slip(name: &str) -> Option<ConfigProblem> {
    let names = || PARAMETERS.iter().map(|key| key.name);
    let beginning = names().find(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')));
    let near = nearest(name, names()).or(beginning)?;
    Some(ConfigProblem::NearParameter { key: name.to_owned(), near })
}

/// Targets of metrics that only a script can report, when a metric of the table has nearly that name.
fn doubtful_targets(key: &Key, value: &Sourced<Value>) -> Vec<Finding> {
    let metrics = value.value.as_object().filter(|_| key.kind == Kind::Targets);
    let unknown = metrics.into_iter().flatten().map(|(name, _)| name).filter(|name| metric::find(name).is_none());
    let near = unknown.filter_map(|name| Some((name, nearest(name, metric::examples())?)));
    near.map(|(name, near)| {
        let problem = ConfigProblem::NearMetric { metric: name.clone(), near: near.to_owned() };
        Finding::warning(value.origin.clone(), problem)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_struct() {
        assert_eq!(Parameters::of(&defaults(PARAMETERS)), Parameters::default());
        assert_eq!(Parameters::of(&Values::new()), Parameters::default());
    }

    #[test]
    fn every_key_of_the_table_is_a_field_and_every_field_a_key() {
        let fields = serde_json::to_value(Parameters::default()).unwrap();
        let fields: BTreeSet<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let keys: BTreeSet<&str> = PARAMETERS.iter().map(|key| key.name).collect();
        assert_eq!(fields, keys);
        assert!(PARAMETERS.iter().all(|key| key.owner == Owner::Case), "a vendor changes no rule of measuring");
    }
}
