//! The table row of sidecars: starts the vendor's command, exchanges `hello` with it, and has it load a model.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use flagperf_onnx::{Graph, ValueInfo, write_onnx};
use serde_json::Value as Json;
use tempfile::TempDir;

use super::connection::Connection;
use super::protocol::{FileKind, HelloReply, LoadReply, LoadRequest, NOT_TOLD, NamedSpec, PROTOCOL, Reply, Request};
use super::session::{SidecarSession, Signature};
use crate::answers::Prompts;
use crate::options::EngineOptions;
use crate::printable::{NAME_BYTES_MAX, printable_line};
use crate::{Artifact, Engine, EngineError, LoadOptions, Session, Unavailable, model};
use flagperf_config::{is_case_key, python_path};
use flagperf_core::description::{
    ConfigRead, Delivery, DescriptionMessage, EngineDescription, EngineOption, OptionKind, OptionMessage,
};
use flagperf_core::event::SidecarFacts;
use flagperf_core::hash::hash_file;
use flagperf_core::step::EngineRole;
use flagperf_core::tensor::DType;
use flagperf_core::units::Seconds;
use flagperf_host::{CompanionCommand, program_file};

/// The options that declare the specs of inputs and outputs by name, for files that are not ONNX.
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";
/// The options that the host reads for every sidecar.
const HOST_OPTIONS: &[EngineOption] = &[
    EngineOption {
        name: INPUTS,
        kind: OptionKind::Map,
        default: "those of the model",
        about: "inputs by name, with shape and type",
    },
    EngineOption {
        name: OUTPUTS,
        kind: OptionKind::Map,
        default: "those of the model",
        about: "outputs by name, with shape and type",
    },
];
/// The key of `config` under which the adaptor passes the specs of the inputs.
const INPUT_SPECS: &str = "input_specs";
/// Time limit of the reply to `hello`, documented in PROTOCOL.md. A sidecar may import large libraries before it replies,
/// which takes minutes from a slow disk; `load`, which may compile, is limited only by PHASE_TIMEOUT.
pub const HELLO_TIME_LIMIT: Seconds = Seconds(120.0);
/// Bytes that are kept of the reason why a list of options is rejected.
const REASON: usize = 1000;
/// Most keys of `config` whose reads are kept.
const CONFIG_READS_MAX: usize = 1000;
/// The adaptor that runs FlagPerf's `InferModel` classes: the file name by which Python finds it, and its text.
const ADAPTOR: (&str, &str) = ("flagperf_sidecar.py", include_str!("../../../sidecar/flagperf_sidecar.py"));

/// An engine that a vendor brings as a process: `command` of its entry in vendor.yaml.
///
/// The process reports its capabilities when it starts; until then the row stands for every sidecar. The process
/// receives all options of the vendor's entry.
#[derive(Debug)]
pub struct Sidecar;

impl Engine for Sidecar {
    fn description(&self) -> EngineDescription {
        EngineDescription {
            delivery: Delivery::Command,
            options: None,
            ..EngineDescription::unrestricted(
                "sidecar",
                "a process in any language that a vendor brings: `command` in vendor.yaml",
            )
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(format!("{PROTOCOL} (protocol)"))
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let engine_options = EngineOptions::check(self, options)?;
        let folder = create_scratch_folder(options)?;
        let (role, kind) = role_and_kind(artifact);
        let own_file = folder.path().join("model.onnx");
        let stated = (engine_options.value_infos(INPUTS)?, engine_options.value_infos(OUTPUTS)?);
        let graph = if let (Some(_), Some(_)) = stated { None } else { read_graph(self, artifact, options.precision)? };
        let expected = match stated {
            (Some(inputs), Some(outputs)) => Signature { inputs, outputs },
            _ => match &graph {
                Some(graph) => Signature { inputs: graph.inputs.clone(), outputs: graph.outputs.clone() },
                None => Signature::default(),
            },
        };
        let mut connection = start_sidecar(options, folder)?;
        let hello = exchange_hello(&mut connection)?;
        let description = describe_hello(&hello)?;
        let refuse = |accepts| engine_options.artifact_error(accepts, artifact);
        check_capabilities(&description, &hello.kinds, (role, kind, options.precision), refuse)?;
        for (option, value) in &options.extra {
            let checked = description.check_option(option, value);
            checked.map_err(|reason| engine_options.option_error(option, reason))?;
        }
        let path = model_path(&description, artifact, graph.as_deref(), own_file)?;
        let request = Request::Load(Box::new(LoadRequest {
            role,
            kind,
            path,
            inputs: expected.inputs.iter().map(NamedSpec::from).collect(),
            outputs: expected.outputs.iter().map(NamedSpec::from).collect(),
            precision: options.precision.into(),
            batch_size: options.batch_size,
            threads: options.threads,
            options: options.extra.clone(),
            config: options.config.clone(),
        }));
        let mut loaded = match connection.request(&request)? {
            Reply::Loaded(loaded) => loaded,
            other => return Err(connection.unexpected_reply(&request, &other)),
        };
        loaded.device = loaded.device.map(|device| printable_line(&device, NAME_BYTES_MAX));
        let prompts = loaded.streams_tokens.then(|| Prompts::of(self.name(), options)).transpose()?;
        let signature = match &prompts {
            Some(Prompts { inputs, outputs, .. }) => Signature { inputs: inputs.clone(), outputs: outputs.clone() },
            None => reported_signature(expected, &loaded)?,
        };
        let facts = sidecar_facts(hello, options);
        Ok(Box::new(SidecarSession::new(connection, signature, loaded, facts, prompts)))
    }
}

/// What a sidecar says of itself in its reply to `hello`.
pub struct SidecarReply {
    pub description: EngineDescription,
    pub version: String,
    pub config_reads: Vec<ConfigRead>,
}

/// Starts a sidecar and exchanges `hello` with it.
///
/// # Errors
/// When it cannot be started, or does not reply as the protocol requires.
pub fn describe_sidecar(options: &LoadOptions) -> Result<SidecarReply, EngineError> {
    let mut connection = start_sidecar(options, create_scratch_folder(options)?)?;
    let hello = exchange_hello(&mut connection)?;
    let description = describe_hello(&hello)?;
    let HelloReply { version, mut config_reads, .. } = hello;
    config_reads.truncate(CONFIG_READS_MAX);
    Ok(SidecarReply { description, version: version_text(version), config_reads })
}

/// Checks the reply to `hello`, converts it, and adds the options that the host itself reads.
fn describe_hello(hello: &HelloReply) -> Result<EngineDescription, EngineError> {
    let malformed = |reason: String| {
        EngineError::Failed(format!("the sidecar `{}`, in its reply to `hello`: {reason}", hello.name))
    };
    let precisions: Vec<DType> = hello.precisions.iter().filter_map(|precision| precision.0.parse().ok()).collect();
    for (field, is_empty) in
        [("roles", hello.roles.is_empty()), ("kinds", hello.kinds.is_empty()), ("precisions", precisions.is_empty())]
    {
        if is_empty {
            return Err(malformed(format!("`{field}` lists nothing that this program knows")));
        }
    }
    let options = match &hello.options {
        None | Some(Json::Null) => None,
        Some(Json::Array(list)) => {
            let listed = OptionMessage::parse_list(list.clone(), is_reserved);
            let listed =
                listed.map_err(|reason| malformed(format!("`options`: {}", printable_line(&reason, REASON))))?;
            Some(listed.into_iter().chain(HOST_OPTIONS.iter().map(OptionMessage::from)).collect())
        }
        Some(_) => return Err(malformed("`options` is not a list".to_owned())),
    };
    let message = DescriptionMessage {
        name: hello.name.clone(),
        about: "a process that the vendor brings".to_owned(),
        framework: hello.roles.contains(&EngineRole::Framework),
        compiler: hello.roles.contains(&EngineRole::Compiler),
        precisions,
        opset_max: hello.opset_max.unwrap_or(flagperf_onnx::OPSET),
        compiles: hello.kinds.contains(&FileKind::Onnx),
        loads_compiled: hello.kinds.contains(&FileKind::Compiled),
        compiled_extensions: Vec::new(),
        options,
    };
    Ok(message.into_description(Delivery::Command))
}

/// Whether an option of this name would hide a key of the case, an option that the host reads, or a key that the adaptor
/// adds to `config`.
fn is_reserved(name: &str) -> bool {
    is_case_key(name) || HOST_OPTIONS.iter().any(|option| option.name == name) || name == INPUT_SPECS
}

/// Returns the version for the record.
fn version_text(version: Option<String>) -> String {
    version.unwrap_or_else(|| NOT_TOLD.to_owned())
}

/// Creates a folder that is deleted with the session. Its path is absolute, because the sidecar starts in another
/// folder.
fn create_scratch_folder(options: &LoadOptions) -> Result<TempDir, EngineError> {
    let created = std::path::absolute(&options.scratch).and_then(|folder| {
        std::fs::create_dir_all(&folder)?;
        tempfile::tempdir_in(folder)
    });
    created.map_err(|error| EngineError::Failed(format!("`{}` cannot be written: {error}", options.scratch.display())))
}

/// Checks what a load requires against the capabilities that the sidecar reported. `refuse` makes an error from the
/// description of what the sidecar accepts.
fn check_capabilities(
    description: &EngineDescription,
    kinds: &[FileKind],
    (role, kind, precision): (EngineRole, FileKind, DType),
    refuse: impl Fn(&'static str) -> EngineError,
) -> Result<(), EngineError> {
    match role {
        _ if description.roles.includes(role) => {}
        EngineRole::Framework => return Err(refuse("files (it is not a framework)")),
        EngineRole::Compiler => return Err(refuse("graphs (it is not a compiler)")),
    }
    match (kinds.contains(&kind), kind) {
        (true, _) => {}
        (false, FileKind::Onnx) => return Err(refuse("compiled files")),
        (false, FileKind::Compiled) => return Err(refuse("ONNX files")),
    }
    if !description.precisions.contains(&precision) {
        let supported = description.precisions.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ");
        return Err(EngineError::Precision { engine: "sidecar", requested: precision, first_tensor: None, supported });
    }
    Ok(())
}

/// Returns the role and the kind of file in which the sidecar receives a model.
fn role_and_kind(artifact: Artifact<'_>) -> (EngineRole, FileKind) {
    match artifact {
        Artifact::Graph(_) => (EngineRole::Framework, FileKind::Onnx),
        Artifact::Onnx(_) => (EngineRole::Compiler, FileKind::Onnx),
        Artifact::Compiled(_) => (EngineRole::Compiler, FileKind::Compiled),
    }
}

/// Returns the absolute path of the model for the sidecar, which starts in another folder. A graph in memory, and one
/// with composite operators that the sidecar lacks, is written to `own_file`, which is deleted with the session. `graph` is
/// that of an ONNX file that the host reads.
fn model_path(
    description: &EngineDescription,
    artifact: Artifact<'_>,
    graph: Option<&Graph>,
    own_file: PathBuf,
) -> Result<PathBuf, EngineError> {
    let write = |graph: &Graph| {
        write_onnx(graph, &own_file).map_err(|error| EngineError::Failed(error.to_string()))?;
        Ok(own_file.clone())
    };
    match (artifact, graph) {
        (Artifact::Graph(graph), _) => write(&model::lower_for(description, graph)?),
        (Artifact::Onnx(path) | Artifact::Compiled(path), graph) => {
            let lowered = graph.map(|graph| model::lower_for(description, graph)).transpose()?;
            match lowered.filter(|lowered| graph.is_some_and(|graph| graph.nodes != lowered.nodes)) {
                Some(lowered) => write(&lowered),
                None => std::path::absolute(path).map_err(|error| {
                    EngineError::Failed(format!("`{}` cannot be made an absolute path: {error}", path.display()))
                }),
            }
        }
    }
}

/// Reads and checks the graph of a model; `None` for a file that only the sidecar can read.
fn read_graph<'a>(
    engine: &Sidecar,
    artifact: Artifact<'a>,
    precision: DType,
) -> Result<Option<Cow<'a, Graph>>, EngineError> {
    let graph = match artifact {
        Artifact::Graph(graph) => Cow::Borrowed(graph),
        Artifact::Onnx(path) => Cow::Owned(model::read(path)?),
        Artifact::Compiled(_) => return Ok(None),
    };
    model::check(engine, &graph, precision)?;
    Ok(Some(graph))
}

/// Starts the vendor's command in the vendor's folder, with the adaptor on Python's path.
fn start_sidecar(options: &LoadOptions, folder: TempDir) -> Result<Connection, EngineError> {
    if options.command.is_empty() {
        let remedy = "set `command` of the entry in vendor.yaml to the program and its arguments".to_owned();
        return Err(Unavailable { reason: "engine `sidecar` has no `command`".to_owned(), remedy }.into());
    }
    let (name, text) = ADAPTOR;
    std::fs::write(folder.path().join(name), text)
        .map_err(|error| EngineError::Failed(format!("`{}` cannot be written: {error}", folder.path().display())))?;
    let command = CompanionCommand {
        argv: options.command.iter().map(OsString::from).collect(),
        folder: options.folder.clone(),
        environment: vec![python_path(folder.path())],
    };
    Connection::start(&command, folder)
}

/// Exchanges `hello` with the sidecar and refuses another version of the protocol.
fn exchange_hello(connection: &mut Connection) -> Result<HelloReply, EngineError> {
    let host = format!("flagperf {}", env!("CARGO_PKG_VERSION"));
    let request = Request::Hello { protocol: PROTOCOL, host };
    let mut hello = match connection.request_within(&request, Some(HELLO_TIME_LIMIT))? {
        Reply::Hello(hello) => hello,
        other => return Err(connection.unexpected_reply(&request, &other)),
    };
    hello.name = printable_line(&hello.name, NAME_BYTES_MAX);
    hello.version = hello.version.map(|version| printable_line(&version, NAME_BYTES_MAX));
    let name = &hello.name;
    if hello.protocol != PROTOCOL {
        let theirs = hello.protocol;
        return Err(EngineError::Failed(format!(
            "the sidecar `{name}` uses protocol version {theirs}, but this program uses version {PROTOCOL}: update the older \
             of the two"
        )));
    }
    Ok(hello)
}

/// Returns the facts about the sidecar for the record.
fn sidecar_facts(hello: HelloReply, options: &LoadOptions) -> SidecarFacts {
    let hashed = |word: &String| Some((word.clone(), hash_file(&options.folder.join(word)).ok()?));
    let named = options.command.first().cloned().unwrap_or_default();
    let program = program_file(OsStr::new(&named), &options.folder).map(|path| path.display().to_string());
    let program = program.unwrap_or(named);
    SidecarFacts {
        name: hello.name,
        version: version_text(hello.version),
        command: options.command.clone(),
        files_sha256: options.command.iter().chain([&program]).filter_map(hashed).collect(),
        program: Some(program),
        ..SidecarFacts::default()
    }
}

fn printable_value(info: &NamedSpec) -> ValueInfo {
    ValueInfo { name: printable_line(&info.name, NAME_BYTES_MAX), spec: info.spec.clone() }
}

/// Returns the inputs and outputs that the sidecar reported, or else those that the host expected. Neither may be
/// empty.
fn reported_signature(expected: Signature, loaded: &LoadReply) -> Result<Signature, EngineError> {
    let choose = |reported: &Option<Vec<NamedSpec>>, expected: Vec<ValueInfo>| match reported {
        Some(reported) => reported.iter().map(printable_value).collect(),
        None => expected,
    };
    let signature = Signature {
        inputs: choose(&loaded.inputs, expected.inputs),
        outputs: choose(&loaded.outputs, expected.outputs),
    };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err(EngineError::Failed(
            "the inputs and outputs of this file are unknown: the sidecar must report them in its reply to `load`, or the \
             engine's options `inputs` and `outputs` must declare them (`{input: \"N,3,224,224,f32\"}`)"
                .to_owned(),
        ));
    }
    Ok(signature)
}
