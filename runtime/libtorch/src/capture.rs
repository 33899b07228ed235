//! Runs of operators captured as CUDA graphs, and functions that libtorch compiles for the device, through `capture.cpp`: a library
//! embedded in this one and opened on demand.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tch::{TchError, Tensor};
use tempfile::NamedTempFile;

use crate::ops::compiled::Source;

/// The compiled library; empty when the plug-in was built without the CUDA headers.
static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcapture.so"));

type Capture = *mut c_void;
type Call = unsafe extern "C" fn(Capture) -> *const c_char;

/// The library's functions.
pub struct DeviceFunctions {
    enter: unsafe extern "C" fn(c_int, bool, *mut Capture) -> *const c_char,
    reenter: unsafe extern "C" fn(c_int, Capture) -> *const c_char,
    begin: Call,
    end: Call,
    leave: Call,
    replay: Call,
    free: unsafe extern "C" fn(Capture),
    stream: unsafe extern "C" fn(c_int, *mut *mut c_void) -> *const c_char,
    elementwise: unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const *const c_void,
        usize,
        *mut *mut c_void,
    ) -> *const c_char,
    rotate: unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, bool, *mut *mut c_void) -> *const c_char,
    /// Joins the NCCL group of the device; `None` when the plug-in was built without the headers of NCCL.
    pub nccl_join: Option<*const c_void>,
}

// SAFETY: the pointers are those of functions.
unsafe impl Send for DeviceFunctions {}
// SAFETY: as for `Send`.
unsafe impl Sync for DeviceFunctions {}

impl DeviceFunctions {
    /// Applies a function to each element of tensors, which broadcast.
    pub fn elementwise(&self, function: &Source, inputs: &[&Tensor]) -> Result<Tensor, TchError> {
        let text = |text: &str| CString::new(text).map_err(|error| TchError::Torch(error.to_string()));
        let (name, text) = (text(&function.name)?, text(&function.text)?);
        let inputs: Vec<*const c_void> = inputs.iter().map(|input| input.as_ptr().cast()).collect();
        let (list, count) = (inputs.as_ptr(), inputs.len());
        // SAFETY: the function reads two texts and `count` tensors, and writes one that the caller owns.
        new_tensor(|out| unsafe { (self.elementwise)(name.as_ptr(), text.as_ptr(), list, count, out) })
    }

    /// Returns `x` with pairs of elements of its last dimension rotated, as [`crate::shim::rotate`] does.
    pub fn rotate(&self, x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor, TchError> {
        let (x, cos, sin) = (x.as_ptr().cast(), cos.as_ptr().cast(), sin.as_ptr().cast());
        // SAFETY: the function reads three tensors, and writes one that the caller owns.
        new_tensor(|out| unsafe { (self.rotate)(x, cos, sin, interleaved, out) })
    }
}

/// Returns the tensor that a function writes.
fn new_tensor(call: impl FnOnce(*mut *mut c_void) -> *const c_char) -> Result<Tensor, TchError> {
    let mut tensor = null_mut();
    check_error(call(&raw mut tensor)).map_err(|error| TchError::Torch(error.to_string()))?;
    // SAFETY: after a success, nothing else owns the tensor.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// A captured run on a device, which can be replayed.
pub struct CapturedGraph {
    functions: &'static DeviceFunctions,
    capture: Capture,
}

// SAFETY: CUDA graphs are not bound to a thread; only the captured stream is, and `capture` restores the previous
// stream.
unsafe impl Send for CapturedGraph {}

impl CapturedGraph {
    /// Captures the work that `run` submits to the device, after running it `warmups` times on the same stream.
    ///
    /// # Errors
    /// Those of `run`, and CUDA's when `run` waits for the device or reads a value, which cannot be captured.
    pub fn capture<T>(
        index: usize,
        warmups: usize,
        mut run: impl FnMut() -> Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        CapturedGraph::enter(index, false, |graph| graph.warm_and_capture(index, warmups, &mut run))
    }

    /// Makes the stream of all captured runs, or one of its own, the current one of this thread while `run` is called.
    fn enter<T>(index: usize, is_own: bool, run: impl FnOnce(&Self) -> Result<T, Error>) -> Result<(Self, T), Error> {
        let functions = functions()?;
        let mut capture = null_mut();
        // SAFETY: libtorch's CUDA library is open, as for every call here, and the out-pointer is valid.
        check_error(unsafe { (functions.enter)(index as c_int, is_own, &raw mut capture) })?;
        let graph = CapturedGraph { functions, capture };
        let result = run(&graph);
        graph.call(functions.leave)?;
        result.map(|output| (graph, output))
    }

    fn warm_and_capture<T>(
        &self,
        index: usize,
        warmups: usize,
        run: &mut impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        for _ in 0..warmups {
            run()?;
        }
        tch::Cuda::synchronize(index as i64);
        self.call(self.functions.begin)?;
        let result = run();
        // The capture must be ended even when `run` failed; the error of `run` is then the more informative one.
        let ended = self.call(self.functions.end);
        result.and_then(|output| ended.map(|()| output))
    }

    /// Replays the run.
    ///
    /// # Errors
    /// CUDA's errors.
    pub fn replay(&self) -> Result<(), Error> {
        self.call(self.functions.replay)
    }

    fn call(&self, call: Call) -> Result<(), Error> {
        // SAFETY: `enter` created the capture, and only `drop` frees it.
        check_error(unsafe { call(self.capture) })
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: created once, freed once.
        unsafe { (self.functions.free)(self.capture) };
    }
}

/// A stream of a device beside its default stream. Nothing is captured on it.
pub struct OwnStream {
    index: usize,
    graph: CapturedGraph,
}

impl OwnStream {
    /// Creates a stream.
    ///
    /// # Errors
    /// When the plug-in was built without the CUDA headers, and CUDA's.
    pub fn new(index: usize) -> Result<Self, Error> {
        let (graph, ()) = CapturedGraph::enter(index, true, |_| Ok(()))?;
        Ok(OwnStream { index, graph })
    }

    /// Calls `run` with this stream as the current one of this thread.
    ///
    /// # Errors
    /// Those of `run`, and CUDA's.
    pub fn use_during<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let CapturedGraph { functions, capture } = &self.graph;
        // SAFETY: `enter` created the capture, and only `drop` frees it.
        check_error(unsafe { (functions.reenter)(self.index as c_int, *capture) })?;
        let result = run();
        self.graph.call(functions.leave)?;
        result
    }
}

/// Returns the current stream of this thread on a device, a `cudaStream_t`.
///
/// # Errors
/// When the plug-in was built without the CUDA headers, and CUDA's.
pub fn current_stream(index: usize) -> Result<*mut c_void, Error> {
    let mut stream = null_mut();
    // SAFETY: libtorch's CUDA library is open, and the out-pointer is valid.
    check_error(unsafe { (functions()?.stream)(index as c_int, &raw mut stream) })?;
    Ok(stream)
}

/// Returns the functions of the library, which is opened once and never closed.
pub fn functions() -> Result<&'static DeviceFunctions, Error> {
    static OPENED: OnceLock<Result<DeviceFunctions, Error>> = OnceLock::new();
    OPENED.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<DeviceFunctions, Error> {
    if BYTES.is_empty() {
        return Err(Error::Unavailable {
            reason: "this plug-in was built without the CUDA headers, which `cuda_graph`, times of operators and operators of vendors need"
                .to_owned(),
            remedy: "run `flagperf backend install libtorch`, which builds it with them".to_owned(),
        });
    }
    let mut file = NamedTempFile::new().map_err(Error::failed)?;
    file.write_all(BYTES).and_then(|()| file.flush()).map_err(Error::failed)?;
    // SAFETY: the library's initializers only set up the variables of `capture.cpp`, and libtorch's symbols are loaded.
    let library = unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_LOCAL) }.map_err(Error::failed)?;
    // SAFETY: `capture.cpp` has functions of these names and signatures; the library is never closed.
    let functions = unsafe {
        DeviceFunctions {
            enter: *library.get(b"flagperf_capture_enter\0").map_err(Error::failed)?,
            reenter: *library.get(b"flagperf_capture_reenter\0").map_err(Error::failed)?,
            begin: *library.get(b"flagperf_capture_begin\0").map_err(Error::failed)?,
            end: *library.get(b"flagperf_capture_end\0").map_err(Error::failed)?,
            leave: *library.get(b"flagperf_capture_leave\0").map_err(Error::failed)?,
            replay: *library.get(b"flagperf_capture_replay\0").map_err(Error::failed)?,
            free: *library.get(b"flagperf_capture_free\0").map_err(Error::failed)?,
            stream: *library.get(b"flagperf_current_stream\0").map_err(Error::failed)?,
            elementwise: *library.get(b"flagperf_elementwise\0").map_err(Error::failed)?,
            rotate: *library.get(b"flagperf_rotate_on_device\0").map_err(Error::failed)?,
            nccl_join: library
                .get::<unsafe extern "C" fn()>(b"flagperf_nccl_join\0")
                .ok()
                .map(|join| *join as *const c_void),
        }
    };
    std::mem::forget(library);
    Ok(functions)
}

/// Converts the result of a call: null, or an error message.
fn check_error(text: *const c_char) -> Result<(), Error> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: the message stays valid until the next call on this thread.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    Err(Error::Failed(text.lines().next().unwrap_or_default().to_owned()))
}
