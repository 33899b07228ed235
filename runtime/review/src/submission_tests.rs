//! Tests of submissions: the record, its log and its row.

use serde_json::{Value, json};

use super::memory_tree::{MemoryTree, lines, reviewed};
use super::submission::NewRecord;
use flagperf_core::event::EngineFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::measure::{Measurement, PassTimes};
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_result::{FinishInfo, PhaseRecord, Record, Setting, ValidityCheck, testing};
use flagperf_verify::recomputed;

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

/// Returns a record whose figures and verdicts follow from its measurements.
fn whole_record() -> Record {
    let mut record = Record { case: "tiny".into(), vendor: "acme".into(), ..testing::record() };
    let settings = json!({"batch_size": 8, "fp16": false, "flops": "1e6", "precision": "fp32", "compiler": "own",
        "unit": "sample", "target_accuracy": {}});
    for (key, value) in settings.as_object().unwrap() {
        record.settings.insert(key.clone(), Setting { value: value.clone(), origin: "default".into() });
    }
    let time = Seconds(10.0);
    let pass = PassTimes { samples: 12_344, whole_s: time, core_s: time, ..PassTimes::default() };
    let measured = Measurement { passes: vec![pass], ..testing::measurement(Step::Inference) };
    let mut phase = PhaseRecord { measured: vec![measured], ..PhaseRecord::new(Phase::Infer) };
    let nodes = [("Own".to_owned(), 9), ("CPUExecutionProvider".to_owned(), 3)].into_iter().collect();
    phase.engine = Some(EngineFacts { name: "own".into(), nodes_by_provider: nodes, ..EngineFacts::default() });
    record.phases = vec![phase];
    record.provenance.scripts_sha256 =
        [("tiny/forward.rhai".to_owned(), hash_bytes(FORWARD.as_bytes()))].into_iter().collect();
    recomputed(&record)
}

fn record() -> Value {
    serde_json::to_value(whole_record()).unwrap()
}

/// Returns the log of a run with a record.
fn log(record: &Value) -> String {
    let info = serde_json::from_value::<FinishInfo>(record["finish_info"].clone()).unwrap_or_default();
    let validity = serde_json::from_value::<ValidityCheck>(record["validity"].clone()).unwrap_or_default();
    let info = serde_json::to_string(&info).unwrap();
    format!("a - Verdict - {}\na - Finish Info - {info}\n", validity.line())
}

fn submission(record: &Value, row: &str) -> MemoryTree {
    base()
        .with(OVERLAY, "batch_size: 8\n")
        .with(RECORD, &record.to_string())
        .with(LOG, &log(record))
        .with(README, &format!("{HEAD}{row}"))
}

/// Returns the findings about a submission without the note that its result is unofficial.
fn found(after: &MemoryTree) -> Vec<String> {
    let lines = lines(&reviewed(&base(), after, Some("vendor:acme")));
    lines.into_iter().filter(|line| !line.contains("the result is unofficial")).collect()
}

/// Returns what is found when the change of a published submission is made by somebody.
fn found_later(change: impl FnOnce(MemoryTree) -> MemoryTree, role: &str) -> Vec<String> {
    let published = submission(&record(), ROW);
    lines(&reviewed(&published, &change(published.clone()), Some(role)))
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
    let has = |found: Vec<String>, message: &str| {
        let expected = format!("refused | record | {RECORD} | {message}");
        assert!(found.contains(&expected), "{expected}: {found:?}");
    };
    has(with("/vendor", json!("other")), "`vendor` is `other`, but must be `acme`");
    has(with("/case", json!("big")), "`case` is `big`, but must be `tiny`");
    has(with("/status", json!("failed")), "`status` is `failed`, but must be `ok`");
    has(
        with("/departures", json!(["batch_size=8"])),
        "the run departs from the committed configuration: `batch_size=8`",
    );
    has(
        with("/settings/batch_size/value", json!(16)),
        &format!("the run had `16` for `batch_size`, but {OVERLAY} has `8`"),
    );
    has(
        with("/settings/flops/value", json!("2e6")),
        "the run had `2e6` for `flops`, but configs/tiny/configurations.yaml has `1e6`",
    );
    has(
        with("/provenance/scripts_sha256/tiny~1forward.rhai", json!("00")),
        "the run used another version of `scripts/tiny/forward.rhai`",
    );
    has(with("/finish_info", json!(null)), "the file is not a record");
}

#[test]
fn a_record_has_its_log_and_is_never_replaced() {
    let after = submission(&record(), ROW);
    let missing = found(&after.clone().without(LOG));
    assert!(missing.contains(&format!("refused | record | {RECORD} | its log `{LOG}` is missing")), "{missing:?}");
    let changed = after.clone().with(LOG, &log(&record()).replace("1234.4", "9999.9"));
    let expected = format!(
        "refused | record | {RECORD} | container.out.log: `the line `Finish Info`` does not follow from the measurements of the record"
    );
    assert!(found(&changed).contains(&expected), "{:?}", found(&changed));
    let figure = |tree: MemoryTree| tree.with(RECORD, &record().to_string().replace("1234.4", "9999.9"));
    assert_eq!(
        found_later(figure, "vendor:acme"),
        [format!("refused | record | {RECORD} | a record that exists is changed")]
    );
    assert_eq!(
        found_later(|tree| tree.with(LOG, "other\n"), "vendor:acme"),
        [format!("refused | record | {LOG} | a file beside a record that exists is changed")]
    );
    assert_eq!(
        found_later(|tree| tree.without(RECORD), "vendor:acme"),
        [format!("needs maintainer | record | {RECORD} | a record that exists is removed or moved")]
    );
}

#[test]
fn the_row_is_equal_to_the_record() {
    let wrong = ROW.replace("1,234", "2,345");
    let review = reviewed(&base(), &submission(&record(), &wrong), Some("vendor:acme"));
    let expected = format!(
        "refused | result-row | {README}:5 | the row differs from {RECORD}: *p_inference_core is `2,345`, not `1,234`"
    );
    let found_row = lines(&review);
    let at = found_row.iter().position(|line| *line == expected).unwrap_or_else(|| panic!("{found_row:?}"));
    assert_eq!(review.findings[at].hint, format!("replace it by this row: {}", ROW.trim()));
    let missing = reviewed(&base(), &submission(&record(), ""), Some("vendor:acme"));
    assert_eq!(
        lines(&missing)[0],
        format!("refused | result-row | {README} | the table of results lacks a row for {RECORD}")
    );
    assert_eq!(missing.findings[0].hint, format!("add this row: {}", ROW.trim()));
    let none = submission(&record(), ROW).with(README, "None yet.\n");
    assert!(found(&none).contains(&format!("refused | result-row | {README} | there is no table of results")));
}

const UNPROVEN: &str =
    "a row of results is added or changed, and follows from no record that this change adds and `verify` accepts";
const CELLS: &str = "`acme | own | 8 | 1,234 | [one](../../vendors/acme/results/tiny/one/record.json)`";

#[test]
fn a_row_that_is_changed_invented_or_removed_needs_a_maintainer() {
    let readme = |tree: MemoryTree, rows: &str| tree.with(README, &format!("{HEAD}{rows}"));
    let added = |line: usize| format!("needs maintainer | result-rows | {README}:{line} | {UNPROVEN}");
    let removed =
        format!("needs maintainer | result-rows | {README}:1 | a row of results is removed or changed: {CELLS}");
    for role in ["vendor:acme", "case-author"] {
        let changed = found_later(|tree| readme(tree, &ROW.replace("1,234", "9,234")), role);
        assert_eq!(changed, [added(5), removed.clone()], "{role}");
        let invented = ROW.replace("1,234", "9,234").replace("/one/", "/two/");
        assert_eq!(found_later(|tree| readme(tree, &format!("{ROW}{invented}")), role), [added(6)], "{role}");
        assert_eq!(found_later(|tree| readme(tree, ""), role), std::slice::from_ref(&removed), "{role}");
        let aligned = ROW.replace("| acme |", "| acme   |");
        assert_eq!(found_later(|tree| readme(tree, &aligned), role), [""; 0], "{role}");
    }
    assert_eq!(found_later(|tree| readme(tree, ""), "maintainer"), [""; 0]);
    // A second row of the new record, with other figures.
    let twice = submission(&record(), &format!("{ROW}{}", ROW.replace("1,234", "9,234")));
    assert_eq!(found(&twice), [added(6)]);
    // Another name of a column gives each figure another meaning.
    let heads =
        found_later(|tree| tree.with(README, &format!("{}{ROW}", HEAD.replace("*p_inf", "p_inf"))), "case-author");
    assert_eq!(heads, [added(5), removed.clone()]);
    let moved =
        found_later(|tree| tree.without(README).with("scripts/tiny/R.md", &format!("{HEAD}{ROW}")), "vendor:acme");
    assert!(!moved.is_empty());
}

#[test]
fn a_forged_record_is_not_accepted_and_neither_is_its_row() {
    let refused = |place: &str| {
        format!("refused | record | {RECORD} | `{place}` does not follow from the measurements of the record")
    };
    // The figures of the record are three times those of its passes.
    let mut forged = whole_record();
    forged.finish_info.inference_core = Some(SamplesPerSecond(3703.2));
    forged.phases[0].measured[0].throughput_core_samples_per_s = Some(SamplesPerSecond(3703.2));
    let forged = serde_json::to_value(forged).unwrap();
    let row = ROW.replace("1,234", "3,703");
    let lines = found(&submission(&forged, &row));
    for place in ["phases[0].measured[0].throughput_core_samples_per_s", "finish_info.*p_inference_core(qps)"] {
        assert!(lines.contains(&refused(place)), "{lines:?}");
    }
    assert!(lines.contains(&format!("needs maintainer | result-rows | {README}:5 | {UNPROVEN}")), "{lines:?}");
    // Neither a record with unknown keys nor one that this version does not know.
    let mut unknown = record();
    unknown["finish_info"]["p_inference"] = json!(99_999);
    assert!(found(&submission(&unknown, ROW)).contains(&refused("record.finish_info.p_inference")));
    let mut older = record();
    older["schema"] = json!(1);
    let lines = found(&submission(&older, ROW));
    let reason = "the record cannot be verified: schema 1 was written by an older version of flagperf";
    assert!(lines.contains(&format!("needs maintainer | record | {RECORD} | {reason}")), "{lines:?}");
    assert!(lines.contains(&format!("needs maintainer | result-rows | {README}:5 | {UNPROVEN}")), "{lines:?}");
    let mut broken = record();
    broken["phases"][0]["time_s"] = json!("soon");
    assert!(found(&submission(&broken, ROW)).iter().any(|line| line.starts_with("refused | record | ")));
}

#[test]
fn the_code_of_an_engine_is_changed_only_with_a_new_record() {
    let message = "what the vendor's engines run is changed without a new record";
    for path in ["vendors/acme/engine.py", "vendors/acme/engines/own/src/lib.rs", "docker_images/acme/f/Dockerfile"] {
        let found = lines(&reviewed(&base(), &base().with(path, "x\n"), Some("vendor:acme")));
        assert_eq!(found, [format!("needs maintainer | submission | {path} | {message}")]);
        assert_eq!(self::found(&submission(&record(), ROW).with(path, "x\n")), [""; 0], "{path}");
    }
    let removed = lines(&reviewed(&base().with("vendors/acme/e.py", "x"), &base(), Some("vendor:acme")));
    assert_eq!(removed, [format!("needs maintainer | submission | vendors/acme/e.py | {message}")]);
    for path in ["vendors/acme/README.md", "vendors/acme/monitor.rhai", "vendors/acme/monitor_output.txt"] {
        assert_eq!(found(&base().with(path, "fn read_devices(output) { [] }\n")), [""; 0], "{path}");
    }
}

#[test]
fn a_change_of_what_a_published_result_was_measured_with_needs_a_maintainer() {
    let message = format!(
        "the result of this row can no longer be reproduced: {RECORD} was made with the earlier `scripts/tiny/forward.rhai`"
    );
    let change = |tree: MemoryTree| tree.with("scripts/tiny/forward.rhai", &FORWARD.replace("[0]", "[1]"));
    let expected = format!("needs maintainer | published-record | {README}:5 | {message}");
    assert!(found_later(change, "case-author").contains(&expected), "{:?}", found_later(change, "case-author"));
    assert_eq!(found_later(change, "maintainer"), [format!("allowed | published-record | {README}:5 | {message}")]);
    let layout = |tree: MemoryTree| tree.with("scripts/tiny/forward.rhai", &format!("// A step.\n{FORWARD}"));
    assert!(!found_later(layout, "case-author").contains(&expected));
}

#[test]
fn a_record_that_cannot_be_read_has_no_value() {
    let record =
        NewRecord { path: RECORD.to_owned(), vendor: "acme".to_owned(), case: "tiny".to_owned(), value: Value::Null };
    let after = submission(&Value::Null, ROW).with(RECORD, "{\"finish_info\": ");
    let policy = super::memory_tree::policy();
    let changes = base().changes(&after);
    let records = super::submission::new_records(policy.submission.as_ref().unwrap(), Some("acme"), &changes, &after);
    assert_eq!(records, [record]);
}
