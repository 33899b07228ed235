//! Queries that arrive by a schedule: the schedule, the thread that issues them, their queue, and the search for the highest rate
//! that keeps a bound.
//!
//! Knows no model and no dataset: a query is a number.

mod issuer;
mod queue;
mod recorded;
mod schedule;
mod search;

pub use issuer::{Issuer, Stop};
pub use queue::{Query, QueryQueue};
pub use recorded::{RecordedTimesError, read_recorded_times};
pub use schedule::Schedule;
pub use search::{RateSearch, SearchStep};
