//! Turns records and notices into text for people: the live display and the final table.
//!
//! The only module that formats quantities. Measures nothing and decides nothing.

mod bars;
mod case_report;
mod conclusion;
mod lines;
mod live;
mod loading;
mod overview;
mod rows;
mod scenario;
mod summary_report;
mod table;
mod text;
mod trace;
mod training;
mod usage;

pub use bars::BarDisplay;
pub use case_report::{Extent, SavedResult, case_report, verdict_word};
pub use conclusion::headline_rows;
pub use lines::LineDisplay;
pub use live::LiveDisplay;
pub use overview::{OverviewRow, overview};
pub use rows::{Section, sections};
pub use scenario::queries_text;
pub use summary_report::{summary_reasons, summary_report};
pub use table::{Screen, columns, headed_table, name_value_table, origin_table, plain_table, unbroken_table};
pub use text::{bytes, count, digits, display_text, duration, exposed_share_text, percent, rate, wrap};
pub use trace::TraceBuilder;
