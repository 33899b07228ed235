//! Turns a panic inside an engine's library into an error with the panic's whole message and location.
//!
//! Knows nothing about particular engines.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

use flagperf_core::panic::panic_text;

use super::EngineError;

/// The number of panics that are remembered until they are caught. It is more than one because engines run several
/// threads at once.
const PANICS_MAX: usize = 16;

/// Message and location of the latest panics of all threads, newest first.
static RECENT: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());

/// Runs `work`, a call into the library of `engine`; `doing` describes the call in the error message.
///
/// # Errors
/// Those of `work`, and [`EngineError::Failed`] when `work` panics.
pub(super) fn catch_panic<T>(
    engine: &str,
    doing: &str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    record_locations();
    // A panic leaves only the engine's session in an inconsistent state, and a session is not used after an error.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        let location = location_of(&text).map(|location| format!(", at {location}")).unwrap_or_default();
        Err(EngineError::Failed(format!("engine `{engine}` panicked while {doing}: {text}{location}")))
    })
}

/// Installs a hook that records the location of each panic: the payload of a caught panic contains the message only.
fn record_locations() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if let Some(location) = panic.location() {
                let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
                recent.truncate(PANICS_MAX - 1);
                let location = format!("{}:{}", location.file(), location.line());
                recent.push_front((panic_text(panic.payload()).to_owned(), location));
            }
            print(panic);
        }));
    });
}

fn location_of(text: &str) -> Option<String> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.iter().find(|(recorded, _)| recorded == text).map(|(_, location)| location.clone())
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_whole_message_and_location() {
        let long = "word ".repeat(2_000);
        let error = catch_panic::<()>("toy", "loading", || panic!("step {long}")).unwrap_err().to_string();
        assert!(error.starts_with("engine `toy` panicked while loading: step word word "), "{error}");
        assert!(error.contains(&long) && error.contains(", at runtime/engine/src/panics.rs:"), "{error}");
    }

    #[test]
    fn a_panic_in_an_engine_thread_is_reported_with_its_location() {
        let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let error = catch_panic::<()>("toy", "computing", || pool.install(|| panic!("no such axis"))).unwrap_err();
        let error = error.to_string();
        let begins = "engine `toy` panicked while computing: no such axis, at runtime/engine/src/panics.rs:";
        assert!(error.starts_with(begins), "{error}");
    }

    #[test]
    fn results_and_errors_pass_through() {
        assert_eq!(catch_panic("toy", "loading", || Ok(7)), Ok(7));
        let error = EngineError::Failed("no".to_owned());
        assert_eq!(catch_panic::<()>("toy", "loading", || Err(error.clone())), Err(error));
    }
}
