//! Shares files with a companion process that cannot reach this process.
//!
//! A companion in a Landlock domain of its own may not open the files of this process under `/proc`. A small process in
//! the companion's domain, which runs this program too, receives each file over a socket and holds it while the
//! companion opens it. The protocol with the companion therefore needs only a path in a line.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv, recvmsg, sendmsg,
    setsockopt, socketpair,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::process::THIS_PROGRAM;
use super::protection::isolate_companion;

/// The hidden commands of this program that [`launch_companion`] and [`hold_files`] implement.
const LAUNCH_COMMAND: &str = "launch-companion";
const HOLD_COMMAND: &str = "hold-files";
/// Exit code of a launcher that could not start the companion, as of a shell.
const NOT_STARTED: i32 = 127;
/// Seconds in which the holder replies. It does nothing else, so only a companion that stopped it delays the reply.
const REPLY_SECONDS: i64 = 10;
/// Longest message of the holder in bytes.
const MESSAGE_BYTES_MAX: usize = 64;

/// The connection to a process that holds files for a companion.
#[derive(Debug)]
pub(super) struct FileHolder(OwnedFd);

impl FileHolder {
    /// Has the process hold a file instead of the one before, and returns a path by which the companion can open it.
    pub(super) fn hold(&self, file: &File) -> io::Result<PathBuf> {
        let descriptors = [file.as_raw_fd()];
        self.send(&[ControlMessage::ScmRights(&descriptors)])?;
        let mut message = [0; MESSAGE_BYTES_MAX];
        let length = recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty())?;
        let path = std::str::from_utf8(&message[..length]).map_err(io::Error::other)?;
        if path.is_empty() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(PathBuf::from(path)) }
    }

    /// Has the process close the file.
    pub(super) fn release(&self) -> io::Result<()> {
        self.send(&[])
    }

    fn send(&self, control: &[ControlMessage<'_>]) -> io::Result<()> {
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(b"x")], control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }
}

/// Starts a companion in a domain of its own, from which this process can neither be reached nor signalled. `command` is
/// that of the companion; its standard streams become pipes.
///
/// # Errors
/// When the program cannot be started; the error is that of the system for the program.
pub(super) fn spawn_isolated(command: &mut Command) -> io::Result<(Child, FileHolder)> {
    let (own, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    setsockopt(&own, ReceiveTimeout, &TimeVal::seconds(REPLY_SECONDS))?;
    let (mut status, their_status) = io::pipe()?;
    let mut launcher = launcher_of(command, their_status.as_raw_fd(), theirs.as_raw_fd());
    let inherited = [their_status.as_raw_fd(), theirs.as_raw_fd()];
    // SAFETY: between fork and exec only `fcntl` is called, on descriptors that are open until the call below returns.
    unsafe {
        launcher.pre_exec(move || {
            for descriptor in inherited {
                if nix::libc::fcntl(descriptor, nix::libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let mut child = launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop((their_status, theirs));
    let mut reason = String::new();
    io::Read::read_to_string(&mut status, &mut reason)?;
    match reason.parse() {
        Ok(number) => {
            let _ = child.wait();
            Err(Errno::from_raw(number).into())
        }
        // The pipe was closed without a message when the program replaced the launcher.
        Err(_) => Ok((child, FileHolder(own))),
    }
}

/// Returns the command that launches another one: with the same program, arguments, folder and environment.
fn launcher_of(command: &Command, status: RawFd, holder: RawFd) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
    let mut launcher = Command::new(THIS_PROGRAM);
    launcher.args([LAUNCH_COMMAND, &status.to_string(), &holder.to_string(), "--"]);
    launcher.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        launcher.current_dir(folder);
    }
    launcher.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    launcher
}

/// Enters a domain of its own, starts the process that holds files, and replaces this process by the companion. `status`
/// and `holder` are descriptors that this process inherited for this purpose. Returns the exit code if that fails.
pub fn launch_companion(status: i32, holder: i32, argv: &[std::ffi::OsString]) -> i32 {
    // SAFETY: the descriptors were inherited for this purpose, and nothing else in this process uses them.
    let (status, holder) = unsafe { (OwnedFd::from_raw_fd(status), OwnedFd::from_raw_fd(holder)) };
    let error = launch(&status, holder, argv);
    let number = error.raw_os_error().unwrap_or(nix::libc::EIO).to_string();
    // Without a reader, nobody waits for the reason.
    let _ = io::Write::write_all(&mut File::from(status), number.as_bytes());
    NOT_STARTED
}

fn launch(status: &OwnedFd, holder: OwnedFd, argv: &[std::ffi::OsString]) -> io::Error {
    let prepared = || -> io::Result<Command> {
        fcntl(status.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        isolate_companion().map_err(io::Error::other)?;
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut holding = Command::new(THIS_PROGRAM);
        // Its parent becomes the companion, which knows nothing about it; it ends when the socket is closed.
        holding.arg(HOLD_COMMAND).stdin(holder).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        #[expect(clippy::disallowed_methods, reason = "the module that starts processes")]
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    };
    match prepared() {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    }
}

/// Holds the files that arrive on standard input, a socket, one at a time, until it is closed.
///
/// # Errors
/// When the socket cannot be read or written.
pub fn hold_files() -> io::Result<()> {
    let socket = io::stdin().as_fd().as_raw_fd();
    let mut held: Vec<OwnedFd> = Vec::new();
    loop {
        let mut message = [0; MESSAGE_BYTES_MAX];
        let mut space = nix::cmsg_space!([RawFd; 1]);
        let mut slices = [IoSliceMut::new(&mut message)];
        let received = recvmsg::<()>(socket, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Ok(());
        }
        let descriptor = received.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmRights(descriptors) => descriptors.first().copied(),
            _ => None,
        });
        // SAFETY: the kernel has opened the descriptor for this process, and nothing else refers to it.
        let file = descriptor.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
        held.clear();
        held.extend(file);
        if let Some(file) = held.first() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            sendmsg::<()>(socket, &[IoSlice::new(path.as_bytes())], &[], MsgFlags::MSG_NOSIGNAL, None)?;
        }
    }
}
