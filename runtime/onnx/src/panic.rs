//! The words of a panic that was caught.

use std::any::Any;

/// What a panic said; a placeholder when it was not text.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("for no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_text_are_given() {
        let caught = |panics: fn()| std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(panic_text(&*caught(|| panic!("plain"))), "plain");
        assert_eq!(panic_text(&*caught(|| panic!("{} and {}", 1, 2))), "1 and 2");
        assert_eq!(panic_text(&*caught(|| std::panic::panic_any(7))), "for no reason given");
    }
}
