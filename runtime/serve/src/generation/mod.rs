//! Answers of a language model: requests join and leave the rows of a worker between its runs, and each gets its tokens as they
//! are made.
//!
//! Knows no protocol of clients.

mod chat_template;
mod language_model;
mod row;
mod sampler;
mod text_stream;
mod source;
mod generation_statistics;
mod request_queue;
mod row_loop;
mod text_model;

pub use chat_template::Message;
pub use generation_statistics::GenerationTotals;
pub use language_model::LanguageModel;
pub use request_queue::{AnswerEvent, GenerationRequest, Refusal};
pub use row_loop::run_rows;
pub use sampler::{Sampler, Sampling};
pub use source::TextSource;
pub use text_model::{Answer, TextModel};
pub use text_stream::{Piece, TextStream};
