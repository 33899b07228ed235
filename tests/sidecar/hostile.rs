//! Engines that lie or hang: each ends in a reason that says what happened, and none holds up the host.

use crate::process::{HELLO, LENT, LOADED, shell};
use crate::site::Site;
use crate::support;

/// A class that computes nothing anybody looks at, with a line of its own at the beginning of each call.
const CLASS: &str = "import os, sys
import numpy
import __main__
TENSORS = 'numpy'
class InferModel:
    takes_model, device = False, 'cpu'
    def __init__(self, config, onnx_path, model): pass
    def __call__(self, model_inputs):
        pass
        return [numpy.zeros((4, 1000), 'float32')], 0
";

/// A run is over long before; a hang is then a failed test and not a day of waiting.
const LIMITED: &str = "VENDOR: side\nPHASE_TIMEOUT: 60\nCASES:\n    \"tiny:candle\": data\n";

fn limited(site: Site) -> Site {
    site.write("configs/host.yaml", LIMITED);
    site
}

/// Why a class with this line fails; `None` without a Python.
#[track_caller]
fn class(line: &str, more: &str) -> Option<String> {
    support::python()?;
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let text = CLASS.replace("        pass\n", &format!("        {line}\n")) + more;
    Some(limited(Site::new(own).with("engines/own.py", &text)).reason())
}

#[test]
fn a_child_that_holds_the_pipes_open_does_not_hide_that_its_sidecar_is_gone() {
    let reason = limited(shell(&[HELLO, LOADED, LENT, "sleep 100 &", "exit 3"])).reason();
    assert!(reason.contains("the sidecar `sh engine.sh`, asked to `run`, ended: exited with status 3"), "{reason}");
    let reason = limited(shell(&[HELLO, LOADED, LENT, "printf '{\"answer\":'", "sleep 100 &", "exit 3"])).reason();
    assert!(
        reason.contains("asked to `run`, ended: exited with status 3; it left half a line: `{\"answer\":`"),
        "{reason}"
    );
}

#[test]
fn half_a_line_before_the_end_is_no_answer() {
    let reason = limited(shell(&[HELLO, LOADED, LENT, "printf '{\"answer\":\"ran\"'"])).reason();
    let expected = "asked to `run`, ended: exited with status 0; it left half a line: `{\"answer\":\"ran\"`";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn a_line_that_does_not_end_is_cut_and_named() {
    let endless = "tr '\\0' x < /dev/zero | head -c 1000000000";
    let reason = limited(shell(&[HELLO, LOADED, LENT, endless, "read x"])).reason();
    assert!(reason.contains("asked to `run`, wrote a line longer than 16 MiB: `xxxx"), "{reason}");
    assert!(reason.len() < 1000, "{}", reason.len());
}

#[test]
fn an_answer_that_nobody_asked_for_is_no_answer_to_the_next_question() {
    let twice = "echo '{\"answer\":\"ran\",\"outputs\":[\"4,1000,f32\"]}'; echo '{\"answer\":\"done\"}'";
    // In one write, so that both are there when the first is read.
    let reason = limited(shell(&[HELLO, LOADED, LENT, &format!("x=$({twice}); echo \"$x\""), "read x"])).reason();
    assert!(reason.contains("wrote what nobody asked for: `{\"answer\":\"done\"}`"), "{reason}");
}

#[test]
fn an_answer_to_another_run_is_refused() {
    let other = "echo '{\"answer\":\"ran\",\"run\":7,\"outputs\":[\"4,1000,f32\"]}'";
    let reason = limited(shell(&[HELLO, LOADED, LENT, other, "read x"])).reason();
    assert!(reason.contains("asked to `run`, answered `{\"answer\":\"ran\",\"run\":7,"), "{reason}");
}

#[test]
fn one_that_closes_its_pipes_and_goes_on_is_not_out_of_memory() {
    let reason =
        limited(shell(&[HELLO, LOADED, LENT, "exec 1>&-", "trap '' TERM", "while :; do sleep 1; done"])).reason();
    let expected = "asked to `run`, closed its standard output without ending, and was killed";
    assert!(reason.contains(expected), "{reason}");
    let closed = "read load; echo '{\"answer\":\"loaded\"}'; exec 0<&-; while :; do sleep 1; done";
    let reason = limited(shell(&[HELLO, closed])).reason();
    // Whether it closes its input before or after the next question is written, nobody knows.
    assert!(
        reason.contains("closed its standard ") && reason.contains("put without ending, and was killed"),
        "{reason}"
    );
}

#[test]
fn standard_error_without_an_end_of_line_is_cut_in_the_reason() {
    let flood = "head -c 67108864 /dev/zero | tr '\\0' x >&2";
    let reason = limited(shell(&[HELLO, LOADED, LENT, flood, "echo >&2; echo the end >&2", "exit 3"])).reason();
    assert!(reason.contains("(67108864 bytes)\n  the end") && reason.len() < 10_000, "{}", reason.len());
}

#[test]
fn memory_that_both_sides_map_cannot_be_cut_short() {
    let more = "
lend = __main__.Sidecar.ask_lend
def short(sidecar, ask):
    answer = lend(sidecar, ask)
    os.truncate(ask['file'], 0)
    return answer
__main__.Sidecar.ask_lend = short
";
    let Some(reason) = class("pass", more) else { return };
    assert!(reason.contains("PermissionError: [Errno 1] Operation not permitted"), "{reason}");
}

#[test]
fn names_and_reasons_have_no_control_characters_and_an_end() {
    let named = HELLO.replace("\"name\":\"shell\"", "\"name\":\"\\\\u001b[2Jchip\\\\u0007\"");
    let ran = "echo '{\"answer\":\"ran\",\"outputs\":[\"4,1000,f32\"]}'";
    let error = "printf '{\"answer\":\"error\",\"reason\":\"first\\\\u001b[31m line\\\\nsecond\\\\r'; head -c 1000000 /dev/zero | tr '\\0' x; echo '\"}'";
    let site = limited(shell(&[&named, LOADED, LENT, ran, "read x", error, "read x"]));
    let (record, code) = site.run(&[]);
    assert_eq!(code, Some(1));
    assert_eq!(record["phases"][1]["engine"]["sidecar"]["name"], "\\u{1b}[2Jchip\\u{7}");
    let reason = record["failures"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("first\\u{1b}[31m line\nsecond\\rxxx"), "{:?}", &reason[..200.min(reason.len())]);
    assert!(reason.len() < 40_000 && reason.contains(" more bytes)"), "{}", reason.len());
}

#[test]
fn text_that_is_no_unicode_is_a_reason_all_the_same() {
    let Some(reason) = class("raise ValueError('no \\udc80 file')", "") else { return };
    assert!(reason.contains("`engines/own.py:9`: ValueError: no ? file"), "{reason}");
}

#[test]
fn numbers_of_numpy_are_numbers_and_others_end_no_conversation() {
    if support::python().is_none() {
        return;
    }
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let memory = |bytes: &str| {
        let class = include_str!("classes/plain.py");
        let text = format!("{class}\nimport numpy\nInferModel.device_memory = lambda self: {bytes}\n");
        let site = Site::new(own).with("engines/own.py", &text);
        let site = site.with("engines/onnx_stub.py", include_str!("classes/onnx_stub.py"));
        site.runs(&[])["phases"][1]["measured"][0]["device_memory_bytes_max"].clone()
    };
    assert_eq!(memory("numpy.int64(5 << 20)"), 5 << 20);
    assert!(memory("float('nan')").is_null());
}

#[test]
fn a_class_that_forks_and_lets_both_go_on_is_found_out() {
    let Some(reason) = class("os.fork()", "") else { return };
    assert!(reason.contains("nobody asked for") || reason.contains("answered"), "{reason}");
}

#[test]
fn a_pipe_among_the_words_of_a_command_is_not_waited_for() {
    let site = limited(Site::new("{engine: sidecar, command: [sh, engine.sh, /dev/zero, pipe]}"));
    let site = site.with("engine.sh", &format!("{HELLO}\nread load\nexit 3\n"));
    nix::unistd::mkfifo(&site.folder().join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let reason = site.reason();
    assert!(reason.contains("ended: exited with status 3"), "{reason}");
}
