//! Serves models over HTTP by the protocol of KServe (version 2, as Triton speaks it), each in worker processes of its own.
//!
//! Knows no vendor and no case: a model is an ONNX file with settings, and an engine a row of the table of engines.

mod datatype;
mod elements;
mod frame;
mod decoder;
mod worker;
mod model_source;
mod store;
mod result_model;
mod worker_process;
mod statistics;
mod queue;
mod signature;
mod instance;
mod generation;
mod model;
mod repository;
mod api_error;
mod infer_request;
mod classification;
mod infer_response;
mod metrics;
mod http;
mod openai;
mod server;

pub use model_source::{EngineSource, EngineTable, SourceError};
pub use result_model::{ResultModelError, read_result_model};
pub use server::{ServeError, ServeOptions, Served, serve};
pub use store::ModelStore;
pub use worker::run_worker;
