//! openai: a server that generates text over HTTP, by OpenAI's interface for completions, as vLLM, SGLang and llama.cpp have it.
//!
//! The host sends token ids and reads token ids as they are streamed, each prompt of a batch in a request of its own, all at the
//! same time. The server was started by somebody else, so that nothing but its replies is known about it.

mod client;
mod reply;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use serde_json::{Map, Value as Json, json};

use super::answers::{Answer, Prompts, collect};
use super::deferred::{Answered, DeferredRuns};
use super::http_server::{TIME_LIMIT_OPTION, time_limit};
use super::options::EngineOptions;
use super::printable::{NAME_BYTES_MAX, printable_line};
use super::value::row_count;
use super::{
    AnswerTimes, Artifact, DeferredRun, Engine, EngineError, LoadOptions, Session, SessionFacts, Unavailable, Value,
};
use client::{Client, Connected};
use flagperf_core::description::{Delivery, EngineDescription, EngineOption, OptionKind, Roles};
use flagperf_core::event::ServerFacts;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_onnx::ValueInfo;
use reply::Line;

const BASE_URL: &str = "base_url";
const MODEL: &str = "model";
const PATH: &str = "path";
const REQUEST: &str = "request";
const PATH_DEFAULT: &str = "completions";

/// The fields of a request that the host sets, which `request` may not change.
const OWN_FIELDS: [&str; 5] = ["model", "prompt", "max_tokens", "temperature", "stream"];

const OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: BASE_URL,
        kind: OptionKind::Text,
        default: "none; required",
        about: "the address below which the server has `completions` and `models`, such as `http://127.0.0.1:8000/v1`",
    },
    EngineOption {
        name: MODEL,
        kind: OptionKind::Text,
        default: "the only one that the server has",
        about: "the name of the model in requests",
    },
    EngineOption {
        name: PATH,
        kind: OptionKind::Text,
        default: PATH_DEFAULT,
        about: "where below `base_url` prompts are sent: `completions`, or llama.cpp's `completion`",
    },
    EngineOption {
        name: REQUEST,
        kind: OptionKind::Map,
        default: "{ignore_eos: true, return_token_ids: true}",
        about: "further fields of each request, added to the default: `{return_tokens: true, cache_prompt: false}` for llama.cpp",
    },
    TIME_LIMIT_OPTION,
];

/// The engine that asks a server.
#[derive(Debug)]
pub struct OpenAi;

impl Engine for OpenAi {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            loads_compiled: false,
            delivery: Delivery::Server,
            uses_threads: false,
            generates_text: true,
            options: Some(OPTIONS),
            ..EngineDescription::unrestricted(
                "openai",
                "a server that generates text by OpenAI's interface for completions, with token ids",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        client(&engine_options)?;
        fields(&engine_options)?;
        Prompts::of(self.name(), options).map(drop)
    }

    fn check_with(&self, options: &LoadOptions) -> Result<String, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        client(&engine_options)?.connect(engine_options.text(MODEL))?;
        Ok(self.check()?)
    }

    fn load(&self, _: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let prompts = Prompts::of(self.name(), options)?;
        let client = client(&engine_options)?;
        let Connected { model, reported } = client.connect(engine_options.text(MODEL))?;
        let mut request = fields(&engine_options)?;
        request.insert("model".to_owned(), model.clone().into());
        request.insert("max_tokens".to_owned(), prompts.new_tokens.into());
        request.insert("temperature".to_owned(), 0.into());
        request.insert("stream".to_owned(), true.into());
        let facts =
            ServerFacts { url: client.base_url().to_owned(), model: printable_line(&model, NAME_BYTES_MAX), reported };
        let server = Arc::new(CompletionServer { client, prompts, request, facts });
        Ok(Box::new(OpenAiSession { server, answer_times: Vec::new(), deferred: DeferredRuns::default() }))
    }
}

/// Returns the client for the options of a load.
fn client(options: &EngineOptions<'_>) -> Result<Client, EngineError> {
    let Some(base_url) = options.text(BASE_URL) else {
        let reason = "required: the address of the server, such as `http://127.0.0.1:8000/v1`".to_owned();
        return Err(options.option_error(BASE_URL, reason));
    };
    let path = options.text(PATH).unwrap_or(PATH_DEFAULT);
    Client::new(base_url, path, time_limit(options)).map_err(|reason| options.option_error(BASE_URL, reason))
}

/// Returns the fields of a request besides those that the host sets.
fn fields(options: &EngineOptions<'_>) -> Result<Map<String, Json>, EngineError> {
    let mut fields =
        Map::from_iter([("ignore_eos", true), ("return_token_ids", true)].map(|(k, v)| (k.into(), v.into())));
    let further = options.value(REQUEST).and_then(Json::as_object).cloned().unwrap_or_default();
    if let Some(own) = OWN_FIELDS.into_iter().find(|field| further.contains_key(*field)) {
        return Err(options.option_error(REQUEST, format!("`{own}` is set by the host")));
    }
    fields.extend(further);
    Ok(fields)
}

struct OpenAiSession {
    server: Arc<CompletionServer>,
    answer_times: Vec<AnswerTimes>,
    deferred: DeferredRuns,
}

/// The server, and what it is asked.
struct CompletionServer {
    client: Client,
    prompts: Prompts,
    /// A request without its prompt.
    request: Map<String, Json>,
    facts: ServerFacts,
}

impl CompletionServer {
    /// Sends each prompt of a batch of so many rows in a request of its own, all at the same time, and waits for the answers.
    fn answer(&self, prompts: Vec<Vec<i64>>, rows: usize, clock: &dyn Clock) -> Result<Answered, EngineError> {
        let url = self.client.url();
        let failed =
            |row: usize, reason: String| EngineError::Failed(format!("the server `{url}`, row {row}: {reason}"));
        let answers: Result<Vec<Answer>, EngineError> = match prompts.as_slice() {
            [prompt] => self.answer_one(prompt, clock).map(|answer| vec![answer]).map_err(|reason| failed(0, reason)),
            _ => thread::scope(|scope| {
                let request = |(row, prompt): (usize, Vec<i64>)| {
                    let started = thread::Builder::new().spawn_scoped(scope, move || self.answer_one(&prompt, clock));
                    started.map_err(|error| failed(row, format!("no thread for the request can be started: {error}")))
                };
                let started: Vec<_> = prompts.into_iter().enumerate().map(request).collect();
                let answers = started.into_iter().enumerate().map(|(row, started)| {
                    let answer = started?.join().unwrap_or_else(|_| Err("the request ended in a panic".to_owned()));
                    answer.map_err(|reason| failed(row, reason))
                });
                answers.collect()
            }),
        };
        let collected = collect(answers?, rows, &self.prompts);
        collected.map_err(|reason| EngineError::Failed(format!("the server `{url}`: {reason}")))
    }

    /// Sends a prompt and reads its answer.
    fn answer_one(&self, prompt: &[i64], clock: &dyn Clock) -> Result<Answer, String> {
        let mut request = self.request.clone();
        request.insert("prompt".to_owned(), json!(prompt));
        let body = serde_json::to_vec(&request).expect("a request is plain data");
        let mut answer = Answer::sent(clock.now());
        let read = self.client.stream(&body, |line| {
            let at = clock.now();
            match reply::read_line(line)? {
                Line::Tokens(tokens) => answer.add(&tokens, at, &self.prompts).map(ControlFlow::Continue),
                Line::Other => Ok(ControlFlow::Continue(())),
                Line::End => Ok(ControlFlow::Break(())),
            }
        });
        let known = |reason: String| format!("{reason}, after {} of {} tokens", answer.len(), self.prompts.new_tokens);
        read.map_err(known)?;
        Ok(answer)
    }
}

impl Session for OpenAiSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.server.prompts.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.server.prompts.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let prompts = self.server.prompts.read(inputs)?;
        let rows = row_count(inputs);
        if self.deferred.is_set() {
            let server = Arc::clone(&self.server);
            return Ok(self
                .deferred
                .add(&self.server.prompts.outputs, move |clock| server.answer(prompts, rows, clock)));
        }
        let (outputs, times) = self.server.answer(prompts, rows, &MonotonicClock::start())?;
        self.answer_times = times;
        Ok(outputs)
    }

    fn defer_runs(&mut self, defers: bool) -> bool {
        self.deferred.set(defers);
        true
    }

    fn take_deferred(&mut self) -> Vec<DeferredRun> {
        self.deferred.take()
    }

    fn answer_times(&mut self) -> Vec<AnswerTimes> {
        std::mem::take(&mut self.answer_times)
    }

    fn facts(&self) -> SessionFacts {
        let device = "server".to_owned();
        SessionFacts { device, server: Some(self.server.facts.clone()), ..SessionFacts::default() }
    }
}
