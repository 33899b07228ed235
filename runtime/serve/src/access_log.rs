//! The access log: one event of `tracing` for each answer.

use std::fmt::Display;

use axum::http::{Method, Uri};
use flagperf_core::measure::Nanos;
use flagperf_core::text::{one_line, truncate};
use tracing::info;

use super::service::Service;

/// The most bytes of a path in the log.
const PATH_BYTES_MAX: usize = 200;

/// A request that is being answered.
pub struct Access<'s> {
    service: &'s Service,
    begin: Nanos,
    method: Method,
    path: String,
}

impl<'s> Access<'s> {
    /// Notes what is asked for.
    pub fn begin(service: &'s Service, method: &Method, uri: &Uri) -> Self {
        Access { service, begin: service.clock.now(), method: method.clone(), path: uri.path().to_owned() }
    }

    /// Logs the status of the answer, which is about to be sent.
    pub fn end(self, status: &dyn Display) {
        let micros = self.service.clock.now().0.saturating_sub(self.begin.0) / 1_000;
        let path = one_line(&self.path);
        info!(target: "access", method = %self.method, path = %truncate(&path, PATH_BYTES_MAX), %status, micros);
    }
}
