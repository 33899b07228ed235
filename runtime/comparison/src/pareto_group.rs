//! Results that generate text and are repeats of one configuration: their means, and the smallest and the largest value.

use flagperf_core::units::Seconds;
use flagperf_result::{Record, different_setting};

use super::pareto::ParetoPoint;

/// A result of a configuration.
pub(super) struct Measured<'r> {
    pub(super) record: &'r Record,
    pub(super) point: ParetoPoint,
}

impl Measured<'_> {
    /// Returns whether another result of the same table is of the same configuration.
    pub(super) fn is_repeated_by(&self, other: &Self) -> bool {
        let versions = |record: &Record| {
            let engine = record.headline_phase().and_then(|phase| phase.engine.as_ref());
            let engine = engine.map(|engine| (engine.name.clone(), engine.version.clone(), engine.driver.clone()));
            (record.provenance.flagperf.clone(), engine)
        };
        let numbers = |point: &ParetoPoint| (point.concurrency, point.devices, point.includes_first_token);
        numbers(&self.point) == numbers(&other.point)
            && versions(self.record) == versions(other.record)
            && different_setting(&self.record.settings, &other.record.settings, false).is_none()
    }
}

/// Returns the means of the results of a configuration.
pub(super) fn mean_point(group: &[Measured]) -> ParetoPoint {
    let first = &group[0].point;
    let all = |figure: fn(&ParetoPoint) -> f64| group.iter().map(move |own| figure(&own.point));
    let count = group.len() as f64;
    let mean = |figure| all(figure).sum::<f64>() / count;
    let range = |figure| {
        (group.len() > 1)
            .then(|| [all(figure).fold(f64::INFINITY, f64::min), all(figure).fold(f64::NEG_INFINITY, f64::max)])
    };
    // A mean of only some would be that of other results than the rest of the row.
    let known = |figure: fn(&ParetoPoint) -> Option<f64>| {
        let sum: Option<f64> = group.iter().map(|own| figure(&own.point)).sum();
        sum.map(|sum| sum / count)
    };
    let [user, device]: [fn(&ParetoPoint) -> f64; 2] =
        [|point| point.user_tokens_per_s, |point| point.device_tokens_per_s];
    ParetoPoint {
        paths: group.iter().flat_map(|own| own.point.paths.iter().cloned()).collect(),
        user_tokens_per_s: mean(user),
        user_tokens_per_s_range: range(user),
        device_tokens_per_s: mean(device),
        device_tokens_per_s_range: range(device),
        are_devices_known: group.iter().all(|own| own.point.are_devices_known),
        first_token_p50_s: known(|point| point.first_token_p50_s.map(|time| time.0)).map(Seconds),
        tokens_per_j: known(|point| point.tokens_per_j),
        validity: group.iter().map(|own| own.point.validity).max().unwrap_or(first.validity),
        ..first.clone()
    }
}
