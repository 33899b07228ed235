//! Compares two sides of one case, each with one or several results: speed, outputs and accuracy. From the results of a
//! case with some of its switches on, computes what each switch changes; from those with several values of a setting, which value is enough;
//! from those over time, when the case became slower or faster; from those on several numbers of devices, how it scales;
//! from those that generate text, how fast each user is served and what a token costs.
//!
//! Reads records and what they store; never touches a running case.

mod ablation;
mod comparable;
mod comparison;
mod history;
mod level_changes;
mod outputs;
mod pareto;
mod pareto_group;
mod ratio;
mod scaling;
mod scenario;
mod stored_variants;
mod sweep;
mod variant;

pub use ablation::{Ablation, Combination, CombinationFigures, MeasuredCombination, SwitchEffects, combinations};
pub use comparable::{BATCH_SIZE, Difference, differences};
pub use comparison::{CompareOptions, Comparison, ComparisonError, MetricPair, Side, Speed, compare};
pub use history::{ChangePoint, History, HistoryResult, Series, UnusedResult};
pub use outputs::{Errors, OutputErrors};
pub use pareto::{Pareto, ParetoPoint, ParetoSubject, ParetoTable};
pub use ratio::{CONFIDENCE, RatioInterval, SpeedVerdict};
pub use scaling::{ScalingRow, ScalingTable};
pub use scenario::{ScenarioFigure, ScenarioPair};
pub use stored_variants::StoredVariants;
pub use sweep::{KNEE_SHARE, Sweep, SweepPoint};
pub use variant::{Effect, Variant, VariantFigures};
