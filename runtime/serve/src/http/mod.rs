//! HTTP: the routes, and the limits on what clients send.

mod access_log;
mod body;
mod routes;
mod unread;

pub use body::BodyLimits;
pub use routes::{Server, router};
pub use unread::LimitedStream;
