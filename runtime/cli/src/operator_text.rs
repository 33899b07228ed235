//! The results of `flagperf operator` as text.

use flagperf_config::{OperatorCase, OperatorDescription};
use flagperf_core::text::one_line;
use flagperf_operator::{CaseOutcome, Measured, Tested};
use flagperf_report::headed_table;

use super::operator::CaseResults;
use super::output::counted;

/// Returns a table of the comparisons with what is wrong, and whether nothing is.
pub(super) fn tested_text(
    operator: &OperatorDescription,
    outcomes: &[CaseResults<Tested>],
    columns: u16,
) -> (String, bool) {
    let mut rows = vec![["inputs", "values", "type", "largest error", "allowed", ""].map(str::to_owned)];
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (case, outcome) in operator.tests.iter().zip(outcomes) {
        for results in outcome.results.chunk_by(|a, b| a.dtype == b.dtype) {
            compared += results.len();
            let failed: Vec<&Tested> = results.iter().filter(|tested| !tested.outcome.passed()).collect();
            let error = results.iter().filter_map(|tested| match tested.outcome {
                CaseOutcome::Compared { error, limit } => Some((error, limit)),
                CaseOutcome::Failed { .. } => None,
            });
            let largest = error.fold(None, |largest: Option<(f64, f64)>, (error, limit)| {
                Some(largest.map_or((error, limit), |(known, limit)| (known.max(error), limit)))
            });
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1e}"));
            rows.push([
                shapes(case),
                case.values.clone(),
                results[0].dtype.clone(),
                number(largest.map(|(error, _)| error)),
                number(largest.map(|(_, limit)| limit)),
                if failed.is_empty() { "same" } else { "differs" }.to_owned(),
            ]);
            wrong.extend(
                failed.iter().map(|tested| format!("{}, {}: {}", shapes(case), describe(tested), reason(tested))),
            );
        }
        wrong.extend(outcome.failure.iter().map(|failure| {
            let last = outcome.results.last().map(|tested| format!(", after {}", describe(tested))).unwrap_or_default();
            format!("{}{last}: {}", shapes(case), one_line(failure))
        }));
    }
    let mut text = headed_table(rows, columns);
    wrong.iter().for_each(|line| text += &format!("wrong: {line}\n"));
    text += &format!(
        "{} of {}, {}\n",
        counted(compared, "comparison"),
        counted(outcomes.len(), "case"),
        match wrong.len() {
            0 => "all the same".to_owned(),
            count => format!("{count} wrong"),
        }
    );
    (text, wrong.is_empty())
}

fn describe(tested: &Tested) -> String {
    format!("{}, {} memory", tested.dtype, tested.memory)
}

fn reason(tested: &Tested) -> String {
    match &tested.outcome {
        CaseOutcome::Compared { error, limit } => {
            format!("it differs by {error:.1e} of the largest element (at most {limit:.0e})")
        }
        CaseOutcome::Failed { reason } => one_line(reason).into_owned(),
    }
}

/// Returns the shapes of the inputs of a case.
pub(super) fn shapes(case: &OperatorCase) -> String {
    let inputs: Vec<String> = case.inputs.iter().map(|(name, shape)| format!("{name} {shape}")).collect();
    inputs.join("  ")
}

/// Returns a table of the times, and whether every case was measured.
pub(super) fn measured_text(
    operator: &OperatorDescription,
    outcomes: &[CaseResults<Measured>],
    columns: u16,
) -> (String, bool) {
    let head = ["inputs", "type", "operator us", "engine us", "copy us", "share of copy", "engine / operator"];
    let mut rows = vec![head.map(str::to_owned)];
    let mut failures = Vec::new();
    for (case, outcome) in operator.benchmarks.iter().zip(outcomes) {
        for measured in &outcome.results {
            let Measured { dtype, operator_s, standard_s, copy_s, .. } = measured;
            let time = |seconds: f64| format!("{:.2}", seconds * 1e6);
            rows.push([
                shapes(case),
                dtype.clone(),
                time(operator_s.0),
                time(standard_s.0),
                time(copy_s.0),
                format!("{:.2}", copy_s.0 / operator_s.0),
                format!("{:.2}", standard_s.0 / operator_s.0),
            ]);
        }
        failures.extend(
            outcome.failure.iter().map(|failure| format!("not measured: {}: {}\n", shapes(case), one_line(failure))),
        );
    }
    (headed_table(rows, columns) + failures.concat().as_str(), failures.is_empty())
}
