//! OpenAI's protocol for language models: `/v1/models`, `/v1/completions` and `/v1/chat/completions`.

mod openai_error;
mod fields;
mod completion_request;
mod prompt;
mod answer_reader;
mod completion_response;
mod event_stream;
mod routes;

pub use routes::routes;
