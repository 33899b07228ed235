//! Runs of operators captured as CUDA graphs, through `capture.cpp`: a library inside this one, opened when it is needed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::OnceLock;

use flagperf_plugin::Error;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tempfile::NamedTempFile;

/// The library; nothing when CUDA's headers were not there when this was built.
static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcapture.so"));

type Capture = *mut c_void;
type Call = unsafe extern "C" fn(Capture) -> *const c_char;

/// What the library can do.
struct Table {
    enter: unsafe extern "C" fn(c_int, *mut Capture) -> *const c_char,
    begin: Call,
    end: Call,
    leave: Call,
    replay: Call,
    free: unsafe extern "C" fn(Capture),
}

/// Work on a device that was captured, to be run again.
pub struct Captured {
    table: &'static Table,
    capture: Capture,
}

// SAFETY: CUDA's graphs are of no thread; only the stream that is captured is, and `capture` leaves it again.
unsafe impl Send for Captured {}

impl Captured {
    /// Captures what `run` does on the device, after it was run `warmups` times on the same stream.
    ///
    /// # Errors
    /// What `run` gives, or what CUDA says of it: it must neither wait nor ask for a value.
    pub fn capture<T>(
        index: usize,
        warmups: usize,
        mut run: impl FnMut() -> Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        let table = table()?;
        let mut capture = null_mut();
        // SAFETY: libtorch's half for CUDA is open, as for every call here, and the place lives as long as the call.
        told(unsafe { (table.enter)(index as c_int, &raw mut capture) })?;
        let captured = Captured { table, capture };
        let made = captured.warm_and_capture(index, warmups, &mut run);
        captured.call(table.leave)?;
        made.map(|made| (captured, made))
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
        self.call(self.table.begin)?;
        let made = run();
        // Whatever `run` did, the device must not be left capturing; why `run` failed tells more than that this does.
        let ended = self.call(self.table.end);
        made.and_then(|made| ended.map(|()| made))
    }

    /// Runs it again.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn replay(&self) -> Result<(), Error> {
        self.call(self.table.replay)
    }

    fn call(&self, call: Call) -> Result<(), Error> {
        // SAFETY: made by `enter`, freed by nobody else.
        told(unsafe { call(self.capture) })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: made once, freed once.
        unsafe { (self.table.free)(self.capture) };
    }
}

/// The library, opened once and for good.
fn table() -> Result<&'static Table, Error> {
    static OPENED: OnceLock<Result<Table, Error>> = OnceLock::new();
    OPENED.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<Table, Error> {
    if BYTES.is_empty() {
        return Err(Error::Unavailable {
            reason: "this plug-in was built without CUDA's headers, which `cuda_graph` needs".to_owned(),
            remedy: "`flagperf backend install libtorch` builds it with them".to_owned(),
        });
    }
    let mut file = NamedTempFile::new().map_err(Error::failed)?;
    file.write_all(BYTES).and_then(|()| file.flush()).map_err(Error::failed)?;
    // SAFETY: its initialisers do nothing but set up what `capture.cpp` has, and libtorch's names are there by now.
    let library = unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_LOCAL) }.map_err(Error::failed)?;
    // SAFETY: `capture.cpp` has functions of these names and signatures; the library is never closed.
    let table = unsafe {
        Table {
            enter: *library.get(b"flagperf_capture_enter\0").map_err(Error::failed)?,
            begin: *library.get(b"flagperf_capture_begin\0").map_err(Error::failed)?,
            end: *library.get(b"flagperf_capture_end\0").map_err(Error::failed)?,
            leave: *library.get(b"flagperf_capture_leave\0").map_err(Error::failed)?,
            replay: *library.get(b"flagperf_capture_replay\0").map_err(Error::failed)?,
            free: *library.get(b"flagperf_capture_free\0").map_err(Error::failed)?,
        }
    };
    std::mem::forget(library);
    Ok(table)
}

/// What a call told.
fn told(text: *const c_char) -> Result<(), Error> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: a text that stays until the next call on this thread.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    Err(Error::Failed(text.lines().next().unwrap_or_default().to_owned()))
}
