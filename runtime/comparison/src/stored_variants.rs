//! Stored results of a case that differ in one setting, or only in its switches: the sweep or the ablation that they are. They may have
//! been measured at any time, so that their intervals are those of repeats, not of pairs.

use std::collections::HashSet;
use std::path::PathBuf;

use flagperf_config::Switch;
use flagperf_result::{Record, Status, Validity, different_keys};
use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::ablation::{Ablation, Combination, MeasuredCombination};
use super::comparable::{dataset, headline};
use super::comparison::Side;
use super::sweep::Sweep;
use super::variant::Variant;

/// What results of a case are together.
#[derive(Clone, Debug)]
pub enum StoredVariants {
    Ablation(Ablation),
    Sweep(Sweep),
}

type Results = Vec<(PathBuf, Record)>;

impl StoredVariants {
    /// Returns the sweep or the ablation of each case on one machine with one version of each engine. Those of several devices, and without
    /// valid figures, are not used.
    pub fn of<'r>(results: impl IntoIterator<Item = (PathBuf, &'r Record)>) -> Vec<Self> {
        let mut cases: IndexMap<String, Results> = IndexMap::new();
        let mut known = HashSet::new();
        for (path, record) in results {
            let is_one_device = record.device.is_none() && record.processes() == 1;
            let is_usable = record.status == Status::Ok && record.validity.verdict != Validity::Invalid;
            // A copy is no repeat.
            let is_new = known.insert(record.identity());
            if is_one_device && is_usable && is_new && headline(record).is_some() {
                cases.entry(subject(record)).or_default().push((path, record.clone()));
            }
        }
        cases.into_values().filter_map(StoredVariants::of_case).collect()
    }

    fn of_case(mut results: Results) -> Option<Self> {
        results.sort_by(|a, b| (&a.1.started, &a.0).cmp(&(&b.1.started, &b.0)));
        let mut versions: IndexMap<&str, &str> = IndexMap::new();
        for (_, record) in &results {
            let engine = record.headline_phase()?.engine.as_ref();
            let known = engine.map(|engine| (versions.insert(&engine.name, &engine.version), &engine.version));
            if known.is_some_and(|(known, version)| known.is_some_and(|known| known != version)) {
                return None;
            }
        }
        let first = &results[0].1;
        let different: IndexSet<&str> =
            results.iter().flat_map(|(_, record)| different_keys(&first.settings, &record.settings, false)).collect();
        let key = different.first()?;
        let switches = first.settings.get("switches").map(|setting| Switch::of_value(&setting.value));
        let switches = switches.unwrap_or_default().into_iter();
        let varied: Vec<Switch> =
            switches.filter(|switch| switch.on.keys().any(|key| different.contains(key.as_str()))).collect();
        let are_switches = different.iter().all(|key| varied.iter().any(|switch| switch.on.contains_key(*key)));
        let combinations: Option<Vec<Combination>> =
            results.iter().map(|(_, record)| combination(&varied, record)).collect();
        let case = first.key();
        match combinations.filter(|_| are_switches) {
            Some(combinations) => {
                let measured = variants(combinations.into_iter().zip(results.iter().cloned()));
                let measured = measured.map(|(on, variant)| MeasuredCombination { on, variant });
                Some(Self::Ablation(Ablation::new(case, &varied, &measured.collect::<Vec<_>>(), false)))
            }
            None if different.len() == 1 => {
                let values = results.iter().map(|(_, record)| value(record, key));
                let mut measured: Vec<(Value, Variant)> = variants(values.zip(results.iter().cloned())).collect();
                if measured.iter().all(|(value, _)| value.is_number()) {
                    measured
                        .sort_by(|a, b| a.0.as_f64().partial_cmp(&b.0.as_f64()).expect("numbers of JSON are finite"));
                }
                Some(Self::Sweep(Sweep::new(case, (*key).to_owned(), &measured, false)))
            }
            None => None,
        }
    }
}

/// Returns what results of a sweep or an ablation have in common.
fn subject(record: &Record) -> String {
    let engine = record.headline_phase().and_then(|phase| phase.engine.as_ref());
    let device = engine.map(|engine| (&engine.device, &engine.driver));
    let machine = record.hosts.first().map(|host| (&host.name, &host.machine));
    let dataset = dataset(record).map(|facts| &facts.index_sha256);
    let what = (record.key(), &record.vendor, &record.provenance.flagperf, device, machine, dataset);
    serde_json::to_string(&what).expect("a record is plain data")
}

/// Returns which switches are on in a result; `None` if a setting is neither as with its switch on nor as with it off.
fn combination(switches: &[Switch], record: &Record) -> Option<Combination> {
    let is = |values: &IndexMap<String, Value>| values.iter().all(|(key, expected)| value(record, key) == *expected);
    let position = |switch: &Switch| if is(&switch.on) { Some(true) } else { is(&switch.off).then_some(false) };
    switches.iter().map(position).collect()
}

fn value(record: &Record, key: &str) -> Value {
    record.settings.get(key).map_or(Value::Null, |setting| setting.value.clone())
}

/// Returns the results of each variant, which are equal if their `kind` is.
fn variants<T: PartialEq>(results: impl Iterator<Item = (T, (PathBuf, Record))>) -> impl Iterator<Item = (T, Variant)> {
    let mut variants: Vec<(T, Results)> = Vec::new();
    for (kind, result) in results {
        match variants.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, results)) => results.push(result),
            None => variants.push((kind, vec![result])),
        }
    }
    let variant = |results| Variant { side: Side { name: String::new(), results }, failure: None };
    variants.into_iter().map(move |(kind, results)| (kind, variant(results)))
}

#[cfg(test)]
mod tests {
    use flagperf_core::units::SamplesPerSecond;
    use flagperf_result::{Setting, testing};
    use serde_json::json;

    use super::*;

    fn record(run: usize, core: f64, settings: Value) -> (PathBuf, Record) {
        let mut record = testing::record();
        record.run = format!("run{run}");
        record.started = format!("2026-01-01T00:{run:02}:00Z");
        record.validity.verdict = Validity::Unofficial;
        record.phases[0].measured[0].throughput_core_samples_per_s = Some(SamplesPerSecond(core));
        for (key, value) in settings.as_object().expect("settings") {
            let setting = Setting { value: value.clone(), origin: "configs/a.yaml:1".into() };
            record.settings.insert(key.clone(), setting);
        }
        (PathBuf::from(format!("run{run}")), record)
    }

    fn found(records: &[(PathBuf, Record)]) -> Vec<StoredVariants> {
        StoredVariants::of(records.iter().map(|(path, record)| (path.clone(), record)))
    }

    #[test]
    fn results_that_differ_in_one_setting_are_a_sweep_in_the_order_of_its_values() {
        let result = |run, size: u32, core| record(run, core, json!({"prefetch": size}));
        let results = [result(0, 8, 100.0), result(1, 2, 50.0), result(2, 8, 104.0), result(3, 2, 51.0)];
        let [StoredVariants::Sweep(sweep)] = &found(&results)[..] else { panic!("a sweep") };
        let values: Vec<&Value> = sweep.points.iter().map(|point| &point.value).collect();
        assert_eq!((sweep.key.as_str(), values, sweep.rounds), ("prefetch", vec![&json!(2), &json!(8)], 2));
        assert_eq!((sweep.best, sweep.knee), (Some(1), Some(1)));
        let ratio = sweep.points[0].by_best.core.expect("two results of each");
        assert!(ratio.pairs == 0 && ratio.high < 0.6, "they may not be pairs: {ratio:?}");
        assert_eq!(found(&results[..1]).len(), 0);
        assert_eq!(found(&[result(0, 8, 1.0), result(1, 8, 1.0)]).len(), 0, "repeats");
        let both = [record(0, 1.0, json!({"a": 1, "b": 1})), record(1, 1.0, json!({"a": 2, "b": 2}))];
        assert_eq!(found(&both).len(), 0, "neither setting alone");
    }

    #[test]
    fn results_that_differ_in_switches_are_an_ablation() {
        let switches = json!([{"name": "amp", "off": {"fp16": false}, "on": {"fp16": true}},
            {"name": "fuse", "off": {"graph": "plain"}, "on": {"graph": "fused"}}]);
        let result = |run, fp16: bool, graph: &str, core| {
            record(run, core, json!({"fp16": fp16, "graph": graph, "switches": switches.clone()}))
        };
        let mut results: Vec<_> = (0..2)
            .flat_map(|round| {
                let run = |at: usize| 4 * round + at;
                [
                    result(run(0), false, "plain", 100.0),
                    result(run(1), true, "plain", 150.0),
                    result(run(2), false, "fused", 110.0),
                    result(run(3), true, "fused", 165.0),
                ]
            })
            .collect();
        let [StoredVariants::Ablation(ablation)] = &found(&results)[..] else { panic!("an ablation") };
        assert_eq!((ablation.combinations.len(), ablation.rounds), (4, 2));
        let ratio = |effect: &crate::Effect| effect.core.map(|core| (core.ratio * 100.0).round());
        let amp = &ablation.switches[0];
        assert_eq!([ratio(&amp.alone), ratio(&amp.left_out)], [Some(150.0), Some(67.0)]);
        results.push(result(9, true, "other", 1.0));
        assert_eq!(found(&results).len(), 0, "a value that no switch has");
        let only_amp: Vec<_> = results[..2].to_vec();
        assert!(matches!(&found(&only_amp)[..], [StoredVariants::Ablation(own)] if own.switches.len() == 1));
    }
}
