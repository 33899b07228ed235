//! Passes the standard streams of a worker into its container: the worker connects to a socket in a mounted folder,
//! receives three file descriptors, and uses them as its standard streams.
//!
//! The worker is the main process of its container, and its events do not pass through the container engine: the engine
//! only reports how the container ended. A worker notices the end of its conductor by the end of its input, so a
//! container ends with its conductor, and a restart of the engine's daemon loses no events.

use std::fs::Permissions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use tempfile::TempDir;

use flagperf_config::WORKER_SOCKET_FOLDER;
use flagperf_host::WorkerStreams;

/// Name of the socket in its folder.
const SOCKET: &str = "worker.sock";
/// Longest wait of a worker for its streams. The conductor sends them as soon as the worker has connected.
const RECEIVE_WAIT: Duration = Duration::from_secs(60);

/// The socket through which a worker in a container receives its streams.
#[derive(Debug)]
pub(super) struct Handover {
    listener: UnixListener,
    folder: TempDir,
}

impl Handover {
    /// Creates the socket in a new folder, which only this user can enter.
    pub(super) fn open() -> io::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("flagperf-").permissions(Permissions::from_mode(0o700)).tempdir()?;
        let listener = UnixListener::bind(folder.path().join(SOCKET))?;
        listener.set_nonblocking(true)?;
        Ok(Handover { listener, folder })
    }

    /// Returns the folder of the socket on this machine, and the folder at which the container mounts it.
    pub(super) fn mount(&self) -> (&Path, &'static Path) {
        (self.folder.path(), Path::new(WORKER_SOCKET_FOLDER))
    }

    /// Sends the streams to the worker if it has connected. Returns whether it had.
    pub(super) fn try_send(&self, streams: &WorkerStreams) -> io::Result<bool> {
        let connection = match self.listener.accept() {
            Ok((connection, _)) => connection,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let descriptors = [&streams.stdin, &streams.stdout, &streams.stderr].map(AsRawFd::as_raw_fd);
        let control = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(connection.as_raw_fd(), &[IoSlice::new(b"x")], &control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(true)
    }
}

/// Returns the command that starts a worker in a container: `program` with the arguments for [`receive_streams`].
pub fn worker_arguments(program: &Path) -> Vec<String> {
    let socket = Path::new(WORKER_SOCKET_FOLDER).join(SOCKET);
    let path = |path: &Path| path.to_string_lossy().into_owned();
    vec![path(program), "work".to_owned(), "--socket".to_owned(), path(&socket)]
}

/// Called by a worker in a container: connects to the conductor's socket, and replaces the standard streams of this process
/// with the streams that it receives.
///
/// # Errors
/// When the conductor is gone or sends something else.
pub fn receive_streams(socket: &Path) -> io::Result<()> {
    let connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(RECEIVE_WAIT))?;
    let mut message = [0; 1];
    let mut space = nix::cmsg_space!([RawFd; 3]);
    let mut slices = [IoSliceMut::new(&mut message)];
    let received = recvmsg::<()>(connection.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let descriptors: Vec<RawFd> = received
        .cmsgs()?
        .filter_map(|control| match control {
            ControlMessageOwned::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    // SAFETY: the kernel has opened the descriptors for this process, and nothing else refers to them.
    let files: Vec<OwnedFd> = descriptors.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect();
    let [stdin, stdout, stderr] = files.as_slice() else {
        return Err(io::Error::other(format!("received {} file descriptors instead of 3", files.len())));
    };
    dup2_stdin(stdin)?;
    dup2_stdout(stdout)?;
    dup2_stderr(stderr)?;
    Ok(())
}
