//! CUDA graphs: work that is captured once and launched repeatedly.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use flagperf_plugin::Error;

use super::{Gpu, Stream};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls of other threads do not affect a capture.
const THREAD_LOCAL: i32 = 1;

/// An executable graph, which always uses the addresses that it was captured with.
#[derive(Debug)]
pub struct Graph {
    gpu: Arc<Gpu>,
    raw: *mut c_void,
}

// SAFETY: any thread that has entered the GPU may launch a graph, one thread at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures the work that `work` submits to the stream, without running it.
    ///
    /// # Errors
    /// Those of `work`, and the driver's when the work cannot be captured.
    pub fn capture(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let driver = stream.gpu().driver();
        let (mut captured, mut raw) = (null_mut(), null_mut());
        // SAFETY: the stream is alive.
        driver.check(unsafe { (driver.capture_begin)(stream.raw(), THREAD_LOCAL) })?;
        let submitted = work();
        // The capture must end even when `work` failed, because the stream is unusable during a capture.
        // SAFETY: as above, and the out-pointer is valid.
        let ended = driver.check(unsafe { (driver.capture_end)(stream.raw(), &raw mut captured) });
        let instantiated = submitted.and(ended).and_then(|()| {
            // SAFETY: the graph was captured, and the out-pointer is valid.
            driver.check(unsafe { (driver.graph_instantiate)(&raw mut raw, captured, 0) })
        });
        if !captured.is_null() {
            // SAFETY: the executable graph is a copy of the captured one.
            let _ = unsafe { (driver.graph_destroy)(captured) };
        }
        instantiated.map(|()| Graph { gpu: stream.gpu().clone(), raw })
    }

    /// Launches the captured work on a stream.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let driver = self.gpu.driver();
        // SAFETY: the graph and the stream are alive.
        driver.check(unsafe { (driver.graph_launch)(self.raw, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.gpu.enter();
        // SAFETY: created once, destroyed once.
        let _ = unsafe { (self.gpu.driver().graph_exec_destroy)(self.raw) };
    }
}
