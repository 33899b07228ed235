//! The commands `plan`, `list` and `doctor`, the choice of cases, and `--set`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{bash, checkout, flagperf, record};

/// Runs `plan --json` and returns what it printed.
fn plan(checkout: &Path, arguments: &[&str]) -> Value {
    let output = flagperf(checkout, &[&["plan", "--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON: {error}\n{errors}"))
}

fn cases(plan: &Value) -> Vec<&str> {
    plan["cases"].as_array().expect("cases").iter().map(|case| case["case"].as_str().expect("a name")).collect()
}

/// Adds a copy of the case `tiny` that host.yaml does not list for another framework than `mock`.
fn add_case(checkout: &Path, name: &str) {
    let script = format!("cp -r configs/tiny configs/{name}; cp -r scripts/tiny scripts/{name}");
    bash(checkout, &script);
    let host = checkout.join("configs/host.yaml");
    let text = fs::read_to_string(&host).expect("a file");
    fs::write(host, format!("{text}    \"{name}:mock\": \"data\"\n")).expect("a file");
}

/// Gives the vendor a compiler of its own, so that framework and compiler differ.
fn add_compiler(checkout: &Path) {
    let vendor = checkout.join("vendors/mock/vendor.yaml");
    let text = fs::read_to_string(&vendor).expect("a file");
    let own = "    own: {engine: \"null\", options: {sleep_ms: 0, inputs: null, outputs: null}}\n";
    fs::write(vendor, text.replace("compilers:\n", &format!("compilers:\n{own}"))).expect("a file");
}

#[test]
fn cases_cannot_be_listed_outside_a_checkout_and_help_needs_an_output() {
    let (elsewhere, here) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    // The program's own folder lies in no checkout, either.
    let program = elsewhere.path().join("flagperf");
    fs::copy(assert_cmd::cargo::cargo_bin("flagperf"), &program).expect("a copy");
    let script = |text: &str| {
        let output = assert_cmd::Command::new("/bin/bash").args(["-c", text]).arg(&program).current_dir(&here).output();
        let output = output.expect("a shell");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = script("$0 list cases");
    assert!(code == Some(2) && errors.contains("is not in a checkout"), "{code:?} {errors}");
    assert_eq!(script("$0 list engines"), (Some(0), String::new()));
    let (code, errors) = script("$0 --help > /dev/full");
    assert!(code == Some(3) && errors.contains("cannot write to standard output"), "{code:?} {errors}");
    let (code, errors) = script("$0 run resnet50");
    assert!(code == Some(2) && errors.contains("`--case resnet50`"), "{code:?} {errors}");
}

#[test]
fn several_cases_can_be_chosen_and_each_runs_once() {
    let checkout = checkout();
    add_case(checkout.path(), "small");
    add_case(checkout.path(), "third");
    let chosen = plan(checkout.path(), &["--case", "small", "--case", "tiny:mock", "--case", "tiny"]);
    assert_eq!(cases(&chosen), ["small:mock", "tiny:mock"]);
    assert_eq!(cases(&plan(checkout.path(), &[])), ["tiny:mock", "small:mock", "third:mock"]);
    let output = flagperf(checkout.path(), &["plan", "--case", "tiny", "--case", "smal"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("--case smal: unknown case `smal`") && errors.contains("did you mean `small`?"),
        "{errors}"
    );
}

#[test]
fn a_plan_as_json_has_the_jobs_the_values_and_the_findings() {
    let checkout = checkout();
    let plan = plan(checkout.path(), &["--set", "batch_size=2"]);
    let case = &plan["cases"][0];
    assert_eq!(case["departures"], json!({"batch_size": 2}));
    assert_eq!((&case["jobs"][0]["phase"], &case["jobs"][1]["phase"]), (&json!("validate"), &json!("infer")));
    let row = json!({"section": "tiny:mock", "key": "batch_size", "value": 2, "origin": "--set batch_size=2"});
    assert!(plan["values"].as_array().expect("values").contains(&row), "{plan}");
    let findings = plan["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|finding| finding["origin"] == "--set batch_size=2"), "{plan}");
}

#[test]
fn a_plan_lists_what_differs_first_and_defaults_only_on_request() {
    let checkout = checkout();
    let text = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["plan", "--set", "batch_size=2"], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (short, whole) = (text(&[]), text(&["--details"]));
    let place = |key: &str| {
        let mut rows = short.lines().skip_while(|line| *line != "tiny:mock");
        rows.position(|row| row.split_whitespace().any(|word| word == key)).unwrap_or_else(|| panic!("{key}: {short}"))
    };
    assert!(place("batch_size") < place("compiler") && place("compiler") < place("data"), "{short}");
    assert!(short.contains(" more values are defaults or null: --details lists them\n"), "{short}");
    assert!(!short.contains("agreement") && whole.contains("agreement"), "{short}");
    assert!(short.lines().count() < 40 && whole.lines().count() > 40, "{short}\n{whole}");
    assert!(!whole.contains("--details"), "{whole}");
}

#[test]
fn engines_of_one_name_are_listed_with_their_roles() {
    let values = plan(checkout().path(), &[])["values"].clone();
    let keys: Vec<_> = values.as_array().expect("rows").iter().filter_map(|row| row["key"].as_str()).collect();
    for key in ["mock.engine (framework)", "mock.engine (compiler)", "mock.sleep_ms (compiler)"] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
}

#[test]
fn an_option_after_the_name_of_its_engine_is_set_for_that_engine_only() {
    let checkout = checkout();
    add_compiler(checkout.path());
    let sleep = |arguments: &[&str]| {
        let plan = plan(checkout.path(), &[&["--set", "compiler=own"], arguments].concat());
        let jobs = plan["cases"][0]["jobs"].as_array().expect("jobs").clone();
        jobs.iter().map(|job| job["engine"]["options"]["sleep_ms"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(sleep(&[]), [Some(0), Some(0)]);
    assert_eq!(sleep(&["--set", "own.sleep_ms=5"]), [Some(0), Some(5)]);
    assert_eq!(sleep(&["--set", "sleep_ms=3"]), [Some(3), Some(3)]);
    // The more specific argument wins, in either order.
    assert_eq!(sleep(&["--set", "own.sleep_ms=5", "--set", "sleep_ms=3"]), [Some(3), Some(5)]);
    let values = plan(checkout.path(), &["--set", "compiler=own", "--set", "own.sleep_ms=5"])["values"].clone();
    let rows: Vec<_> = values.as_array().expect("rows").iter().filter(|row| row["key"] == "own.sleep_ms").collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["value"], &rows[0]["origin"]), (&json!(5), &json!("--set own.sleep_ms=5")));
    let unknown = flagperf(checkout.path(), &["plan", "--set", "own.engine=rten"]);
    assert_eq!(unknown.status.code(), Some(2));
    let unused = flagperf(checkout.path(), &["plan", "--set", "own.sleep_ms=5"]);
    let warnings = String::from_utf8_lossy(&unused.stderr).into_owned();
    assert!(warnings.contains("warning: --set own.sleep_ms=5: ") && warnings.contains("`own.sleep_ms`"), "{warnings}");
    let threads = flagperf(checkout.path(), &["plan", "--set", "mock.threads=4"]);
    let warnings = String::from_utf8_lossy(&threads.stderr).into_owned();
    assert!(warnings.contains("option `mock.threads` has no effect"), "the null engine has no threads: {warnings}");
}

#[test]
fn a_value_that_a_key_already_has_is_no_departure() {
    let checkout = checkout();
    let same = ["--set", "batch_size=4", "--set", "sleep_ms=0", "--set", "repeat=7", "--set", "repeat=2"];
    let output = flagperf(checkout.path(), &[&["plan"], &same[..4]].concat());
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @r"
    note: configs/tiny/vendor_config/mock_configurations.yaml:1: `compiler`: `rten` (configs/tiny/configurations.yaml:4) becomes `mock`
    note: --set batch_size=4: `batch_size` is already `4` (configs/tiny/configurations.yaml:1): no departure from the standard configuration
    note: --set sleep_ms=0: `sleep_ms` is already `0` (vendors/mock/vendor.yaml:17): no departure from the standard configuration
    ");
    assert_eq!(flagperf(checkout.path(), &[&["run"], &same[..]].concat()).status.code(), Some(0));
    assert_eq!(record(checkout.path()).1["departures"], json!([]));
}

#[test]
fn a_report_ends_with_the_verdict_the_figures_and_the_record() {
    let checkout = checkout();
    let output = flagperf(checkout.path(), &["run"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.trim_end().lines().count() <= 40, "{text}");
    let end: Vec<_> = text.trim_end().lines().skip_while(|line| *line != "ok  tiny:mock").skip(1).collect();
    assert!(end[0].starts_with(" inference ") && end[1].starts_with(" validation "), "{text}");
    assert!(
        end[2].starts_with(" agreement                not checked: framework and compiler compute nothing"),
        "{text}"
    );
    assert!(end[3].starts_with(" verdict                  unofficial: measured for less than 1 s"), "{text}");
    let [digest, record] = end[end.len() - 2..] else { panic!("{text}") };
    assert!(digest.starts_with(" digest  sha256:"), "{text}");
    assert!(record.starts_with(" record  result/run") && record.ends_with("/record.json"), "{text}");
    let details = flagperf(checkout.path(), &["run", "--details"]);
    let details = String::from_utf8_lossy(&details.stdout).into_owned();
    assert!(details.contains("\nmodel, data and hardware\n") && !text.contains("model, data"), "{details}");
}

/// Runs a copy of the program that lies in the checkout, from a folder that is in no checkout.
fn run_outside(checkout: &Path, arguments: &str) -> String {
    let elsewhere = TempDir::new().expect("a folder");
    let script = format!(
        "mkdir -p bin; cp \"$0\" bin/flagperf; own=$PWD/bin/flagperf; cd {}; \"$own\" {arguments} >&2; echo \"code $?\" >&2",
        elsewhere.path().display()
    );
    let (_, errors) = bash(checkout, &script);
    let errors = errors.replace(&*elsewhere.path().to_string_lossy(), "[ELSEWHERE]");
    errors.replace(&*checkout.to_string_lossy(), "[CHECKOUT]")
}

#[test]
fn outside_a_checkout_the_program_says_which_one_it_uses_and_asks_for_a_case() {
    let checkout = checkout();
    insta::assert_snapshot!(run_outside(checkout.path(), "list cases"), @r"
    note: `[ELSEWHERE]` is not in a checkout; using `[CHECKOUT]`, which contains this program
     Aquila_7b_mmlu         overlays: cpu, nvidia
     bert                   training overlays: cpu, nvidia
     bertLarge              overlays: cpu, nvidia
     dab_detr_r50           overlays: cpu, nvidia
     deepseek_7b_mmlu       overlays: cpu, nvidia
     digits                 training overlays: none
     efficientnet           training overlays: cpu, nvidia
     efficientnet_lite0     overlays: cpu, intel, mock, nvidia
     glm                    training overlays: cpu, nvidia
     gpt2                   training overlays: cpu, nvidia
     llama2_7b_mmlu         overlays: cpu, nvidia
     llama3_8b_mmlu         overlays: cpu, nvidia
     mobilenetv2            training overlays: cpu, nvidia
     resnet101              overlays: cpu, nvidia
     resnet101_gradients    overlays: cpu, nvidia
     resnet50               overlays: cpu, intel, mock, nvidia; training overlays: cpu, nvidia
     sam_h                  overlays: cpu, nvidia
     smollm2_135m           overlays: cpu, nvidia; training overlays: cpu, nvidia
     stable_diffusion_v1_4  overlays: cpu, nvidia
     swinTransformer        overlays: cpu, nvidia
     tiny                   overlays: mock
     unet_tiny              overlays: cpu, nvidia
     vit                    training overlays: cpu, nvidia
     vit_l_16               overlays: cpu, nvidia
     yolov5                 overlays: cpu, nvidia
    code 0
    ");
    insta::assert_snapshot!(run_outside(checkout.path(), "run"), @r"
    error: `[ELSEWHERE]` is not in a checkout, and no case is given
      hint: change to a checkout, or give --case NAME to run a case of `[CHECKOUT]`, which contains this program
    code 2
    ");
    assert!(!checkout.path().join("result").exists());
    let run = run_outside(checkout.path(), "run --case tiny");
    assert!(run.starts_with("note: `[ELSEWHERE]` is not in a checkout; using `[CHECKOUT]`"), "{run}");
    assert!(run.ends_with("code 0\n"), "{run}");
}

#[test]
fn doctor_returns_whether_the_selected_cases_can_run() {
    let checkout = checkout();
    let doctor = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["doctor"], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(doctor(&[]), (Some(0), String::new()));
    let (code, errors) = doctor(&["--vendor", "mok"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("unknown vendor `mok`"), "{errors}");
    assert_eq!(doctor(&["--set", "bach_size=2"]).0, Some(2));
    let (code, errors) = doctor(&["--data", "/no/such/data"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("data directory `/no/such/data`"), "{errors}");
}

#[test]
fn doctor_prints_only_json_on_request() {
    let checkout = checkout();
    let doctor = |arguments: &[&str]| {
        let output = flagperf(checkout.path(), &[&["doctor", "--json"], arguments].concat());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), json)
    };
    let (code, found) = doctor(&[]);
    assert_eq!((code, &found["can_run"], &found["faults"]), (Some(0), &json!(true), &json!([])));
    let engines = found["sections"]["engines"].as_array().expect("rows");
    assert!(engines.iter().any(|row| row["name"] == "rten" && row["state"].as_str().is_some()), "{found}");
    for arguments in [&["--vendor", "mok"][..], &["--vendor", "mok", "--hosts"]] {
        let (code, found) = doctor(arguments);
        let message = found["findings"][0]["message"].as_str().unwrap_or_default();
        assert!(code == Some(2) && message.contains("unknown vendor `mok`"), "{found}");
    }
}

#[test]
fn a_list_has_the_width_that_the_environment_states() {
    let checkout = checkout();
    let (list, _) = bash(checkout.path(), "COLUMNS=60 \"$0\" list vendors");
    let widest = list.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| (50..=60).contains(&widest)), "{list}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_no_command_with_an_error() {
    let checkout = checkout();
    fs::write(checkout.path().join("reading"), "").expect("a file");
    for command in ["doctor", "plan", "plan --json", "list engines", "backend list", "--help"] {
        // The program starts after `rm`, the reader, has ended.
        let script = format!(
            "touch reading; (while test -e reading; do sleep 0.05; done; sleep 0.2; \"$0\" {command}; echo \"code $?\" >&2) | rm reading"
        );
        let (_, errors) = bash(checkout.path(), &script);
        assert!(errors.ends_with("code 0\n") && !errors.contains("error"), "{command}: {errors}");
    }
}

#[test]
fn a_vendor_file_of_another_version_is_refused_with_what_to_change() {
    let checkout = checkout();
    let file = checkout.path().join("vendors/mock/vendor.yaml");
    let text = fs::read_to_string(&file).expect("a file");
    let errors = |from: &str, to: &str| {
        fs::write(&file, text.replacen(from, to, 1)).expect("a file");
        let output = flagperf(checkout.path(), &["plan"]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let older = errors("mock: {engine: \"null\"", "mock: {engine: candle");
    let hint = "\n  hint: `interpreter` took the place of engine `candle`: change `engine` in vendor.yaml\n";
    assert!(
        older.starts_with("error: vendors/mock/vendor.yaml:17: framework `mock` needs engine `candle`, "),
        "{older}"
    );
    assert!(older.ends_with(hint), "{older}");
    insta::assert_snapshot!(errors("mock: {engine: \"null\", options", "mock: {engine: \"null\", option"), @r"
    error: vendors/mock/vendor.yaml:17: unknown key `frameworks.mock.option` (nearest: `options`)
      hint: known keys: engine, library, command, options, opens_onnx; was the file written for another version of flagperf?
    ");
}
