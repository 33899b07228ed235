//! HTTP: the routes, and the limits on what clients send.

mod access_log;
mod body;
mod routes;

pub use body::BodyLimits;
pub use routes::{Server, router};
