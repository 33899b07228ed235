//! A comparison as text.

use flagperf_comparison::{Comparison, RatioInterval, ScenarioFigure, ScenarioPair, Speed, SpeedVerdict};

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
    let head = ["speed, samples/s", "first", "second", &ratio_title(comparison), "verdict"].map(str::to_owned);
    text += &format!("\n{}", headed_table(std::iter::once(head).chain(lines).collect(), columns));
    if comparison.core.as_ref().and_then(|speed| speed.ratio).is_some_and(|ratio| ratio.pairs == 0) {
        let note =
            "The sides were measured at different times: how the machine changed in between is not in the interval.";
        text += &format!("{}\n", wrap(note, columns.into()));
    }
    if !comparison.scenario.is_empty() {
        text += &scenario(comparison, columns);
    }
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
    [name.to_owned(), first, second, ratio_text(speed.ratio.as_ref()), verdict(speed.verdict)]
}

/// Returns a ratio with its interval.
fn ratio(ratio: &RatioInterval) -> String {
    let RatioInterval { ratio, low, high, pairs } = ratio;
    let pairs = if *pairs > 0 { format!(", {pairs} pairs") } else { String::new() };
    format!("{ratio:.4} ({low:.4} to {high:.4}{pairs})")
}

/// Returns a ratio with its interval, if there is one.
pub(super) fn ratio_text(found: Option<&RatioInterval>) -> String {
    found.map_or_else(|| "no interval".to_owned(), ratio)
}

/// Returns the verdict about the second side.
pub(super) fn verdict(found: Option<SpeedVerdict>) -> String {
    let text = match found {
        Some(SpeedVerdict::Faster) => "faster",
        Some(SpeedVerdict::Slower) => "slower",
        Some(SpeedVerdict::NoDifferenceSeen) => "no difference seen",
        None => "unknown",
    };
    text.to_owned()
}

/// Returns the figures of queries.
fn scenario(comparison: &Comparison, columns: u16) -> String {
    let row = |(figure, pair): (&ScenarioFigure, &ScenarioPair)| {
        let known = |value: f64| if figure.is_time() { duration(Seconds(value)) } else { format!("{value:.2}") };
        let [first, second] = pair.sides.map(|value| value.map_or_else(|| "unknown".to_owned(), known));
        let name = figure.title().to_owned();
        [name, first, second, ratio_text(pair.ratio.as_ref()), verdict(pair.verdict)]
    };
    let head = ["scenario", "first", "second", &ratio_title(comparison), "verdict"].map(str::to_owned);
    let rows = std::iter::once(head).chain(comparison.scenario.iter().map(row)).collect();
    let mut text = format!("\n{}", headed_table(rows, columns));
    if comparison.scenario.values().all(|pair| pair.ratio.is_none()) {
        let note = "The figures of queries have an interval if each side was measured several times: give the folders of several \
                    runs, or two cases.";
        text += &format!("{}\n", wrap(note, columns.into()));
    }
    text
}

fn ratio_title(comparison: &Comparison) -> String {
    format!("second / first ({} %)", comparison.confidence_percent())
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
