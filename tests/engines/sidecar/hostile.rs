//! Engines that send wrong data or hang: each failure has a reason that describes it, and none blocks the host.

use super::adaptor::{engine, quick};
use super::process::{HELLO, LENT, LOADED, shell};
use crate::support;
use crate::support::site::Site;

/// A class that returns zeros. A test replaces `pass` in `__call__`.
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

/// A run takes much less than this time limit, so that a hang fails the test.
const LIMITED: &str = "VENDOR: side\nPHASE_TIMEOUT: 60\nCASES:\n    \"tiny:interpreter\": data\n";

fn limited(site: Site) -> Site {
    site.write("configs/host.yaml", LIMITED);
    site
}

/// Returns why a class with this line fails; `None` without a Python.
#[track_caller]
fn class(line: &str, more: &str) -> Option<String> {
    support::python()?;
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let text = CLASS.replace("        pass\n", &format!("        {line}\n")) + more;
    Some(limited(Site::new(own).with_vendor_file("engines/own.py", &text)).inference_failure())
}

#[test]
fn a_child_that_keeps_the_pipes_open_does_not_hide_the_end_of_its_sidecar() {
    let reason = limited(shell(&[HELLO, LOADED, LENT, "sleep 100 &", "exit 3"])).inference_failure();
    assert!(reason.contains("the sidecar `sh engine.sh` ended while handling `run`: exited with status 3"), "{reason}");
    let reason =
        limited(shell(&[HELLO, LOADED, LENT, "printf '{\"answer\":'", "sleep 100 &", "exit 3"])).inference_failure();
    assert!(
        reason.contains("ended while handling `run`: exited with status 3; it left an incomplete line: `{\"answer\":`"),
        "{reason}"
    );
}

#[test]
fn an_incomplete_line_is_not_a_reply() {
    let reason = limited(shell(&[HELLO, LOADED, LENT, "printf '{\"answer\":\"ran\"'"])).inference_failure();
    let expected =
        "ended while handling `run`: exited with status 0; it left an incomplete line: `{\"answer\":\"ran\"`";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn a_malformed_reply_to_hello_names_what_is_malformed() {
    let listed = |options: &str| HELLO.replace("\"kinds\"", &format!("\"options\":{options},\"kinds\""));
    let named = |name: &str| listed(&format!("[{{\"name\":\"{name}\",\"kind\":\"any\",\"about\":\"x\"}}]"));
    let reserved =
        |name: &str| format!("`options`: option `{name}` has a name that is reserved for a value of the host");
    for (hello, expected) in [
        (named("batch_size"), reserved("batch_size")),
        (named("data_dir"), reserved("data_dir")),
        (named("inputs"), reserved("inputs")),
        (named("input_specs"), reserved("input_specs")),
        (listed("{}"), "`options` is not a list".to_owned()),
        (listed("[{\"name\":\"a\",\"kind\":\"any\"}]"), "`options`: option `a`: missing field `about`".to_owned()),
        (
            listed("[{\"name\":\"a\",\"kind\":\"integer\",\"min\":3,\"max\":1,\"about\":\"x\"}]"),
            "`options`: option `a` has the `min` 3, which exceeds its `max` 1".to_owned(),
        ),
        (HELLO.replace("[\"compiler\"]", "[]"), "`roles` lists nothing that this program knows".to_owned()),
        (HELLO.replace("[\"f32\"]", "[\"fp8\"]"), "`precisions` lists nothing that this program knows".to_owned()),
    ] {
        let reason = limited(shell(&[&hello, "read x"])).refusal();
        assert_eq!(reason, format!("the sidecar `shell`, in its reply to `hello`: {expected}"));
    }
    let reason = limited(shell(&[&HELLO.replace("[\"compiler\"]", "7"), "read x"])).refusal();
    let expected = "the sidecar `sh engine.sh`, on request `hello`, sent a malformed reply: invalid type: integer `7`";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn an_endless_line_is_truncated_and_reported() {
    let endless = "tr '\\0' x < /dev/zero | head -c 1000000000";
    let reason = limited(shell(&[HELLO, LOADED, LENT, endless, "read x"])).inference_failure();
    assert!(reason.contains("on request `run`, wrote a line longer than 16 MiB: `xxxx"), "{reason}");
    assert!(reason.len() < 1000, "{}", reason.len());
}

#[test]
fn a_line_without_a_request_is_not_a_reply_to_the_next_request() {
    let twice = "echo '{\"answer\":\"ran\",\"outputs\":[\"4,1000,f32\"]}'; echo '{\"answer\":\"done\"}'";
    // One write for both lines, so that both have arrived when the first is read.
    let reason =
        limited(shell(&[HELLO, LOADED, LENT, &format!("x=$({twice}); echo \"$x\""), "read x"])).inference_failure();
    assert!(reason.contains("wrote a line that no request asked for: `{\"answer\":\"done\"}`"), "{reason}");
}

#[test]
fn a_reply_to_another_run_is_refused() {
    let other = "echo '{\"answer\":\"ran\",\"run\":7,\"outputs\":[\"4,1000,f32\"]}'";
    let reason = limited(shell(&[HELLO, LOADED, LENT, other, "read x"])).inference_failure();
    assert!(reason.contains("on request `run`, sent the unexpected reply `{\"answer\":\"ran\",\"run\":7,"), "{reason}");
}

#[test]
fn a_sidecar_that_closes_its_pipes_and_continues_is_not_out_of_memory() {
    let reason = limited(shell(&[HELLO, LOADED, LENT, "exec 1>&-", "trap '' TERM", "while :; do sleep 1; done"]))
        .inference_failure();
    let expected = "closed its standard output while handling `run`, did not exit, and was killed";
    assert!(reason.contains(expected), "{reason}");
    let closed = "read load; echo '{\"answer\":\"loaded\"}'; exec 0<&-; while :; do sleep 1; done";
    let reason = limited(shell(&[HELLO, closed])).inference_failure();
    // It may close its input before or after the next request is written, so the error names either pipe.
    assert!(
        reason.contains("closed its standard ")
            && reason.contains("put while handling `")
            && reason.contains("`, did not exit, and was killed"),
        "{reason}"
    );
}

#[test]
fn standard_error_without_a_line_end_is_truncated_in_the_reason() {
    let flood = "head -c 67108864 /dev/zero | tr '\\0' x >&2";
    let reason =
        limited(shell(&[HELLO, LOADED, LENT, flood, "echo >&2; echo the end >&2", "exit 3"])).inference_failure();
    assert!(reason.contains("x... (67107864 more bytes)\n  the end") && reason.len() < 10_000, "{}", reason.len());
}

#[test]
fn shared_memory_cannot_be_truncated() {
    let more = "
lend = __main__.Sidecar.handle_lend
def truncate(sidecar, request):
    reply = lend(sidecar, request)
    os.truncate(request['file'], 0)
    return reply
__main__.Sidecar.handle_lend = truncate
";
    let Some(reason) = class("pass", more) else { return };
    assert!(reason.contains("PermissionError: [Errno 1] Operation not permitted"), "{reason}");
}

#[test]
fn names_and_reasons_are_escaped_and_truncated() {
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
fn a_reason_may_contain_invalid_unicode() {
    let Some(reason) = class("raise ValueError('no \\udc80 file')", "") else { return };
    assert!(reason.contains("`engines/own.py:9`: ValueError: no ? file"), "{reason}");
}

#[test]
fn numbers_of_numpy_are_accepted_and_an_invalid_number_does_not_end_the_connection() {
    let memory = |bytes: &str| {
        let class = quick("import sys", "import numpy, sys");
        let text = format!("{class}InferModel.device_memory = lambda self: {bytes}\n");
        let record = engine(&text)?.run_successfully(&[]);
        Some(record["phases"][1]["measured"][0]["device_memory_bytes_max"].clone())
    };
    let Some(of_numpy) = memory("numpy.int64(5 << 20)") else { return };
    assert_eq!(of_numpy, 5 << 20);
    assert_eq!(memory("float('nan')"), Some(serde_json::Value::Null));
}

#[test]
fn a_class_whose_forked_child_continues_is_an_error() {
    let Some(reason) = class("os.fork()", "") else { return };
    assert!(reason.contains("no request asked for") || reason.contains("unexpected reply"), "{reason}");
}

#[test]
fn a_pipe_among_the_arguments_of_a_command_does_not_block() {
    let site = limited(Site::new("{engine: sidecar, command: [sh, engine.sh, /dev/zero, pipe]}"));
    let site = site.with_vendor_file("engine.sh", &format!("{HELLO}\nread load\nexit 3\n"));
    nix::unistd::mkfifo(&site.vendor_folder().join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let reason = site.inference_failure();
    assert!(reason.contains("ended while handling `load`: exited with status 3"), "{reason}");
}

/// Replies to every request but these, which `more` handles; it ends each with `;;`.
fn replies(more: &str) -> String {
    format!(
        r#"while read ask; do case $ask in
        {more}
        *'"ask":"run"'*) echo '{{"answer":"ran","outputs":["4,1000,f32"]}}';;
        *'"ask":"bye"'*) exit;;
        *) echo '{{"answer":"done"}}';;
    esac; done"#
    )
}

#[test]
fn a_sidecar_that_writes_to_an_input_fails_the_case() {
    let writes = replies(
        r#"*'"ask":"lend"'*) file=${ask#*'"file":"'}; file=${file%%'"'*}; exec 7<>"$file"; echo changed >&7
            echo '{"answer":"done"}';;
        *'"ask":"run"'*) echo again >&7; echo '{"answer":"ran","outputs":["4,1000,f32"]}';;"#,
    );
    let site = limited(shell(&[HELLO, LOADED, &writes]));
    // One batch and one buffer, so that the last one that was lent is the one of the first run.
    site.write("configs/tiny/parameters.yaml", "samples: 4\nweights: null\nseed: 0\n");
    let reason = site.inference_failure();
    assert!(reason.contains("the sidecar wrote to its input `images`; inputs must not change"), "{reason}");
}

/// Returns why a sidecar fails that writes to its first buffer, an input, in every run after the first one.
fn late_write(preloaded: bool) -> String {
    let writes = replies(
        r#"*'"ask":"lend"'*) [ -n "$file" ] || { file=${ask#*'"file":"'}; file=${file%%'"'*}; exec 7<>"$file"; }
            echo '{"answer":"done"}';;
        *'"ask":"run"'*) runs=x$runs; [ $runs = x ] || echo $runs 1<>/proc/self/fd/7; echo '{"answer":"ran","outputs":["4,1000,f32"]}';;"#,
    );
    let site = limited(shell(&[HELLO, LOADED, &writes]));
    let parameters = format!("samples: 4\nweights: null\nseed: 0\npreloaded: {preloaded}\n");
    site.write("configs/tiny/parameters.yaml", &parameters);
    site.inference_failure()
}

#[test]
fn a_sidecar_that_writes_to_an_input_only_in_later_runs_fails_the_case() {
    let reason = late_write(false);
    assert!(reason.contains("the sidecar wrote to its input `images`; inputs must not change"), "{reason}");
    let reason = late_write(true);
    assert!(reason.starts_with("the preloaded input `images` of the first batch changed during the run"), "{reason}");
}

#[test]
fn a_sidecar_whose_outputs_change_from_pass_to_pass_fails_the_case() {
    let line = "__main__.runs = getattr(__main__, 'runs', 0) + 1; return [__main__.runs * numpy.ones((4, 1000), 'float32')], 0";
    let Some(reason) = class(line, "") else { return };
    assert!(reason.contains(": pass 2 of 2 differs from pass 1 by "), "{reason}");
}

#[test]
fn a_sidecar_with_more_threads_than_requested_fails_the_case() {
    let loaded = LOADED.replace(r#"{"answer":"loaded"}"#, r#"{"answer":"loaded","threads":64}"#);
    let site = limited(shell(&[HELLO, &loaded, "read x"]));
    let text = std::fs::read_to_string(site.vendor_folder().join("vendor.yaml")).expect("the vendor");
    site.write(
        "vendors/side/vendor.yaml",
        &text.replace("[sh, engine.sh]}", "[sh, engine.sh], options: {threads: 1}}"),
    );
    assert_eq!(site.inference_failure(), "engine `own` computes with 64 threads, but `threads: 1` was requested");
}

#[test]
fn more_device_memory_than_any_machine_has_is_a_warning() {
    let memory = r#"*'"ask":"memory"'*) echo '{"answer":"memory","bytes":4611686018427387904}';;"#;
    let (record, _) = limited(shell(&[HELLO, LOADED, &replies(memory)])).run(&[]);
    let expected = "own: the sidecar reported 4611686018427387904 bytes of device memory, which no machine has; they are not \
                    recorded";
    assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
    assert!(record["phases"][1]["measured"][0]["device_memory_bytes_max"].is_null());
}

#[test]
fn a_sidecar_that_computes_in_fetch_fails_the_case() {
    let site =
        limited(shell(&[HELLO, LOADED, &replies(r#"*'"ask":"fetch"'*) sleep 0.05; echo '{"answer":"done"}';;"#)]));
    let (record, code) = site.run(&[]);
    assert_eq!(code, Some(1), "{record}");
    let reasons: Vec<_> =
        record["failures"].as_array().expect("failures").iter().map(|f| f["reason"].to_string()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("the engine computes outside core")), "{reasons:?}");
}

#[test]
fn an_error_reply_to_a_request_for_memory_is_a_warning() {
    let memory = r#"*'"ask":"memory"'*) echo '{"answer":"error","reason":"no driver"}';;"#;
    let (record, _) = limited(shell(&[HELLO, LOADED, &replies(memory)])).run(&[]);
    let expected = "own: the sidecar reported no device memory: no driver";
    assert!(record["warnings"].as_array().expect("warnings").contains(&expected.into()), "{}", record["warnings"]);
    assert!(record["phases"][1]["measured"][0]["device_memory_bytes_max"].is_null());
}
