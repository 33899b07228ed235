//! The charts of a result as lines of text for a terminal: how often each step time or latency occurs, and the step times over the run.
//!
//! They have the data, the bars and the words of the page.

use std::path::Path;

use flagperf_core::measure::{Bin, Distribution};
use flagperf_core::units::Seconds;
use flagperf_report::{Extent, count, duration};
use flagperf_result::Record;

use super::curves::{PhaseCurves, read_curves};
use super::figures::{BARS_MAX, STEP_TIMES, STEPS, Subject, longer_note};
use super::words::Language;

/// Fewest steps, or queries, of a chart. Of fewer, the figures of the report say as much.
const TIMES_MIN: u64 = 8;
/// Rows of a histogram.
const HEIGHT: usize = 4;
/// An eighth of a cell and more, up to a full cell.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Widest bar of a histogram, in columns.
const BAR_MAX: usize = 6;
/// Most points of a curve before it is fitted into the columns.
const POINTS_MAX: usize = 240;

/// Returns the charts of a result whose files are in `folder`, at most `columns` wide: in a summary, those of the queries of its scenario
/// or else of its last phase. Empty where there are few steps, and without the files.
pub fn terminal_charts(folder: &Path, record: &Record, extent: Extent, columns: u16) -> String {
    let curves = read_curves(folder, record, POINTS_MAX);
    let mut charts: Vec<String> = curves
        .phases
        .iter()
        .filter(|phase| phase.distribution.total() >= TIMES_MIN)
        .map(|phase| format!("{}\n{}", phase.phase.measured_step().name(), phase_charts(phase, columns.into())))
        .collect();
    let queries: Vec<String> = curves
        .queries
        .iter()
        .filter(|(_, times)| times.total() >= TIMES_MIN)
        .map(|(subject, times)| histogram(times, subject, columns.into()))
        .collect();
    charts.extend((!queries.is_empty()).then(|| format!("scenario\n{}", queries.concat())));
    let first = if extent == Extent::Summary { charts.len().saturating_sub(1) } else { 0 };
    charts.drain(..first);
    charts.concat()
}

fn phase_charts(phase: &PhaseCurves, columns: usize) -> String {
    format!("{}{}", histogram(&phase.distribution, &STEPS, columns), time_line(phase, columns))
}

/// Draws how often each time occurs: the number of the tallest bar beside it, and the ends of the axis below.
fn histogram(times: &Distribution, subject: &Subject, columns: usize) -> String {
    let number = count(times.total());
    // A space before the number, and a space, the axis and a space behind it.
    let labels = number.chars().count() + 4;
    let width = columns.saturating_sub(labels).clamp(1, BARS_MAX);
    let (bars, beyond) = times.histogram(width);
    let tallest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
    let bar_width = (width / bars.len()).clamp(1, BAR_MAX);
    let mut text = format!(" {}\n", subject.how_often);
    for row in (0..HEIGHT).rev() {
        let label = if row + 1 == HEIGHT { count(tallest) } else { String::new() };
        let cells: String = bars.iter().map(|bar| cell(bar, tallest, row).to_string().repeat(bar_width)).collect();
        text += format!(" {label:>0$} │ {cells}", number.chars().count()).trim_end();
        text.push('\n');
    }
    let [low, high] = [bars[0].from, bars[bars.len() - 1].to].map(|time| duration(Seconds(time)));
    let between = (bars.len() * bar_width).saturating_sub(low.chars().count() + high.chars().count()).max(2);
    text += &format!("{:labels$}{low}{:between$}{high}\n", "", "");
    let note = longer_note(times, beyond, subject, Language::English);
    text.extend(note.map(|note| format!("{}\n", flagperf_report::wrap(&format!(" {note}"), columns))));
    text
}

/// Returns the part of a bar in a row, counted from below. A bar of one time is visible.
fn cell(bar: &Bin, tallest: u64, row: usize) -> char {
    let height = (bar.count as f64 / tallest as f64 * (HEIGHT * BLOCKS.len()) as f64).ceil() as usize;
    match height.saturating_sub(row * BLOCKS.len()) {
        0 => ' ',
        eighths => BLOCKS[eighths.min(BLOCKS.len()) - 1],
    }
}

/// Draws the mean step times over the run, from the lowest mean to the highest one, or to the end of the histogram if that is lower: one
/// very long step does not make all others equal.
fn time_line(phase: &PhaseCurves, columns: usize) -> String {
    let width = columns.saturating_sub(1).clamp(1, BARS_MAX);
    let means: Vec<f64> = phase.times.coarser(width).buckets().iter().map(|bucket| bucket.mean).collect();
    let (low, high) =
        means.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), mean| (low.min(*mean), high.max(*mean)));
    let range = (high.min(phase.distribution.longest_shown()) - low).max(f64::MIN_POSITIVE);
    let top = BLOCKS.len() - 1;
    let block = |mean: &f64| BLOCKS[(((mean - low) / range * top as f64).round() as usize).min(top)];
    let line: String = means.iter().map(block).collect();
    let (begin, end) = phase.window;
    let [low, high, time] = [low, high, end - begin].map(|time| duration(Seconds(time)));
    format!(" {STEP_TIMES} over the run ({time})\n {line}\n lowest mean {low}\n highest mean {high}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;

    /// Returns the charts of a validation with these times in *core*.
    fn charts(times: &[f64], columns: u16) -> String {
        let folder = tempfile::tempdir().unwrap();
        let rows: String = times.iter().map(|time| format!("0,8,0,{time},0,0,0,0\n")).collect();
        let head = "pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs\n";
        std::fs::write(folder.path().join("samples.validate.csv"), format!("{head}{rows}")).unwrap();
        terminal_charts(folder.path(), &testing::record(), Extent::Summary, columns)
    }

    #[test]
    fn a_run_has_a_histogram_and_a_time_line() {
        // Most steps take 10 to 12 ms, and every eighth takes 2 ms longer; one takes very much longer.
        let time = |step: u32| 0.010 + 0.0005 * f64::from(step * 7 % 5) + if step % 8 == 7 { 0.002 } else { 0.0 };
        let times: Vec<f64> = (0..200).map(time).chain([0.5]).collect();
        insta::assert_snapshot!(charts(&times, 80), @r"
        validation
         Step times: how often
          40 │ ▄▄▄ ▄█
             │ ███ ██
             │ ███ ██
             │ ███ ██▄ ▄▄ ▄
               10.0 ms              20.0 ms
         Steps that took longer: 1. The longest took 500 ms.
         Step times over the run (2.75 s)
         ▁▁▂▁▁▁▁▁▂▁▁▁▁▁▂▁▁▁▁▁▂▁▁▁▁▁▁▁▁▁▁▁▂▁█
         lowest mean 10.8 ms
         highest mean 257 ms
        ");
    }

    #[test]
    fn few_steps_have_no_chart_and_equal_ones_have() {
        assert_eq!(charts(&[0.25; 7], 80), "");
        insta::assert_snapshot!(charts(&[0.25; 8], 40), @r"
        validation
         Step times: how often
         8 │ ██████
           │ ██████
           │ ██████
           │ ██████
             250 ms  250 ms
         Step times over the run (2.00 s)
         ▁▁▁▁▁▁▁▁
         lowest mean 250 ms
         highest mean 250 ms
        ");
    }

    #[test]
    fn charts_fit_into_every_width() {
        let times: Vec<f64> =
            (0..5000).map(|step| 0.001 * f64::from(1 + step % 97) * f64::from(1 + step % 13)).collect();
        for columns in [40, 57, 80, 200] {
            let text = charts(&times, columns);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{widest} at {columns}:\n{text}");
        }
    }

    #[test]
    fn a_bar_of_one_time_is_visible() {
        let bar = |count| Bin { from: 0.0, to: 1.0, count };
        assert_eq!((cell(&bar(1), 1_000_000, 0), cell(&bar(0), 9, 0), cell(&bar(1), 9, 1)), ('▁', ' ', ' '));
        assert_eq!((cell(&bar(9), 9, HEIGHT - 1), cell(&bar(9), 9, 0)), ('█', '█'));
    }
}
