//! The message of a caught panic.

use std::any::Any;

/// Returns the message of a panic, or a placeholder when its payload is not text.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_text_are_returned() {
        let caught = |panics: fn()| std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(panic_text(&*caught(|| panic!("plain"))), "plain");
        assert_eq!(panic_text(&*caught(|| panic!("{} and {}", 1, 2))), "1 and 2");
        assert_eq!(panic_text(&*caught(|| std::panic::panic_any(7))), "panic without a message");
    }
}
