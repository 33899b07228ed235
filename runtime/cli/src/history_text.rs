//! The results of a case over time as text.

use flagperf_comparison::{ChangePoint, History, HistoryResult, RatioInterval, Series, UnusedResult};

use super::output::counted;
use super::result_printer::relative_path;
use flagperf_core::text::one_line;
use flagperf_report::{headed_table, wrap};

/// Digits of a commit that are shown.
const REVISION_DIGITS: usize = 12;
/// Characters of a start that are shown: the date and the time to the minute.
const START_CHARACTERS: usize = 16;
/// Fewest results in which a change of the level can be seen.
const RESULTS_MIN: usize = 4;
/// Most results that are not used and listed.
const UNUSED_MAX: usize = 50;
/// Most differences that are named at a change.
const DIFFERENCES_MAX: usize = 12;

/// Describes the history of a case.
pub(super) fn history_text(history: &History, columns: u16) -> String {
    let series = history.series.iter().map(|series| series_text(series, columns));
    let text = series.collect::<Vec<_>>().join("\n");
    let separator = if text.is_empty() || history.unused.is_empty() { "" } else { "\n" };
    format!("{text}{separator}{}", unused_text(&history.unused, columns))
}

/// Lists the results that are not used, each with the reason.
pub(super) fn unused_text(unused: &[UnusedResult], columns: u16) -> String {
    if unused.is_empty() {
        return String::new();
    }
    let mut text = format!("not used: {}\n", counted(unused.len(), "result"));
    for UnusedResult { path, reason } in unused.iter().take(UNUSED_MAX) {
        let line = format!("  {}: {reason}", relative_path(path).display());
        text += &format!("{}\n", wrap(&one_line(&line), columns.into()));
    }
    text
}

fn series_text(series: &Series, columns: u16) -> String {
    let Series { key, vendor, device, engine, precision, batch_size, step, .. } = series;
    let title = format!("{key}: {step}, {vendor}, {device}, {engine}, {precision}, batch size {batch_size}");
    let unlike = series.unlike_earlier.iter().map(|found| {
        format!("unlike an earlier series: {} is {}, and {} there", found.what, found.second, found.first)
    });
    let heads = std::iter::once(title).chain(unlike).map(|line| wrap(&one_line(&line), columns.into()));
    let mut text = format!("{}\n\n", heads.collect::<Vec<_>>().join("\n"));
    let head = ["run", "revision", &series.engine, "flagperf", "core", "verdict", "by the one before"];
    let rows = series.results.iter().enumerate().map(|(index, result)| {
        let is_change = series.change_points.iter().any(|change| change.result == index);
        row(result, is_change)
    });
    let head = head.map(|name| one_line(name).into_owned());
    text += &headed_table(std::iter::once(head).chain(rows).collect(), columns);
    text += "\n";
    let changes: Vec<String> = match series.change_points.as_slice() {
        [] if series.results.len() < RESULTS_MIN => {
            vec![format!(
                "{} of at least {RESULTS_MIN} that show a change of the level",
                counted(series.results.len(), "result")
            )]
        }
        [] => vec![format!("no change of the level in {}", counted(series.results.len(), "result"))],
        changes => changes.iter().map(|change| change_text(series, change)).collect(),
    };
    let lines = changes.iter().map(|line| format!("{}\n", wrap(&one_line(line), columns.into())));
    text.extend(lines);
    text
}

/// Returns the row of a result. A star marks the first one with another level.
fn row(result: &HistoryResult, is_change: bool) -> [String; 7] {
    let rate = |rate: f64| format!("{rate:.1}");
    let interval = match (result.low_samples_per_s, result.high_samples_per_s) {
        (Some(low), high) => format!(" ({} to {})", rate(low), high.map_or_else(|| "∞".to_owned(), rate)),
        _ => String::new(),
    };
    let mark = if is_change { "* " } else { "" };
    let cells = [
        format!("{mark}{}", run_name(result)),
        revision(result),
        result.engine_version.clone(),
        result.flagperf.clone(),
        format!("{}{interval}", rate(result.throughput_core_samples_per_s)),
        result.validity.name().to_owned(),
        result.by_previous.as_ref().map_or_else(String::new, percent),
    ];
    cells.map(|cell| one_line(&cell).into_owned())
}

/// Returns the name of the run's folder, or else when it started.
fn run_name(result: &HistoryResult) -> String {
    let run = result.path.ancestors().nth(2).and_then(|run| run.file_name()).map(|name| name.to_string_lossy());
    run.map_or_else(|| start(result), std::borrow::Cow::into_owned)
}

/// `2026-03-07 10:00`
fn start(result: &HistoryResult) -> String {
    result.started.chars().take(START_CHARACTERS).map(|letter| if letter == 'T' { ' ' } else { letter }).collect()
}

/// Returns the beginning of the commit, with a plus if the checkout differed from it.
fn revision(result: &HistoryResult) -> String {
    let Some(revision) = &result.git_revision else { return "unknown".to_owned() };
    let changed = if result.git_clean == Some(false) { "+" } else { "" };
    revision.chars().take(REVISION_DIGITS).chain(changed.chars()).collect()
}

/// `-3.0 % (-3.2 to -2.8 %)`
fn percent(ratio: &RatioInterval) -> String {
    let [change, low, high] = [ratio.ratio, ratio.low, ratio.high].map(|ratio| 100.0 * (ratio - 1.0));
    format!("{change:+.1} % ({low:+.1} to {high:+.1} %)")
}

fn change_text(series: &Series, change: &ChangePoint) -> String {
    let result = &series.results[change.result];
    let shown = change.differences.iter().take(DIFFERENCES_MAX);
    let mut differences: Vec<String> =
        shown.map(|each| format!("{} {} -> {}", each.what, each.first, each.second)).collect();
    if let Some(more @ 1..) = change.differences.len().checked_sub(DIFFERENCES_MAX) {
        differences.push(format!("and {more} more: see --json"));
    }
    let differences = match differences.is_empty() {
        true => "neither settings nor versions differ from the result before".to_owned(),
        false => differences.join("; "),
    };
    format!("* from {} ({}) on: {}: {differences}", run_name(result), start(result), percent(&change.ratio))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use flagperf_comparison::Difference;
    use flagperf_result::Validity;

    use super::*;

    fn result(day: u8, throughput: f64) -> HistoryResult {
        HistoryResult {
            path: PathBuf::from(format!("result/run{day}/resnet50_pytorch/localhost_noderank0")),
            started: format!("2026-03-0{day}T10:00:00+08:00"),
            git_revision: Some("0123456789abcdef0123".into()),
            git_clean: Some(day != 2),
            flagperf: "0.1.0".into(),
            engine_version: "1.29\u{1b}[31m".into(),
            validity: Validity::Unofficial,
            throughput_core_samples_per_s: throughput,
            low_samples_per_s: Some(throughput - 1.0),
            high_samples_per_s: Some(throughput + 1.0),
            by_previous: (day > 1).then_some(RatioInterval { ratio: 0.9, low: 0.89, high: 0.91, pairs: 0 }),
        }
    }

    fn history(change_points: Vec<ChangePoint>) -> History {
        let series = Series {
            key: "resnet50:pytorch".into(),
            vendor: "chip".into(),
            device: "Chip\u{7}".into(),
            engine: "onnxruntime".into(),
            precision: "fp16".into(),
            batch_size: 256,
            step: "inference".into(),
            unit: "image".into(),
            unlike_earlier: vec![Difference {
                what: "transforms".into(),
                first: "resize 256".into(),
                second: "resize 64".into(),
                prevents: true,
            }],
            results: vec![result(1, 100.0), result(2, 90.0)],
            change_points,
        };
        let unused = vec![UnusedResult { path: "result/run3".into(), reason: "invalid: \u{1b}]0;x".into() }];
        History { case: "resnet50".into(), series: vec![series], unused }
    }

    #[test]
    fn a_row_has_the_revision_the_versions_the_interval_and_the_change() {
        let text = history_text(&history(Vec::new()), 200);
        let row = text.lines().find(|line| line.contains(" run2 ")).unwrap();
        for cell in ["0123456789ab+", "1.29", "0.1.0", "90.0 (89.0 to 91.0)", "unofficial", "-10.0 % (-11.0 to -9.0 %)"]
        {
            assert!(row.contains(cell), "{cell}: {row}");
        }
        assert!(text.contains("resnet50:pytorch: inference, chip, Chip"), "{text}");
        assert!(text.contains("unlike an earlier series: transforms is resize 64, and resize 256 there\n"), "{text}");
        assert!(text.contains("2 results of at least 4 that show a change of the level\n"), "{text}");
        assert!(text.contains("not used: 1 result\n  result/run3: invalid: "), "{text}");
    }

    #[test]
    fn a_change_is_marked_and_named_and_no_control_character_of_a_record_is_printed() {
        let difference = |number: usize| Difference {
            what: format!("engine {number}"),
            first: "1.29".into(),
            second: "1.30\u{1b}[2J".into(),
            prevents: false,
        };
        let ratio = RatioInterval { ratio: 0.9, low: 0.89, high: 0.91, pairs: 0 };
        let change = ChangePoint { result: 1, ratio, p_value: 1e-4, differences: (0..14).map(difference).collect() };
        for columns in [40, 200] {
            let text = history_text(&history(vec![change.clone()]), columns);
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(joined.contains("* run2"), "{text}");
            let named = "* from run2 (2026-03-02 10:00) on: -10.0 % (-11.0 to -9.0 %): engine 0 1.29 -> 1.30";
            assert!(joined.contains(named) && joined.contains("and 2 more: see --json"), "{text}");
        }
    }
}
