//! Draws the state of a run: one function for each part of the screen. What has no place is left out, and nothing is wrapped.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Gauge, Paragraph, Sparkline};

use super::curve::Curve;
use super::monitors::{Monitors, QUANTITIES};
use super::view::{CaseLine, RUNNING, TRIAL, View, WAITING, Worker, shown};
use crate::text::{count, digits, duration, rate};
use flagperf_core::measure::Nanos;
use flagperf_core::units::{SamplesPerSecond, Seconds};

/// Columns from which on two charts are beside each other.
const COLUMNS_OF_TWO: u16 = 64;
/// Rows below which only the progress is drawn.
const ROWS_OF_ALL: u16 = 12;
/// Columns of the names and of the values beside curves.
const NAME_COLUMNS: u16 = 14;
const VALUE_COLUMNS: u16 = 10;
/// Rows of a chart with its title and its axis.
const CHART_ROWS: u16 = 5;
/// Rows of a histogram from which on it has an axis.
const ROWS_OF_AXIS: u16 = 3;
/// Widest bar of a histogram, in columns.
const BAR_MAX: usize = 6;
/// Steps of height of a character.
const LEVELS: u64 = 8;

/// What is drawn.
pub(super) struct Picture<'a> {
    pub(super) view: &'a View,
    pub(super) monitors: &'a Monitors,
    pub(super) now: Nanos,
    /// Whether a signal has asked the run to end.
    pub(super) is_ending: bool,
}

/// Draws a picture on the whole terminal.
pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture<'_>) {
    let (view, area) = (picture.view, frame.area());
    let section = |count: usize, divisor: u16| match area.height {
        0..ROWS_OF_ALL => 0,
        rows => 1 + (count.clamp(1, u16::MAX.into()) as u16).min((rows / divisor).max(1)),
    };
    let workers = if view.workers.len() > 1 { section(view.workers.len(), 4).max(2) } else { 3 };
    let heights = [
        Constraint::Length(1),
        Constraint::Length(section(view.cases.len(), 6)),
        Constraint::Length(workers),
        Constraint::Fill(1),
        Constraint::Length(section(view.lines.len(), 6)),
        Constraint::Length(1),
    ];
    let [head, cases, workers, charts, lines, foot] = Layout::vertical(heights).areas(area);
    draw_head(frame, head, picture);
    draw_cases(frame, cases, picture);
    draw_workers(frame, workers, picture);
    draw_charts(frame, charts, picture);
    draw_lines(frame, lines, view);
    draw_foot(frame, foot, picture.is_ending);
}

/// Draws a line with a title, and returns the place below it.
fn titled(frame: &mut Frame<'_>, area: Rect, title: &str) -> Rect {
    let block =
        Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(format!(" {title} ").not_dim());
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
    let elapsed = clock_text(picture.now.since(picture.view.began));
    let columns = elapsed.len() as u16;
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(columns)]).spacing(1).areas(area);
    let name = picture.view.folder.file_name().unwrap_or_default().to_string_lossy();
    frame.render_widget(Line::from(vec!["flagperf run".bold(), Span::raw(format!("  {}", shown(&name)))]), left);
    frame.render_widget(Line::raw(elapsed), right);
}

fn draw_cases(frame: &mut Frame<'_>, area: Rect, Picture { view, now, .. }: &Picture<'_>) {
    let (total, current) = (view.cases.len(), view.current.unwrap_or(0));
    let title = if total == 1 { "case".to_owned() } else { format!("case {} of {total}", current + 1) };
    let area = titled(frame, area, &title);
    let rows = usize::from(area.height);
    let first = current.saturating_sub(rows / 2).min(total.saturating_sub(rows));
    let line = |case: &CaseLine| {
        let time = case.began.filter(|_| case.state == RUNNING).map(|began| clock_text(now.since(began)));
        let figure = time.unwrap_or_else(|| case.figure.clone());
        Line::from(vec![
            Span::styled(format!("{:<9} ", case.state), state_style(case.state)),
            Span::raw(format!("{}  {figure}", case.name)),
        ])
    };
    let lines: Vec<Line<'_>> = view.cases.iter().skip(first).take(rows).map(line).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn state_style(state: &str) -> Style {
    match state {
        RUNNING => Style::new().bold(),
        WAITING => Style::new().dim(),
        "ok" | "valid" => Style::new().fg(Color::Green),
        "unofficial" => Style::new().fg(Color::Yellow),
        _ => Style::new().fg(Color::Red),
    }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, Picture { view, now, .. }: &Picture<'_>) {
    let workers = view.workers.len();
    if workers > 1 {
        let area = titled(frame, area, &format!("{workers} hosts and devices"));
        let lines =
            view.workers.iter().map(|(name, worker)| Line::raw(format!("{name}  {}", worker_text(worker, *now))));
        frame.render_widget(Paragraph::new(lines.take(area.height.into()).collect::<Vec<_>>()), area);
        return;
    }
    let Some((name, worker)) = view.workers.first() else {
        let area = titled(frame, area, "progress");
        frame.render_widget(Line::raw("preparing").dim(), area);
        return;
    };
    let title = if name.is_empty() { "progress".to_owned() } else { format!("progress of {name}") };
    let area = titled(frame, area, &title);
    match &worker.progress {
        Some(progress) if progress.total > 0 => {
            let [bar, text] = Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
            let columns = progress.name.len() as u16;
            let [name, bar] =
                Layout::horizontal([Constraint::Length(columns), Constraint::Fill(1)]).spacing(2).areas(bar);
            frame.render_widget(Line::raw(progress.name.as_str()), name);
            let share = (progress.done as f64 / progress.total as f64).clamp(0.0, 1.0);
            let style = Style::new().fg(Color::Cyan).bg(Color::DarkGray);
            frame.render_widget(Gauge::default().ratio(share).use_unicode(true).gauge_style(style), bar);
            frame.render_widget(Line::raw(format!("{}  {}", progress.rate_text(), progress.pass)), text);
        }
        _ => frame.render_widget(Line::raw(worker_text(worker, *now)), area),
    }
}

/// What a worker does, on one line.
fn worker_text(worker: &Worker, now: Nanos) -> String {
    match &worker.progress {
        Some(progress) => format!("{}  {}  {}", progress.name, progress.pass, progress.rate_text()),
        None => format!("{}  {}  {}", worker.step, clock_text(now.since(worker.began)), worker.detail),
    }
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let [first, second] = if area.width >= COLUMNS_OF_TWO {
        Layout::horizontal(halves).spacing(2).areas(area)
    } else {
        Layout::vertical([Constraint::Length(area.height / 2), Constraint::Fill(1)]).areas(area)
    };
    let view = picture.view;
    match (view.loss.last(), first.height >= 2 * CHART_ROWS) {
        (Some(_), true) => {
            let [loss, times] = Layout::vertical(halves).areas(first);
            draw_loss(frame, loss, &view.loss);
            draw_times(frame, times, view);
        }
        (Some(_), false) => draw_loss(frame, first, &view.loss),
        (None, _) => draw_times(frame, first, view),
    }
    draw_curves(frame, second, picture);
}

fn draw_loss(frame: &mut Frame<'_>, area: Rect, loss: &Curve) {
    let last = loss.last().map(digits).unwrap_or_default();
    let area = titled(frame, area, &format!("loss: {last}"));
    draw_curve(frame, area, loss);
}

/// Draws how often each time occurs, and below it the ends of the axis.
fn draw_times(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let (times, total) = (&view.times.distribution, view.times.distribution.total());
    let of = &view.times.of;
    let (what, after) = if of.starts_with(TRIAL) { ("queries", "the trial") } else { ("steps", "each pass") };
    if total == 0 {
        let area = titled(frame, area, &format!("times of {what}"));
        frame.render_widget(Line::raw(format!("drawn after {after}")).dim(), area);
        return;
    }
    let median = duration(Seconds(times.quantile(0.5)));
    let area = titled(frame, area, &format!("{of}: {} {what}, median {median}", count(total)));
    let has_axis = u16::from(area.height >= ROWS_OF_AXIS);
    let [chart, axis] = Layout::vertical([Constraint::Fill(1), Constraint::Length(has_axis)]).areas(area);
    let width = usize::from(chart.width.max(1));
    let (bars, beyond) = times.histogram(width);
    let bar_width = (width / bars.len()).clamp(1, BAR_MAX);
    let tallest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
    let levels = u64::from(chart.height) * LEVELS;
    let heights = bars.iter().flat_map(|bar| std::iter::repeat_n((bar.count * levels).div_ceil(tallest), bar_width));
    frame.render_widget(Sparkline::default().data(heights.collect::<Vec<_>>()).max(levels).fg(Color::Cyan), chart);
    let [low, high] = [bars[0].from, bars[bars.len() - 1].to].map(|time| duration(Seconds(time)));
    let longer = if beyond > 0 { format!(", {beyond} longer") } else { String::new() };
    let between = (bars.len() * bar_width).saturating_sub(low.chars().count() + high.chars().count()).max(2);
    frame.render_widget(Line::raw(format!("{low}{:between$}{high}{longer}", "")).dim(), axis);
}

/// Draws the throughput and what the monitors read, one line for each.
fn draw_curves(frame: &mut Frame<'_>, area: Rect, Picture { view, monitors, .. }: &Picture<'_>) {
    let area = titled(frame, area, "since the case began");
    let throughput = |rate_per_s| rate(SamplesPerSecond(rate_per_s));
    let mut rows: Vec<(&str, String, Option<&Curve>)> = Vec::new();
    rows.extend(view.throughput.last().map(|last| ("samples/s", throughput(last), Some(&view.throughput))));
    for place in &monitors.places {
        if monitors.places.len() > 1 {
            rows.push((&place.name, String::new(), None));
        }
        let curves = QUANTITIES.iter().zip(&place.curves);
        rows.extend(
            curves.filter_map(|(quantity, curve)| Some((quantity.name, (quantity.text)(curve.last()?), Some(curve)))),
        );
    }
    for (row, (name, value, curve)) in area.rows().zip(rows) {
        let Some(curve) = curve else {
            frame.render_widget(Line::raw(name).bold(), row);
            continue;
        };
        let widths = [Constraint::Length(NAME_COLUMNS), Constraint::Length(VALUE_COLUMNS), Constraint::Fill(1)];
        let [left, middle, right] = Layout::horizontal(widths).spacing(1).areas(row);
        frame.render_widget(Line::raw(name), left);
        frame.render_widget(Line::raw(value).right_aligned(), middle);
        draw_curve(frame, right, curve);
    }
}

/// Draws a curve from zero to its largest value.
fn draw_curve(frame: &mut Frame<'_>, area: Rect, curve: &Curve) {
    let points = curve.fit(area.width.into());
    let highest = points.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let levels = u64::from(area.height) * LEVELS;
    let heights: Vec<u64> =
        points.iter().map(|point| (point / highest * levels as f64).ceil().max(0.0) as u64).collect();
    frame.render_widget(Sparkline::default().data(heights).max(levels).fg(Color::Cyan), area);
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let area = titled(frame, area, "messages");
    let first = view.lines.len().saturating_sub(area.height.into());
    let line = |line: &String| {
        let line = line.trim_start();
        let is_problem = ["warning: ", "error: "].iter().any(|level| line.contains(level));
        Line::styled(line.to_owned(), if is_problem { Style::new().fg(Color::Yellow) } else { Style::new() })
    };
    frame.render_widget(Paragraph::new(view.lines.iter().skip(first).map(line).collect::<Vec<_>>()), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, is_ending: bool) {
    let line = match is_ending {
        true => Line::raw("Ending. Ctrl-C again does not wait.").bold(),
        false => Line::raw("Ctrl-C ends the run; the report follows").dim(),
    };
    frame.render_widget(line, area);
}

/// Formats a time in whole seconds: `0:12`, `1:02:03`.
fn clock_text(Seconds(seconds): Seconds) -> String {
    let whole = seconds as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
