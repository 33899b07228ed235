//! The only owner of time in the host.

use std::time::Instant;

use crate::units::Seconds;

/// Nanoseconds on a monotonic clock; only differences mean anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to here; zero when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Seconds {
        Seconds::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A monotonic clock.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock (`CLOCK_MONOTONIC`): never steps back, never follows the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that begins now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn start() -> Self {
        MonotonicClock { origin: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The null row: a clock that a test moves by hand, or that moves by a fixed step at each reading.
#[derive(Debug, Default)]
pub struct FixedClock {
    now: std::sync::atomic::AtomicU64,
    step: u64,
}

impl FixedClock {
    /// A clock that moves by `step` nanoseconds at each reading.
    pub fn stepping(step: u64) -> Self {
        FixedClock { now: 0.into(), step }
    }

    /// Moves the clock on.
    pub fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.fetch_add(self.step, std::sync::atomic::Ordering::Relaxed))
    }
}
