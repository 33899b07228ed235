//! Measuring: the clock, warm-up, raw samples and their summary.
//!
//! Pure over a [`Clock`]. Knows no engine and no file.

mod clock;
mod measurement;
mod warmup;

pub use clock::{Clock, FixedClock, MonotonicClock, Nanos};
pub use measurement::{Latency, Measurement, OutputCopy, PassTimes, StepTimes, VendorTime, summarise};
pub use warmup::Warmup;
