//! Results as JUnit's XML, which services of continuous integration show: one test for each result and for the sum of several
//! devices. It fails if the case failed, if its result is invalid, or if `verify` says that it is wrong.

use flagperf_core::text::{escape_lines, truncate};
use flagperf_report::headline_rows;
use flagperf_result::{Status, Validity};
use indexmap::IndexMap;
use serde::Serialize;

use super::result::{Check, ReadResult, text};
use super::summary::ReadSummary;
use super::template::fill;
use super::words::Language;

const TEMPLATE: &str = include_str!("../templates/junit.xml");
/// Longest text of a test, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

#[derive(Serialize)]
struct Values {
    suites: Vec<Suite>,
}

#[derive(Serialize)]
struct Suite {
    name: String,
    failures: usize,
    cases: Vec<Case>,
}

#[derive(Serialize)]
struct Case {
    name: String,
    time: String,
    failure: Option<String>,
    details: String,
    output: String,
}

/// Returns the XML; each run is a suite.
pub fn junit(results: &[(ReadResult, Check)], summaries: &[ReadSummary]) -> String {
    let mut runs: IndexMap<String, Vec<Case>> = IndexMap::new();
    for (result, check) in results {
        runs.entry(text(&result.record.run)).or_default().push(case(result, check));
    }
    for summary in summaries {
        runs.entry(text(&summary.summary.run)).or_default().push(sum(summary));
    }
    let suite = |(name, cases): (String, Vec<Case>)| Suite {
        name,
        failures: cases.iter().filter(|case| case.failure.is_some()).count(),
        cases,
    };
    let suites: Vec<Suite> = runs.into_iter().map(suite).collect();
    fill("junit.xml", TEMPLATE, Values { suites }, Language::English) + "\n"
}

/// Returns the XML of one test; `output` is what it prints. It fails if there is a reason.
pub fn junit_test(suite: &str, name: &str, failure: Option<&str>, output: &str) -> String {
    let case = Case {
        name: text(name),
        time: "0".to_owned(),
        failure: failure.map(text),
        details: String::new(),
        output: long(output),
    };
    let suites = vec![Suite { name: text(suite), failures: usize::from(failure.is_some()), cases: vec![case] }];
    fill("junit.xml", TEMPLATE, Values { suites }, Language::English) + "\n"
}

/// Returns why a test fails; `reason` is the first of a case that failed.
fn failure<'a>(status: Status, validity: Validity, check: &Check, reason: Option<&'a str>) -> Option<&'a str> {
    match status {
        _ if check.is_wrong() => Some("`flagperf verify` says that the result is wrong"),
        Status::Failed => Some(reason.unwrap_or("the case failed")),
        Status::Interrupted => Some(reason.unwrap_or("the case was interrupted")),
        Status::Ok if validity == Validity::Invalid => Some("the result is invalid"),
        Status::Ok => None,
    }
}

fn long(text: &str) -> String {
    truncate(&escape_lines(text), TEXT_BYTES_MAX).into_owned()
}

/// Returns the test of the sum of several devices, each of which has a test of its own.
fn sum(read: &ReadSummary) -> Case {
    let ReadSummary { summary, check, path, .. } = read;
    let rates = summary.steps.iter().filter_map(|step| {
        let rate = step.throughput_whole_samples_per_s?.0;
        Some(format!("{} whole: {rate:.1} {}s/s on {} devices", step.step.name(), summary.unit, step.replicas))
    });
    let checked = [format!("checked: {}", check.name()), format!("summary: {}", path.display())];
    Case {
        name: text(&format!("{} sum of {} devices", summary.case, summary.replicas.len())),
        time: "0".to_owned(),
        failure: failure(summary.status, summary.validity, check, None).map(text),
        details: long(&summary.validity_reasons.join("\n")),
        output: long(&rates.chain(checked).collect::<Vec<_>>().join("\n")),
    }
}

fn case(result: &ReadResult, check: &Check) -> Case {
    let record = &result.record;
    let first = record.failures.first().map(|failure| failure.reason.as_str());
    let failures =
        record.failures.iter().flat_map(|failure| [&failure.reason, &failure.hint].into_iter().chain(&failure.stderr));
    let details: Vec<&str> = failures.map(String::as_str).filter(|line| !line.is_empty()).collect();
    let mut lines: Vec<String> =
        headline_rows(record).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    lines.push(format!("verdict: {}", record.validity.line()));
    lines.push(format!("checked: {}", check.name()));
    lines.push(format!("record: {}", result.record_path().display()));
    Case {
        name: text(format!("{} {}", record.key(), result.place()).trim()),
        time: format!("{:.3}", record.finish_info.e2e_time.0),
        failure: failure(record.status, record.validity.verdict, check, first).map(text),
        details: long(&details.join("\n")),
        output: long(&lines.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::{FailureRecord, Record, testing};

    fn xml(record: Record) -> String {
        junit(&[(ReadResult { path: "r/record.json".into(), record, digest: None }, Check::TooLarge)], &[])
    }

    #[test]
    fn a_case_that_succeeded_is_a_test_that_passed() {
        let text = xml(testing::record());
        assert!(text.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"), "{text}");
        assert!(text.contains("name=\"resnet50:interpreter\" time=\"0.000\""), "{text}");
        assert!(text.contains("failures=\"0\"") && !text.contains("<failure"), "{text}");
        assert!(text.contains("verdict: unofficial: no accuracy: random weights"), "{text}");
    }

    #[test]
    fn a_failure_is_text_in_the_xml_whatever_it_contains() {
        let mut record = testing::record();
        record.status = Status::Failed;
        let reason = "</failure><x a=\"1\">&\x1b[2J\u{0}]]>".to_owned();
        record.failures =
            vec![FailureRecord { phase: None, step: None, reason, hint: String::new(), stderr: Vec::new() }];
        let text = xml(record);
        assert!(text.contains("failures=\"1\"") && !text.contains("<x"), "{text}");
        assert_eq!(text.matches("</failure>").count(), 1, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    }
}
