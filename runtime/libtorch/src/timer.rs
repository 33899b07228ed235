//! When the operators of a run ended: on a device by its own events, so that nothing waits for it.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use flagperf_plugin::Error;
use tch::{Cuda, Device};

use crate::capture::current_stream;
use crate::cuda::driver_call;

/// The beginning of a run, and the ends of its operators.
pub(crate) enum Timer {
    Host { begin: Instant, ends_s: Vec<f64> },
    Device { index: usize, events: Vec<Event> },
}

impl Timer {
    #[expect(clippy::disallowed_methods, reason = "a plug-in has no clock of the host")]
    pub(crate) fn begin(device: Device) -> Result<Self, Error> {
        match device {
            Device::Cuda(index) => Ok(Timer::Device { index, events: vec![Event::record(index)?] }),
            _ => Ok(Timer::Host { begin: Instant::now(), ends_s: Vec::new() }),
        }
    }

    /// Marks the end of an operator.
    pub(crate) fn end_operator(&mut self) -> Result<(), Error> {
        match self {
            Timer::Host { begin, ends_s } => ends_s.push(begin.elapsed().as_secs_f64()),
            Timer::Device { index, events } => events.push(Event::record(*index)?),
        }
        Ok(())
    }

    /// Returns when each operator ended, since the beginning; waits for the device.
    pub(crate) fn ends_s(&self) -> Result<Vec<f64>, Error> {
        match self {
            Timer::Host { ends_s, .. } => Ok(ends_s.clone()),
            Timer::Device { index, events } => {
                Cuda::synchronize(*index as i64);
                events[1..].iter().map(|event| event.since(&events[0])).collect()
            }
        }
    }
}

/// A point in the work of a stream (`CUevent`).
pub(crate) struct Event(*mut c_void);

// SAFETY: the driver's events may be used by any thread.
unsafe impl Send for Event {}

impl Event {
    /// Puts an event after what the current stream of this thread has to do.
    fn record(index: usize) -> Result<Self, Error> {
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32) -> i32;
        type Record = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;
        let stream = current_stream(index)?;
        let mut event = Event(null_mut());
        // SAFETY: the functions have these signatures (cuda.h); the out-pointer and the stream are valid.
        unsafe {
            driver_call(c"cuEventCreate", |create: Create| create(&raw mut event.0, 0))?;
            driver_call(c"cuEventRecord", |record: Record| record(event.0, stream))?;
        }
        Ok(event)
    }

    /// Returns the seconds since an earlier event. Both have been reached.
    fn since(&self, earlier: &Event) -> Result<f64, Error> {
        type Elapsed = unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> i32;
        let mut milliseconds = 0.0;
        // SAFETY: the function has this signature (cuda.h), and both events are recorded.
        unsafe {
            driver_call(c"cuEventElapsedTime", |elapsed: Elapsed| elapsed(&raw mut milliseconds, earlier.0, self.0))?;
        }
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        type Destroy = unsafe extern "C" fn(*mut c_void) -> i32;
        if !self.0.is_null() {
            // SAFETY: the function has this signature (cuda.h); the event is used no more.
            let _ = unsafe { driver_call(c"cuEventDestroy_v2", |destroy: Destroy| destroy(self.0)) };
        }
    }
}
