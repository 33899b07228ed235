//! The worker: loads a model, then runs it on the inputs that arrive on its input, and exits when the input ends.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flagperf_core::hash::hash_file;
use flagperf_core::tensor::{HostMemory, Tensor};
use flagperf_engine::{Artifact, EngineError, LentMemory, LoadOptions, Session, Value, is_own_code};
use flagperf_host::{WorkerNeeds, protect_worker};
use flagperf_onnx::data_files;
use indexmap::IndexMap;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::decoder::DecoderSession;
use super::frame::{
    LoadReply, LoadRequest, LoadedModel, NamedSpec, RunReply, RunRequest, TensorHead, read_head, write_head,
};

/// Whether a thread of this process has panicked, after which the engine's state is unknown.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Runs a worker on its pipes until the input ends.
///
/// # Errors
/// When the input is malformed, or the server does not read.
pub fn run_worker(mut input: File, output: File) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(1 << 16, output);
    let Some(request) = read_head::<LoadRequest>(&mut input)? else { return Ok(()) };
    protect(&request);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        HAS_PANICKED.store(true, Ordering::Relaxed);
        print(panic);
    }));
    exit_when_server_ends(&input)?;
    let mut runner = match load(&request) {
        Ok((session, loaded)) => {
            write_head(&mut output, &LoadReply::Loaded(loaded))?;
            Runner { memory: Vec::new(), session }
        }
        Err((reason, hint)) => return write_head(&mut output, &LoadReply::Failed { reason, hint }),
    };
    while let Some(request) = read_head::<RunRequest>(&mut input)? {
        let inputs = runner.read_inputs(&request, &mut input)?;
        match runner.run(&inputs) {
            Ok(outputs) => write_outputs(&outputs, &mut output)?,
            Err(error) => write_head(&mut output, &RunReply::Failed(error.to_string()))?,
        }
        if HAS_PANICKED.load(Ordering::Relaxed) {
            return Err(io::Error::other("the engine panicked, and its state is unknown"));
        }
    }
    runner.session.close();
    Ok(())
}

/// Restricts this process, which has one thread only.
fn protect(request: &LoadRequest) {
    let needs = match is_own_code(&request.engine) {
        true => WorkerNeeds::OwnCode { writable: vec![request.scratch.clone(), PathBuf::from("/dev")] },
        false => WorkerNeeds::ForeignCode,
    };
    protect_worker(&needs);
}

/// Exits when the server is gone, even while the engine computes.
fn exit_when_server_ends(input: &File) -> io::Result<()> {
    let watched = input.as_fd().try_clone_to_owned()?;
    std::thread::spawn(move || {
        let is_gone = |input: BorrowedFd<'_>| {
            let mut polled = [PollFd::new(input, PollFlags::empty())];
            poll(&mut polled, PollTimeout::NONE).is_ok_and(|count| count > 0)
        };
        while !is_gone(watched.as_fd()) {}
        std::process::exit(0);
    });
    Ok(())
}

type LoadFailure = (String, String);

fn load(request: &LoadRequest) -> Result<(Box<dyn Session>, LoadedModel), LoadFailure> {
    let engine = flagperf_engine::find(&request.engine).map_err(|error| (error.to_string(), String::new()))?;
    let files_sha256 = hash_files(&request.file).map_err(|reason| (reason, String::new()))?;
    let options = LoadOptions {
        folder: request.folder.clone(),
        library: request.library.clone(),
        scratch: request.scratch.clone(),
        command: request.command.clone(),
        threads: request.threads,
        batch_size: request.batch_size,
        precision: request.precision,
        extra: request.options.clone(),
        ..LoadOptions::default()
    };
    let failed = |error: EngineError| (error.with_batch_size(request.batch_size), error.hint().to_owned());
    let mut session = engine.load(Artifact::Onnx(&request.file), &options).map_err(failed)?;
    if let Some(chunk) = request.chunk {
        session = Box::new(DecoderSession::new(session, request.batch_size, chunk).map_err(failed)?);
    }
    if hash_files(&request.file).as_ref() != Ok(&files_sha256) {
        return Err((format!("`{}` changed while it was loaded", request.file.display()), String::new()));
    }
    let loaded = LoadedModel {
        inputs: session.inputs().iter().map(NamedSpec::from).collect(),
        outputs: session.outputs().iter().map(NamedSpec::from).collect(),
        files_sha256,
        device: session.facts().device,
    };
    Ok((session, loaded))
}

/// Returns the SHA-256 of an ONNX file and of its data files, by file name.
fn hash_files(file: &Path) -> Result<IndexMap<String, String>, String> {
    let data = data_files(file).map_err(|error| error.to_string())?;
    let hash = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        hash_file(path).map(|hash| (name, hash)).map_err(|error| format!("`{}`: {error}", path.display()))
    };
    std::iter::once(file).chain(data.iter().map(PathBuf::as_path)).map(hash).collect()
}

/// A session with the memory of its inputs, which is used again for inputs of the same size.
struct Runner {
    session: Box<dyn Session>,
    memory: Vec<Arc<dyn LentMemory>>,
}

impl Runner {
    fn read_inputs(&mut self, request: &RunRequest, input: &mut File) -> io::Result<Vec<Value>> {
        let mut values = Vec::with_capacity(request.inputs.len());
        for (index, head) in request.inputs.iter().enumerate() {
            let bytes = head.bytes().ok_or_else(|| io::Error::other("an input is too large"))?;
            let memory = self.memory(index, bytes, input)?;
            let tensor = Tensor::from_memory(head.shape.clone(), head.dtype, memory, 0).map_err(io::Error::other)?;
            values.push(Value::Host(tensor));
        }
        Ok(values)
    }

    /// Returns memory for an input, into which the bytes of the input were read.
    fn memory(&mut self, index: usize, bytes: usize, input: &mut File) -> io::Result<Arc<dyn HostMemory>> {
        if let Some(known) = self.memory.get_mut(index)
            && let Some(memory) = Arc::get_mut(known).filter(|memory| memory.bytes().len() == bytes)
        {
            input.read_exact(memory.bytes_mut())?;
            return Ok(self.memory[index].clone());
        }
        let mut memory = self.session.lend(index, bytes).map_err(io::Error::other)?;
        input.read_exact(&mut memory.bytes_mut()[..bytes])?;
        let memory: Arc<dyn LentMemory> = memory.into();
        match self.memory.get_mut(index) {
            Some(known) => *known = memory.clone(),
            None => self.memory.push(memory.clone()),
        }
        Ok(memory)
    }

    fn run(&mut self, inputs: &[Value]) -> Result<Vec<Tensor>, EngineError> {
        let outputs = self.session.submit(inputs)?;
        self.session.sync()?;
        outputs.iter().map(Value::to_host).collect()
    }
}

fn write_outputs(outputs: &[Tensor], output: &mut impl Write) -> io::Result<()> {
    let head = |tensor: &Tensor| TensorHead { shape: tensor.shape().to_vec(), dtype: tensor.dtype() };
    let heads: Vec<TensorHead> = outputs.iter().map(head).collect();
    if heads.iter().try_fold(0usize, |sum, head| sum.checked_add(head.bytes()?)).is_none() {
        return write_head(output, &RunReply::Failed("the outputs are larger than 4 GiB".to_owned()));
    }
    output.write_all(&super::frame::head_bytes(&RunReply::Outputs(heads)))?;
    outputs.iter().try_for_each(|tensor| output.write_all(tensor.bytes()))?;
    output.flush()
}
