//! Engines that do not compute what they return. Each is a class that runs on the adaptor and is caught by the check that
//! the test names.

use crate::support;
use crate::support::site::Site;

/// A class that computes with ONNX Runtime, 5 ms per batch. `BODY` sets `outputs`.
const CLASS: &str = "import collections, os, pickle, time
import numpy
import onnxruntime

class InferModel:
    takes_model = False

    def __init__(self, config, onnx_path, model):
        self.session = onnxruntime.InferenceSession(onnx_path, providers=['CPUExecutionProvider'])
        self.kept = {}
        self.calls = 0
        self.honest = 0
        self.folder = os.path.dirname(os.path.abspath(__file__))
        self.path = onnx_path

    def compute(self, images):
        time.sleep(0.005)
        return self.session.run(None, {'images': images})[0]

    def __call__(self, model_inputs):
        images = model_inputs[0]
        self.calls += 1
BODY
        return [outputs], 0

# Without torch, which takes seconds to import.
TENSORS = 'numpy'
";

/// Returns a site whose compiler has this body; `None` without a Python.
fn engine(body: &str) -> Option<Site> {
    support::python()?;
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let body: String = body.lines().map(|line| format!("        {line}\n")).collect();
    Some(Site::new(own).with_vendor_file("engines/own.py", &CLASS.replace("BODY\n", &body)))
}

/// Runs eight passes and returns the reasons of the failures; `None` without a Python.
#[track_caller]
fn failures(body: &str) -> Option<String> {
    failures_of(body, "samples=10")
}

/// Runs eight passes with a setting. See [`failures`].
#[track_caller]
fn failures_of(body: &str, setting: &str) -> Option<String> {
    let (record, code) = engine(body)?.run(&["--set", "repeat=8", "--set", setting]);
    let reasons: Vec<&str> =
        record["failures"].as_array()?.iter().filter_map(|failure| failure["reason"].as_str()).collect();
    assert_eq!(code, Some(i32::from(!reasons.is_empty())), "{record}");
    Some(reasons.join("\n"))
}

#[test]
fn an_engine_that_computes_passes_the_audit() {
    let Some(site) = engine("outputs = self.compute(images)") else { return };
    let record = site.run_successfully(&["--set", "repeat=8", "--audit", "full"]);
    let audit = &record["phases"][1]["audit"];
    assert_eq!(record["audit"]["verdict"], "exact", "{}", record["audit"]);
    assert_eq!(record["audit"]["notes"], serde_json::json!([]));
    for times in ["repeated_s", "fresh_s", "uniform_s", "measured_s", "after_pass"] {
        assert_eq!(audit[times].as_array().map(Vec::len), Some(50), "{audit}");
    }
    let changed = &audit["changed_model"];
    assert_eq!((&changed["steps"], &changed["unchanged_steps"]), (&3.into(), &0.into()), "{changed}");
    assert!(audit["changes"]["output"]["relative_l2"].as_f64() > Some(0.05), "{audit}");
    assert_eq!(audit["fresh"]["samples"], 4, "{audit}");
}

#[test]
fn a_framework_that_confirms_the_wrong_outputs_of_its_compiler_is_found_by_the_interpreter() {
    let Some(site) = engine("outputs = 1.06 * self.compute(images)") else { return };
    let (record, code) = site.run(&["--case", "tiny:own"]);
    assert_eq!((code, &record["phases"][1]["agreement"]["outputs"]["output"]["max_abs"]), (Some(1), &0.0.into()));
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
    let expected = "output `output` of validation, compared with flagperf's interpreter: `relative_l2` is 6.00e-2";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn a_compiler_that_returns_what_its_framework_left_is_found_by_inputs_that_only_the_interpreter_computes() {
    let body = "path = os.path.join(self.folder, 'answers')
if self.calls == 1:
    self.known = pickle.load(open(path, 'rb')) if os.path.exists(path) else None
if self.known is None:
    outputs = self.compute(images)
    self.kept.update({image.tobytes(): output for image, output in zip(images, outputs)})
    with open(path, 'wb') as file:
        pickle.dump(self.kept, file)
else:
    any_other = next(iter(self.known.values()))
    outputs = numpy.stack([self.known.get(image.tobytes(), any_other) for image in images])";
    let Some(site) = engine(body) else { return };
    let (record, code) = site.run(&["--case", "tiny:own", "--set", "repeat=8"]);
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
    let expected = "output `output` of inference, for inputs that validation did not compute, compared with flagperf's interpreter: ";
    assert_eq!(code, Some(1), "{}", record["audit"]);
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn results_kept_by_the_content_of_a_batch_are_found_by_fresh_inputs() {
    let body = "key = images.tobytes()
if key not in self.kept:
    self.kept[key] = self.compute(images)
outputs = self.kept[key]";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("inputs that the engine had not seen took "), "{found}");
}

#[test]
fn results_kept_by_the_content_of_a_sample_are_found_by_fresh_inputs() {
    let body = "missing = [row for row in range(len(images)) if images[row].tobytes() not in self.kept]
for row in missing:
    time.sleep(0.001)
    self.kept[images[row].tobytes()] = self.session.run(None, {'images': images})[0][row]
outputs = numpy.stack([self.kept[image.tobytes()] for image in images])";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("inputs that the engine had not seen took "), "{found}");
}

#[test]
fn each_distinct_sample_computed_once_is_found_by_a_uniform_batch() {
    let body = "distinct = {image.tobytes() for image in images}
time.sleep(0.002 * len(distinct))
outputs = self.session.run(None, {'images': images})[0]";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("different samples took ") && found.contains("does the engine skip samples?"), "{found}");
}

#[test]
fn an_engine_that_computes_only_while_it_is_audited_is_slower_then() {
    let body = "key = images.tobytes()
if key not in self.kept and self.calls > 30:
    self.honest = 2
self.honest -= 1
if key not in self.kept or self.honest > 0:
    self.kept[key] = self.compute(images)
outputs = self.kept[key]";
    // A pass is so long that it is not honest throughout, too.
    let Some(found) = failures_of(body, "samples=48") else { return };
    assert!(
        found.contains("does it keep results, or was the machine busy?")
            || found.contains("compute less, or before the step begins, when it is measured?"),
        "{found}"
    );
}

#[test]
fn batches_computed_before_their_step_are_found_by_batches_that_cannot_be_seen_before() {
    // A thread computes every batch that the loader writes to a buffer, several at once.
    let body = "import threading
def work(address, content, batch):
    outputs = self.compute(batch)
    self.done[content] = outputs
def watch():
    while True:
        for address, view in list(self.buffers.items()):
            content = view.tobytes()
            if self.seen.get(address) != content:
                self.seen[address] = content
                threading.Thread(target=work, args=(address, content, view.copy()), daemon=True).start()
        time.sleep(0.0002)
if self.calls == 1:
    self.buffers, self.done, self.seen = {}, {}, {}
    threading.Thread(target=watch, daemon=True).start()
self.buffers[images.ctypes.data] = images
content = images.tobytes()
while content not in self.done:
    time.sleep(0.0001)
outputs = self.done[content]";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("before the step begins") || found.contains("does it keep results"), "{found}");
}

#[test]
fn an_engine_that_ignores_its_model_is_found_by_changed_weights() {
    let body = "if self.calls == 1:
    first = self.folder + '/first'
    if not os.path.exists(first):
        open(first, 'w').write(self.path)
    self.session = onnxruntime.InferenceSession(open(first).read(), providers=['CPUExecutionProvider'])
outputs = self.compute(images)";
    let Some(site) = engine(body) else { return };
    site.run_successfully(&["--set", "repeat=8"]);
    let (record, code) = site.run(&["--set", "repeat=8", "--audit", "full"]);
    let found = record["failures"].to_string();
    assert_eq!(code, Some(1), "{found}");
    assert!(found.contains("3 of 3 steps returned the same outputs with changed weights"), "{found}");
}

#[test]
fn answers_kept_by_position_do_not_fit_the_random_order() {
    let body = "if self.calls < 60:
    outputs = self.compute(images)
    self.kept[self.calls % 3] = outputs
outputs = self.kept[self.calls % 3]";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("does the engine compute in every run?"), "{found}");
}

#[test]
fn answers_of_an_earlier_run_are_found_by_inputs_that_only_this_run_has() {
    let first = "outputs = self.compute(images)
for image, output in zip(images, outputs):
    self.kept[image.tobytes()] = output
pickle.dump(self.kept, open(self.folder + '/answers', 'wb'))";
    let stored = "answers = pickle.load(open(self.folder + '/answers', 'rb'))
distance = lambda key, image: numpy.abs(numpy.frombuffer(key, image.dtype).astype('f') - image.ravel()).sum()
near = lambda image: min(answers, key=lambda key: distance(key, image))
time.sleep(0.005)
outputs = numpy.stack([answers[near(image)] for image in images])";
    let body: String = stored.lines().map(|line| format!("        {line}\n")).collect();
    for precision in ["precision=fp32", "precision=fp16"] {
        let Some(site) = engine(first) else { return };
        site.run_successfully(&["--set", precision]);
        site.write("vendors/side/engines/own.py", &CLASS.replace("BODY\n", &body));
        let (record, code) = site.run(&["--set", "repeat=8", "--set", precision]);
        let (found, doubts) = (record["failures"].to_string(), record["audit"]["doubts"].to_string());
        let is_refuted = code == Some(1) && found.contains("of inputs that exist in no other run");
        // In fp16, the limits are wider than the distances of outputs of this small network.
        let is_doubted = precision == "precision=fp16" && doubts.contains("the audit proves nothing: stored outputs");
        assert!(is_refuted || is_doubted, "{precision}: {found} {doubts}");
    }
}

#[test]
fn outputs_of_validation_that_a_sidecar_writes_are_found() {
    let body = "path = os.path.join(os.path.dirname(self.path), 'outputs.safetensors')
with open(path, 'wb') as file:
    file.write(b'{}')
outputs = self.compute(images)";
    let Some(site) = engine(body) else { return };
    let (record, code) = site.run(&[]);
    // A file of the run was changed, so that there is no manifest.
    assert_eq!(code, Some(3), "{}", record["failures"]);
    assert_eq!(record["agreement"]["verdict"], "met", "{}", record["agreement"]);
}

#[test]
fn a_lower_precision_is_found_by_the_agreement_with_validation() {
    let body = "coarse = lambda x: (x.view('uint32') & numpy.uint32(0xffc00000)).view('float32')
outputs = self.compute(coarse(numpy.ascontiguousarray(images)))";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("inference does not agree with validation: output `output`"), "{found}");
    assert!(found.contains("of inputs that exist in no other run"), "{found}");
}

#[test]
fn rows_that_are_copies_of_the_first_one_do_not_agree_with_validation() {
    let body = "outputs = numpy.repeat(self.compute(images[:1].repeat(len(images), 0))[:1], len(images), 0)";
    let Some(found) = failures(body) else { return };
    assert!(found.contains("inference does not agree with validation"), "{found}");
    assert!(found.contains("when the samples of a batch are in another order"), "{found}");
}

#[test]
fn time_that_an_engine_claims_is_not_subtracted() {
    let Some(site) = engine("outputs = self.compute(images)\n") else { return };
    let class = CLASS
        .replace("BODY\n", "        outputs = self.compute(images)\n")
        .replace("[outputs], 0", "[outputs], 0.0049");
    site.write("vendors/side/engines/own.py", &class);
    let record = site.run_successfully(&["--set", "repeat=8"]);
    let fastest = record["phases"][1]["measured"][0]["latency"]["min_s"].as_f64();
    assert!(fastest.is_some_and(|fastest| fastest >= 0.005), "{record}");
}

#[test]
fn computation_that_is_moved_into_some_fetches_counts_as_core() {
    // In four of ten steps, the 5 ms of a batch pass when its outputs are fetched for the first time.
    let body = "import __main__
if self.calls == 1:
    fetch, late = __main__.Sidecar.handle_fetch, {}
    def handle_fetch(sidecar, request):
        if late.pop('due', False):
            time.sleep(0.005)
        return fetch(sidecar, request)
    __main__.Sidecar.handle_fetch = handle_fetch
    self.late = late
if self.calls % 10 < 4:
    self.late['due'] = True
    outputs = self.session.run(None, {'images': images})[0]
else:
    outputs = self.compute(images)";
    let Some(site) = engine(body) else { return };
    let (record, _) = site.run(&["--set", "repeat=8"]);
    let measured = &record["phases"][1]["measured"][0];
    assert!(measured["latency"]["mean_s"].as_f64() >= Some(0.005), "{measured}");
    assert!(measured["output_copy"]["deferred_s"].as_f64() > Some(0.02), "{measured}");
}

#[test]
fn inputs_that_are_computed_in_their_fetch_unless_they_are_known_are_slower_in_the_audit() {
    let body = "import sys, __main__
key, run = images.tobytes(), sys._getframe(1).f_locals['request']['run']
if self.calls == 1:
    self.late, fetch = {}, __main__.Sidecar.handle_fetch
    def handle_fetch(sidecar, request):
        due = self.late.pop(request['run'], None)
        if due is not None:
            sidecar.kept_outputs[request['run']][0] = self.compute(due)
        return fetch(sidecar, request)
    __main__.Sidecar.handle_fetch = handle_fetch
if key in self.kept or len(self.kept) < 12:
    if key not in self.kept:
        self.kept[key] = self.compute(images)
    outputs = self.kept[key]
else:
    self.late[run] = images.copy()
    outputs = numpy.zeros_like(next(iter(self.kept.values())))
time.sleep(0.0012)";
    let Some(found) = failures_of(body, "samples=48") else { return };
    assert!(found.contains("inputs that the engine had not seen took "), "{found}");
}
