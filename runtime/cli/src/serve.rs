//! `flagperf serve`: serves the models of a model store, or the model of a result, over HTTP and gRPC.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueHint};

use super::output::{counted, print_mistake, write_result};
use super::setup::{find_checkout, locate_checkout};
use super::verify::check_standing;
use super::work::claim_stdout;
use flagperf_core::exit_code;
use flagperf_serve::{
    EngineTable, ModelStore, ServeError, ServeOptions, Served, TlsFiles, read_result_model, serve as run_server,
};

/// The arguments of `flagperf serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Folder with a folder for each model, which contains model.yaml and MODEL/VERSION/model.onnx
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "result")]
    model_store: Option<PathBuf>,
    /// Folder of a case: serves its model on the compiler that was measured, with the options that were measured. Each answer
    /// names the record
    #[arg(long, value_name = "RESULT", value_hint = ValueHint::AnyPath, conflicts_with_all = ["model_store", "vendor"])]
    result: Option<PathBuf>,
    /// Before RESULT is served, verifies it as `flagperf verify` does, and serves nothing that is not authentic or consistent
    #[arg(long, requires = "result", conflicts_with = "model_store")]
    verify: bool,
    /// The tokenizer.json of the language model of the result; without it, the one that the case has read. A tokenizer_config.json
    /// beside it has the token that ends an answer and the chat template
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "result", conflicts_with = "model_store")]
    tokenizer: Option<PathBuf>,
    /// Address of HTTP, or `none`; port 0 is any free one, which the line that says that the server is ready contains
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000", value_parser = endpoint, value_hint = ValueHint::Other)]
    http: Endpoint,
    /// Address of gRPC, or `none`
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8001", value_parser = endpoint, value_hint = ValueHint::Other)]
    grpc: Endpoint,
    /// Encrypts both protocols with this certificate, and those that vouch for it, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM, which only its owner may read
    #[arg(long, value_name = "FILE", requires = "tls_certificate", value_hint = ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// Answers only clients that send one of the tokens in this file, one a line, which only its owner may read; health is
    /// open to all
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Lets clients of this machine register shared memory (/dev/shm), which the server then reads and writes
    #[arg(long)]
    shared_memory: bool,
    /// The vendor whose compilers model.yaml names: a folder in vendors/
    #[arg(long, value_name = "VENDOR", value_hint = ValueHint::Other)]
    vendor: Option<String>,
    /// The most bytes of the body of a request; all that are read at the same time may have eight times as many
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u32).range(1024..))]
    body_bytes_max: u32,
    /// The most connections of each protocol at the same time; further clients wait
    #[arg(long, value_name = "COUNT", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..1_000_000))]
    connections_max: u32,
}

/// An address at which a protocol is spoken; `None` if it is not.
#[derive(Clone, Copy, Debug)]
struct Endpoint(Option<SocketAddr>);

fn endpoint(text: &str) -> Result<Endpoint, String> {
    match text {
        "none" => Ok(Endpoint(None)),
        text => text.parse().map(|address| Endpoint(Some(address))).map_err(|error| format!("{error}, nor `none`")),
    }
}

/// Serves until SIGTERM or Ctrl-C.
pub(super) fn serve(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let served = match served(arguments) {
        Ok(served) => served,
        Err(message) => return Ok(print_mistake(&message)),
    };
    let (http, grpc) = (arguments.http.0, arguments.grpc.0);
    if http.is_none() && grpc.is_none() {
        return Ok(print_mistake("`--http none --grpc none` leaves no protocol to serve: give one an address"));
    }
    let tls = arguments.tls_certificate.clone().zip(arguments.tls_key.clone());
    let options = ServeOptions {
        http,
        grpc,
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        token_file: arguments.token_file.clone(),
        shared_memory: arguments.shared_memory,
        body_bytes_max: arguments.body_bytes_max as usize,
        connections_max: arguments.connections_max as usize,
    };
    let ready = |urls: &[String], models: usize| {
        write_result(&format!("ready  {}  {}\n", urls.join("  "), counted(models, "model version")))
    };
    match run_server(&options, served, ready) {
        Ok(()) => Ok(ExitCode::from(exit_code::OK)),
        Err(error @ ServeError::System(_)) => Err(error).context("cannot serve"),
        Err(error) => Ok(print_mistake(&error.to_string())),
    }
}

/// Returns what is served.
fn served(arguments: &ServeArguments) -> Result<Served, String> {
    if let Some(result) = &arguments.result {
        if arguments.verify {
            check_standing(result)?;
        }
        let root = locate_checkout().ok().map(|checkout| checkout.root);
        let source = read_result_model(result, root.as_deref(), arguments.tokenizer.as_deref())
            .map_err(|error| error.to_string())?;
        return Ok(Served::Result(Box::new(source)));
    }
    let folder = arguments.model_store.as_deref().unwrap_or(Path::new(""));
    if !folder.is_dir() {
        return Err(format!("the model store `{}` is not a folder", folder.display()));
    }
    let engines = match &arguments.vendor {
        None => EngineTable::default(),
        Some(vendor) => {
            let root = find_checkout().map_err(|error| format!("{error:#}"))?;
            EngineTable::of_vendor(&root, vendor).map_err(|error| error.to_string())?
        }
    };
    Ok(Served::Store(Box::new(ModelStore::new(folder.to_owned(), engines))))
}

/// Runs a worker of the server, which has started it.
pub(super) fn serve_worker() -> anyhow::Result<ExitCode> {
    // As in `work`: an uninformative name in a process list otherwise.
    let _ = nix::sys::prctl::set_name(c"flagperf");
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = claim_stdout().context("cannot reserve standard output")?;
    flagperf_serve::run_worker(input, output).context("the worker failed")?;
    Ok(ExitCode::SUCCESS)
}
