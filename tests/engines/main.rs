//! Engines beyond the conformance suite: their own options and refusals, faulty plug-ins and sidecars, and agreement with other
//! implementations.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod decoders;
mod generation;
mod onnxruntime;
mod openvino;
mod operators;
mod plugins;
mod profiles;
mod reference;
mod server_queries;
mod sidecar;
mod tensorrt;
