//! A panic inside an engine's library becomes an error with its whole text and its place.
//!
//! Knows no engine.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

use flagperf_onnx::panic_text;

use super::EngineError;

/// Panics that are remembered until they are caught: more than one, for engines run in several threads at once.
const REMEMBERED: usize = 16;

/// Text and place of the last panics, in whichever thread of the engine they were.
static LAST: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());

/// Does `work`, a call into the library of `engine`; `doing` says what it is for.
///
/// # Errors
/// Those of `work`; [`EngineError::Failed`] when it panics.
pub(super) fn caught<T>(
    engine: &str,
    doing: &str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    note_places();
    // What the panic left half done is the engine's session, which nobody uses after an error.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        let place = place_of(&text).map(|place| format!(", at {place}")).unwrap_or_default();
        Err(EngineError::Failed(format!("engine `{engine}` panicked while {doing}: {text}{place}")))
    })
}

/// From now on the place of each panic is noted: what is caught carries the text alone.
fn note_places() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if let Some(place) = panic.location() {
                let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
                last.truncate(REMEMBERED - 1);
                last.push_front((panic_text(panic.payload()).to_owned(), format!("{}:{}", place.file(), place.line())));
            }
            print(panic);
        }));
    });
}

fn place_of(text: &str) -> Option<String> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.iter().find(|(noted, _)| noted == text).map(|(_, place)| place.clone())
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_whole_text_and_place() {
        let long = "word ".repeat(2_000);
        let error = caught::<()>("toy", "loading", || panic!("step {long}")).unwrap_err().to_string();
        assert!(error.starts_with("engine `toy` panicked while loading: step word word "), "{error}");
        assert!(error.contains(&long) && error.contains(", at runtime/engine/panics.rs:"), "{error}");
    }

    #[test]
    fn a_panic_in_a_thread_of_the_engine_has_its_place_too() {
        let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let error = caught::<()>("toy", "computing", || pool.install(|| panic!("no such axis"))).unwrap_err();
        let error = error.to_string();
        let begins = "engine `toy` panicked while computing: no such axis, at runtime/engine/panics.rs:";
        assert!(error.starts_with(begins), "{error}");
    }

    #[test]
    fn errors_and_results_pass() {
        assert_eq!(caught("toy", "loading", || Ok(7)), Ok(7));
        let error = EngineError::Failed("no".to_owned());
        assert_eq!(caught::<()>("toy", "loading", || Err(error.clone())), Err(error));
    }
}
