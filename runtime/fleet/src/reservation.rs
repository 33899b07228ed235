//! The reservation of a host for one run, from the first case to the end of the run.
//!
//! The agent holds the lock of the host. When its connection breaks, it keeps the lock until the agent of the next connection
//! has taken it over, or until the run has had no contact for its time limit.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::protocol::Reply;
use super::reply_sender::ReplySender;
use flagperf_config::{BusyHost, env};
use flagperf_core::measure::{Clock, Nanos};
use flagperf_core::units::Seconds;
use flagperf_run::{HostBusy, HostLock, Interrupt, LockNotice};

/// How often an agent without a connection checks whether it still needs to keep its reservation.
const KEEP_INTERVAL: Duration = Duration::from_millis(100);

/// What reserves a host.
#[derive(Clone, Debug)]
pub(super) struct ReservationRequest {
    pub(super) run_id: String,
    /// What a person recognises the run by.
    pub(super) description: String,
    /// Whether to wait until the host is free.
    pub(super) waits: bool,
    /// The file that names the process which holds the reservation of this run.
    pub(super) holder: PathBuf,
    /// Time without contact after which the reservation ends.
    pub(super) contact_limit: Seconds,
}

/// A reservation that is held or requested. Dropping it ends it.
pub(super) struct Reservation {
    request: ReservationRequest,
    lock: Arc<Mutex<Option<HostLock>>>,
    cancelled: Interrupt,
}

impl Reservation {
    /// Requests the host in a thread, which replies with [`Reply::Reserved`] or [`Reply::HostBusy`].
    pub(super) fn request(request: ReservationRequest, replies: ReplySender) -> Self {
        let reservation = Reservation { request, lock: Arc::default(), cancelled: Interrupt::default() };
        let (request, lock) = (reservation.request.clone(), reservation.lock.clone());
        let cancelled = reservation.cancelled.clone();
        thread::spawn(move || {
            let choice = if request.waits { BusyHost::Queue } else { BusyHost::Refuse };
            let mut warning = None;
            let busy = |busy: &HostBusy, waits: bool| {
                let (reason, run_id) = (busy.to_string(), busy.run.clone());
                Reply::HostBusy { reason, run_id, waits }
            };
            let mut on_notice = |notice: &LockNotice| match notice {
                LockNotice::Unusable(_) => warning = Some(notice.to_string()),
                LockNotice::Waits(other) => drop(replies.send(busy(other, true))),
            };
            let names = (request.run_id.as_str(), request.description.as_str());
            let reply = match HostLock::take(&env::host_lock(), names, choice, &cancelled, &mut on_notice) {
                Ok(taken) => {
                    // Without this file, a reservation only ends later.
                    let _ = fs::write(&request.holder, std::process::id().to_string());
                    let mut lock = locked(&lock);
                    // A cancelled reservation was dropped before this thread had the lock.
                    *lock = Some(taken).filter(|_| !cancelled.is_set());
                    Reply::Reserved { warning }
                }
                Err(other) => busy(&other, false),
            };
            let _ = replies.send(reply);
        });
        reservation
    }

    /// Ends the reservation on every agent of the run on this host.
    pub(super) fn end(self) {
        let _ = fs::remove_file(&self.request.holder);
    }

    /// Keeps the reservation without a connection: until another agent holds it or has ended it, or until the run has had no
    /// contact since `last` for the time limit.
    pub(super) fn keep(self, clock: &dyn Clock, last: Nanos) {
        let own = std::process::id().to_string();
        let is_holder = || fs::read_to_string(&self.request.holder).is_ok_and(|holder| holder == own);
        while is_holder() && clock.now().since(last).0 <= self.request.contact_limit.0 {
            thread::sleep(KEEP_INTERVAL);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cancelled.set();
        *locked(&self.lock) = None;
    }
}

fn locked(lock: &Mutex<Option<HostLock>>) -> MutexGuard<'_, Option<HostLock>> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
