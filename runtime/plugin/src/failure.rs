//! The last error of each thread, and the border that panics do not pass.

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

/// Does `work`; an error or a panic is kept for [`last_error`].
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Error>) -> FlagperfStatus {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    let Err(error) = result else { return FLAGPERF_OK };
    let status = status(&error);
    LAST.set(Some(LastError::new(&error)));
    status
}

/// Asks for something that cannot fail; after a panic it is `otherwise`.
pub(crate) fn infallible<T>(otherwise: T, question: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(question)).unwrap_or(otherwise)
}

/// What the host asks after a failure.
pub(crate) extern "C" fn last_error() -> *const FlagperfError {
    LAST.with_borrow(|last| last.as_ref().map_or(null(), |last| &raw const last.error))
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Failed(format!("the plug-in panicked: {}", text.unwrap_or("for no reason given")))
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
        let mut made =
            FlagperfError { message: text(&message), hint: null(), option: null(), op: null(), node: null(), bytes: 0 };
        match error {
            Error::Failed(_) | Error::LacksPrecision { .. } => {}
            Error::Unavailable { remedy, .. } => made.hint = text(remedy),
            Error::OutOfMemory { bytes } => made.bytes = *bytes,
            Error::UnknownOperator { op, node } => (made.op, made.node) = (text(op), text(node)),
            Error::BadOption { option, .. } => made.option = text(option),
        }
        LastError { error: made, _texts: texts }
    }
}

/// A text for C; a zero byte, which C cannot have inside, is left out.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        // SAFETY: an error was kept on this thread just now.
        let text = unsafe { CStr::from_ptr((*last_error()).message) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn an_error_is_kept_until_the_next() {
        assert_eq!(guard(|| Err(Error::OutOfMemory { bytes: 7 })), FLAGPERF_OUT_OF_MEMORY);
        assert_eq!(guard(|| Ok(())), FLAGPERF_OK);
        assert_eq!(message(), "out of memory: 7 bytes asked for");
        let option = Error::BadOption { option: "level".into(), reason: "`9` is too high".into() };
        assert_eq!(guard(|| Err(option)), FLAGPERF_BAD_OPTION);
        assert_eq!(message(), "`9` is too high");
    }

    #[test]
    fn a_panic_is_an_error_of_the_call_it_happened_in() {
        assert_eq!(guard(|| panic!("no {}", "device")), FLAGPERF_FAILED);
        assert_eq!(message(), "the plug-in panicked: no device");
        assert_eq!(infallible(5, || panic!("again")), 5);
    }
}
