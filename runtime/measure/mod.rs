//! Measurement: the clock, warm-up, raw step times and their summary.
//!
//! Pure given a [`Clock`]. Knows nothing about engines and files.

mod clock;
mod measurement;
mod warmup;

pub use clock::{Clock, FixedClock, MonotonicClock, Nanos};
pub use measurement::{Latency, Measurement, OutputCopy, PassTimes, SpanTimes, StepTimes, VendorTime, summarise_pass};
pub use warmup::Warmup;
