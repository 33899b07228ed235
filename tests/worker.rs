//! The worker on the tiny case: events, figures and files of both phases.

#[path = "support/jobs.rs"]
mod jobs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flagperf::event::{Event, Failure};
use flagperf::measure::Measurement;
use flagperf::plan::Job;
use flagperf::step::{Phase, Step};
use flagperf::work::{self, Emit};

fn run(job: &Job) -> (Vec<Event>, Result<(), Failure>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let emit: Emit = Arc::new(move |event| sink.lock().expect("no reader panics").push(event));
    let result = work::run(job, &emit);
    let events = events.lock().expect("no reader panics").clone();
    (events, result)
}

fn measured(events: &[Event]) -> Measurement {
    let sent = events.iter().filter_map(|event| match event {
        Event::Measured(measurement) => Some(measurement.as_ref().clone()),
        _ => None,
    });
    sent.reduce(|earlier, later| later.after(earlier)).expect("the phase measured something")
}

fn validated(folder: &Path) -> Vec<Event> {
    let (events, result) = run(&jobs::tiny(folder, Phase::Validate, "candle", 10, 4));
    result.expect("validation runs");
    events
}

#[test]
fn validation_goes_through_its_steps_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = validated(folder.path());
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

/// Images of one colour in the folders of three classes: of red 4, of green 3, and of `blue` 3 of which 2 are red.
fn colours(folder: &Path) {
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
fn padding_is_computed_but_counts_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    colours(folder.path());
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "candle", 10, 4);
    job.scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/colours");
    let (events, result) = run(&job);
    result.expect("validation runs");
    let measurement = measured(&events);
    assert_eq!((measurement.samples, measurement.padded_samples, measurement.steps), (20, 4, 6));
    assert_eq!(measurement.passes.len(), 2);
    // Rows of padding are black with label 0, which would count as hits: 10 of 12.
    for pass in &measurement.passes {
        assert_eq!(pass.accuracy["top1"], 0.8);
    }
}

#[test]
fn the_parts_sum_to_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    for pass in &measured(&validated(folder.path())).passes {
        let parts = pass.load_wait_s + pass.core_s + pass.output_s + pass.evaluate_s + pass.host_s;
        // Sums of differences of one clock: each mark ends one part and begins the next, so nothing lies between them.
        assert!((parts.0 - pass.whole_s.0).abs() < 1e-9, "{pass:?}");
    }
}

/// Why validation with other scripts in place of the tiny case's own fails.
fn refused(replaced: &[(&str, &str)]) -> Failure {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "candle", 10, 4);
    let scripts = folder.path().join("hostile");
    std::fs::create_dir(&scripts).expect("a folder");
    for entry in std::fs::read_dir(&job.scripts).expect("the case").flatten() {
        std::fs::copy(entry.path(), scripts.join(entry.file_name())).expect("a copy");
    }
    for (file, text) in replaced {
        std::fs::write(scripts.join(file), text).expect("writable");
    }
    job.scripts = scripts;
    run(&job).1.expect_err("it is refused")
}

#[test]
fn a_linked_list_of_captured_maps_is_an_error_and_no_crash() {
    let text = "fn build_dataloader(config) {
        let list = #{};
        for i in 0..30000 { let rest = list; list = #{rest: || rest}; }
        throw `list of ${i64_max()}`
    }
    fn i64_max() { 9223372036854775807 }";
    let failure = refused(&[("dataloader.rhai", text)]);
    assert_eq!(failure.step, Some(Step::Build));
    assert!(failure.reason.contains("list of 9223372036854775807"), "{failure}");
}

#[test]
fn random_weights_have_no_accuracy_and_say_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = validated(folder.path());
    assert!(measured(&events).accuracy.is_empty());
    assert_eq!(measured(&events).accuracy_unknown.as_deref(), Some("the weights are random"));
}

#[test]
fn inference_agrees_with_validation_over_every_sample() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    let (events, result) = run(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4));
    result.expect("inference runs");
    let agreement = events.iter().find_map(|event| match event {
        Event::Agreement(agreement) => Some(agreement),
        _ => None,
    });
    let agreement = agreement.expect("outputs are compared");
    assert_eq!(agreement.samples, 10);
    assert!(agreement.outputs["output"].max_abs < 1e-5, "{agreement:?}");
    assert_eq!(measured(&events).accuracy_unknown.as_deref(), Some("the weights are random"));
}

#[test]
fn an_engine_of_zeros_does_not_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    let (events, result) = run(&jobs::tiny(folder.path(), Phase::Infer, "null", 10, 4));
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
    let failure = run(&job).1.expect_err("there is no model");
    assert_eq!(failure.step, Some(Step::Compile));
    assert!(failure.reason.contains("tiny.graphs.json"), "{failure}");
}

#[test]
fn a_truncated_model_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    let path = folder.path().join("tiny.onnx");
    let bytes = std::fs::read(&path).expect("exported");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("writable");
    let failure = run(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)).1.expect_err("the file is cut");
    assert!(failure.reason.contains("tiny.onnx"), "{failure}");
}

#[test]
fn half_precision_is_refused_by_an_engine_that_lacks_it() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    let mut job = jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4);
    job.settings.fp16 = true;
    let failure = run(&job).1.expect_err("rten computes in f32");
    assert!(failure.reason.contains("f16"), "{failure}");
}

#[test]
fn each_pass_is_sent_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "candle", 10, 4);
    job.settings.repeat = 40;
    let (events, result) = run(&job);
    result.expect("validation runs");
    let sent = |event: &Event| match event {
        Event::Measured(measurement) => Some(measurement.passes.len()),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(sent).collect::<Vec<_>>(), [1; 40]);
    assert_eq!(measured(&events).passes.len(), 40);
    assert_eq!(measured(&events).samples, 400);
}

#[test]
fn an_output_without_a_row_for_each_sample_cannot_be_cut_and_none_is_no_output() {
    let turned = "fn model_forward(model, batch) { model.run([batch.images])[0].reshape([4000]) }";
    let failure = with_forward(turned, 3).expect_err("the batch is padded");
    let expected = "output `0` is `4000,f32` for a batch of 4: rows of padding cannot be left out of it";
    assert_eq!(failure.reason, expected);
    for nothing in ["[]", "#{}"] {
        let forward = format!("fn model_forward(model, batch) {{ model.run([batch.images]); {nothing} }}");
        let failure = with_forward(&forward, 10).expect_err("there is nothing to compare");
        assert!(failure.reason.contains("it must return at least one tensor"), "{failure}");
    }
}

/// Validates the tiny case with another forward function.
fn with_forward(forward: &str, samples: u32) -> Result<(), Failure> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "candle", samples, 4);
    let scripts = folder.path().join("scripts");
    std::fs::create_dir(&scripts).expect("a folder");
    for name in ["dataloader.rhai", "evaluator.rhai", "forward.rhai", "model.rhai"] {
        std::fs::copy(job.scripts.join(name), scripts.join(name)).expect("a script of the case");
    }
    std::fs::write(scripts.join("forward.rhai"), forward).expect("a script");
    job.scripts = scripts;
    run(&job).1
}

#[test]
fn a_forward_function_that_leaves_samples_out_fails_the_step() {
    let parts = "fn model_forward(model, batch) {
        let first = model.run([batch.images.rows(2)])[0];
        model.run([batch.images])[0]
    }";
    with_forward(parts, 10).expect("every row is run, some of them twice");
    let never = r#"fn model_forward(model, batch) { tensor::zeros("4,10,f32") }"#;
    let failure = with_forward(never, 10).expect_err("the model is never run");
    assert_eq!(failure.step, Some(Step::Validation));
    assert_eq!(failure.reason, "the forward function ran the model on 0 of the 4 rows of a batch");
    let part = "fn model_forward(model, batch) { model.run([batch.images.rows(3)])[0] }";
    let failure = with_forward(part, 10).expect_err("one row is left out");
    assert_eq!(failure.reason, "the forward function ran the model on 3 of the 4 rows of a batch");
}

#[test]
fn raw_samples_have_a_row_a_step() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    let text = std::fs::read_to_string(folder.path().join("samples.validate.csv")).expect("written");
    assert_eq!(text.lines().count(), 1 + 6);
}

/// Exports another model of the same shapes, as large as the one in `folder`, and gives its bytes.
fn another_model() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut job = jobs::tiny(folder.path(), Phase::Validate, "candle", 10, 4);
    job.config.insert("seed".to_owned(), 1.into());
    run(&job).1.expect("validation runs");
    std::fs::read(folder.path().join("tiny.onnx")).expect("exported")
}

#[test]
fn a_model_that_was_replaced_between_the_phases_is_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    validated(folder.path());
    std::fs::write(folder.path().join("tiny.onnx"), another_model()).expect("writable");
    let failure = run(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)).1.expect_err("it is another model");
    assert_eq!(failure.step, Some(Step::Compile));
    assert!(failure.reason.contains("tiny.onnx` is not the file that"), "{failure}");
}

#[test]
fn inference_tells_what_it_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (exported, (events, result)) =
        (validated(folder.path()), run(&jobs::tiny(folder.path(), Phase::Infer, "rten", 10, 4)));
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
