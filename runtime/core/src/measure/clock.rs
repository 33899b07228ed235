//! The only module of the host that reads the time.

use std::fmt::Debug;
use std::time::Instant;

use crate::units::Seconds;

/// A reading of a monotonic clock in nanoseconds. Only differences are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Seconds {
        Seconds::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A monotonic clock.
pub trait Clock: Debug + Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock (`CLOCK_MONOTONIC`): it never steps back and is not adjusted with the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// Starts a clock at zero.
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

/// A clock for tests, which a test advances by hand or which advances by a fixed step at each reading.
#[derive(Debug, Default)]
pub struct FixedClock {
    now: std::sync::atomic::AtomicU64,
    step: u64,
}

impl FixedClock {
    /// Creates a clock that advances by `step` nanoseconds at each reading.
    pub fn stepping(step: u64) -> Self {
        FixedClock { now: 0.into(), step }
    }

    /// Advances the clock by `nanos` nanoseconds.
    pub fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.fetch_add(self.step, std::sync::atomic::Ordering::Relaxed))
    }
}
