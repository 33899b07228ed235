//! What the conductor hears from a worker.

use crate::event::Failure;
use crate::measure::Nanos;
use crate::result::{PhaseCollector, ReceivedEvent};

/// What the conductor hears from a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard<'a> {
    /// The worker was started; its process id.
    Started(u32),
    /// An event, with what the phase has yielded so far.
    Event(ReceivedEvent<'a>, &'a PhaseCollector),
    /// Nothing for a moment, which ended at this time.
    Nothing(Nanos),
}

/// Receives what the conductor hears; a failure ends the phase.
pub(super) type EventHandler<'h> = dyn FnMut(Heard<'_>) -> Result<(), Failure> + 'h;
