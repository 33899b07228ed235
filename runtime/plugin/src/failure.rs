//! Errors and panics of calls: each becomes a status, and the last error of each thread is kept for the host.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

use crate::Error;
use crate::abi::{
    FLAGPERF_BAD_OPTION, FLAGPERF_FAILED, FLAGPERF_LACKS_PRECISION, FLAGPERF_OK, FLAGPERF_OUT_OF_MEMORY,
    FLAGPERF_UNAVAILABLE, FLAGPERF_UNKNOWN_OPERATOR, FlagperfError, FlagperfStatus,
};

/// An error with the texts that it points to.
struct LastError {
    error: FlagperfError,
    _texts: Vec<CString>,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Runs `work` and returns its status. An error or a panic is kept for [`last_error`].
pub(crate) fn run_fallible(work: impl FnOnce() -> Result<(), Error>) -> FlagperfStatus {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panic_error(&*panic)));
    let Err(error) = result else { return FLAGPERF_OK };
    let status = status(&error);
    LAST.set(Some(LastError::new(&error)));
    status
}

/// Runs `work`, which has no error, and returns `fallback` if it panics.
pub(crate) fn catch_panic<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(fallback)
}

/// Returns the last error of this thread, for the host.
pub(crate) extern "C" fn last_error() -> *const FlagperfError {
    LAST.with_borrow(|last| last.as_ref().map_or(null(), |last| &raw const last.error))
}

fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Failed(format!("the plug-in panicked: {}", text.unwrap_or("no message")))
}

fn status(error: &Error) -> FlagperfStatus {
    match error {
        Error::Failed(_) => FLAGPERF_FAILED,
        Error::Unavailable { .. } => FLAGPERF_UNAVAILABLE,
        Error::OutOfMemory { .. } => FLAGPERF_OUT_OF_MEMORY,
        Error::UnknownOperator { .. } => FLAGPERF_UNKNOWN_OPERATOR,
        Error::LacksPrecision { .. } => FLAGPERF_LACKS_PRECISION,
        Error::BadOption { .. } => FLAGPERF_BAD_OPTION,
    }
}

impl LastError {
    fn new(error: &Error) -> Self {
        let mut texts = Vec::new();
        let mut text = |text: &str| {
            let owned = c_string(text);
            let address: *const c_char = owned.as_ptr();
            texts.push(owned);
            address
        };
        let message = match error {
            Error::BadOption { reason, .. } => reason.clone(),
            Error::LacksPrecision { has } => has.clone(),
            error => error.to_string(),
        };
        let mut raw =
            FlagperfError { message: text(&message), hint: null(), option: null(), op: null(), node: null(), bytes: 0 };
        match error {
            Error::Failed(_) | Error::LacksPrecision { .. } => {}
            Error::Unavailable { remedy, .. } => raw.hint = text(remedy),
            Error::OutOfMemory { bytes } => raw.bytes = *bytes,
            Error::UnknownOperator { op, node } => (raw.op, raw.node) = (text(op), text(node)),
            Error::BadOption { option, .. } => raw.option = text(option),
        }
        LastError { error: raw, _texts: texts }
    }
}

/// Converts a text for C, without its zero bytes, which a C text cannot contain.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        // SAFETY: an error has just been kept on this thread.
        let text = unsafe { CStr::from_ptr((*last_error()).message) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn an_error_is_kept_until_the_next_error() {
        assert_eq!(run_fallible(|| Err(Error::OutOfMemory { bytes: 7 })), FLAGPERF_OUT_OF_MEMORY);
        assert_eq!(run_fallible(|| Ok(())), FLAGPERF_OK);
        assert_eq!(message(), "out of memory: 7 bytes requested");
        let option = Error::BadOption { option: "level".into(), reason: "`9` is too high".into() };
        assert_eq!(run_fallible(|| Err(option)), FLAGPERF_BAD_OPTION);
        assert_eq!(message(), "`9` is too high");
    }

    #[test]
    fn a_panic_is_an_error_of_the_call_in_which_it_happened() {
        assert_eq!(run_fallible(|| panic!("no {}", "device")), FLAGPERF_FAILED);
        assert_eq!(message(), "the plug-in panicked: no device");
        assert_eq!(catch_panic(5, || panic!("again")), 5);
    }
}
