//! The figures of a result: each a chart with its words, its legend, and a table with the same values.

use flagperf_core::measure::Distribution;
use flagperf_core::units::Seconds;
use flagperf_report::{count, duration, percent};
use flagperf_result::{Record, TrainingRound};
use indexmap::IndexMap;
use serde::Serialize;

use super::chart::{Chart, Part};
use super::curves::{Curves, PhaseCurves};
use super::envelope::{Bucket, Envelope, is_drawable};
use super::monitor_file::Quantity;
use super::words::Language;

/// Rows of the table behind a chart.
const ROWS_MAX: usize = 16;
/// Bars of a histogram, and points of a curve of shares.
pub(super) const BARS_MAX: usize = 48;
const POINTS_MAX: usize = 240;
/// The shares of the steps in a table.
const SHARES: [f64; 9] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0];
/// The title of the time line of the steps.
pub(super) const STEP_TIMES: &str = "Step times";
/// Most metrics of a chart.
const METRICS_MAX: usize = 8;
/// Fewest points of a line that is drawn without dots.
const LINE_POINTS_MIN: usize = 30;

/// A chart with everything around it.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) description: String,
    /// The elements of the chart, which contain only what was drawn.
    pub(super) elements: String,
    pub(super) legend: Vec<Legend>,
    pub(super) note: Option<String>,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Legend {
    pub(super) colour: usize,
    pub(super) name: String,
}

/// The figures of a phase.
#[derive(Debug, Serialize)]
pub(super) struct FigureGroup {
    /// The name of the phase.
    name: String,
    /// Figures over the same time, one below the other.
    over_time: Vec<Figure>,
    others: Vec<Figure>,
}

/// Returns the figures of a result.
pub(super) fn figures(record: &Record, curves: Option<&Curves>, language: Language) -> Vec<FigureGroup> {
    let phases = curves.map_or(&[][..], |curves| &curves.phases);
    let mut groups: Vec<FigureGroup> = phases
        .iter()
        .map(|phase| FigureGroup {
            name: language.word(phase.phase.measured_step().name()).to_owned(),
            over_time: over_time(phase, language),
            others: distribution_figures(&phase.distribution, &STEPS, language),
        })
        .collect();
    let queries = curves.map_or(&[][..], |curves| &curves.queries);
    if !queries.is_empty() {
        let name = language.word("scenario").to_owned();
        let others =
            queries.iter().flat_map(|(subject, times)| distribution_figures(times, subject, language)).collect();
        groups.push(FigureGroup { name, over_time: Vec::new(), others });
    }
    let training = training_figures(record, curves, language);
    match groups.last_mut() {
        Some(group) => group.others.extend(training),
        None if !training.is_empty() => {
            let name = language.word("training").to_owned();
            groups.push(FigureGroup { name, over_time: Vec::new(), others: training });
        }
        None => {}
    }
    groups
}

/// Returns the time line of the steps, and of each quantity that the monitors read meanwhile.
fn over_time(phase: &PhaseCurves, language: Language) -> Vec<Figure> {
    let (begin, end) = phase.window;
    let series = [(String::new(), &phase.times)];
    let chart =
        Chart { x: begin..end, y: 0.0..top(&series), x_label: seconds, y_label: seconds, parts: parts(&series) };
    let mut figures = vec![Figure {
        title: language.word(STEP_TIMES).to_owned(),
        description: language.word("The time of each step in core, over the time since the case began. The line is the mean, the area is from the shortest to the longest.").to_owned(),
        elements: chart.elements(),
        legend: Vec::new(),
        note: None,
        head: head(["from", "to", "steps", "lowest", "mean", "highest"], language),
        rows: bucket_rows(&phase.times, end, seconds).into_iter().map(|row| row.to_vec()).collect(),
    }];
    figures.extend(Quantity::ALL.into_iter().filter_map(|quantity| monitor_figure(phase, quantity, language)));
    figures
}

/// Returns the figure of a quantity; `None` where nothing was read.
fn monitor_figure(phase: &PhaseCurves, quantity: Quantity, language: Language) -> Option<Figure> {
    let (begin, end) = phase.window;
    let read = phase.readings.iter().filter(|((own, _), series)| *own == quantity && series.is_line());
    let series: Vec<(String, &Envelope)> = read.map(|((_, name), series)| (name.clone(), series)).collect();
    if series.is_empty() {
        return None;
    }
    let (title, label): (_, fn(f64) -> String) = match quantity {
        Quantity::Power => (language.word("Power"), |value| format!("{value:.0} W")),
        Quantity::Clock => (language.word("Clock of the device"), |value| format!("{value:.0} MHz")),
        Quantity::Temperature => (language.word("Temperature"), |value| format!("{value:.0} °C")),
        Quantity::Memory => (language.word("Memory in use"), |value| format!("{value:.2} GiB")),
        Quantity::Busy => (language.word("Busy share"), percent),
    };
    let highest = if quantity == Quantity::Busy { 1.0 } else { top(&series) };
    let chart = Chart { x: begin..end, y: 0.0..highest, x_label: seconds, y_label: label, parts: parts(&series) };
    let rows = series.iter().flat_map(|(name, series)| {
        let rows = bucket_rows(&series.coarser(ROWS_MAX), end, label);
        rows.into_iter().map(|row| std::iter::once(name.clone()).chain(row).collect())
    });
    Some(Figure {
        title: title.to_owned(),
        description: language.word("Over the time since the case began. The line is the mean, the area is from the lowest to the highest reading.").to_owned(),
        elements: chart.elements(),
        legend: legend(series.iter().map(|(name, _)| name)),
        note: None,
        head: head(["what was read", "from", "to", "readings", "lowest", "mean", "highest"], language),
        rows: rows.take(3 * ROWS_MAX).collect(),
    })
}

/// What a distribution is of, in the words of a page.
pub(super) struct Subject {
    pub(super) how_often: &'static str,
    how_often_about: &'static str,
    shares: &'static str,
    shares_about: &'static str,
    /// What is counted, as the head of a column.
    counted: &'static str,
    longer: &'static str,
}

pub(super) static STEPS: Subject = Subject {
    how_often: "Step times: how often",
    how_often_about: "The number of steps with a time in core within each bar.",
    shares: "Step times: share of steps that took at most this long",
    shares_about: "The share of the steps whose time in core is at most the time on the axis.",
    counted: "steps",
    longer: "Steps that took longer: {}. The longest took {}.",
};

pub(super) static LATENCIES: Subject = Subject {
    how_often: "Latency of queries: how often",
    how_often_about: "The number of queries with a latency within each bar, from their scheduled arrival to their answer.",
    shares: "Latency of queries: share of queries that took at most this long",
    shares_about: "The share of the queries whose latency is at most the time on the axis.",
    counted: "queries",
    longer: "Queries that took longer: {}. The longest took {}.",
};

pub(super) static FIRST_TOKENS: Subject = Subject {
    how_often: "Time to the first token: how often",
    how_often_about: "The number of queries with a time within each bar, from their scheduled arrival to the first token.",
    shares: "Time to the first token: share of queries that took at most this long",
    shares_about: "The share of the queries whose time to the first token is at most the time on the axis.",
    counted: "queries",
    longer: "Queries that took longer: {}. The longest took {}.",
};

pub(super) static NEXT_TOKENS: Subject = Subject {
    how_often: "Time between tokens: how often",
    how_often_about: "The number of queries with a mean time between the tokens of their answer within each bar.",
    shares: "Time between tokens: share of queries that took at most this long",
    shares_about: "The share of the queries whose mean time between tokens is at most the time on the axis.",
    counted: "queries",
    longer: "Queries that took longer: {}. The longest took {}.",
};

/// Returns the figures of a distribution: how often each time occurs, and the share of at most each time.
fn distribution_figures(times: &Distribution, subject: &Subject, language: Language) -> Vec<Figure> {
    vec![histogram(times, subject, language), shares(times, subject, language)]
}

/// Returns the note on times beyond the end of the axis.
pub(super) fn longer_note(times: &Distribution, beyond: u64, subject: &Subject, language: Language) -> Option<String> {
    let longest = duration(Seconds(times.range().1));
    (beyond > 0).then(|| language.sentence(subject.longer, &[&count(beyond), &longest]))
}

fn histogram(times: &Distribution, subject: &Subject, language: Language) -> Figure {
    let (bins, beyond) = times.histogram(BARS_MAX);
    let (low, end) = (bins[0].from, bins[bins.len() - 1].to);
    let tallest = bins.iter().map(|bin| bin.count).max().unwrap_or(0) as f64;
    let bars = bins.iter().map(|bin| (bin.from, bin.to, bin.count as f64)).collect();
    let chart = Chart {
        x: low..end,
        y: 0.0..1.05 * tallest,
        x_label: seconds,
        y_label: whole_number,
        parts: vec![Part::Bars(bars, 0)],
    };
    let rows = bins.iter().filter(|bin| bin.count > 0);
    Figure {
        title: language.word(subject.how_often).to_owned(),
        description: language.word(subject.how_often_about).to_owned(),
        elements: chart.elements(),
        legend: Vec::new(),
        note: longer_note(times, beyond, subject, language),
        head: head(["from", "to", subject.counted], language),
        rows: rows.map(|bin| vec![seconds(bin.from), seconds(bin.to), count(bin.count)]).collect(),
    }
}

/// Returns the share of the times that are at most each time.
fn shares(times: &Distribution, subject: &Subject, language: Language) -> Figure {
    let (bins, beyond) = times.bins(times.longest_shown(), POINTS_MAX);
    let total = times.total() as f64;
    let mut sum = 0;
    let rise = bins.iter().map(|bin| {
        sum += bin.count;
        (bin.to, sum as f64 / total)
    });
    let points: Vec<(f64, f64)> = std::iter::once((bins[0].from, 0.0)).chain(rise).collect();
    let end = bins[bins.len() - 1].to;
    let chart = Chart {
        x: bins[0].from..end,
        y: 0.0..1.0,
        x_label: seconds,
        y_label: |share| format!("{:.0}%", 100.0 * share),
        parts: vec![Part::Line(points, 0)],
    };
    let row = |share: f64| vec![percent(share), seconds(times.quantile(share))];
    Figure {
        title: language.word(subject.shares).to_owned(),
        description: language.word(subject.shares_about).to_owned(),
        elements: chart.elements(),
        legend: Vec::new(),
        note: longer_note(times, beyond, subject, language),
        head: head(["share", "time"], language),
        rows: SHARES.into_iter().map(row).collect(),
    }
}

/// Returns the losses and the metrics of the last repetition of a training.
fn training_figures(record: &Record, curves: Option<&Curves>, language: Language) -> Vec<Figure> {
    let Some(training) = record.training() else { return Vec::new() };
    let Some(round) = training.rounds.last() else { return Vec::new() };
    let note = (training.rounds.len() > 1).then(|| language.word("Of the last repetition.").to_owned());
    let mut figures = Vec::new();
    if let Some(loss) = curves.map(|curves| &curves.loss).filter(|loss| !loss.is_empty()) {
        figures.push(loss_figure(loss, note.clone(), language));
    }
    figures.extend(metric_figure(round, note, language));
    figures
}

fn loss_figure(loss: &Envelope, note: Option<String>, language: Language) -> Figure {
    let buckets = loss.buckets();
    let end = buckets.last().map_or(1.0, |bucket| bucket.at);
    let begin = buckets.first().map_or(0.0, |bucket| bucket.at);
    let series = [(String::new(), loss)];
    let chart =
        Chart { x: begin..end, y: around(&series), x_label: number, y_label: figure_text, parts: parts(&series) };
    let rows = loss.coarser(ROWS_MAX).buckets().into_iter().map(|bucket| {
        vec![number(bucket.at), figure_text(bucket.min), figure_text(bucket.mean), figure_text(bucket.max)]
    });
    Figure {
        title: language.word("Loss").to_owned(),
        description: language.word("The loss of each step, over the steps. The line is the mean, the area is from the lowest to the highest.").to_owned(),
        elements: chart.elements(),
        legend: Vec::new(),
        note,
        head: head(["step", "lowest", "mean", "highest"], language),
        rows: rows.collect(),
    }
}

/// Returns the metrics of the evaluations; `None` without two, between which a line can be drawn.
fn metric_figure(round: &TrainingRound, note: Option<String>, language: Language) -> Option<Figure> {
    let mut metrics: IndexMap<&str, Vec<(f64, f64)>> = IndexMap::new();
    for evaluation in &round.evaluations {
        for (name, value) in evaluation.metrics.iter().take(METRICS_MAX).filter(|(_, value)| is_drawable(**value)) {
            metrics.entry(name).or_default().push((evaluation.steps as f64, *value));
        }
    }
    let values = || metrics.values().flatten();
    if round.evaluations.len() < 2 {
        return None;
    }
    let end = values().map(|(steps, _)| *steps).reduce(f64::max)?;
    let (low, high) = values()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, value)| (low.min(*value), high.max(*value)));
    let margin = 0.05 * (high - low).max(1e-6);
    let lines = metrics.values().enumerate();
    let parts =
        lines.flat_map(|(colour, points)| [Part::Line(points.clone(), colour), Part::Dots(points.clone(), colour)]);
    let chart = Chart {
        x: 0.0..end,
        y: low - margin..high + margin,
        x_label: number,
        y_label: figure_text,
        parts: parts.collect(),
    };
    let names: Vec<String> = metrics.keys().map(|name| flagperf_report::display_text(name).into_owned()).collect();
    let evaluations = &round.evaluations[round.evaluations.len().saturating_sub(POINTS_MAX)..];
    let rows = evaluations.iter().map(|evaluation| {
        let values = metrics
            .keys()
            .map(|name| evaluation.metrics.get(*name).map_or_else(String::new, |value| format!("{value:.4}")));
        [count(u64::from(evaluation.epochs)), count(evaluation.steps)].into_iter().chain(values).collect()
    });
    Some(Figure {
        title: language.word("Metrics of the evaluations").to_owned(),
        description: language.word("Each evaluation, over the steps before it.").to_owned(),
        elements: chart.elements(),
        legend: legend(names.iter()),
        note,
        head: head(["epoch", "steps"], language).into_iter().chain(names.iter().cloned()).collect(),
        rows: rows.collect(),
    })
}

/// Draws each series as its mean in the area between its lowest and highest values, and a series of few points also as dots.
fn parts(series: &[(String, &Envelope)]) -> Vec<Part> {
    let of_series = |(colour, (_, series)): (usize, &(String, &Envelope))| {
        let buckets = series.buckets();
        let line: Vec<(f64, f64)> = buckets.iter().map(|bucket| (bucket.at, bucket.mean)).collect();
        let is_area = buckets.len() > 1 && buckets.iter().any(|bucket| bucket.min < bucket.max);
        let band = buckets.iter().map(|bucket| (bucket.at, bucket.min, bucket.max)).collect();
        let dots = (buckets.len() < LINE_POINTS_MIN).then(|| Part::Dots(line.clone(), colour));
        is_area.then_some(Part::Band(band, colour)).into_iter().chain([Part::Line(line, colour)]).chain(dots)
    };
    series.iter().enumerate().flat_map(of_series).collect()
}

/// Returns the end of an axis that begins at 0.
fn top(series: &[(String, &Envelope)]) -> f64 {
    1.05 * series.iter().filter_map(|(_, series)| series.range()).map(|(_, max)| max).fold(0.0, f64::max)
}

/// Returns an axis around all values, which may be negative.
fn around(series: &[(String, &Envelope)]) -> std::ops::Range<f64> {
    let ranges = series.iter().filter_map(|(_, series)| series.range());
    let (low, high) =
        ranges.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (min, max)| (low.min(min), high.max(max)));
    let margin = 0.05 * (high - low);
    low - margin..high + margin
}

/// Returns rows for a table: from, to, number, lowest, mean and highest value.
fn bucket_rows(series: &Envelope, end: f64, label: fn(f64) -> String) -> Vec<[String; 6]> {
    let coarse = series.coarser(ROWS_MAX);
    let half = coarse.half_width();
    let row = |Bucket { at, min, max, mean, count: number }: &Bucket| {
        [seconds(at - half), seconds((at + half).min(end)), count(*number), label(*min), label(*mean), label(*max)]
    };
    coarse.buckets().iter().map(row).collect()
}

pub(super) fn legend<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Legend> {
    names.enumerate().map(|(colour, name)| Legend { colour, name: name.clone() }).collect()
}

pub(super) fn head<const N: usize>(names: [&'static str; N], language: Language) -> Vec<String> {
    names.iter().map(|name| language.word(name).to_owned()).collect()
}

fn seconds(value: f64) -> String {
    duration(Seconds(value.max(0.0)))
}

/// Formats a count on an axis; a place between two counts has no label.
pub(super) fn whole_number(value: f64) -> String {
    if (value - value.round()).abs() < 1e-6 { count(value.round() as u64) } else { String::new() }
}

fn number(value: f64) -> String {
    count(value.max(0.0).round() as u64)
}

/// Formats a loss or a metric with four significant digits.
fn figure_text(value: f64) -> String {
    match value.abs() {
        v if v >= 1e5 || v > 0.0 && v < 1e-3 => format!("{value:.2e}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}
