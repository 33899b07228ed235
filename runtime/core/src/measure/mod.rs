//! Measurement: the clock, warm-up, raw step times and their summary.
//!
//! Pure given a [`Clock`]. Knows nothing about engines and files.

mod audit;
mod clock;
mod distribution;
mod early_stopping;
mod interval;
mod level_fit;
mod long_run_variance;
mod measurement;
#[cfg(test)]
mod noise;
mod output_link;
mod pass_report;
mod query_times;
mod scenario;
mod step_columns;
mod step_time_change;
mod time_change;
mod trace;
mod training;
mod training_length;
mod warmup;

pub use audit::{AuditReport, ChangedModelReport};
pub use clock::{Clock, FixedClock, MonotonicClock, Nanos};
pub use distribution::{Bin, Distribution};
pub use early_stopping::{LatencyBounds, early_stopping_estimate, over_bound_max, queries_needed};
pub use interval::{Observation, ThroughputInterval};
pub use measurement::{Latency, Measurement, OutputCopy, PassEvidence, PassTimes, SpanTimes, StepTimes, VendorTime};
pub use output_link::{CopyTimeBound, OutputLink};
pub use pass_report::PassReport;
pub use query_times::{QueryColumns, QueryTimes};
pub use scenario::{Arrival, Scenario, ScenarioFigures, ScenarioReport, TokenFigures, TrialEnd, TrialFigures};
pub use step_columns::{STEPS_PER_EVENT, StepColumns};
pub use step_time_change::{StepPlace, StepTimeChange};
pub use time_change::{ChangeShape, TimeChange};
pub use trace::TraceSpan;
pub use training::{
    EpochLosses, Evaluation, LocalSteps, ReplayedValue, StepReplay, TrainedBy, TrainingEnd, TrainingProgress,
    TrainingReplay,
};
pub use training_length::{TrainingLength, TrainingSteps};
pub use warmup::Warmup;
