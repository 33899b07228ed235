//! What each switch of a case changes: alone, added to those before it, and left out of the whole.

use std::path::PathBuf;

use flagperf_config::Switch;
use flagperf_core::metric::{AgreementLimits, OutputAgreement};
use flagperf_result::Record;
use indexmap::IndexMap;
use serde::Serialize;

use super::comparison::{Figure, Side, core, speed, whole};
use super::outputs::agreement_of;
use super::ratio::RatioInterval;

/// Which switches are on, in the order of the switches.
pub type Combination = Vec<bool>;

/// Returns the combinations that an ablation of so many switches measures, each once: none is on; each is on alone; those
/// up to each are on; all but one are on; all are on.
pub fn combinations(switches: usize) -> Vec<Combination> {
    let of = |is_on: &dyn Fn(usize) -> bool| (0..switches).map(is_on).collect::<Combination>();
    let mut found = vec![of(&|_| false)];
    found.extend((0..switches).map(|one| of(&|switch| switch == one)));
    found.extend((0..switches).map(|last| of(&|switch| switch <= last)));
    found.extend((0..switches).map(|one| of(&|switch| switch != one)));
    let mut seen = Vec::new();
    for combination in found {
        if !seen.contains(&combination) {
            seen.push(combination);
        }
    }
    seen
}

/// The measurements of one combination.
#[derive(Clone, Debug)]
pub struct MeasuredCombination {
    pub on: Combination,
    /// One result for each round; fewer if it failed.
    pub side: Side,
    /// Why it has no figures; `None` if it has.
    pub failure: Option<String>,
}

/// What each switch of a case changes.
#[derive(Clone, Debug, Serialize)]
pub struct Ablation {
    /// The case, such as `resnet101:interpreter`.
    pub case: String,
    /// How often each combination was measured.
    pub rounds: usize,
    pub switches: Vec<SwitchEffects>,
    /// Switches that this engine does not have, with the reason.
    pub unavailable: IndexMap<String, String>,
    pub combinations: Vec<CombinationFigures>,
}

/// What a switch changes. Each ratio is that of throughputs in samples per second, with its interval over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchEffects {
    #[serde(flatten)]
    pub switch: Switch,
    /// With this switch alone, by those with none.
    pub alone: Effect,
    /// With the switches up to this one, by those up to the one before.
    pub added: Effect,
    /// With the switches up to this one, by those with none.
    pub total: Effect,
    /// With all switches but this one, by those with all.
    pub left_out: Effect,
}

/// The ratio of the throughputs of two combinations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effect {
    /// Of throughput without the loader and the evaluator.
    pub core: Option<RatioInterval>,
    /// Of throughput of whole passes.
    pub whole: Option<RatioInterval>,
    /// Why a ratio is missing; `None` if both are there.
    pub unknown: Option<String>,
}

/// What was measured with one combination.
#[derive(Clone, Debug, Serialize)]
pub struct CombinationFigures {
    /// The names of the switches that are on.
    pub on: Vec<String>,
    /// The geometric mean over the rounds, in samples per second.
    pub core_samples_per_s: Option<f64>,
    pub whole_samples_per_s: Option<f64>,
    /// How closely the outputs match those with all switches off, by name.
    pub outputs: IndexMap<String, OutputAgreement>,
    /// Limits of agreement that the outputs exceed, one fragment each.
    pub disagreement: Vec<String>,
    /// Why the outputs were not compared; `None` if they were.
    pub not_compared: Option<String>,
    /// The metrics of its last result.
    pub metrics: IndexMap<String, f64>,
    pub results: Vec<PathBuf>,
    /// Why it has no figures; `None` if it has.
    pub failure: Option<String>,
}

impl Ablation {
    /// Computes the effects of `switches` from the combinations, of which `combinations` returns the list.
    pub fn new(case: String, switches: &[Switch], measured: &[MeasuredCombination]) -> Self {
        let count = switches.len();
        let found = |is_on: &dyn Fn(usize) -> bool| {
            let wanted: Combination = (0..count).map(is_on).collect();
            measured.iter().find(|combination| combination.on == wanted)
        };
        let (none, all) = (found(&|_| false), found(&|_| true));
        let effects = switches.iter().enumerate().map(|(index, switch)| {
            let up_to = found(&|other| other <= index);
            SwitchEffects {
                switch: switch.clone(),
                alone: effect(none, found(&|other| other == index)),
                added: effect(found(&|other| other < index), up_to),
                total: effect(none, up_to),
                left_out: effect(all, found(&|other| other != index)),
            }
        });
        Ablation {
            case,
            rounds: measured.iter().map(|combination| combination.side.results.len()).max().unwrap_or(0),
            switches: effects.collect(),
            unavailable: IndexMap::new(),
            combinations: measured.iter().map(|combination| figures(switches, combination, none)).collect(),
        }
    }

    /// Returns whether every combination was measured, and its outputs agree with those with all switches off.
    pub fn is_sound(&self) -> bool {
        self.combinations.iter().all(|figures| figures.failure.is_none() && figures.disagreement.is_empty())
    }
}

/// Returns the ratio of the throughputs of the second combination by those of the first.
fn effect(first: Option<&MeasuredCombination>, second: Option<&MeasuredCombination>) -> Effect {
    let unknown = |reason: &str| Effect { unknown: Some(reason.to_owned()), ..Effect::default() };
    let (Some(first), Some(second)) = (first, second) else { return unknown("it was not measured") };
    if let Some(reason) = first.failure.as_ref().or(second.failure.as_ref()) {
        return unknown(reason);
    }
    let ratio = |figure: Figure| speed([&first.side, &second.side], true, figure)?.ratio;
    let (core, whole) = (ratio(core), ratio(whole));
    let is_known = core.is_some() && whole.is_some();
    Effect { core, whole, unknown: (!is_known).then(|| "an interval needs two complete rounds".to_owned()) }
}

fn figures(
    switches: &[Switch],
    measured: &MeasuredCombination,
    none: Option<&MeasuredCombination>,
) -> CombinationFigures {
    let MeasuredCombination { on, side, failure } = measured;
    let names = switches.iter().zip(on).filter(|(_, is_on)| **is_on).map(|(switch, _)| switch.name.clone());
    let mean = |figure: Figure| Some(speed([side, side], true, figure)?.throughput_samples_per_s[0]);
    let first = none.filter(|none| none.on != *on).and_then(|none| none.side.results.last());
    let (outputs, disagreement, not_compared) = match (first, side.results.last()) {
        (Some(first), Some(second)) => match judge(first, second) {
            Ok((outputs, disagreement)) => (outputs, disagreement, None),
            Err(reason) => (IndexMap::new(), Vec::new(), Some(reason)),
        },
        _ => (IndexMap::new(), Vec::new(), None),
    };
    let last = side.results.last().and_then(|(_, record)| record.measured_loops().next_back());
    let has_figures = failure.is_none() && !side.results.is_empty();
    CombinationFigures {
        on: names.collect(),
        core_samples_per_s: has_figures.then(|| mean(core)).flatten(),
        whole_samples_per_s: has_figures.then(|| mean(whole)).flatten(),
        outputs,
        disagreement,
        not_compared,
        metrics: last.map(|measured| measured.accuracy.clone()).unwrap_or_default(),
        results: side.results.iter().map(|(folder, _)| folder.clone()).collect(),
        failure: failure.clone(),
    }
}

/// Compares the outputs of two results by the more generous limits of the two, since their precisions may differ. Returns
/// also the limits that are exceeded.
fn judge(
    (first, first_record): &(PathBuf, Record),
    (second, second_record): &(PathBuf, Record),
) -> Result<(IndexMap<String, OutputAgreement>, Vec<String>), String> {
    let both = [first_record, second_record].into_iter().filter_map(|record| record.agreement.limits);
    let generous = both.max_by(|a, b| a.relative_l2.total_cmp(&b.relative_l2));
    let limits: AgreementLimits = generous.ok_or("the results have no limits of agreement")?;
    let outputs = agreement_of(first, second)?;
    let exceeded = outputs.iter().flat_map(|(name, figures)| {
        limits.violations(figures).into_iter().map(move |reason| format!("output `{name}`: {reason}"))
    });
    let exceeded = exceeded.collect();
    Ok((outputs, exceeded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(combination: &Combination) -> String {
        combination.iter().map(|is_on| if *is_on { '1' } else { '0' }).collect()
    }

    #[test]
    fn each_combination_is_measured_once() {
        let of = |switches| combinations(switches).iter().map(shown).collect::<Vec<_>>();
        assert_eq!(of(1), ["0", "1"]);
        assert_eq!(of(2), ["00", "10", "01", "11"]);
        assert_eq!(of(3), ["000", "100", "010", "001", "110", "111", "011", "101"]);
        for switches in 3..10 {
            assert_eq!(combinations(switches).len(), 3 * switches - 1);
        }
    }

    #[test]
    fn an_effect_without_measurements_says_why() {
        let measured = |on: Combination, failure: Option<&str>| MeasuredCombination {
            on,
            side: Side { name: "tiny".to_owned(), results: Vec::new() },
            failure: failure.map(str::to_owned),
        };
        let switch = |name: &str| Switch { name: name.to_owned(), off: IndexMap::new(), on: IndexMap::new() };
        let combinations = [measured(vec![false, false], None), measured(vec![true, false], Some("out of memory"))];
        let found = Ablation::new("tiny".to_owned(), &[switch("a"), switch("b")], &combinations);
        assert_eq!(found.switches[0].alone.unknown.as_deref(), Some("out of memory"));
        assert_eq!(found.switches[1].alone.unknown.as_deref(), Some("it was not measured"));
        assert_eq!(found.combinations[1].on, ["a"]);
        assert!(!found.is_sound());
    }
}
