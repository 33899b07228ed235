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
    let (mut wrong, mut left_out) = (Vec::new(), Vec::new());
    for (case, outcome) in operator.tests.iter().zip(outcomes) {
        let row = |dtype: &str, numbers: [String; 2], verdict: &str| {
            let [error, limit] = numbers;
            [shapes(case), case.values.clone(), dtype.to_owned(), error, limit, verdict.to_owned()]
        };
        for results in outcome.results.chunk_by(|a, b| a.dtype == b.dtype) {
            rows.push(row(&results[0].dtype, largest_error(results), verdict(results)));
        }
        for tested in &outcome.results {
            match &tested.outcome {
                CaseOutcome::NotCompared { reason } => left_out.push(one_line(reason).into_owned()),
                outcome if outcome.is_wrong() => {
                    wrong.push(format!("{}, {}: {}", shapes(case), describe(tested), reason(outcome)));
                }
                _ => {}
            }
        }
        if let Some(failure) = &outcome.failure {
            let last = outcome.results.last().map_or("in the first comparison".to_owned(), |tested| {
                format!("in the comparison after {}", describe(tested))
            });
            rows.push(row("", ["-".to_owned(), "-".to_owned()], "ended"));
            wrong.push(format!("{}, {last}: {}", shapes(case), one_line(failure)));
        }
    }
    let compared = outcomes.iter().map(|outcome| outcome.results.len()).sum::<usize>() - left_out.len();
    let mut text = headed_table(rows, columns);
    wrong.iter().for_each(|line| text += &format!("wrong: {line}\n"));
    let not_compared = left_out.len();
    left_out.sort_unstable();
    left_out.dedup();
    left_out.iter().for_each(|reason| text += &format!("not compared: {reason}\n"));
    let verdict = match wrong.len() {
        _ if compared + wrong.len() == 0 => "nothing compared".to_owned(),
        0 => "all the same".to_owned(),
        count => format!("{count} wrong"),
    };
    let left_out = if not_compared == 0 { String::new() } else { format!(", {not_compared} not compared") };
    let (comparisons, cases) = (counted(compared, "comparison"), counted(outcomes.len(), "case"));
    text += &format!("{comparisons} of {cases}, {verdict}{left_out}\n");
    (text, wrong.is_empty() && compared > 0)
}

/// Returns the largest difference and the largest that is allowed, as text.
fn largest_error(results: &[Tested]) -> [String; 2] {
    let compared = results.iter().filter_map(|tested| match tested.outcome {
        CaseOutcome::Compared { error, limit } => Some([error, limit]),
        _ => None,
    });
    let largest = compared.reduce(|[a, limit], [b, _]| [a.max(b), limit]);
    largest.map_or(["-".to_owned(), "-".to_owned()], |numbers| numbers.map(|number| format!("{number:.1e}")))
}

fn verdict(results: &[Tested]) -> &'static str {
    if results.iter().any(|tested| tested.outcome.is_wrong()) {
        "differs"
    } else if results.iter().all(|tested| matches!(tested.outcome, CaseOutcome::NotCompared { .. })) {
        "not compared"
    } else {
        "same"
    }
}

fn describe(tested: &Tested) -> String {
    format!("{}, {} memory", tested.dtype, tested.memory)
}

fn reason(outcome: &CaseOutcome) -> String {
    match outcome {
        CaseOutcome::Compared { error, limit } => {
            format!("it differs by {error:.1e} of the largest element (at most {limit:.0e})")
        }
        CaseOutcome::Failed { reason } | CaseOutcome::NotCompared { reason } => one_line(reason).into_owned(),
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
