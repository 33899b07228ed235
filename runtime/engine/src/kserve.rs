//! kserve: a model of a server that speaks KServe's protocol, version 2, over HTTP, as Triton does.
//!
//! Tensors are sent and received as bytes, by the extension `binary_tensor_data`. The server was started by somebody else, so that
//! nothing but its replies is known about it.

mod messages;

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexMap;

use super::deferred::{Answered, DeferredRuns};
use super::http_server::{HttpServer, TIME_LIMIT_OPTION, read_whole, time_limit, unavailable};
use super::options::EngineOptions;
use super::printable::{NAME_BYTES_MAX, printable_line};
use super::{
    Artifact, DeferredRun, Engine, EngineError, LoadOptions, Session, SessionFacts, Unavailable, Value, check_inputs,
};
use flagperf_core::description::{Delivery, EngineDescription, EngineOption, OptionKind, Roles};
use flagperf_core::event::ServerFacts;
use flagperf_core::tensor::Tensor;
use flagperf_onnx::ValueInfo;
use messages::{HEADER_LENGTH, ModelDescription, read_outputs, write_request};

const BASE_URL: &str = "base_url";
const MODEL: &str = "model";
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";
/// Most bytes of an answer whose size is not known, and of the JSON of another one.
const ANSWER_MAX: u64 = 1 << 30;
const JSON_MAX: u64 = 1 << 20;

const OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: BASE_URL,
        kind: OptionKind::Text,
        default: "none; required",
        about: "the address below which the server has `v2`, such as `http://127.0.0.1:8000`",
    },
    EngineOption {
        name: MODEL,
        kind: OptionKind::Text,
        default: "none; required",
        about: "the name of the model at the server, or `NAME/versions/VERSION`",
    },
    EngineOption {
        name: INPUTS,
        kind: OptionKind::Map,
        default: "{}",
        about: "names of the model's inputs in the case, each with its name at the server: `{images: INPUT_0}`",
    },
    EngineOption {
        name: OUTPUTS,
        kind: OptionKind::Map,
        default: "{}",
        about: "names of the model's outputs in the case, each with its name at the server: `{logits: OUTPUT_0}`",
    },
    TIME_LIMIT_OPTION,
];

/// The engine that asks a server.
#[derive(Debug)]
pub struct KServe;

impl Engine for KServe {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            roles: Roles { framework: false, compiler: true },
            loads_compiled: false,
            delivery: Delivery::Server,
            uses_threads: false,
            options: Some(OPTIONS),
            ..EngineDescription::unrestricted(
                "kserve",
                "a model of a server that speaks KServe's protocol, such as Triton",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    fn check_option_combinations(&self, options: &LoadOptions) -> Result<(), EngineError> {
        server(&EngineOptions::check(self, options)?).map(drop)
    }

    fn check_with(&self, options: &LoadOptions) -> Result<String, EngineError> {
        connect(&EngineOptions::check(self, options)?)?;
        Ok(self.check()?)
    }

    fn load(&self, _: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let model = Arc::new(connect(&EngineOptions::check(self, options)?)?);
        Ok(Box::new(KServeSession { model, deferred: DeferredRuns::default() }))
    }
}

/// Returns the server of these options, and the name of its model.
fn server<'o>(options: &EngineOptions<'o>) -> Result<(HttpServer, &'o str), EngineError> {
    let required = |name: &'static str, what: &str| {
        options.text(name).ok_or_else(|| options.option_error(name, format!("required: {what}")))
    };
    let base_url = required(BASE_URL, "the address of the server, such as `http://127.0.0.1:8000`")?;
    let model = required(MODEL, "the name of the model at the server")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if model.is_empty() || !model.chars().all(is_name) {
        return Err(options.option_error(MODEL, format!("`{model}` is not a name of a model")));
    }
    let server =
        HttpServer::new(base_url, time_limit(options)).map_err(|reason| options.option_error(BASE_URL, reason))?;
    Ok((server, model))
}

/// Asks a server for its model.
fn connect(options: &EngineOptions<'_>) -> Result<ServerModel, EngineError> {
    let (server, name) = server(options)?;
    let path = format!("v2/models/{name}");
    let failed = |path: &str, reason: &str| {
        let remedy = "start the server, set `base_url` to the address below which it has `v2`, and `model` to the name of its model";
        unavailable(&server.url(path), reason, remedy)
    };
    let asked = |path: &str| server.get(path).map_err(|reason| failed(path, &reason));
    let reply = asked("v2")?;
    let own = |text: &[u8]| messages::server_version(text).map(|text| printable_line(&text, NAME_BYTES_MAX));
    let reported = reply.software.map(|text| format!("server: {text}")).into_iter().chain(own(&reply.body)).collect();
    let described = ModelDescription::read(&asked(&path)?.body);
    let described = described.map_err(|reason| failed(&path, &reason))?;
    let names = |option: &str| options.map(option, |value| if value { "true" } else { "false" });
    let ports = |option: &str, ports: Vec<ValueInfo>| {
        rename(ports, &names(option)).map_err(|reason| options.option_error(option, reason))
    };
    let (input_names, output_names) = (port_names(&described.inputs), port_names(&described.outputs));
    Ok(ServerModel {
        facts: ServerFacts {
            url: server.base_url().to_owned(),
            model: printable_line(&described.name, NAME_BYTES_MAX),
            reported,
        },
        url: server.url(&format!("{path}/infer")),
        inputs: ports(INPUTS, described.inputs)?,
        outputs: ports(OUTPUTS, described.outputs)?,
        input_names,
        output_names,
        server,
    })
}

fn port_names(ports: &[ValueInfo]) -> Vec<String> {
    ports.iter().map(|port| port.name.clone()).collect()
}

/// Gives inputs or outputs of the server their names in the case.
fn rename(mut ports: Vec<ValueInfo>, names: &IndexMap<String, String>) -> Result<Vec<ValueInfo>, String> {
    let known = port_names(&ports);
    for (name, at_server) in names {
        let position = known.iter().position(|port| port == at_server).ok_or_else(|| {
            let known = printable_line(&known.join(", "), NAME_BYTES_MAX);
            format!("`{name}`: the server has no `{at_server}` (known: {known})")
        })?;
        ports[position].name.clone_from(name);
    }
    let mut own = HashSet::new();
    match ports.iter().find(|port| !own.insert(port.name.as_str())) {
        Some(twice) => {
            Err(format!("two of them would have the name `{}`", printable_line(&twice.name, NAME_BYTES_MAX)))
        }
        None => Ok(ports),
    }
}

/// A model of a server.
struct ServerModel {
    server: HttpServer,
    /// Where inputs are sent.
    url: String,
    facts: ServerFacts,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// The names at the server.
    input_names: Vec<String>,
    output_names: Vec<String>,
}

impl ServerModel {
    /// Sends a request of so many bytes of JSON and tensors, and reads the outputs.
    fn answer(&self, rows: usize, (json, body): (usize, &[u8])) -> Result<Vec<Value>, EngineError> {
        let failed = |reason: String| EngineError::Failed(format!("the server `{}`: {reason}", self.url));
        let length = json.to_string();
        let headers = [("Content-Type", "application/octet-stream"), (HEADER_LENGTH, length.as_str())];
        let response = self.server.post(&self.url, &headers, body).map_err(failed)?;
        let json = response.headers().get(HEADER_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = read_whole(response, self.answer_max(rows)).map_err(failed)?;
        let tensors = read_outputs(&body, json, &self.output_names).map_err(failed)?;
        Ok(tensors.into_iter().map(Value::Host).collect())
    }

    /// Returns the most bytes of an answer to so many rows.
    fn answer_max(&self, rows: usize) -> u64 {
        let mut bytes = self.outputs.iter().map(|info| info.spec.bytes_of_rows(rows));
        let all = bytes.try_fold(0, |all: u64, bytes| all.checked_add(bytes? as u64));
        all.map_or(ANSWER_MAX, |bytes| bytes.saturating_add(JSON_MAX))
    }
}

struct KServeSession {
    model: Arc<ServerModel>,
    deferred: DeferredRuns,
}

impl Session for KServeSession {
    fn inputs(&self) -> &[ValueInfo] {
        &self.model.inputs
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.model.outputs
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        check_inputs(&self.model.inputs, inputs)?;
        let tensors = inputs.iter().map(Value::to_host).collect::<Result<Vec<Tensor>, _>>()?;
        let (json, body) = write_request(&self.model.input_names, &tensors, &self.model.output_names);
        let rows = tensors.iter().filter_map(|tensor| tensor.shape().first().copied()).max().unwrap_or(1);
        if !self.deferred.is_set() {
            return self.model.answer(rows, (json, &body));
        }
        let model = Arc::clone(&self.model);
        let answer = move |_: &dyn flagperf_core::measure::Clock| -> Result<Answered, EngineError> {
            Ok((model.answer(rows, (json, &body))?, Vec::new()))
        };
        Ok(self.deferred.add(&self.model.outputs, answer))
    }

    fn defer_runs(&mut self, defers: bool) -> bool {
        self.deferred.set(defers);
        true
    }

    fn take_deferred(&mut self) -> Vec<DeferredRun> {
        self.deferred.take()
    }

    fn facts(&self) -> SessionFacts {
        let device = "server".to_owned();
        SessionFacts { device, server: Some(self.model.facts.clone()), ..SessionFacts::default() }
    }
}
