//! A worker that runs the case `tiny`: events, figures and files of both phases.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf_core::event::{Event, Failure};
use flagperf_core::measure::{Measurement, Nanos};
use flagperf_core::precision::Precision;
use flagperf_core::step::{Phase, Step};
use flagperf_plan::Job;
use flagperf_result::{PhaseCollector, ReceivedEvent};
use flagperf_work::Emit;

use crate::support::jobs;

fn run_job(job: &Job) -> (Vec<Event>, Result<(), Failure>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let emit: Emit = Arc::new(move |event| sink.lock().expect("no reader panics").push(event));
    let result = flagperf_work::run(job, &emit, &|| ());
    let events = events.lock().expect("no reader panics").clone();
    (events, result)
}

/// Computes the figures of the measured step as the conductor does.
fn total_measurement(events: &[Event]) -> Measurement {
    let mut collector = PhaseCollector::new(Phase::Validate, Nanos(0));
    events.iter().for_each(|event| collector.add(ReceivedEvent { at: Nanos(0), event }));
    assert_eq!(collector.contradiction(), None);
    collector.measurement().expect("the phase measured something")
}

fn validate(folder: &Path) -> Vec<Event> {
    let (events, result) = run_job(&jobs::tiny(folder, Phase::Validate, "interpreter", 10, 4));
    result.expect("validation runs");
    events
}

#[test]
fn validation_runs_its_steps_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = validate(folder.path());
    let steps: Vec<Step> = events
        .iter()
        .filter_map(|event| match event {
            Event::StepEnd { step, .. } => Some(*step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [Step::Init, Step::Build, Step::Validation, Step::Export]);
    assert!(matches!(events.last(), Some(Event::Finished { .. })));
    assert!(folder.path().join("tiny.onnx").is_file());
}

/// Writes images of one colour each for three classes: 4 red, 3 green, and in the class of blue 1 blue and 2 red ones.
fn write_coloured_images(folder: &Path) {
    let (red, green, blue) = ([200, 0, 0], [0, 200, 0], [0, 0, 200]);
    let classes = [("a", vec![red; 4]), ("b", vec![green; 3]), ("c", vec![red, blue, red])];
    for (class, colours) in classes {
        let folder = folder.join("images").join(class);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (number, colour) in colours.into_iter().enumerate() {
            let image = image::RgbImage::from_pixel(8, 8, image::Rgb(colour));
            image.save(folder.join(format!("{number}.png"))).expect("an image");
        }
    }
}

#[test]
fn padding_is_computed_but_not_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    write_coloured_images(folder.path());
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "interpreter", 10, 4);
    job.scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/colours");
    let (events, result) = run_job(&job);
    result.expect("validation runs");
    let measurement = total_measurement(&events);
    assert_eq!((measurement.samples, measurement.padded_samples, measurement.steps), (20, 4, 6));
    assert_eq!(measurement.passes.len(), 2);
    // Padding rows are black with label 0, so they would count as hits: 10 of 12 instead of 8 of 10.
    for pass in &measurement.passes {
        assert_eq!(pass.accuracy["top1"], 0.8);
    }
}

#[test]
fn the_parts_sum_to_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    for pass in &total_measurement(&validate(folder.path())).passes {
        let parts = pass.load_wait_s + pass.core_s + pass.output_s + pass.evaluate_s + pass.host_s;
        // Each mark of the clock ends one part and begins the next, so no time lies between the parts.
        assert!((parts.0 - pass.whole_s.0).abs() < 1e-9, "{pass:?}");
    }
}

/// Runs validation with some scripts of the case replaced, which must fail, and returns the failure.
fn validation_failure(replaced: &[(&str, &str)]) -> Failure {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "interpreter", 10, 4);
    let scripts = folder.path().join("hostile");
    std::fs::create_dir(&scripts).expect("a folder");
    for entry in std::fs::read_dir(&job.scripts).expect("the case").flatten() {
        std::fs::copy(entry.path(), scripts.join(entry.file_name())).expect("a copy");
    }
    for (file, text) in replaced {
        std::fs::write(scripts.join(file), text).expect("writable");
    }
    job.scripts = scripts;
    run_job(&job).1.expect_err("it is refused")
}

#[test]
fn a_script_that_nests_captured_maps_deeply_fails_without_a_crash() {
    let text = "fn build_dataloader(config) {
        let list = #{};
        for i in 0..30000 { let rest = list; list = #{rest: || rest}; }
        throw `list of ${i64_max()}`
    }
    fn i64_max() { 9223372036854775807 }";
    let failure = validation_failure(&[("dataloader.rhai", text)]);
    assert_eq!(failure.step, Some(Step::Build));
    assert!(failure.reason.contains("list of 9223372036854775807"), "{failure}");
}

#[test]
fn random_weights_have_no_accuracy_and_the_reason_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = validate(folder.path());
    assert!(total_measurement(&events).accuracy.is_empty());
    assert_eq!(total_measurement(&events).accuracy_unknown.as_deref(), Some("the weights are random"));
}

#[test]
fn inference_agrees_with_validation_over_every_sample() {
    let folder = tempfile::tempdir().expect("a folder");
    validate(folder.path());
    let (events, result) = run_job(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4));
    result.expect("inference runs");
    let agreement = events.iter().find_map(|event| match event {
        Event::Agreement(agreement) => Some(agreement),
        _ => None,
    });
    let agreement = agreement.expect("outputs are compared");
    assert_eq!(agreement.samples, 10);
    assert!(agreement.outputs["output"].max_abs < 1e-5, "{agreement:?}");
    assert_eq!(total_measurement(&events).accuracy_unknown.as_deref(), Some("the weights are random"));
}

#[test]
fn an_engine_that_returns_zeros_does_not_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    validate(folder.path());
    let (events, result) = run_job(&jobs::tiny(folder.path(), Phase::Infer, "null", 10, 4));
    result.expect("inference runs");
    let differs = |event: &Event| match event {
        Event::Agreement(agreement) => (agreement.outputs["output"].relative_l2 - 1.0).abs() < 1e-9,
        _ => false,
    };
    assert!(events.iter().any(differs));
}

#[test]
fn a_missing_model_file_fails_the_compile_step_and_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4);
    job.outputs = None;
    let failure = run_job(&job).1.expect_err("there is no model");
    assert_eq!(failure.step, Some(Step::Compile));
    assert!(failure.reason.contains("tiny.graphs.json"), "{failure}");
}

#[test]
fn a_truncated_model_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    validate(folder.path());
    let path = folder.path().join("tiny.onnx");
    let bytes = std::fs::read(&path).expect("exported");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writable");
    let failure = run_job(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)).1.expect_err("the file is cut");
    assert!(failure.reason.contains("tiny.onnx"), "{failure}");
}

#[test]
fn fp16_is_refused_by_an_engine_without_fp16() {
    let folder = tempfile::tempdir().expect("a folder");
    validate(folder.path());
    let mut job = jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4);
    job.settings.precision = Precision::Fp16;
    let failure = run_job(&job).1.expect_err("rten computes in fp32");
    assert!(failure.reason.contains("f16"), "{failure}");
}

#[test]
fn each_pass_is_sent_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "interpreter", 10, 4);
    job.settings.repeat = 40;
    let (events, result) = run_job(&job);
    result.expect("validation runs");
    let ended = |event: &Event| match event {
        Event::PassEnd(report) => Some(report.pass),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(ended).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    assert_eq!(total_measurement(&events).passes.len(), 40);
    assert_eq!(total_measurement(&events).samples, 400);
}

#[test]
fn outputs_need_one_row_per_sample_and_there_must_be_at_least_one() {
    let reshaped = "fn model_forward(model, batch) { model.run([batch.images])[0].reshape([4000]) }";
    let failure = validate_with_forward(reshaped, 3).expect_err("the batch is padded");
    let expected = "output `0` is `4000,f32` for a batch of 4: padding rows cannot be removed from it";
    assert_eq!(failure.reason, expected);
    for nothing in ["[]", "#{}"] {
        let forward = format!("fn model_forward(model, batch) {{ model.run([batch.images]); {nothing} }}");
        let failure = validate_with_forward(&forward, 10).expect_err("there is nothing to compare");
        assert!(failure.reason.contains("the function must return at least one tensor"), "{failure}");
    }
}

/// Runs validation of the case `tiny` with another forward function.
fn validate_with_forward(forward: &str, samples: u32) -> Result<(), Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "interpreter", samples, 4);
    let scripts = folder.path().join("scripts");
    std::fs::create_dir(&scripts).expect("a folder");
    for name in ["dataloader.rhai", "evaluator.rhai", "forward.rhai", "model.rhai"] {
        std::fs::copy(job.scripts.join(name), scripts.join(name)).expect("a script of the case");
    }
    std::fs::write(scripts.join("forward.rhai"), forward).expect("a script");
    job.scripts = scripts;
    run_job(&job).1
}

#[test]
fn a_forward_function_that_skips_samples_fails_the_step() {
    let parts = "fn model_forward(model, batch) {
        let first = model.run([batch.images.rows(2)])[0];
        model.run([batch.images])[0]
    }";
    validate_with_forward(parts, 10).expect("every row is run, some of them twice");
    let never = r#"fn model_forward(model, batch) { tensor::zeros("4,10,f32") }"#;
    let failure = validate_with_forward(never, 10).expect_err("the model is never run");
    assert_eq!(failure.step, Some(Step::Validation));
    assert_eq!(failure.reason, "the forward function ran the model on 0 of the 4 rows of a batch");
    let part = "fn model_forward(model, batch) { model.run([batch.images.rows(3)])[0] }";
    let failure = validate_with_forward(part, 10).expect_err("one row is left out");
    assert_eq!(failure.reason, "the forward function ran the model on 3 of the 4 rows of a batch");
}

#[test]
fn the_times_of_every_step_are_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = validate(folder.path());
    let steps = events.iter().filter_map(|event| match event {
        Event::Steps { times, .. } => Some(times.0.len()),
        _ => None,
    });
    assert_eq!(steps.collect::<Vec<_>>(), [3, 3]);
}

/// Exports a model with another seed, the same shapes and the same file size, and returns the file's bytes.
fn another_model() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "interpreter", 10, 4);
    job.config.insert("seed".to_owned(), 1.into());
    run_job(&job).1.expect("validation runs");
    std::fs::read(folder.path().join("tiny.onnx")).expect("exported")
}

#[test]
fn a_model_that_was_replaced_between_the_phases_is_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    validate(folder.path());
    std::fs::write(folder.path().join("tiny.onnx"), another_model()).expect("writable");
    let failure = run_job(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)).1.expect_err("it is another model");
    assert_eq!(failure.step, Some(Step::Compile));
    assert!(failure.reason.contains("tiny.onnx` is not the file that"), "{failure}");
}

#[test]
fn inference_reports_the_files_that_it_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (exported, (events, result)) =
        (validate(folder.path()), run_job(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)));
    result.expect("inference runs");
    let written = exported.iter().find_map(|event| match event {
        Event::Wrote { what, sha256, .. } if what == "onnx" => Some(sha256.clone()),
        _ => None,
    });
    let opened = events.iter().find_map(|event| match event {
        Event::Model(facts) => facts.files.get("model").map(|files| files[0].sha256.clone()),
        _ => None,
    });
    assert!(written.is_some());
    assert_eq!(opened, written);
}
