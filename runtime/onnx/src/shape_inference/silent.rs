//! Panics of a library that are expected.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function and returns its result, or nothing if it panics, of which nothing is printed.
pub(super) fn catch_silently<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_SILENT.get() {
                print(panic);
            }
        }));
    });
    IS_SILENT.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_SILENT.set(false);
    result.ok()
}
