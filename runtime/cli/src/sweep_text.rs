//! The figures of a case with several values of one setting, as text.

use flagperf_comparison::{KNEE_SHARE, RatioInterval, Sweep};

use super::ablate_text::{interval_note, variant_notes};
use flagperf_config::display_value;
use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_report::{bytes, duration, headed_table, name_value_table, percent, wrap};

/// Describes a sweep.
pub(super) fn sweep_text(sweep: &Sweep, columns: u16) -> String {
    let rows = vec![("case".to_owned(), sweep.case.clone()), ("rounds".to_owned(), sweep.rounds.to_string())];
    let head =
        [&sweep.key, "core, samples/s", "% of the best", "whole", "step p50", "device memory"].map(str::to_owned);
    let points = sweep.points.iter().enumerate().map(|(index, point)| {
        let figures = &point.figures;
        let rate = |figure: Option<f64>| figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.2}"));
        let of_best = match sweep.best {
            Some(best) if best == index => "best".to_owned(),
            _ => point.by_best.core.as_ref().map_or_else(|| "unknown".to_owned(), share),
        };
        let step = figures.step_p50_s.map_or_else(String::new, |time| duration(Seconds(time)));
        let memory = figures.device_memory_bytes_max.map_or_else(String::new, bytes);
        let value = value_text(&point.value);
        [value, rate(figures.core_samples_per_s), of_best, rate(figures.whole_samples_per_s), step, memory]
    });
    let mut text = name_value_table(rows, columns);
    text += &format!("\n{}", headed_table(std::iter::once(head).chain(points).collect(), columns));
    let named: Vec<_> = (sweep.points.iter())
        .map(|point| (format!("{}={}", sweep.key, value_text(&point.value)), &point.figures))
        .collect();
    let first = named.first().map(|(name, _)| name.clone()).unwrap_or_default();
    for line in knee_line(sweep).into_iter().chain(interval_note(sweep.rounds)).chain(variant_notes(&named, &first)) {
        text += &format!("\n{}\n", wrap(&one_line(&line), columns.into()));
    }
    text
}

/// Returns a value as one line.
pub(super) fn value_text(value: &serde_json::Value) -> String {
    one_line(&display_value(value)).into_owned()
}

/// Returns which value is enough.
pub(super) fn knee_line(sweep: &Sweep) -> Option<String> {
    let knee = value_text(&sweep.points[sweep.knee?].value);
    let share = percent(KNEE_SHARE);
    Some(format!(
        "knee: {}={knee}, the smallest value with at least {share} of the highest throughput (core)",
        sweep.key
    ))
}

/// Returns a share in percent, with its interval.
fn share(RatioInterval { ratio, low, high, .. }: &RatioInterval) -> String {
    let [share, low, high] = [ratio, low, high].map(|ratio| ratio * 100.0);
    format!("{share:.1} ({low:.1} to {high:.1})")
}
