//! Watches whether other runs use the host while a case runs, and adds the reasons for doubt to the record.

use std::sync::Arc;

use super::host_lock::{HostLock, HostWatch};
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
        record.host_doubts.extend(self.lock.as_ref().and_then(|lock| lock.disabled()));
    }
}
