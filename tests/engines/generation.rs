//! Engines that generate text: a server, asked over HTTP, and a sidecar that streams its tokens.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, EngineError, LoadOptions, Session, Value, find};
use serde_json::{Value as Json, json};

use crate::support::completions::{CompletionServer, MODELS, begin, send};
use crate::support::language_model::LanguageModel;
use crate::support::site::Site;
use crate::support::{self, cases, program};

const NEW_TOKENS: i64 = 3;

fn options(base_url: &str, extra: &Json) -> LoadOptions {
    let mut all = json!({"base_url": base_url});
    all.as_object_mut().expect("a map").extend(extra.as_object().expect("a map").clone());
    let extra = serde_json::from_value(all).expect("a map");
    let config = serde_json::from_value(json!({"new_tokens": NEW_TOKENS, "temperature": 0})).expect("a map");
    LoadOptions { extra, config, ..LoadOptions::default() }
}

fn load(server: &CompletionServer, extra: &Json) -> Result<Box<dyn Session>, EngineError> {
    let engine = find("openai").expect("the engine");
    engine.load(Artifact::Onnx(Path::new("placeholder")), &options(&server.base_url(), extra))
}

/// Two prompts of different lengths, padded in front.
fn prompts() -> [Value; 2] {
    [vec![10i64, 20, 0, 30], vec![1i64, 1, 0, 1]]
        .map(|values| Value::Host(Tensor::from_vec([2, 2], values).expect("a tensor")))
}

/// Sends the first token of the prompt plus 1, 2 and 3.
fn count_up(request: &Json, connection: &mut TcpStream) {
    begin(connection);
    let first = request["prompt"][0].as_i64().expect("a token");
    for step in 1..=NEW_TOKENS {
        thread::sleep(Duration::from_millis(5));
        send(connection, &[first + step]);
    }
    drop(connection.write_all(b"data: [DONE]\n\n"));
}

/// Runs the two prompts on a server, and returns its error.
fn error_of(answer: impl Fn(&Json, &mut TcpStream) + Send + Sync + 'static) -> String {
    let server = CompletionServer::start(MODELS, answer);
    let mut session = load(&server, &json!({"time_limit_s": 2})).unwrap_or_else(|error| panic!("{error}"));
    session.submit(&prompts()).expect_err("it is refused").to_string().replace(&server.base_url(), "URL")
}

#[test]
fn each_prompt_is_a_request_and_each_token_has_a_time() {
    let server = CompletionServer::start(MODELS, |request, connection| {
        let expected = [json!([10, 20]), json!([30])];
        assert!(expected.contains(&request["prompt"]), "{request}");
        let fields = json!({
            "model": "tiny", "max_tokens": 3, "temperature": 0, "stream": true, "ignore_eos": true, "return_token_ids": true,
            "prompt": request["prompt"], "seed": 7,
        });
        assert_eq!(*request, fields);
        count_up(request, connection);
    });
    let mut session = load(&server, &json!({"request": {"seed": 7}})).unwrap_or_else(|error| panic!("{error}"));
    let outputs = session.submit(&prompts()).expect("answers");
    let tokens = outputs[0].to_host().expect("on the host");
    assert_eq!((tokens.shape(), tokens.as_slice::<i64>().expect("i64")), (&[2, 3][..], &[11, 12, 13, 31, 32, 33][..]));
    let times = session.answer_times();
    assert_eq!(times.len(), 2);
    for answer in times {
        assert_eq!(answer.arrivals.iter().map(|(_, tokens)| *tokens).collect::<Vec<_>>(), [1, 1, 1]);
        let in_order =
            std::iter::once(answer.sent).chain(answer.arrivals.iter().map(|(at, _)| *at)).collect::<Vec<_>>();
        assert!(in_order.is_sorted() && answer.arrivals[0].0.since(answer.sent).0 >= 0.005, "{in_order:?}");
    }
    let server_facts = session.facts().server.expect("a server");
    assert_eq!((server_facts.model.as_str(), server_facts.url.as_str()), ("tiny", server.base_url().as_str()));
    assert_eq!(server_facts.reported, ["server: test/1", "owned_by: flagperf's tests"]);
}

#[test]
fn answers_of_another_length_are_refused() {
    let fewer = error_of(|_, connection| {
        begin(connection);
        send(connection, &[1, 2]);
    });
    assert_eq!(fewer, "the server `URL/completions`: the answer in row 0 has 2 of the 3 tokens that were requested");
    // Tokens after the end do not count.
    let late = error_of(|request, connection| {
        begin(connection);
        drop(connection.write_all(b"data: [DONE]\n\n"));
        count_up(request, connection);
    });
    assert!(late.ends_with("the answer in row 0 has 0 of the 3 tokens that were requested"), "{late}");
    let more = error_of(|_, connection| {
        begin(connection);
        while send(connection, &[1]) {}
    });
    assert_eq!(
        more,
        "the server `URL/completions`, row 0: an answer has more than the 3 tokens that were requested, after 3 of 3 tokens"
    );
}

#[test]
fn what_a_server_does_wrong_is_named() {
    type Answer = fn(&Json, &mut TcpStream);
    let cases: [(Answer, &str); 6] = [
        (
            |_, connection| drop(connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\n\x1bbad")),
            "replied with status 400 Bad Request: `\\u{1b}bad`",
        ),
        (
            |_, connection| {
                begin(connection);
                drop(connection.write_all(b"data: {\"choices\": [{\"text\": \" a\"}]}\n\n"));
            },
            "text without token ids (`token_ids`, or `tokens` of llama.cpp)",
        ),
        (
            |_, connection| {
                begin(connection);
                drop(connection.write_all(&vec![b'a'; 2 << 20]));
            },
            "a line of the reply is longer than 1048576 bytes",
        ),
        (
            |_, connection| drop(connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: {")),
            "row 0: ",
        ),
        (
            |_, _| thread::sleep(Duration::from_secs(5)),
            "no complete answer within 2 s (`time_limit_s`), after 0 of 3 tokens",
        ),
        (
            |_, connection| {
                begin(connection);
                while send(connection, &[]) {
                    thread::sleep(Duration::from_millis(10));
                }
            },
            "no complete answer within 2 s (`time_limit_s`), after 0 of 3 tokens",
        ),
    ];
    for (answer, part) in cases {
        let error = error_of(answer);
        assert!(error.starts_with("the server `URL/completions`, row 0: ") && error.contains(part), "{error}");
    }
}

#[test]
fn a_server_is_asked_for_its_models_before_it_is_used() {
    let two = r#"{"data": [{"id": "small"}, {"id": "large"}]}"#;
    for (models, extra, part) in [
        (two, json!({}), "`model` must name one of its models: small, large"),
        (two, json!({"model": "smal"}), "it has no model `smal` (known: small, large; nearest: small)"),
        (r#"{"data": []}"#, json!({}), "it has no model"),
        ("<html>", json!({}), "not a list of models: "),
    ] {
        let server = CompletionServer::start(models, count_up);
        let error = load(&server, &extra).err().expect("it is refused");
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.hint().contains("start the server"), "{}", error.hint());
    }
    let server = CompletionServer::start(two, count_up);
    load(&server, &json!({"model": "large"})).unwrap_or_else(|error| panic!("{error}"));
    // Nothing listens on this port.
    let gone = "http://127.0.0.1:1/v1";
    let error =
        find("openai").expect("the engine").check_with(&options(gone, &json!({}))).expect_err("nothing listens");
    assert!(error.to_string().contains("/v1/models`: ") && error.to_string().contains("refused"), "{error}");
}

#[test]
fn options_that_mean_nothing_are_refused_without_a_server() {
    let engine = find("openai").expect("the engine");
    for (extra, part) in [
        (json!({"base_url": null}), "option `base_url`: required: the address of the server"),
        (json!({"base_url": "https://127.0.0.1/v1"}), "HTTPS is not supported"),
        (json!({"base_url": "127.0.0.1:8000"}), "is not an address such as `http://127.0.0.1:8000/v1`"),
        (json!({"base_url": "http://user:secret@127.0.0.1/v1"}), "an address with a user, a password"),
        (json!({"base_url": "http://127.0.0.1:99999/v1"}), "is not an address such as"),
        (json!({"base_url": "http://127.0.0.1:0/v1"}), "is not an address such as"),
        (json!({"base_url": "http://a b"}), "`http://a b` is not an address such as"),
        (json!({"base_url": "http://a", "request": {"prompt": "x"}}), "option `request`: `prompt` is set by the host"),
        (json!({"base_url": "http://a", "time_limit_s": 0}), "option `time_limit_s`: "),
    ] {
        let mut options = options("", &json!({}));
        options.extra = serde_json::from_value(extra).expect("a map");
        let error = flagperf_engine::check_options(engine, &options).expect_err("it is refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// A case whose model computes the next token from the last one.
const COUNTING: [(&str, &str); 4] = [
    (
        "model.rhai",
        "fn create_model(config) {
    let graph = nn::graph(\"counting\");
    graph.output(\"next\", (graph.input(\"token\", \"N,1,i64\") * 7 + 3) % 1000);
    graph
}
",
    ),
    (
        "dataloader.rhai",
        "fn build_dataloader(config) {
    data::synthetic(#{
        samples: config.samples,
        seed: 5,
        inputs: #{input_ids: #{spec: \"6,i64\", min: 0, max: 1000}, attention_mask: #{spec: \"6,i64\", min: 1, max: 2}},
        truth: #{labels: \"i64\"}
    })
}
",
    ),
    (
        "forward.rhai",
        "import \"lib/generation\" as generation;

fn model_forward(model, batch, config) {
    if model.outputs()[0].name == \"tokens\" { return generation::generated_by_engine(model, batch, config); }
    let token = batch.input_ids.slice(1, 5, 6);
    let tokens = [];
    for step in 0..config.new_tokens {
        token = model.run(#{token: token}).next;
        tokens.push(token);
    }
    tensor::concat(tokens, 1)
}
",
    ),
    ("evaluator.rhai", "fn evaluator(output, truth) { metric::mean(\"tokens\", 1.0, output.shape[0]) }"),
];

/// The class of a sidecar that computes the same, 5 ms a token. `BODY` generates the answer to `prompt`.
const CLASS: &str = "import time

TENSORS = 'numpy'

class InferModel:
    takes_model, device = False, 'cpu'

    def __init__(self, config, onnx_path, model):
        self.kept, self.calls = {}, 0

    def compute(self, prompt, new_tokens, factor=7):
        token = prompt[-1]
        for step in range(new_tokens):
            time.sleep(0.005)
            token = (factor * token + 3) % 1000
            yield token

    def generate(self, prompts, new_tokens):
        self.calls += 1
        for row, prompt in enumerate(prompts):
BODY
";
const HONEST: &str = "for token in self.compute(prompt, new_tokens): yield row, token";

/// Returns a checkout with the case and a compiler of this entry.
pub fn counting_site(own: &str) -> Site {
    let site = Site::new(own);
    for (script, text) in COUNTING {
        site.write(&format!("scripts/tiny/{script}"), text);
    }
    site.write("configs/tiny/parameters.yaml", "samples: 8\nnew_tokens: 5\ntemperature: 0\n");
    site
}

/// Returns a checkout whose compiler is the class with this body; `None` without a Python.
fn class_site(body: &str) -> Option<Site> {
    support::python()?;
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let body: String = body.lines().map(|line| format!("            {line}\n")).collect();
    Some(counting_site(own).with_vendor_file("engines/own.py", &CLASS.replace("BODY\n", &body)))
}

/// Checks what a record of inference says about the times of tokens.
fn check_spans(record: &Json) {
    let spans = &record["phases"][1]["measured"][0]["spans"];
    let of = |name: &str| ["runs", "items"].map(|field| spans[name][field].as_u64().unwrap_or_default());
    // Two passes over eight prompts, with five tokens each.
    assert_eq!(of("first_token"), [16, 16], "{spans}");
    assert_eq!(of("next_token"), [64, 64], "{spans}");
    assert_eq!(of("answers"), [4, 80], "{spans}");
}

#[test]
fn a_sidecar_streams_tokens_and_the_host_measures_when_they_arrive() {
    let Some(site) = class_site(HONEST) else { return };
    let record = site.run_successfully(&[]);
    check_spans(&record);
    assert_eq!(record["phases"][1]["agreement"]["outputs"]["output"]["mismatches"], 0.0, "{record}");
    let total = record["phases"][1]["measured"][0]["spans"]["next_token"]["total_s"].as_f64().expect("a time");
    assert!(total >= 64.0 * 0.005, "{total}");
}

#[test]
fn queries_of_a_sidecar_have_the_times_of_their_tokens() {
    let Some(site) = class_site(HONEST) else { return };
    let scenario = |bounds: &str| {
        format!("scenario={{kind: server, queries_per_s: 8, {bounds}, percentile: 0.5, min_duration_s: 10}}")
    };
    let held = scenario("first_token_bound_s: 0.9, next_token_bound_s: 0.9");
    let record = site.run_successfully(&["--set", &held]);
    let figures = &record["phases"][1]["scenario"];
    let trial = &figures["trials"][0];
    assert_eq!((&trial["holds"], &trial["queries"]), (&json!(true), &trial["scheduled"]), "{trial}");
    let of = |name: &str| trial[name]["latency"]["min_s"].as_f64().expect("a time");
    // The first token follows a pause of 5 ms; that of a later one may begin before a delayed arrival.
    assert!(of("first_token") >= 0.005 && of("next_token") > 0.0, "{trial}");
    let agreement = figures["report"]["agreement"]["outputs"].as_object().expect("outputs");
    assert_eq!(agreement.keys().collect::<Vec<_>>(), ["output", "output, first token"]);
    let (record, code) = site.run(&["--set", &scenario("first_token_bound_s: 60, next_token_bound_s: 0.004")]);
    assert!(code == Some(1) && record["phases"][1]["scenario"]["trials"][0]["holds"] == json!(false), "{record}");
}

#[test]
fn bounds_of_tokens_need_an_engine_that_tells_them() {
    if support::python().is_none() {
        return;
    }
    let own = "{engine: sidecar, command: [python3, -m, flagperf_sidecar, engines/own.py], options: {threads: 1}}";
    let class = "TENSORS = 'numpy'\n\nclass InferModel:\n    takes_model, device = False, 'cpu'\n\n    def __init__(self, config, onnx_path, model):\n        pass\n\n    def __call__(self, inputs):\n        return [(inputs[0] * 7 + 3) % 1000], 0\n";
    let site = counting_site(own).with_vendor_file("engines/own.py", class);
    let scenario = "scenario={kind: server, queries_per_s: 8, first_token_bound_s: 1, min_duration_s: 10}";
    let (record, code) = site.run(&["--set", scenario]);
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
    let expected = "the engine tells no times of the tokens of an answer in one run";
    assert!(code == Some(1) && reason.contains(expected), "{}", record["failures"]);
}

#[test]
fn a_sidecar_that_does_not_answer_each_prompt_is_found() {
    for (body, part) in [
        (
            "for token in self.compute(prompt, new_tokens - 1): yield row, token",
            "the answer in row 0 has 4 of the 5 tokens",
        ),
        ("for token in self.compute(prompt, new_tokens + 1): yield row, token", "more than the 5 tokens"),
        (
            "for token in self.compute(prompt, new_tokens): yield row + 9, token",
            "row 9 is none of the batch, which has 4",
        ),
        ("for token in self.compute(prompt, new_tokens, 9): yield row, token", "output `output`: "),
        // Any first token at once, and the true ones later: 1 of 128 is within the limit of whole answers.
        (
            "for step, token in enumerate(self.compute(prompt, new_tokens)): yield row, token if step else 1",
            "first token`: ",
        ),
        // The first answers again.
        (
            "self.kept.setdefault(row, list(self.compute(prompt, new_tokens)))
for token in self.kept[row]: yield row, token",
            "output `output`: ",
        ),
        ("yield row, [1, 2]; raise ValueError('no memory')", "ValueError: no memory"),
    ] {
        let Some(site) = class_site(body) else { return };
        let (record, code) = site.run(&[]);
        let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
        assert!(code == Some(1) && reason.contains(part), "{body}: {}", record["failures"]);
    }
}

#[test]
fn answers_that_are_kept_for_known_prompts_are_found() {
    let body = "known = tuple(prompt)
if known not in self.kept: self.kept[known] = list(self.compute(prompt, new_tokens))
for token in self.kept[known]: yield row, token";
    let Some(site) = class_site(body) else { return };
    let (record, code) = site.run(&["--set", "repeat=8"]);
    let reason = record["failures"][0]["reason"].as_str().unwrap_or_default();
    assert!(code == Some(1) && reason.contains("audit"), "{}", record["failures"]);
}

/// The answer of the counting case to a prompt, whose last token is `token`, with a pause before each token.
pub fn count_on(request: &Json, connection: &mut TcpStream, factor: i64) {
    begin(connection);
    let mut token = request["prompt"].as_array().and_then(|prompt| prompt.last()?.as_i64()).expect("a token");
    for _ in 0..request["max_tokens"].as_u64().unwrap_or_default() {
        thread::sleep(Duration::from_millis(5));
        token = (factor * token + 3) % 1000;
        send(connection, &[token]);
    }
}

#[test]
fn a_server_is_measured_as_an_engine_and_is_never_official() {
    let server = CompletionServer::start(MODELS, |request, connection| count_on(request, connection, 7));
    let options = format!("options: {{base_url: \"{}\"}}", server.base_url());
    let site = counting_site(&format!("{{engine: openai, {options}}}"));
    let record = site.run_successfully(&[]);
    check_spans(&record);
    let engine = &record["phases"][1]["engine"];
    assert_eq!(engine["server"]["model"], "tiny", "{engine}");
    let reasons = record["validity"]["reasons"].to_string();
    let expected = format!("infer: the server {} computed, whose code is not in the record", server.base_url());
    assert!(reasons.contains(&expected), "{reasons}");
    drop(server);
    let output = program::flagperf(site.path(), &["run"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "the plan finds that the server is gone: {errors}");
    assert!(errors.contains("compiler `own` cannot be used on this machine: the server `"), "{errors}");
}

/// The small SmolLM2, computed by the interpreter: what a server that runs the case's own model would answer.
#[test]
fn the_greedy_tokens_of_a_language_model_agree_with_those_of_a_server() {
    let settings = json!({"size": "tiny", "task": "generation", "prompt_length": 8, "new_tokens": 4, "temperature": 0, "top_k": 50, "top_p": 1.0});
    let choice = flagperf_script::ScriptChoice::default();
    let model = Arc::new(Mutex::new(LanguageModel::new(cases::case_model("smollm2_135m", &settings, &choice))));
    let server = CompletionServer::start(MODELS, move |request, connection| {
        begin(connection);
        let prompt = request["prompt"].as_array().expect("tokens").iter().map(|token| token.as_i64().expect("a token"));
        let tokens = model.lock().expect("the model").generate(&prompt.collect::<Vec<_>>());
        for token in tokens {
            send(connection, &[token]);
        }
    });
    let checkout = support::checkout();
    let base_url = format!("openai.base_url={}", server.base_url());
    let arguments = ["--vendor", "cpu", "--case", "smollm2_135m", "--set", "compiler=openai", "--set", &base_url];
    let sizes = ["size=tiny", "prompt_length=8", "new_tokens=4", "batch_size=2", "repeat=1"];
    let sizes: Vec<&str> = sizes.iter().flat_map(|setting| ["--set", setting]).collect();
    let (record, code) = program::record(checkout.path(), &[&arguments[..], &sizes].concat());
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    let agreement = &record["phases"][1]["agreement"]["outputs"]["output"];
    assert_eq!(agreement["mismatches"], 0.0, "{agreement}");
}
