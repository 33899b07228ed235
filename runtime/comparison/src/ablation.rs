//! What each switch of a case changes: alone, added to those before it, and left out of the whole.

use flagperf_config::Switch;
use indexmap::IndexMap;
use serde::Serialize;

use super::variant::{Effect, Variant, VariantFigures, rounds};

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
    pub variant: Variant,
}

/// What each switch of a case changes.
#[derive(Clone, Debug, Serialize)]
pub struct Ablation {
    /// The case, such as `resnet101:interpreter`.
    pub case: String,
    /// How often each combination was measured.
    pub rounds: usize,
    /// Whether it was interrupted, so that there are fewer rounds than were asked for.
    pub is_interrupted: bool,
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

/// What was measured with one combination. Its outputs are compared with those of all switches off.
#[derive(Clone, Debug, Serialize)]
pub struct CombinationFigures {
    /// The names of the switches that are on.
    pub on: Vec<String>,
    #[serde(flatten)]
    pub figures: VariantFigures,
}

impl Ablation {
    /// Computes the effects of `switches` from the combinations, of which `combinations` returns the list, and which were measured in turns
    /// or not.
    pub fn new(case: String, switches: &[Switch], measured: &[MeasuredCombination], interleaved: bool) -> Self {
        let count = switches.len();
        let found = |is_on: &dyn Fn(usize) -> bool| {
            let wanted: Combination = (0..count).map(is_on).collect();
            measured.iter().find(|combination| combination.on == wanted).map(|combination| &combination.variant)
        };
        let (none, all) = (found(&|_| false), found(&|_| true));
        let between = |first, second| Effect::between(first, second, interleaved);
        let effects = switches.iter().enumerate().map(|(index, switch)| {
            let up_to = found(&|other| other <= index);
            SwitchEffects {
                switch: switch.clone(),
                alone: between(none, found(&|other| other == index)),
                added: between(found(&|other| other < index), up_to),
                total: between(none, up_to),
                left_out: between(all, found(&|other| other != index)),
            }
        });
        let figures = measured.iter().map(|MeasuredCombination { on, variant }| {
            let names = switches.iter().zip(on).filter(|(_, is_on)| **is_on).map(|(switch, _)| switch.name.clone());
            let on: Vec<String> = names.collect();
            CombinationFigures { figures: VariantFigures::new(variant, none.filter(|_| !on.is_empty())), on }
        });
        Ablation {
            case,
            is_interrupted: false,
            rounds: rounds(measured.iter().map(|combination| &combination.variant)),
            switches: effects.collect(),
            unavailable: IndexMap::new(),
            combinations: figures.collect(),
        }
    }

    /// Returns whether every combination was measured, and its outputs agree with those with all switches off.
    pub fn is_sound(&self) -> bool {
        self.combinations.iter().all(|combination| combination.figures.is_sound())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Side;
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
            variant: Variant {
                side: Side { name: "tiny".to_owned(), results: Vec::new() },
                failure: failure.map(str::to_owned),
            },
        };
        let switch = |name: &str| Switch { name: name.to_owned(), off: IndexMap::new(), on: IndexMap::new() };
        let combinations = [measured(vec![false, false], None), measured(vec![true, false], Some("out of memory"))];
        let found = Ablation::new("tiny".to_owned(), &[switch("a"), switch("b")], &combinations, true);
        assert_eq!(found.switches[0].alone.unknown.as_deref(), Some("out of memory"));
        assert_eq!(found.switches[1].alone.unknown.as_deref(), Some("it was not measured"));
        assert_eq!(found.combinations[1].on, ["a"]);
        assert!(!found.is_sound());
    }
}
