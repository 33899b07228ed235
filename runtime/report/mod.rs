//! Records and notices made into text for people: the live display, the final table.
//!
//! The only place that turns quantities into text. Measures nothing and decides nothing.

mod bars;
mod lines;
mod rows;
mod table;
mod text;

pub use bars::Bars;
pub use lines::Lines;
pub use rows::{Section, sections};
pub use table::{Screen, columns, name_value_table, plain_table, record_table};
pub use text::{bytes, count, duration, percent, rate, shown};
