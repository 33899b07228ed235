//! The row of a record in the table of results of its case.

use serde_json::Value;

use super::rows::Columns;

/// Returns the cell that a record requires in a column; `None` for a column that no record fills.
fn expected_cell(column: &str, record: &Value, link: &str) -> Option<String> {
    let info = &record["finish_info"];
    let unknown = || record["accuracy"]["unknown"].as_str().unwrap_or("unknown").to_owned();
    let training = || record["phases"][0]["training"]["rounds"].as_array()?.last();
    let rate_of = |key: &str| Some(training()?[key].as_f64().map_or_else(|| "not measured".to_owned(), rate));
    Some(match column {
        "framework" => text(&record["framework"])?,
        "p_whole" => rate_of("throughput_whole_samples_per_s")?,
        "p_train" => rate_of("throughput_train_samples_per_s")?,
        "*p_core" => rate_of("throughput_core_samples_per_s")?,
        "epochs" => training()?["epochs"].as_u64()?.to_string(),
        "converged" => if record["accuracy"]["verdict"] == "met" { "yes" } else { "no" }.to_owned(),
        "final metric" => final_metric(training()?).unwrap_or_else(unknown),
        "vendor" => text(&info["vendor"])?,
        "compiler" => text(&info["compiler"]).unwrap_or_else(|| "none".to_owned()),
        "device" => device(record)?,
        "precision" => text(&info["precision"])?,
        "batch size" => info["batchsize"].as_u64()?.to_string(),
        "p_validation_whole" | "p_validation_core" | "p_inference_whole" | "*p_inference_core" => {
            info[format!("{column}(qps)")].as_f64().map_or_else(|| "not measured".to_owned(), rate)
        }
        "val acc" => info["val_average_acc"].as_f64().map_or_else(unknown, accuracy),
        "infer acc" => info["infer_average_acc"].as_f64().map_or_else(unknown, accuracy),
        "vendor_usage" => {
            info["vendor_usage(GiB)"].as_f64().map_or_else(|| "unknown".to_owned(), |size| format!("{size:.1} GiB"))
        }
        "*MFU" => text(&info["*MFU"]).map_or_else(|| "peak unknown".to_owned(), |share| share.replace('%', " %")),
        "record" => link.to_owned(),
        _ => return None,
    })
}

/// Returns the row that a record requires in a table, without line break. A column that no record fills stays empty.
pub(super) fn expected_row(columns: &Columns, record: &Value, link: &str) -> String {
    let cells = columns.0.iter().map(|column| expected_cell(column, record, link).unwrap_or_default());
    format!("|{}", cells.map(|cell| format!(" {} |", in_cell(&cell))).collect::<String>())
}

/// Returns what differs between a row and a record: the column, the cell and the expected cell. After the names of the
/// compiler and the device, a cell may say more, behind a comma.
pub(super) fn differences(columns: &Columns, row: &[String], record: &Value) -> Vec<(String, String, String)> {
    let mut differences = Vec::new();
    for (column, at) in columns.0.iter().zip(0..).filter(|(column, _)| *column != "record") {
        let Some(expected) = expected_cell(column, record, "").map(|cell| in_cell(&cell)) else { continue };
        let cell = row.get(at).cloned().unwrap_or_default();
        let may_say_more = ["compiler", "device"].contains(&column.as_str());
        let is_equal = cell == expected || may_say_more && cell.starts_with(&format!("{expected}, "));
        if !is_equal {
            differences.push((column.clone(), cell, expected));
        }
    }
    differences
}

/// Returns a link from the table in `folder` to a record, named after the folder of the record.
pub(super) fn record_link(record: &str, folder: &str) -> String {
    let up = "../".repeat(folder.split('/').filter(|name| !name.is_empty()).count());
    let name = record.rsplit('/').nth(1).unwrap_or("record");
    format!("[{}]({up}{record})", in_cell(name))
}

fn in_cell(text: &str) -> String {
    flagperf_core::text::one_line(text).replace('|', r"\|")
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Returns the first metric of the last evaluation of a training.
fn final_metric(training: &Value) -> Option<String> {
    let (name, value) = training["evaluations"].as_array()?.last()?["metrics"].as_object()?.iter().next()?;
    Some(format!("{name} {}", accuracy(value.as_f64()?)))
}

/// Returns the name of the device of inference, or else of the last phase, without the engine's index of it.
fn device(record: &Value) -> Option<String> {
    let devices: Vec<&Value> =
        record["hosts"].as_array()?.iter().filter_map(|host| host["devices"].as_array()).flatten().collect();
    let of_inference = devices.iter().find(|device| device["phase"] == "infer").or(devices.last())?;
    let name = of_inference["name"].as_str()?;
    let (index, rest) = name.split_once(' ').unwrap_or(("", name));
    Some(if index.contains(':') { rest.to_owned() } else { name.to_owned() })
}

/// Formats a rate: whole numbers from 100 on, with a comma between groups of three digits.
fn rate(rate: f64) -> String {
    if !(100.0..1e15).contains(&rate) {
        return format!("{rate:.1}");
    }
    let digits = format!("{rate:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a share as a percentage, and any other metric as a number, with at most two decimals.
fn accuracy(value: f64) -> String {
    let (number, unit) = if (0.0..=1.0).contains(&value) { (100.0 * value, " %") } else { (value, "") };
    let text = format!("{number:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record() -> Value {
        json!({"finish_info": {"vendor": "acme", "compiler": "own", "precision": "fp16", "batchsize": 8,
            "p_validation_whole(qps)": 4976.628, "p_validation_core(qps)": 28067.66, "p_inference_whole(qps)": 15.06,
            "*p_inference_core(qps)": null, "val_average_acc": 0.7613, "infer_average_acc": null,
            "vendor_usage(GiB)": 4.807, "*MFU": "4.6%"},
            "accuracy": {"unknown": "random weights"},
            "hosts": [{"devices": [{"phase": "validate", "name": "one"}, {"phase": "infer", "name": "x:0 Acme 1"}]}]})
    }

    fn columns() -> Columns {
        let names = "vendor,compiler,device,precision,batch size,p_validation_whole,p_validation_core,p_inference_whole,\
                     *p_inference_core,val acc,infer acc,vendor_usage,*MFU,record,remark";
        Columns(names.split(',').map(str::to_owned).collect())
    }

    #[test]
    fn the_row_has_the_figures_of_the_record_as_the_tables_write_them() {
        let link = record_link("vendors/acme/results/tiny/one/record.json", "scripts/tiny");
        assert_eq!(
            expected_row(&columns(), &record(), &link),
            "| acme | own | Acme 1 | fp16 | 8 | 4,977 | 28,068 | 15.1 | not measured | 76.13 % | random weights | 4.8 GiB | \
             4.6 % | [one](../../vendors/acme/results/tiny/one/record.json) |  |"
        );
    }

    #[test]
    fn the_row_of_a_training_has_the_figures_of_its_last_repetition() {
        let round = json!({"epochs": 2, "throughput_whole_samples_per_s": 948.2, "throughput_train_samples_per_s": null,
            "throughput_core_samples_per_s": 979.9, "evaluations": [{"metrics": {"top1": 0.9831}}]});
        let mut record = record();
        record["framework"] = "interpreter".into();
        record["accuracy"]["verdict"] = "met".into();
        record["phases"] = json!([{"training": {"rounds": [{}, round]}}]);
        let names = "vendor,framework,p_whole,p_train,*p_core,epochs,converged,final metric,record";
        let columns = Columns(names.split(',').map(str::to_owned).collect());
        let expected = "| acme | interpreter | 948 | not measured | 980 | 2 | yes | top1 98.31 % | x |";
        assert_eq!(expected_row(&columns, &record, "x"), expected);
    }

    #[test]
    fn a_row_differs_where_a_cell_does() {
        let row = expected_row(&columns(), &record(), "x").replace("own", "own, tuned");
        let mut cells = super::super::rows::cells(&row).unwrap();
        assert_eq!(differences(&columns(), &cells, &record()), []);
        cells[7] = "15.2".to_owned();
        let expected = ("p_inference_whole".to_owned(), "15.2".to_owned(), "15.1".to_owned());
        assert_eq!(differences(&columns(), &cells, &record()), [expected]);
        cells.truncate(7);
        assert_eq!(differences(&columns(), &cells, &record()).len(), 6);
    }
}
