//! HTTP: the routes, and the limits on what clients send.

mod access_log;
mod body;
mod routes;
mod unread;

pub use body::BodyLimits;
pub use routes::{RELOADS_MAX, Server, router, with_record};
pub use unread::LimitedStream;
