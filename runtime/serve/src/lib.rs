//! Serves models over HTTP and gRPC by the protocol of KServe (version 2, as Triton speaks it), each in worker processes of its
//! own.
//!
//! Knows no vendor and no case: a model is an ONNX file with settings, and an engine a row of the table of engines.

#[rustfmt::skip]
pub mod messages;
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
mod api_error;
mod instance;
mod generation;
mod model;
mod model_description;
mod repository;
mod body;
mod shared_memory;
mod request;
mod classification;
mod answer;
mod metrics;
mod secret_file;
mod tokens;
mod tls;
mod service;
mod access_log;
mod http;
mod openai;
mod grpc;
mod limited_stream;
mod connections;
mod server;

pub use grpc::read_request;
pub use http::json_request;
pub use model_source::{EngineTable, SourceError};
pub use result_model::{ResultModelError, read_result_model};
pub use server::{ServeError, ServeOptions, Served, serve};
pub use store::ModelStore;
pub use tls::TlsFiles;
pub use worker::run_worker;
