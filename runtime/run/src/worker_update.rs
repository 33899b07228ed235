//! Updates that the conductor receives from a worker.

use flagperf_core::event::Failure;
use flagperf_core::measure::Nanos;
use flagperf_result::{PhaseCollector, ReceivedEvent};

/// An update from a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerUpdate<'a> {
    /// The worker was started, with this process id.
    Started(u32),
    /// An event, with the results of the phase so far.
    Event(ReceivedEvent<'a>, &'a PhaseCollector),
    /// No event has arrived for a moment, up to this time.
    Nothing(Nanos),
}

/// Handles an update. A failure that it returns ends the phase.
pub(super) type EventHandler<'h> = dyn FnMut(WorkerUpdate<'_>) -> Result<(), Failure> + 'h;
