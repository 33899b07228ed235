//! Watches whether other runs use the host while a case runs, and adds the reasons for doubt to the record.

use std::sync::Arc;

use super::host_lock::{HostLock, HostWatch};
use flagperf_config::env;
use flagperf_result::Record;

/// What is known about the use of the host by other runs, for the records.
#[derive(Clone, Debug, Default)]
pub struct HostUse {
    lock: Option<Arc<HostLock>>,
    /// Why it is not certain that each case has the host, or a machine, for itself.
    doubts: Vec<String>,
}

impl HostUse {
    /// Returns what is known from the lock of the host, and from `doubts` of the process that has started the case.
    pub fn new(lock: HostLock, mut doubts: Vec<String>) -> Self {
        // The agent of a host and a session on it may have the same doubt.
        let own = lock.doubt().filter(|own| !doubts.iter().any(|known| known == own)).map(str::to_owned);
        doubts.extend(own);
        HostUse { lock: Some(Arc::new(lock)), doubts }
    }

    /// Begins to watch for other runs while a case runs.
    pub(super) fn watch(&self) -> Option<HostWatch<'_>> {
        self.lock.as_ref().map(|lock| lock.watch())
    }

    /// Adds the doubts to the record of a case, and a warning for each.
    pub(super) fn add_to(&self, record: &mut Record, watch: Option<HostWatch<'_>>) {
        let doubts = self.doubts.iter().cloned().chain(watch.and_then(HostWatch::finish));
        record.doubt_host(doubts);
        // Somebody wanted this, so it is no warning.
        record.host_doubts.extend(self.lock.as_ref().and_then(|lock| lock.disabled().or_else(lock_of_few_runs)));
    }
}

/// Returns that only runs with the same variable notice this one, if `FLAGPERF_HOST_LOCK` names another file than the usual one.
fn lock_of_few_runs() -> Option<String> {
    let path = env::other_host_lock()?;
    Some(format!(
        "the lock of this host is `{}` (FLAGPERF_HOST_LOCK), so runs with the usual lock are not noticed",
        path.display()
    ))
}
