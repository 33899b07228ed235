//! Labels of containers, by which a later conductor finds and removes the containers that an ended conductor has left
//! behind. Containers are found by their labels, never by their names.

use std::fs;

use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use indexmap::IndexMap;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::engine::ANSWER_LIMIT;
use super::{ContainerEngine, ContainerError};

/// Label with the identity of the conductor that created a container.
const CONDUCTOR_LABEL: &str = "flagperf.conductor";
/// Labels with the run and the case, for users.
const RUN_LABEL: &str = "flagperf.run";
const CASE_LABEL: &str = "flagperf.case";

/// Identifies a process uniquely on this machine, also across restarts of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessIdentity {
    /// Id that the kernel draws each time it starts.
    boot: String,
    /// The PID namespace to which the process id belongs.
    namespace: String,
    pid: u32,
    /// Start time of the process, in clock ticks since the kernel started.
    started: String,
}

impl ProcessIdentity {
    /// Returns the identity of the process with this id in the PID namespace of this process; `None` if there is no such process, or
    /// this user may not see it.
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, which is in parentheses, may contain anything; the start is field 22.
        let started = stat.rsplit(')').next()?.split_whitespace().nth(19)?.to_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned();
        Some(ProcessIdentity { boot, namespace, pid, started })
    }

    fn parse(text: &str) -> Option<Self> {
        let [boot, namespace, pid, started] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
        let pid = pid.parse().ok()?;
        Some(ProcessIdentity {
            boot: boot.to_owned(),
            namespace: namespace.to_owned(),
            pid,
            started: started.to_owned(),
        })
    }

    /// Returns whether the process has certainly ended. A process in another PID namespace may still run.
    fn has_ended(&self) -> bool {
        let Some(own) = Self::of(std::process::id()) else { return false };
        self.has_ended_in(&own, Self::of(self.pid).as_ref())
    }

    /// Implements [`Self::has_ended`] as seen by the process `own`; `found` is the process that has this id now.
    fn has_ended_in(&self, own: &Self, found: Option<&Self>) -> bool {
        if self.boot != own.boot {
            return true;
        }
        // /proc may hide the processes of other users (`hidepid`), but not whether they exist.
        let is_gone = || found.map_or_else(|| !exists(self.pid), |found| found != self);
        self.namespace == own.namespace && is_gone()
    }
}

/// Returns whether there is a process with this id, also one of another user.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    pid.is_some_and(|pid| matches!(kill(Pid::from_raw(pid), None), Ok(()) | Err(Errno::EPERM)))
}

impl std::fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.boot, self.namespace, self.pid, self.started)
    }
}

/// Returns the labels of a container that this conductor creates.
pub fn container_labels(run: &str, case: &str) -> IndexMap<String, String> {
    let own = ProcessIdentity::of(std::process::id()).map(|own| own.to_string());
    let own = own.map(|own| (CONDUCTOR_LABEL.to_owned(), own));
    let people = [(RUN_LABEL, run), (CASE_LABEL, case)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.into_iter().chain(people).collect()
}

/// A container that an ended conductor has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Description of the container and of what became of it.
    pub description: String,
    /// Whether it was removed.
    pub is_removed: bool,
}

/// Removes the containers whose conductor has ended. One that cannot be removed, for example because a process of it hangs in a
/// driver, stays.
///
/// # Errors
/// When the engine does not list its containers.
pub fn remove_leftovers(engine: &ContainerEngine) -> Result<Vec<Leftover>, ContainerError> {
    let filters = Some([("label".to_owned(), vec![CONDUCTOR_LABEL.to_owned()])].into());
    let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
    let found =
        engine.request("list containers", ANSWER_LIMIT, async |docker| docker.list_containers(Some(options)).await)?;
    let mut leftovers = Vec::new();
    for container in found {
        let labels = container.labels.unwrap_or_default();
        let conductor = labels.get(CONDUCTOR_LABEL).and_then(|text| ProcessIdentity::parse(text));
        let (Some(id), Some(conductor)) = (container.id, conductor.filter(ProcessIdentity::has_ended)) else {
            continue;
        };
        let of = |label: &str| labels.get(label).map_or("unknown", String::as_str);
        let short = &id[..id.len().min(12)];
        let what = format!("leftover container {short} of case {} of {}", of(CASE_LABEL), of(RUN_LABEL));
        let removed = remove(engine, &id);
        let is_removed = removed.is_ok();
        let description = match removed {
            Ok(()) => format!("removed {what}: the main process of that run ({}) has ended", conductor.pid),
            Err(error) => format!(
                "{what} cannot be removed and may still use a device: {error}; `{} rm --force {short}` tries again, and \
                 a restart of the machine ends a process that hangs in a driver",
                engine.facts().name.to_lowercase()
            ),
        };
        leftovers.push(Leftover { description, is_removed });
    }
    Ok(leftovers)
}

/// Kills and removes a container with its anonymous volumes. A container that does not exist counts as removed.
pub(super) fn remove(engine: &ContainerEngine, id: &str) -> Result<(), ContainerError> {
    let options = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
    let removed = engine
        .request("remove a container", ANSWER_LIMIT, async |docker| docker.remove_container(id, Some(options)).await);
    match removed {
        // 409: another request is removing it.
        Err(error) if error.is_missing() || matches!(error, ContainerError::Refused { status: 409, .. }) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestEngine;

    #[test]
    fn only_a_process_of_this_numbering_that_is_gone_or_of_an_earlier_start_has_ended() {
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        assert_eq!(ProcessIdentity::parse(&own.to_string()), Some(own.clone()));
        assert!(!own.has_ended());
        assert!(ProcessIdentity { started: "1".into(), ..own.clone() }.has_ended(), "the id was used again");
        assert!(ProcessIdentity { pid: u32::MAX / 2, ..own.clone() }.has_ended());
        assert!(ProcessIdentity { boot: "other".into(), ..own.clone() }.has_ended());
        assert!(!own.has_ended_in(&own, None), "/proc hides it, but it exists");
        assert!(ProcessIdentity { pid: u32::MAX, ..own.clone() }.has_ended());
        assert!(!ProcessIdentity { namespace: "pid:[1]".into(), pid: u32::MAX / 2, ..own }.has_ended());
        assert_eq!(ProcessIdentity::parse("a b c"), None);
    }

    #[test]
    fn a_leftover_that_cannot_be_removed_is_named_and_the_others_are_removed() {
        let conductor = ProcessIdentity { pid: u32::MAX, ..ProcessIdentity::of(std::process::id()).unwrap() };
        let container = |id: &str| {
            let labels =
                format!(r#"{{"{CONDUCTOR_LABEL}": "{conductor}", "{CASE_LABEL}": "a:b", "{RUN_LABEL}": "run1"}}"#);
            format!(r#"{{"Id": "{id}", "Labels": {labels}}}"#)
        };
        let list = format!("[{}, {}]", container("stuck"), container("other"));
        let engine = TestEngine::start(move |request| match request {
            request if request.starts_with("DELETE") && request.contains("/stuck") => {
                (500, r#"{"message": "PID 7 is a zombie"}"#.to_owned())
            }
            request if request.starts_with("DELETE") => (204, String::new()),
            request if request.contains("/containers/json") => (200, list.clone()),
            _ => (200, r#"{"ApiVersion": "1.41"}"#.to_owned()),
        });
        let leftovers = remove_leftovers(&engine.connect()).unwrap();
        let [stuck, other] = leftovers.as_slice() else { panic!("{leftovers:?}") };
        assert_eq!((stuck.is_removed, other.is_removed), (false, true));
        let expected = "leftover container stuck of case a:b of run1 cannot be removed and may still use a device: the \
                        container engine refused to remove a container: PID 7 is a zombie; `docker rm --force stuck` tries \
                        again, and a restart of the machine ends a process that hangs in a driver";
        assert_eq!(stuck.description, expected);
        assert!(
            other.description.starts_with("removed leftover container other of case a:b of run1: "),
            "{leftovers:?}"
        );
    }
}
