//! Tests of submissions: the record, its log and its row.

use serde_json::{Value, json};

use super::memory_tree::{MemoryTree, lines, reviewed};
use super::submission::NewRecord;
use flagperf_core::hash::hash_bytes;

const OVERLAY: &str = "configs/tiny/vendor_config/acme_configurations.yaml";
const RECORD: &str = "vendors/acme/results/tiny/one/record.json";
const LOG: &str = "vendors/acme/results/tiny/one/container.out.log";
const README: &str = "scripts/tiny/README.md";
const HEAD: &str =
    "## Results\n\n| vendor | compiler | batch size | *p_inference_core | record |\n|---|---|---|---|---|\n";
const ROW: &str = "| acme | own | 8 | 1,234 | [one](../../vendors/acme/results/tiny/one/record.json) |\n";
const FORWARD: &str = "fn model_forward(model, batch) { model.run([batch.images])[0] }\n";

fn base() -> MemoryTree {
    MemoryTree::new([
        ("configs/tiny/configurations.yaml", "batch_size: 4\nfp16: false\nflops: 1e6\n"),
        (README, "## Results\n\nNone yet.\n"),
        ("scripts/tiny/forward.rhai", FORWARD),
    ])
}

fn record() -> Value {
    json!({"case": "tiny", "vendor": "acme", "status": "ok", "departures": [],
        "finish_info": {"vendor": "acme", "compiler": "own", "precision": "fp32", "batchsize": 8,
            "*p_inference_core(qps)": 1234.4},
        "settings": {"batch_size": {"value": 8}, "fp16": {"value": false}, "flops": {"value": "1e6"}},
        "phases": [{"phase": "infer", "engine": {"nodes_by_provider": {"Own": 9, "CPUExecutionProvider": 3}}}],
        "provenance": {"scripts_sha256": {"tiny/forward.rhai": hash_bytes(FORWARD.as_bytes())}}})
}

fn submission(record: &Value, row: &str) -> MemoryTree {
    base()
        .with(OVERLAY, "batch_size: 8\n")
        .with(RECORD, &record.to_string())
        .with(LOG, "log\n")
        .with(README, &format!("{HEAD}{row}"))
}

fn found(after: &MemoryTree) -> Vec<String> {
    lines(&reviewed(&base(), after, Some("vendor:acme")))
}

#[test]
fn a_complete_submission_is_allowed_and_its_cost_counts_nodes() {
    let after = submission(&record(), ROW);
    assert_eq!(found(&after), [""; 0]);
    let review = reviewed(&base(), &after, None);
    assert_eq!(review.judged_as.role.to_string(), "vendor:acme");
    let cost = &review.costs[0];
    assert_eq!((cost.nodes_off_device, cost.nodes, cost.record.as_deref()), (Some(3), Some(12), Some(RECORD)));
}

#[test]
fn an_adaptation_needs_a_new_record_of_its_case() {
    let finding = format!("refused | submission | {OVERLAY} | the change adapts case `tiny` without a new record");
    assert_eq!(found(&base().with(OVERLAY, "batch_size: 8\n")), std::slice::from_ref(&finding));
    let elsewhere = submission(&record(), ROW).without(RECORD).with("vendors/acme/results/big/one/record.json", "{}");
    assert!(found(&elsewhere).contains(&finding));
    assert_eq!(found(&base().with("vendors/acme/README.md", "x")), [""; 0]);
    assert_eq!(
        found(&base().with("vendors/acme/vendor.yaml", "name: acme\n")),
        ["refused | submission | vendors/acme/vendor.yaml | the change adapts every case without a new record"]
    );
    assert_eq!(lines(&reviewed(&base(), &base().with(OVERLAY, "a: 1\n"), Some("maintainer"))), [""; 0]);
}

#[test]
fn a_record_belongs_to_the_vendor_the_case_and_the_committed_files() {
    let with = |pointer: &str, value: Value| {
        let mut changed = record();
        *changed.pointer_mut(pointer).unwrap() = value;
        found(&submission(&changed, ROW))
    };
    let one = |message: &str| vec![format!("refused | record | {RECORD} | {message}")];
    assert_eq!(with("/vendor", json!("other")), one("`vendor` is `other`, but must be `acme`"));
    assert_eq!(with("/case", json!("big")), one("`case` is `big`, but must be `tiny`"));
    assert_eq!(with("/status", json!("failed")), one("`status` is `failed`, but must be `ok`"));
    assert_eq!(
        with("/departures", json!(["batch_size=8"])),
        one("the run departs from the committed configuration: `batch_size=8`")
    );
    assert_eq!(
        with("/settings/batch_size/value", json!(16)),
        one(&format!("the run had `16` for `batch_size`, but {OVERLAY} has `8`"))
    );
    assert_eq!(
        with("/settings/flops/value", json!("2e6")),
        one("the run had `2e6` for `flops`, but configs/tiny/configurations.yaml has `1e6`")
    );
    assert_eq!(
        with("/provenance/scripts_sha256/tiny~1forward.rhai", json!("00")),
        one("the run used another version of `scripts/tiny/forward.rhai`")
    );
    assert_eq!(with("/finish_info", json!(null)), one("the file is not a record"));
}

#[test]
fn a_record_has_its_log_and_is_never_replaced() {
    let after = submission(&record(), ROW);
    assert_eq!(
        found(&after.clone().without(LOG)),
        [format!("refused | record | {RECORD} | its log `{LOG}` is missing")]
    );
    let changed = after.clone().with(RECORD, &record().to_string().replace("1234.4", "9999.9"));
    assert_eq!(
        lines(&reviewed(&after, &changed, Some("vendor:acme"))),
        [format!("refused | record | {RECORD} | a record that exists is changed")]
    );
}

#[test]
fn the_row_is_equal_to_the_record() {
    let review = reviewed(&base(), &submission(&record(), &ROW.replace("1,234", "2,345")), Some("vendor:acme"));
    assert_eq!(
        lines(&review),
        [format!(
            "refused | result-row | {README}:5 | the row differs from {RECORD}: *p_inference_core is `2,345`, not `1,234`"
        )]
    );
    assert_eq!(review.findings[0].hint, format!("replace it by this row: {}", ROW.trim()));
    let missing = reviewed(&base(), &submission(&record(), ""), Some("vendor:acme"));
    assert_eq!(
        lines(&missing),
        [format!("refused | result-row | {README} | the table of results lacks a row for {RECORD}")]
    );
    assert_eq!(missing.findings[0].hint, format!("add this row: {}", ROW.trim()));
    let none = submission(&record(), ROW).with(README, "None yet.\n");
    assert!(found(&none).contains(&format!("refused | result-row | {README} | there is no table of results")));
}

#[test]
fn a_record_that_cannot_be_read_has_no_value() {
    let record = NewRecord { path: RECORD.to_owned(), case: "tiny".to_owned(), value: Value::Null };
    let after = submission(&Value::Null, ROW).with(RECORD, "{\"finish_info\": ");
    let policy = super::memory_tree::policy();
    let changes = base().changes(&after);
    let records = super::submission::new_records(policy.submission.as_ref().unwrap(), "acme", &changes, &after);
    assert_eq!(records, [record]);
}
