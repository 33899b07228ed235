//! A model store with the small SmolLM2, a tokenizer whose tokens are bytes and pairs of letters, and what it must answer.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use flagperf_onnx::{Model, write_onnx};
use flagperf_script::ScriptChoice;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Answer, Server};
use crate::support::cases;
use crate::support::language_model::LanguageModel;

/// The places of the cache.
pub const LENGTH: usize = 48;

/// The template of a conversation.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The tokens that the template inserts, after 256 bytes and 676 pairs of letters.
const START: i64 = 932;
const END: i64 = 933;

/// Returns the decoder; with a temperature it returns scores.
pub fn decoder(temperature: f64) -> Model {
    let settings = json!({"size": "tiny", "task": "generation", "prompt_length": LENGTH / 2, "new_tokens": LENGTH / 2,
        "temperature": temperature, "top_k": 50, "top_p": 1.0});
    cases::case_model("smollm2_135m", &settings, &ScriptChoice::default())
}

/// Returns the tokens after each prompt that the interpreter computes alone, as many as fit into the cache.
pub fn expected(prompts: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut model = LanguageModel::new(decoder(0.0));
    prompts.iter().map(|prompt| model.generate(prompt)).collect()
}

/// Creates a store with the model `m`.
pub fn store(settings: &str, temperature: f64) -> TempDir {
    let store = tempfile::tempdir().unwrap();
    add_language_model(store.path(), "m", settings, temperature);
    store
}

/// Adds a language model to a store.
pub fn add_language_model(store: &Path, name: &str, settings: &str, temperature: f64) {
    let folder = store.join(name);
    fs::create_dir_all(folder.join("1")).unwrap();
    let mut model = decoder(temperature);
    let graph = if temperature == 0.0 { Model::SINGLE } else { "decoder" };
    write_onnx(&model.graphs.swap_remove(graph).unwrap(), &folder.join("1/model.onnx")).unwrap();
    fs::write(folder.join("model.yaml"), settings).unwrap();
    write_tokenizer(&folder);
}

/// Writes a tokenizer with its configuration into a folder.
pub fn write_tokenizer(folder: &Path) {
    let letters = || ('a'..='z').flat_map(|first| ('a'..='z').map(move |second| (first, second)));
    let mut vocabulary: serde_json::Map<String, Value> =
        (0..=255u8).map(|byte| (character(byte).to_string(), byte.into())).collect();
    vocabulary.extend(letters().enumerate().map(|(at, (one, two))| (format!("{one}{two}"), (256 + at).into())));
    let merges: Vec<String> = letters().map(|(one, two)| format!("{one} {two}")).collect();
    let special = |id: i64, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [special(START, "<|im_start|>"), special(END, "<|im_end|>")],
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let configuration = json!({"eos_token": "<|im_end|>", "chat_template": TEMPLATE});
    fs::write(folder.join("tokenizer_config.json"), configuration.to_string()).unwrap();
}

/// Returns the character that stands for a byte in the vocabulary of a byte-level BPE.
fn character(byte: u8) -> char {
    let is_own = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    match is_own(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|other| !is_own(*other)).count();
            char::from_u32(256 + u32::try_from(before).unwrap()).unwrap()
        }
    }
}

/// Returns the text of tokens.
pub fn text(tokens: &[i64]) -> String {
    let bytes = |token: &i64| match *token {
        byte @ 0..256 => vec![u8::try_from(byte).unwrap()],
        pair @ 256..START => [(pair - 256) / 26, (pair - 256) % 26].map(|at| b'a' + u8::try_from(at).unwrap()).to_vec(),
        _ => Vec::new(),
    };
    String::from_utf8_lossy(&tokens.iter().flat_map(bytes).collect::<Vec<u8>>()).into_owned()
}

/// Returns prompts of these lengths with different tokens.
pub fn prompts(lengths: &[usize]) -> Vec<Vec<i64>> {
    let token = |row: usize, at: usize| i64::try_from((row * 131 + at * 37 + 5) % 900).unwrap();
    lengths.iter().enumerate().map(|(row, length)| (0..*length).map(|at| token(row, at)).collect()).collect()
}

/// Returns a request for the tokens after a prompt, with further fields.
pub fn request(prompt: &Value, tokens_max: usize, more: &Value) -> Value {
    let mut request = json!({"model": "m", "prompt": prompt, "max_tokens": tokens_max, "ignore_eos": true,
        "return_token_ids": true, "temperature": 0});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

/// Returns the tokens of a whole answer.
pub fn tokens(answer: &Answer) -> Vec<i64> {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    token_ids(&answer.json()["choices"][0])
}

fn token_ids(choice: &Value) -> Vec<i64> {
    choice["token_ids"].as_array().into_iter().flatten().map(|token| token.as_i64().unwrap()).collect()
}

/// An answer in parts.
pub struct Stream {
    reader: BufReader<std::net::TcpStream>,
    pub status: u16,
    pub headers: String,
}

impl Stream {
    /// Sends a request, and reads the head of the answer.
    pub fn open(server: &Server, path: &str, request: &Value) -> Self {
        let mut connection = server.connect();
        let body = request.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len());
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut reader = BufReader::new(connection);
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") && reader.read_line(&mut headers).unwrap() > 0 {}
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Stream { reader, status, headers: headers.to_lowercase() }
    }

    /// Returns the next event; `None` at the end of the answer.
    pub fn next(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            // The length of a chunk, and what ends it, are lines of their own.
            if self.reader.read_line(&mut line).ok()? == 0 || line.trim_end() == "0" {
                return None;
            }
            if let Some(event) = line.strip_prefix("data: ") {
                return Some(event.trim_end().to_owned());
            }
        }
    }

    /// Returns all events up to the end, which is `[DONE]`.
    pub fn events(mut self) -> Vec<Value> {
        let events: Vec<String> = std::iter::from_fn(|| self.next()).collect();
        let (last, events) = events.split_last().expect("an event");
        assert_eq!(last, "[DONE]");
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// Returns the body of an answer that is no stream.
    pub fn whole(mut self) -> Value {
        let length = self.headers.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap()];
        self.reader.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

/// Returns the tokens and the text of the events of a stream.
pub fn joined(events: &[Value]) -> (Vec<i64>, String) {
    let choices = || events.iter().map(|event| &event["choices"][0]);
    let text =
        |choice: &Value| choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or("").to_owned();
    (choices().flat_map(token_ids).collect(), choices().map(text).collect())
}
