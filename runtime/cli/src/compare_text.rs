//! A comparison as text.

use flagperf_comparison::{Comparison, RatioInterval, ScenarioPair, Speed, SpeedVerdict};

use flagperf_core::text::one_line;
use flagperf_core::units::Seconds;
use flagperf_report::{duration, headed_table, name_value_table, wrap};

/// Describes a comparison.
pub(super) fn comparison_text(comparison: &Comparison, columns: u16) -> String {
    let [first, second] = &comparison.sides;
    let mut rows = vec![("first".to_owned(), first.clone()), ("second".to_owned(), second.clone())];
    for difference in &comparison.differences {
        let what = if difference.prevents { "not the same work" } else { "differs" };
        let [first, second] = [&difference.first, &difference.second].map(|value| one_line(value));
        rows.push((what.to_owned(), format!("{}: {first} and {second}", one_line(&difference.what))));
    }
    let mut text = name_value_table(rows, columns);
    let speeds = [("core", &comparison.core), ("whole", &comparison.whole)];
    let lines = speeds.into_iter().filter_map(|(name, speed)| Some(speed_row(name, speed.as_ref()?)));
    let head = ["speed, samples/s", "first", "second", "second / first", "verdict"].map(str::to_owned);
    text += &format!("\n{}", headed_table(std::iter::once(head).chain(lines).collect(), columns));
    if comparison.core.as_ref().and_then(|speed| speed.ratio).is_some_and(|ratio| ratio.pairs == 0) {
        let note =
            "The sides were measured at different times: how the machine changed in between is not in the interval.";
        text += &format!("{}\n", wrap(note, columns.into()));
    }
    text += &comparison.scenario.as_ref().map(|pair| scenario(pair, columns)).unwrap_or_default();
    text += &outputs(comparison, columns);
    if !comparison.metrics.is_empty() {
        let head = ["metric", "first", "second"].map(str::to_owned);
        let number = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.4}"));
        let rows = comparison
            .metrics
            .iter()
            .map(|(name, pair)| [one_line(name).into_owned(), number(pair.first), number(pair.second)]);
        text += &format!("\n{}", headed_table(std::iter::once(head).chain(rows).collect(), columns));
    }
    text
}

fn speed_row(name: &str, speed: &Speed) -> [String; 5] {
    let [first, second] = speed.throughput_samples_per_s.map(|figure| format!("{figure:.2}"));
    [
        name.to_owned(),
        first,
        second,
        speed.ratio.as_ref().map_or_else(|| "no interval".to_owned(), ratio),
        verdict(speed),
    ]
}

/// Returns a ratio with its interval.
pub(super) fn ratio(ratio: &RatioInterval) -> String {
    let RatioInterval { ratio, low, high, pairs } = ratio;
    let pairs = if *pairs > 0 { format!(", {pairs} pairs") } else { String::new() };
    format!("{ratio:.4} ({low:.4} to {high:.4}{pairs})")
}

/// Returns the verdict about the second side.
pub(super) fn verdict(speed: &Speed) -> String {
    let text = match speed.verdict {
        Some(SpeedVerdict::Faster) => "faster",
        Some(SpeedVerdict::Slower) => "slower",
        Some(SpeedVerdict::NoDifferenceSeen) => "no difference seen",
        None => "unknown",
    };
    text.to_owned()
}

/// Returns the figures of queries, which have no interval.
fn scenario(pair: &ScenarioPair, columns: u16) -> String {
    let time = |time: Option<Seconds>| time.map_or_else(|| "unknown".to_owned(), duration);
    let rate = |rate: Option<f64>| rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{rate:.2}"));
    let rows = [
        ("queries/s", pair.queries_per_s.map(rate)),
        ("median latency", pair.latency_p50_s.map(time)),
        ("percentile, at 99 % confidence", pair.percentile_s.map(time)),
    ];
    let tokens = [
        ("percentile of the first token", pair.first_token_percentile_s),
        ("percentile of the time between tokens", pair.next_token_percentile_s),
    ];
    let tokens = tokens.into_iter().filter(|(_, of)| of.iter().any(Option::is_some));
    let rows = rows.into_iter().chain(tokens.map(|(name, of)| (name, of.map(time))));
    let rows = rows.map(|(name, [first, second])| [name.to_owned(), first, second]);
    let head = ["scenario (no verdict)", "first", "second"].map(str::to_owned);
    format!("\n{}", headed_table(std::iter::once(head).chain(rows).collect(), columns))
}

fn outputs(comparison: &Comparison, columns: u16) -> String {
    if let Some(reason) = &comparison.outputs_unknown {
        return format!("\n{}\n", wrap(&format!("outputs: not compared: {}", one_line(reason)), columns.into()));
    }
    let head = ["output", "error", "mean", "maximum", "median", "elements"].map(str::to_owned);
    let mut rows = vec![head];
    for (name, errors) in &comparison.outputs {
        for (kind, found) in [("absolute", errors.absolute), ("relative", errors.relative)] {
            let numbers = [found.mean, found.max, found.median].map(|value| format!("{value:.1e}"));
            let [mean, max, median] = numbers;
            rows.push([one_line(name).into_owned(), kind.to_owned(), mean, max, median, errors.elements.to_string()]);
        }
    }
    format!("\n{}", headed_table(rows, columns))
}
