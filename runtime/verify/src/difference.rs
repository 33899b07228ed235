//! Differences between two JSON values, each with its place.

use serde::Serialize;
use serde_json::Value;

use super::CaseReport;

/// Adds a finding for each difference between what a part of a file should contain and what it contains. `place` is the
/// part: `phases[0].measured`; empty for the whole file.
pub(super) fn compare<T: Serialize + ?Sized>(
    report: &mut CaseReport,
    file: &str,
    place: &str,
    expected: &T,
    found: &T,
) {
    let value = |part: &T| serde_json::to_value(part).unwrap_or_default();
    compare_values(report, file, place, &value(expected), &value(found));
}

/// Checks that the JSON text from which `read` was parsed has nothing but what this program writes: readers of an unknown key may
/// believe it.
pub(super) fn check_known<T: Serialize>(report: &mut CaseReport, file: &str, place: &str, read: &T, text: &[u8]) {
    let written = serde_json::to_value(read).unwrap_or_default();
    let found = serde_json::from_slice(text).unwrap_or_default();
    compare_values(report, file, place, &written, &found);
}

/// Adds a finding for each difference between two values.
fn compare_values(report: &mut CaseReport, file: &str, place: &str, expected: &Value, found: &Value) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let below = |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
            for (key, value) in expected {
                compare_values(report, file, &below(key), value, found.get(key).unwrap_or(&Value::Null));
            }
            for key in found.keys().filter(|key| !expected.contains_key(*key)) {
                compare_values(report, file, &below(key), &Value::Null, &found[key]);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare_values(report, file, &format!("{place}[{index}]"), expected, found);
            }
        }
        _ if expected == found => {}
        _ => report.add(file, place, Some(expected.to_string()), Some(found.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::run_files::RECORD_FILE;
    use serde_json::json;

    #[test]
    fn each_difference_is_named_with_its_place() {
        let mut report = CaseReport::new(std::path::Path::new("x"));
        let expected = json!({"a": [1, {"b": 2.5}], "c": null, "d": 1});
        compare(&mut report, RECORD_FILE, "phase", &expected, &expected);
        assert_eq!(report.findings, []);
        let found = json!({"a": [1, {"b": 2.6}], "c": null, "e": [1]});
        compare(&mut report, RECORD_FILE, "phase", &expected, &found);
        let lines: Vec<String> = report
            .findings
            .iter()
            .map(|f| format!("{} {} {}", f.what, f.expected.as_deref().unwrap(), f.found.as_deref().unwrap()))
            .collect();
        assert_eq!(lines, ["phase.a[1].b 2.5 2.6", "phase.d 1 null", "phase.e null [1]"]);
    }
}
