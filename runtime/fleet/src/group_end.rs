//! Ends the processes that train together when one of them has failed: the others would wait for it.

use flagperf_core::measure::Nanos;
use flagperf_core::process_group::LOST_PROCESS;
use flagperf_core::units::Seconds;

use super::conduct::FleetRun;
use super::host_link::LinkCommand;
use super::replica::{ReplicaState, display_name};

/// Longest wait for the end of the process that failed first, when another one has noticed it before.
const FIRST_FAILURE_WAIT: Seconds = Seconds(5.0);

impl FleetRun<'_> {
    /// Interrupts the sessions of a group when a process has failed. `noticed` is when the first failure was noticed.
    pub(super) fn end_group(&self, replicas: &mut [ReplicaState], noticed: &mut Option<Nanos>) {
        if !replicas.iter().any(|open| open.end.is_none() && open.ended_because.is_none()) {
            return;
        }
        let failed = || replicas.iter().enumerate().filter_map(|(rank, open)| Some((rank, open.failure()?)));
        let Some(any) = failed().next() else { return };
        let now = self.options.clock.now();
        let waited = now.since(*noticed.get_or_insert(now));
        // A process whose connection breaks may end before the one that broke it.
        let own = failed().find(|(_, reason)| !reason.contains(LOST_PROCESS));
        if own.is_none() && waited.0 < FIRST_FAILURE_WAIT.0 {
            return;
        }
        let (rank, reason) = own.unwrap_or(any);
        let name = display_name(&replicas[rank].replica);
        let reason = format!("ended because rank {rank} (`{name}`) failed: {reason}");
        for open in replicas.iter_mut().filter(|open| open.end.is_none() && open.ended_because.is_none()) {
            open.ended_because = Some(reason.clone());
            let (session, reason) = (open.session.clone(), reason.clone());
            self.send(&open.replica.host, LinkCommand::EndSession { session, reason });
        }
    }
}
