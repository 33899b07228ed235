//! The server's end of a worker: starts the process, sends it inputs, and reads its outputs, each within a time limit.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use axum::body::Bytes;
use flagperf_core::measure::{Clock, Nanos};
use flagperf_host::{DuplexProcess, THIS_PROGRAM};
use nix::fcntl::{FcntlArg, fcntl};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::timeout;

use super::frame::{
    LoadReply, LoadRequest, LoadedModel, RunReply, RunRequest, TensorHead, head_bytes, head_length, parse_head,
};

/// The hidden command of this program that is a worker.
pub const WORKER_COMMAND: &str = "serve-worker";
/// The size of a worker's pipes in bytes, if the system allows it: an image then needs few switches between processes.
const PIPE_BYTES: i32 = 1 << 20;
/// The most bytes of a part that is copied rather than written on its own.
const SMALL_BYTES: usize = 16 << 10;

/// Why a worker did not compute outputs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkerFailure {
    /// The engine failed on these inputs.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The worker is lost: it ended, took too long or wrote nonsense.
    #[error("{0}")]
    Lost(String),
}

/// A worker that has loaded its model.
#[derive(Debug)]
pub struct WorkerProcess {
    process: DuplexProcess,
    input: Sender,
    output: Receiver,
    loaded: LoadedModel,
}

/// The outputs of a run, with the times at which its parts ended.
#[derive(Debug)]
pub struct RunOutputs {
    /// The outputs in the engine's order.
    pub outputs: Vec<(TensorHead, Bytes)>,
    /// When the inputs were sent.
    pub sent: Nanos,
    /// When the first bytes of the answer had arrived.
    pub computed: Nanos,
}

impl WorkerProcess {
    /// Starts a worker that loads a model. Its standard error is appended to the file `log`.
    ///
    /// # Errors
    /// When the process cannot be started, or the model cannot be loaded within the time limit.
    pub async fn start(request: &LoadRequest, log: &Path, limit: Duration) -> Result<Self, WorkerFailure> {
        let lost = |error: &dyn std::fmt::Display| WorkerFailure::Lost(error.to_string());
        let (process, input, output) = start_process(log).await.map_err(|error| lost(&error))?;
        let input = Sender::from_owned_fd(input).map_err(|error| lost(&error))?;
        let output = Receiver::from_owned_fd(output).map_err(|error| lost(&error))?;
        let loaded = LoadedModel {
            inputs: Vec::new(),
            outputs: Vec::new(),
            files_sha256: Default::default(),
            device: String::new(),
        };
        let mut worker = WorkerProcess { process, input, output, loaded };
        let loading = async {
            worker.input.write_all(&head_bytes(request)).await?;
            read_head(&mut worker.output).await
        };
        match timeout(limit, loading).await {
            Ok(Ok(LoadReply::Loaded(loaded))) => worker.loaded = loaded,
            Ok(Ok(LoadReply::Failed { reason, hint })) if hint.is_empty() => return Err(WorkerFailure::Engine(reason)),
            Ok(Ok(LoadReply::Failed { reason, hint })) => {
                return Err(WorkerFailure::Engine(format!("{reason} ({hint})")));
            }
            Ok(Err(error)) => return Err(worker.describe_end(&error).await),
            Err(_) => {
                let reason = format!("loading took longer than {} s, and the worker was killed", limit.as_secs());
                worker.kill().await;
                return Err(WorkerFailure::Lost(reason));
            }
        }
        Ok(worker)
    }

    /// Returns what the worker loaded.
    pub fn loaded(&self) -> &LoadedModel {
        &self.loaded
    }

    /// Runs the model once. The parts of an input are its rows in order. A worker that is lost must not be used again.
    ///
    /// # Errors
    /// When the engine fails, or the worker is lost.
    pub async fn run(
        &mut self,
        inputs: &[(TensorHead, Vec<Bytes>)],
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<RunOutputs, WorkerFailure> {
        match timeout(limit, self.exchange(inputs, clock)).await {
            Ok(Ok(Ok(outputs))) => Ok(outputs),
            Ok(Ok(Err(reason))) => Err(WorkerFailure::Engine(reason)),
            Ok(Err(error)) => Err(self.describe_end(&error).await),
            Err(_) => {
                self.kill().await;
                let limit = limit.as_secs_f64();
                Err(WorkerFailure::Lost(format!("a run took longer than {limit} s, and the worker was killed")))
            }
        }
    }

    /// Waits until the worker is lost although it was not asked for anything. Returns how it ended.
    pub async fn lost(&mut self) -> WorkerFailure {
        let mut unexpected = [0];
        let error = match self.output.read(&mut unexpected).await {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => io::Error::other("it wrote what nobody asked for"),
            Err(error) => error,
        };
        self.describe_end(&error).await
    }

    async fn exchange(
        &mut self,
        inputs: &[(TensorHead, Vec<Bytes>)],
        clock: &dyn Clock,
    ) -> io::Result<Result<RunOutputs, String>> {
        let heads = inputs.iter().map(|(head, _)| head.clone()).collect();
        let mut first = head_bytes(&RunRequest { inputs: heads });
        let parts: Vec<&Bytes> = inputs.iter().flat_map(|(_, parts)| parts).collect();
        // Small parts travel with the head.
        let small = parts.iter().take_while(|part| part.len() <= SMALL_BYTES).count();
        parts[..small].iter().for_each(|part| first.extend_from_slice(part));
        self.input.write_all(&first).await?;
        for part in &parts[small..] {
            self.input.write_all(part).await?;
        }
        let sent = clock.now();
        let reply: RunReply = read_head(&mut self.output).await?;
        let computed = clock.now();
        let heads = match reply {
            RunReply::Outputs(heads) => heads,
            RunReply::Failed(reason) => return Ok(Err(reason)),
        };
        let mut outputs = Vec::with_capacity(heads.len());
        for head in heads {
            let bytes = head.bytes().ok_or_else(|| io::Error::other("an output is larger than 4 GiB"))?;
            let mut content = Vec::new();
            content.try_reserve_exact(bytes).map_err(io::Error::other)?;
            (&mut self.output).take(bytes as u64).read_to_end(&mut content).await?;
            if content.len() < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            outputs.push((head, Bytes::from(content)));
        }
        Ok(Ok(RunOutputs { outputs, sent, computed }))
    }

    /// Ends the worker and describes how it ended.
    async fn describe_end(&mut self, error: &io::Error) -> WorkerFailure {
        let ended = tokio::task::block_in_place(|| self.process.ending());
        let lines = self.process.last_stderr_lines();
        let last = lines.last().map(|line| format!(": {line}")).unwrap_or_default();
        let reason = match ended {
            Some(ending) => format!("the worker {}{last}", ending.predicate()),
            None => format!("the worker does not answer ({error}){last}"),
        };
        self.kill().await;
        WorkerFailure::Lost(reason)
    }

    /// Kills the worker.
    async fn kill(&mut self) {
        tokio::task::block_in_place(|| self.process.kill());
    }

    /// Lets the worker end by itself, or kills it.
    pub async fn stop(self) {
        let WorkerProcess { mut process, input, .. } = self;
        // The worker exits when its input ends.
        drop(input);
        tokio::task::block_in_place(|| process.ending());
    }
}

/// Starts the process of a worker. Returns its pipes.
async fn start_process(log: &Path) -> Result<(DuplexProcess, OwnedFd, OwnedFd), String> {
    let argv = [THIS_PROGRAM, WORKER_COMMAND].map(OsString::from);
    let (process, input, output) =
        tokio::task::block_in_place(|| DuplexProcess::start(&argv, log)).map_err(|error| error.to_string())?;
    let (input, output) = (OwnedFd::from(input), OwnedFd::from(output));
    for pipe in [&input, &output] {
        // A smaller pipe only needs more switches between processes.
        let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    }
    Ok((process, input, output))
}

async fn read_head<T: DeserializeOwned>(output: &mut Receiver) -> io::Result<T> {
    let mut prefix = [0; 4];
    output.read_exact(&mut prefix).await?;
    let mut head = vec![0; head_length(prefix)?];
    output.read_exact(&mut head).await?;
    parse_head(&head)
}
