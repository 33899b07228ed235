//! Results as a page of HTML, as charts for a terminal, and as rows for tables and tests, from the files of their folders alone.
//!
//! Measures nothing, decides nothing and runs nothing. Knows no engine and no vendor; formats quantities as the report does.

mod chart;
mod columns;
mod curves;
mod entry;
mod envelope;
mod event_file;
mod figures;
mod junit;
mod monitor_file;
mod page;
#[cfg(test)]
mod page_tests;
mod pareto;
mod rate_figure;
mod readme_rows;
mod result;
mod roofline;
mod section;
mod site;
mod step_file;
mod summary;
mod table_rows;
mod template;
mod terminal_charts;
mod variants;
mod words;

pub use junit::{junit, junit_test};
pub use page::page;
pub use pareto::{pareto_notes, pareto_rows, pareto_subject};
pub use rate_figure::rate_figure;
pub use readme_rows::readme_rows;
pub use result::{Check, ReadResult};
pub use roofline::{Roof, Roofline, RooflinePoint};
pub use site::{Site, SitePage, without_copies};
pub use summary::ReadSummary;
pub use table_rows::{csv_text, json_text};
pub use terminal_charts::terminal_charts;
pub use variants::{ablation_html, change_text, sweep_html};
pub use words::Language;
