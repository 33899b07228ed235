//! How the throughput of a case depends on the value of one setting.

use serde::Serialize;
use serde_json::Value;

use super::variant::{Effect, Variant, VariantFigures, rounds};

/// The share of the highest throughput from which a value counts as the knee.
pub const KNEE_SHARE: f64 = 0.95;

/// How the throughput of a case depends on the value of one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// The case, such as `resnet50:interpreter`.
    pub case: String,
    /// The setting.
    pub key: String,
    /// How often each value was measured.
    pub rounds: usize,
    /// Whether it was interrupted, so that there are fewer rounds than were asked for.
    pub is_interrupted: bool,
    pub points: Vec<SweepPoint>,
    /// The index of the point with the highest throughput (*core*); `None` if no point has one.
    pub best: Option<usize>,
    /// The index of the knee: the point with the smallest value whose throughput (*core*) is at least [`KNEE_SHARE`] of the highest.
    /// `None` if the values are not numbers.
    pub knee: Option<usize>,
}

/// What was measured with one value.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    pub value: Value,
    /// The throughput with this value by that of the best one.
    pub by_best: Effect,
    #[serde(flatten)]
    pub figures: VariantFigures,
}

impl Sweep {
    /// Computes a sweep from the values of a setting, each with its measurements, which were measured in turns or not. Outputs are
    /// compared with those of the first value that has results.
    pub fn new(case: String, key: String, measured: &[(Value, Variant)], interleaved: bool) -> Self {
        let first =
            measured.iter().position(|(_, variant)| variant.failure.is_none() && !variant.side.results.is_empty());
        let figures: Vec<VariantFigures> = (measured.iter().enumerate())
            .map(|(index, (_, variant))| {
                VariantFigures::new(variant, first.filter(|first| *first != index).map(|first| &measured[first].1))
            })
            .collect();
        let throughputs: Vec<Option<f64>> = figures.iter().map(|figures| figures.core_samples_per_s).collect();
        let best = best(&throughputs);
        let values: Option<Vec<f64>> = measured.iter().map(|(value, _)| value.as_f64()).collect();
        let points = measured.iter().zip(figures).map(|((value, variant), figures)| SweepPoint {
            value: value.clone(),
            by_best: Effect::between(best.map(|best| &measured[best].1), Some(variant), interleaved),
            figures,
        });
        Sweep {
            case,
            key,
            is_interrupted: false,
            rounds: rounds(measured.iter().map(|(_, variant)| variant)),
            points: points.collect(),
            best,
            knee: values.and_then(|values| knee(&values, &throughputs)),
        }
    }

    /// Returns whether every value was measured, and no output is known to depend on the value.
    pub fn is_sound(&self) -> bool {
        self.points.iter().all(|point| point.figures.is_sound())
    }
}

/// Returns the index of the highest throughput.
fn best(throughputs: &[Option<f64>]) -> Option<usize> {
    let known = throughputs.iter().enumerate().filter_map(|(index, throughput)| Some((index, (*throughput)?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// Returns the index of the smallest value whose throughput is at least [`KNEE_SHARE`] of the highest.
fn knee(values: &[f64], throughputs: &[Option<f64>]) -> Option<usize> {
    let enough = KNEE_SHARE * throughputs[best(throughputs)?]?;
    let is_enough = |index: &usize| throughputs[*index].is_some_and(|throughput| throughput >= enough);
    (0..values.len()).filter(is_enough).min_by(|a, b| values[*a].total_cmp(&values[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_smallest_value_near_the_highest_throughput() {
        let throughputs = [Some(10.0), Some(19.0), Some(95.0), Some(100.0), Some(94.9)];
        assert_eq!(knee(&[1.0, 2.0, 4.0, 8.0, 16.0], &throughputs), Some(2));
        // The values need not be in order, and one that failed has no throughput.
        assert_eq!(knee(&[16.0, 8.0, 4.0, 2.0], &[Some(100.0), Some(99.0), None, Some(50.0)]), Some(1));
        assert_eq!((knee(&[1.0], &[None]), best(&[None, None]), best(&[Some(1.0), Some(2.0)])), (None, None, Some(1)));
    }
}
