//! Results as rows for the tables of a case's README, with FlagPerf's columns.

use flagperf_core::text::{one_line, truncate};
use flagperf_report::{percent, rate};
use flagperf_result::{Record, TrainingRound, Verdict};
use indexmap::IndexMap;

use super::result::{Check, ReadResult};

const INFERENCE: &str = "| vendor | compiler | device | precision | batch size | p_validation_whole | p_validation_core | p_inference_whole | *p_inference_core | val acc | infer acc | vendor_usage | *MFU | record |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
const TRAINING: &str = "| vendor | framework | device | precision | batch size | p_whole | p_train | *p_core | epochs | converged | final metric | *MFU | record |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
/// Longest text of a cell, in bytes.
const CELL_BYTES_MAX: usize = 200;

/// Returns a table of the inferences and one of the trainings. A result that is wrong has no row.
pub fn readme_rows(results: &[(ReadResult, Check)]) -> String {
    let rows = |is_training: bool| {
        let own = results
            .iter()
            .filter(|(result, check)| result.record.training_key.is_some() == is_training && !check.is_wrong());
        own.map(|(result, _)| row(result)).collect::<String>()
    };
    let tables = [(INFERENCE, rows(false)), (TRAINING, rows(true))];
    let tables = tables.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(head, rows)| format!("{head}{rows}"));
    tables.collect::<Vec<_>>().join("\n")
}

fn row(result: &ReadResult) -> String {
    let record = &result.record;
    let cells = if record.training_key.is_some() { training_cells(record) } else { inference_cells(record) };
    let device = record.headline_device().map_or("unknown", |device| &device.name);
    let info = &record.finish_info;
    let first =
        [record.vendor.clone(), engine(record), device.to_owned(), info.precision.clone(), info.batchsize.to_string()];
    let path = result.record_path().display().to_string();
    let last = format!("{path} ({})", record.validity.verdict.name());
    let cells = first.into_iter().chain(cells).chain([last]).map(|cell| markdown(&cell));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn engine(record: &Record) -> String {
    match record.training_key {
        Some(_) => record.framework.clone(),
        None => record.finish_info.compiler.clone().unwrap_or_else(|| "none".to_owned()),
    }
}

fn inference_cells(record: &Record) -> Vec<String> {
    let info = &record.finish_info;
    let rates = [info.validation_whole, info.validation_core, info.inference_whole, info.inference_core];
    let unknown = record.accuracy.unknown.as_deref().unwrap_or("none");
    let accuracy = |value: Option<f64>| value.map_or_else(|| unknown.to_owned(), |value| format!("{value:.4}"));
    let usage = info.vendor_usage.map_or_else(|| "unknown".to_owned(), |usage| format!("{usage:.1} GiB"));
    let rates = rates.map(|found| found.map_or_else(|| "none".to_owned(), rate));
    let rest = [accuracy(info.val_average_acc), accuracy(info.infer_average_acc), usage, mfu(record)];
    rates.into_iter().chain(rest).collect()
}

fn training_cells(record: &Record) -> Vec<String> {
    let none = TrainingRound::default();
    let round = record.training().and_then(|training| training.rounds.last()).unwrap_or(&none);
    let rates = [
        round.throughput_whole_samples_per_s,
        round.throughput_train_samples_per_s,
        round.throughput_core_samples_per_s,
    ];
    let rates = rates.map(|found| found.map_or_else(|| "none".to_owned(), rate));
    let converged = match record.accuracy.verdict {
        _ if round.train_s.is_none() => "no: the training did not end",
        Verdict::Met => "yes",
        Verdict::Missed => "no",
        Verdict::NoTarget => "no target",
        Verdict::Unknown => "unknown",
    };
    let empty = IndexMap::new();
    let metrics = round.final_metrics().unwrap_or(&empty).iter().map(|(name, value)| format!("{name} {value:.4}"));
    let metrics = metrics.collect::<Vec<_>>().join(", ");
    let rest = [round.epochs.to_string(), converged.to_owned(), metrics, mfu(record)];
    rates.into_iter().chain(rest).collect()
}

fn mfu(record: &Record) -> String {
    record.flops.declared_mfu.map_or_else(|| "unknown".to_owned(), percent)
}

/// Returns a text that Markdown shows as it is.
fn markdown(text: &str) -> String {
    let text = one_line(&truncate(text, CELL_BYTES_MAX)).into_owned();
    text.chars().fold(String::with_capacity(text.len()), |mut text, c| {
        if matches!(c, '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '#' | '@') {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_result::testing;

    fn read(record: Record) -> (ReadResult, Check) {
        (ReadResult { path: "r/record.json".into(), record, digest: None }, Check::TooLarge)
    }

    #[test]
    fn a_row_has_the_columns_of_the_readme() {
        let readme =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/resnet50/README.md")).unwrap();
        assert!(readme.contains(INFERENCE) && readme.contains(TRAINING));
        let text = readme_rows(&[read(testing::record())]);
        let row = "| cpu | none | unknown | fp32 | 8 | none | 80.0 | none | none | random weights | random weights | unknown | unknown | r/record.json (unofficial) |\n";
        assert_eq!(text, format!("{INFERENCE}{row}"));
    }

    #[test]
    fn trainings_have_a_table_of_their_own() {
        let training = Record { training_key: Some("digits:interpreter:cpu:1:1:1".to_owned()), ..testing::record() };
        let text = readme_rows(&[read(training), read(testing::record())]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[3]), (7, ""));
        let cells = |line: &str| line.matches(" | ").count();
        assert_eq!([cells(lines[2]), cells(lines[6])], [cells(lines[0]), cells(lines[4])]);
    }

    #[test]
    fn a_hostile_name_is_text() {
        let record = Record { vendor: "a|b<script>*\n`".to_owned(), ..testing::record() };
        assert!(readme_rows(&[read(record)]).contains(r"| a\|b\<script\>\*\\n\` |"));
    }
}
