//! The row of the table: starts the vendor's command, greets it, has it load.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flagperf_onnx::{ValueInfo, write_onnx};
use tempfile::TempDir;

use super::connection::Connection;
use super::printable::printable_line;
use super::protocol::{Answer, Ask, Hello, Info, Kind, Load, Loaded, PROTOCOL, Role};
use super::session::{SidecarSession, Signature};
use crate::config::python_path;
use crate::engine::options::Asked;
use crate::engine::{Artifact, Engine, EngineError, Facts, Options, Session, Unavailable, model};
use crate::event::SidecarFacts;
use crate::hash::hash_file;
use crate::host::Beside;
use crate::tensor::DType;

/// Inputs by name, as specifications, where no ONNX file says them. Likewise outputs.
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";
/// Characters of a name that are kept.
const NAME: usize = 200;
/// The adaptor that runs FlagPerf's `InferModel` classes, under the name that Python finds it by.
const ADAPTOR: (&str, &str) = ("flagperf_sidecar.py", include_str!("../../sidecar/flagperf_sidecar.py"));

/// An engine that a vendor brings as a process: `command` of its entry in vendor.yaml.
///
/// What the process can do it says itself when it is started; until then the row stands for any of them. Options are
/// those of the vendor's entry: all of them reach the process.
#[derive(Debug)]
pub struct Sidecar;

impl Engine for Sidecar {
    fn facts(&self) -> Facts {
        Facts {
            takes_command: true,
            ..Facts::widest("sidecar", "a process of any language that a vendor brings: `command` in vendor.yaml")
        }
    }

    fn check(&self) -> Result<String, Unavailable> {
        Ok(format!("{PROTOCOL} (protocol)"))
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let asked = Asked::any(self, options)?;
        let folder = scratch(options)?;
        let (role, kind, path) = place(artifact, folder.path())?;
        let told = match (asked.specs(INPUTS)?, asked.specs(OUTPUTS)?) {
            (Some(inputs), Some(outputs)) => Signature { inputs, outputs },
            _ => signature(self, artifact, options.precision)?,
        };
        let mut connection = start(options, folder)?;
        let hello = greet(&mut connection)?;
        check_abilities(&hello, role, kind, options.precision, |takes| asked.refuse_artifact(takes, artifact))?;
        let load = Ask::Load(Box::new(Load {
            role,
            kind,
            path,
            inputs: told.inputs.iter().map(Info::from).collect(),
            outputs: told.outputs.iter().map(Info::from).collect(),
            precision: options.precision.into(),
            batch_size: options.batch_size,
            threads: options.threads,
            options: options.extra.clone(),
            config: options.config.clone(),
        }));
        let mut loaded = match connection.ask(&load)? {
            Answer::Loaded(loaded) => loaded,
            other => return Err(connection.unfit(&load, &other)),
        };
        loaded.device = loaded.device.map(|device| printable_line(&device, NAME));
        let signature = said(told, &loaded)?;
        Ok(Box::new(SidecarSession::new(connection, signature, loaded, facts(hello, options))))
    }
}

/// A folder that goes with the session. The sidecar starts in another, so its path is absolute.
fn scratch(options: &Options) -> Result<TempDir, EngineError> {
    let made = std::path::absolute(&options.scratch).and_then(|folder| {
        std::fs::create_dir_all(&folder)?;
        tempfile::tempdir_in(folder)
    });
    made.map_err(|error| EngineError::Failed(format!("`{}` cannot be written: {error}", options.scratch.display())))
}

/// Refuses what the sidecar said that it cannot do.
fn check_abilities(
    hello: &Hello,
    role: Role,
    kind: Kind,
    precision: DType,
    refuse: impl Fn(&'static str) -> EngineError,
) -> Result<(), EngineError> {
    match (hello.roles.contains(&role), role) {
        (true, _) => {}
        (false, Role::Framework) => return Err(refuse("a file: it says that it is no framework")),
        (false, Role::Compiler) => return Err(refuse("a graph: it says that it is no compiler")),
    }
    match (hello.kinds.contains(&kind), kind) {
        (true, _) => {}
        (false, Kind::Onnx) => return Err(refuse("what was compiled earlier, and no ONNX file")),
        (false, Kind::Compiled) => return Err(refuse("an ONNX file, and nothing compiled earlier")),
    }
    if !hello.precisions.contains(&precision.into()) {
        let has = hello.precisions.iter().map(|precision| precision.0.as_str()).collect::<Vec<_>>().join(", ");
        return Err(EngineError::Precision { engine: "sidecar", asked: precision, has });
    }
    Ok(())
}

/// Where the sidecar finds the model; a graph in memory is written for it.
fn place(artifact: Artifact<'_>, folder: &Path) -> Result<(Role, Kind, PathBuf), EngineError> {
    // It starts in another folder.
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| EngineError::Failed(format!("`{}`: {error}", path.display())))
    };
    match artifact {
        Artifact::Graph(graph) => {
            let path = folder.join("model.onnx");
            write_onnx(graph, &path).map_err(|error| EngineError::Failed(error.to_string()))?;
            Ok((Role::Framework, Kind::Onnx, path))
        }
        Artifact::Onnx(path) => Ok((Role::Compiler, Kind::Onnx, absolute(path)?)),
        Artifact::Compiled(path) => Ok((Role::Compiler, Kind::Compiled, absolute(path)?)),
    }
}

/// Inputs and outputs as the model says; none for a file that only the sidecar can read.
fn signature(engine: &Sidecar, artifact: Artifact<'_>, precision: DType) -> Result<Signature, EngineError> {
    let read;
    let graph = match artifact {
        Artifact::Graph(graph) => graph,
        Artifact::Onnx(path) => {
            read = model::read(path)?;
            &read
        }
        Artifact::Compiled(_) => return Ok(Signature::default()),
    };
    model::check(engine, graph, precision)?;
    Ok(Signature { inputs: graph.inputs.clone(), outputs: graph.outputs.clone() })
}

/// Starts the vendor's command in the vendor's folder, with the adaptor where Python finds it.
fn start(options: &Options, folder: TempDir) -> Result<Connection, EngineError> {
    if options.command.is_empty() {
        let remedy = "`command` of the entry in vendor.yaml names program and arguments".to_owned();
        return Err(Unavailable { reason: "the engine `sidecar` was given no `command`".to_owned(), remedy }.into());
    }
    let (name, text) = ADAPTOR;
    std::fs::write(folder.path().join(name), text)
        .map_err(|error| EngineError::Failed(format!("`{}` cannot be written: {error}", folder.path().display())))?;
    let program = Beside {
        argv: options.command.iter().map(OsString::from).collect(),
        folder: options.folder.clone(),
        environment: vec![python_path(folder.path())],
    };
    Connection::start(&program, folder)
}

/// Who it is; refuses one that speaks otherwise.
fn greet(connection: &mut Connection) -> Result<Hello, EngineError> {
    let host = format!("flagperf {}", env!("CARGO_PKG_VERSION"));
    let hello = Ask::Hello { protocol: PROTOCOL, host };
    let mut said = match connection.ask(&hello)? {
        Answer::Hello(said) => said,
        other => return Err(connection.unfit(&hello, &other)),
    };
    for text in [&mut said.name, &mut said.version] {
        *text = printable_line(text, NAME);
    }
    let name = &said.name;
    if said.protocol != PROTOCOL {
        let theirs = said.protocol;
        return Err(EngineError::Failed(format!(
            "the sidecar `{name}` speaks protocol {theirs}, this program speaks {PROTOCOL}: update the older of the two"
        )));
    }
    Ok(said)
}

/// What the record says of it.
fn facts(hello: Hello, options: &Options) -> SidecarFacts {
    let hashed = |word: &String| Some((word.clone(), hash_file(&options.folder.join(word)).ok()?));
    SidecarFacts {
        name: hello.name,
        version: hello.version,
        command: options.command.clone(),
        files_sha256: options.command.iter().filter_map(hashed).collect(),
        ..SidecarFacts::default()
    }
}

fn named(info: &Info) -> ValueInfo {
    ValueInfo { name: printable_line(&info.name, NAME), spec: info.spec.clone() }
}

/// Inputs and outputs as the sidecar says, else as the host told it; all of them must have a place.
fn said(told: Signature, loaded: &Loaded) -> Result<Signature, EngineError> {
    let of = |infos: &Option<Vec<Info>>, told: Vec<ValueInfo>| match infos {
        Some(infos) => infos.iter().map(named).collect(),
        None => told,
    };
    let signature = Signature { inputs: of(&loaded.inputs, told.inputs), outputs: of(&loaded.outputs, told.outputs) };
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err(EngineError::Failed(
            "nobody says the inputs and outputs of this file: the sidecar may, when it has loaded, or the options \
             `inputs` and `outputs` of the engine (`{input: \"N,3,224,224,f32\"}`)"
                .to_owned(),
        ));
    }
    Ok(signature)
}
