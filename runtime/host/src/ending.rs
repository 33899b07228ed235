//! How a process ended, and its description in messages.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// A signal killed it.
    Killed(i32),
    /// It was killed but has not ended: it is stuck in the kernel.
    Stuck,
    /// The kernel killed it because its container had reached its memory limit.
    OutOfMemory,
    /// Another program sent this signal to its container through the container engine.
    ContainerKilled(i32),
    /// Another program removed its container.
    ContainerRemoved,
    /// The container engine stopped or restarted, so it is unknown how the process ended.
    EngineLost,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Ending::Killed(signal),
            None => Ending::Exited(status.code().unwrap_or(-1)),
        }
    }
}

impl Ending {
    /// Returns how the process ended as a predicate whose subject is the program: `exited with status 3`, `was killed by signal 15
    /// (SIGTERM)`.
    pub fn predicate(self) -> String {
        match self {
            Ending::Exited(_) => self.to_string(),
            Ending::ContainerRemoved | Ending::EngineLost => format!("ended: {self}"),
            Ending::Stuck => {
                "was killed, but is still running: it is stuck in the kernel (a device or a disk)".to_owned()
            }
            Ending::Killed(_) | Ending::ContainerKilled(_) | Ending::OutOfMemory => format!("was {self}"),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (signal, is_from_outside) = match self {
            Ending::Exited(status) => return write!(f, "exited with status {status}"),
            Ending::Killed(signal) => (*signal, false),
            Ending::ContainerKilled(signal) => (*signal, true),
            Ending::Stuck => {
                return f.write_str("killed, but still running: it is stuck in the kernel (a device or a disk)");
            }
            Ending::OutOfMemory => return f.write_str("killed by the kernel: its container reached its memory limit"),
            Ending::ContainerRemoved => return f.write_str("its container was removed by another program"),
            Ending::EngineLost => return f.write_str("its container engine stopped or restarted"),
        };
        let Ok(named) = Signal::try_from(signal) else {
            return write!(f, "killed by signal {signal}");
        };
        write!(f, "killed by signal {signal} ({})", named.as_str())?;
        match named {
            _ if is_from_outside => f.write_str(": another program sent it to the container"),
            Signal::SIGKILL => f.write_str(": perhaps out of memory"),
            Signal::SIGSEGV => f.write_str(": a fault in native code"),
            Signal::SIGABRT => f.write_str(": aborted by native code"),
            Signal::SIGILL => f.write_str(": built for another processor?"),
            Signal::SIGXFSZ => f.write_str(": a file reached its largest size (`ulimit -f`)"),
            Signal::SIGBUS => f.write_str(": a mapped file was cut short, or the disk is full"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_and_explained() {
        assert_eq!(Ending::Killed(9).to_string(), "killed by signal 9 (SIGKILL): perhaps out of memory");
        assert_eq!(Ending::Killed(15).to_string(), "killed by signal 15 (SIGTERM)");
        assert_eq!(Ending::Killed(200).to_string(), "killed by signal 200");
        assert_eq!(
            Ending::ContainerKilled(9).to_string(),
            "killed by signal 9 (SIGKILL): another program sent it to the container"
        );
        assert_eq!(Ending::Exited(3).to_string(), "exited with status 3");
        assert_eq!(Ending::Exited(3).predicate(), "exited with status 3");
        assert_eq!(Ending::Killed(15).predicate(), "was killed by signal 15 (SIGTERM)");
        assert_eq!(Ending::EngineLost.predicate(), "ended: its container engine stopped or restarted");
        assert_eq!(
            Ending::Stuck.to_string(),
            "killed, but still running: it is stuck in the kernel (a device or a disk)"
        );
    }
}
