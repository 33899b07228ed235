//! HTTP: the routes, and requests and answers as JSON with binary tensors.

mod access_log;
mod json_answer;
mod json_request;
mod routes;
mod shared_memory;

pub use json_request::json_request;
pub use routes::{read_body, router, with_record};
