//! Work that was captured once, to be launched again as a whole.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_plugin::Error;

use super::{Gpu, Stream};

/// What other threads do meanwhile does not concern a capture.
const THREAD_LOCAL: i32 = 1;

/// A graph of work, with the addresses that it was captured with.
#[derive(Debug)]
pub struct Graph {
    gpu: Arc<Gpu>,
    raw: *mut c_void,
}

// SAFETY: a graph may be launched from any thread that has entered its GPU, by one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `work` puts on the stream; it is not done yet.
    ///
    /// # Errors
    /// Those of `work`, or when it cannot be captured.
    pub fn capture(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let driver = stream.gpu().driver();
        let (mut captured, mut raw) = (null_mut(), null_mut());
        // SAFETY: the stream lives.
        driver.check(unsafe { (driver.capture_begin)(stream.raw(), THREAD_LOCAL) })?;
        let worked = work();
        // A capture is ended whatever became of the work, or the stream would be of no use any more.
        // SAFETY: as above; the place lives as long as the call.
        let ended = driver.check(unsafe { (driver.capture_end)(stream.raw(), &raw mut captured) });
        let made = worked.and(ended).and_then(|()| {
            // SAFETY: the graph was captured; the place lives as long as the call.
            driver.check(unsafe { (driver.graph_instantiate)(&raw mut raw, captured, 0) })
        });
        if !captured.is_null() {
            // SAFETY: what can be launched is a copy.
            let _ = unsafe { (driver.graph_destroy)(captured) };
        }
        made.map(|()| Graph { gpu: stream.gpu().clone(), raw })
    }

    /// Does the work, on a stream.
    ///
    /// # Errors
    /// When the driver says so.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let driver = self.gpu.driver();
        // SAFETY: graph and stream live.
        driver.check(unsafe { (driver.graph_launch)(self.raw, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: made once, ended once.
        let _ = unsafe { (self.gpu.driver().graph_end)(self.raw) };
    }
}
