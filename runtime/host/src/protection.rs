//! Restrictions that a worker sets on itself before it reads a script. Its children inherit them.
//!
//! A Landlock domain keeps the worker and its children from the memory and the open files of processes outside. seccomp
//! refuses to trace processes, to set the clock and to change the machine. A worker whose engine is part of this
//! program also loses TCP and writes only to its own folders; a vendor's library may write its caches anywhere.
//!
//! A Landlock domain takes away the right to move files to other folders unless it mentions this right. Kernels before
//! 5.19 do not know the right, so workers have no domain there. A sidecar is started by this program in a domain within
//! that of the worker, so it cannot reach the worker either; the module `file_holder` passes it the memory of tensors.
//!
//! Knows nothing about engines. Each restriction that the kernel lacks is left out; [`Protection`] says which apply.

use std::collections::BTreeMap;
use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use flagperf_core::event::Protection;

/// What a worker needs.
#[derive(Clone, Debug)]
pub enum WorkerNeeds {
    /// Code of this program only: it writes below these folders and files, and has no network.
    OwnCode {
        /// Existing folders and files.
        writable: Vec<PathBuf>,
    },
    /// A vendor's code or library, which may write its caches anywhere and connect to its own services.
    ForeignCode,
}

/// Restricts this process, which must have one thread only, and its future children. Processes outside can neither be
/// traced nor signalled, and their memory and open files cannot be reached; a few system calls are refused.
pub fn protect_worker(needs: &WorkerNeeds) -> Protection {
    let own_code = matches!(needs, WorkerNeeds::OwnCode { .. });
    let landlock = restrict_access(needs).unwrap_or(RulesetStatus::NotEnforced);
    let is_isolated = landlock != RulesetStatus::NotEnforced;
    Protection {
        isolated: is_isolated,
        limited_writes: is_isolated && own_code,
        // TCP was added to Landlock after files.
        no_tcp: own_code && landlock == RulesetStatus::FullyEnforced,
        refused_system_calls: refuse_system_calls().is_ok(),
    }
}

/// Enters a Landlock domain. The kernel then refuses access to processes outside, whatever the domain restricts.
fn restrict_access(needs: &WorkerNeeds) -> Result<RulesetStatus, landlock::RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let status = match needs {
        WorkerNeeds::ForeignCode => {
            // Device files cannot be created; this is the least that a domain can restrict. A domain that does not handle
            // `Refer` refuses to move a file to another folder, as libraries do that write caches: a kernel that lacks it
            // (before 5.19) gets no domain.
            let files = AccessFs::MakeChar | AccessFs::MakeBlock;
            let Ok(root) = PathFd::new("/") else { return Ok(RulesetStatus::NotEnforced) };
            ruleset
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::Refer)?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(files)?
                .scope(Scope::Signal)?
                .create()?
                .add_rule(PathBeneath::new(root, AccessFs::Refer))?
                .restrict_self()?
        }
        WorkerNeeds::OwnCode { writable } => {
            let files = AccessFs::from_write(ABI::V3);
            let ruleset = ruleset
                .handle_access(files)?
                .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
                .scope(Scope::Signal)?;
            let mut created = ruleset.create()?;
            for path in writable {
                let Ok(opened) = PathFd::new(path) else { continue };
                created = created.add_rule(PathBeneath::new(opened, files))?;
            }
            created.restrict_self()?
        }
    };
    Ok(status.ruleset)
}

/// Enters a Landlock domain within that of the worker. The kernel then also refuses access to the worker, and signals to
/// it.
pub(super) fn isolate_companion() -> Result<(), landlock::RulesetError> {
    restrict_access(&WorkerNeeds::ForeignCode).map(drop)
}

/// System calls that change the machine or other processes, and that no engine needs.
const REFUSED: [libc::c_long; 20] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_sethostname,
];

/// Lets the kernel refuse [`REFUSED`] with `EPERM`.
fn refuse_system_calls() -> Result<(), Box<dyn std::error::Error>> {
    let rules: BTreeMap<i64, Vec<_>> = REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Runs `body` in a thread that has protected itself: the restrictions are those of the thread. Returns `None` if the
    /// kernel lacks Landlock.
    fn protected<T: Send + 'static>(
        needs: WorkerNeeds,
        body: impl FnOnce(Protection) -> T + Send + 'static,
    ) -> Option<T> {
        let run = move || {
            let protection = protect_worker(&needs);
            protection.isolated.then(|| body(protection))
        };
        thread::spawn(run).join().unwrap()
    }

    /// Reads where a file descriptor of the parent leads.
    fn parents_file() -> std::io::Result<PathBuf> {
        fs::read_link(format!("/proc/{}/fd/0", std::os::unix::process::parent_id()))
    }

    #[test]
    fn foreign_code_moves_files_to_other_folders() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| folder.path().join(name));
        [&from, &to].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(from.join("file"), "x").unwrap();
        let moved = protected(WorkerNeeds::ForeignCode, move |_| {
            fs::rename(from.join("file"), to.join("file")).and_then(|()| fs::rename(&from, to.join("folder")))
        });
        if let Some(moved) = moved {
            moved.unwrap();
        }
    }

    #[test]
    fn own_code_writes_only_where_it_may_and_has_no_network() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mine, theirs) = (own.path().join("a"), other.path().join("a"));
        fs::write(&theirs, "theirs").unwrap();
        let read = theirs.clone();
        let needs = WorkerNeeds::OwnCode { writable: vec![own.path().to_owned(), "/no/such/folder".into()] };
        let found = protected(needs, move |protection| {
            assert!(protection.limited_writes && protection.refused_system_calls);
            fs::write(mine, "mine").unwrap();
            assert_eq!(fs::read_to_string(&read).unwrap(), "theirs");
            let refused = fs::write(&read, "mine").unwrap_err().kind();
            assert_eq!(fs::remove_file(&read).unwrap_err().kind(), ErrorKind::PermissionDenied);
            let listened = TcpListener::bind("127.0.0.1:0").map_err(|error| error.kind()).err();
            assert_eq!(listened.is_some(), protection.no_tcp);
            refused
        });
        assert!(found.is_none_or(|refused| refused == ErrorKind::PermissionDenied));
        fs::write(&theirs, "this thread is not restricted").unwrap();
    }

    #[test]
    fn foreign_code_writes_anywhere_but_does_not_reach_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        if parents_file().is_err() {
            // The parent belongs to another user.
            return;
        }
        let found = protected(WorkerNeeds::ForeignCode, move |protection| {
            fs::write(file, "anything").unwrap();
            TcpListener::bind("127.0.0.1:0").unwrap();
            assert!(!protection.limited_writes && !protection.no_tcp && protection.refused_system_calls);
            // SAFETY: without a time and a zone, the call changes nothing.
            let clock = unsafe { libc::syscall(libc::SYS_settimeofday, 0, 0) };
            assert_eq!((clock, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
            parents_file().unwrap_err().kind()
        });
        assert!(found.is_none_or(|refused| refused == ErrorKind::PermissionDenied));
    }
}
