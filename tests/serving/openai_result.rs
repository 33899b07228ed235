//! The language model of a result: served as it was measured, and measured again through the server.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::language_store::{Stream, joined, request, write_tokenizer};
use crate::server::Server;
use crate::support::{self, program};

/// The small SmolLM2 with a cache of 12 places.
const SETTINGS: [&str; 5] = ["size=tiny", "prompt_length=8", "new_tokens=4", "batch_size=2", "repeat=1"];

fn run(checkout: &Path, more: &[&str]) -> serde_json::Value {
    let mut arguments = vec!["--vendor", "cpu", "--case", "smollm2_135m"];
    arguments.extend(SETTINGS.iter().chain(more).flat_map(|setting| ["--set", setting]));
    let (record, code) = program::record(checkout, &arguments);
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("ok")), "{}", record["failures"]);
    record
}

/// Returns the folder of the only result.
fn result(checkout: &Path) -> PathBuf {
    let runs = std::fs::read_dir(checkout.join("result")).unwrap().map(|run| run.unwrap().path());
    let mut cases = runs.flat_map(|run| std::fs::read_dir(run).unwrap()).map(|case| case.unwrap().path());
    cases.find(|case| case.is_dir()).unwrap()
}

#[test]
fn the_language_model_of_a_result_is_served_and_gives_the_answers_of_its_case() {
    let checkout = support::checkout();
    let measured = run(checkout.path(), &["compiler=rten"]);
    let tokenizer = tempfile::tempdir().unwrap();
    write_tokenizer(tokenizer.path());
    let (folder, file) = (result(checkout.path()), tokenizer.path().join("tokenizer.json"));
    let server =
        Server::with(checkout.path(), &["--result", folder.to_str().unwrap(), "--tokenizer", file.to_str().unwrap()]);
    let mut asked = request(&json!([1, 2, 3]), 4, &json!({"stream": true, "model": "smollm2_135m"}));
    let stream = Stream::open(&server, "/v1/completions", &asked);
    assert!(stream.headers.contains("flagperf-record: sha256:"), "{}", stream.headers);
    assert_eq!(joined(&stream.events()).0.len(), 4);
    asked["max_tokens"] = 10.into();
    let refused = Stream::open(&server, "/v1/completions", &asked);
    assert_eq!(refused.status, 400);
    let expected =
        "the model's context has 12 tokens, but the request needs more: 3 of the prompt and 10 of the answer";
    assert_eq!(refused.whole()["error"]["message"], expected);

    let base_url = format!("openai.base_url=http://{}/v1", server.address);
    let served = run(checkout.path(), &["compiler=openai", &base_url]);
    let agreement = &served["phases"][1]["agreement"]["outputs"]["output"];
    assert_eq!(agreement["mismatches"], 0.0, "{agreement}");
    let tokens = |record: &serde_json::Value| record["phases"][1]["measured"][0]["accuracy"]["equal_tokens"].clone();
    assert_eq!(tokens(&served), tokens(&measured));
}
