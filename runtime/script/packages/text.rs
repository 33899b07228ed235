//! `text`: takes apart what a program prints. Numbers may have units; what is no number is `()`.

use rhai::plugin::*;
use rhai::{Array, Dynamic, EvalAltResult, Module, NativeCallContext, Position};

use crate::script::sandbox::{ARRAY_ELEMENTS_MAX, Fallible, script_state};

pub(super) fn module() -> Module {
    rhai::exported_module!(functions)
}

/// Bytes of a value in an array, beside its text.
const VALUE_BYTES: u64 = 64;

/// Returns the parts of a text as an array, within the limits of the script.
fn to_array<'t>(
    context: &NativeCallContext<'_>,
    text: &str,
    parts: impl Iterator<Item = &'t str> + Clone,
) -> Fallible<Array> {
    let count = parts.clone().take(ARRAY_ELEMENTS_MAX + 1).count();
    if count > ARRAY_ELEMENTS_MAX {
        return Err(EvalAltResult::ErrorDataTooLarge("Size of array".into(), Position::NONE).into());
    }
    let bytes = count as u64 * VALUE_BYTES + text.len() as u64;
    script_state(context)?.budget.check_request(bytes)?;
    Ok(parts.map(|part| Dynamic::from(part.to_owned())).collect())
}

/// Splits a text into words. A part in double quotes is one word, without the quotes.
#[derive(Clone)]
struct Words<'t>(&'t str);

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        self.0 = self.0.trim_start();
        let (word, rest) = match self.0.strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
            Some(quoted) => quoted,
            None => self.0.split_at(self.0.find(char::is_whitespace).unwrap_or(self.0.len())),
        };
        if self.0.is_empty() {
            return None;
        }
        self.0 = rest;
        Some(word)
    }
}

/// Returns the number with which a text begins; `None` if it begins with something else.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let is_part = |(at, c): &(usize, char)| c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '-' | '+'));
    let end = text.char_indices().find(|place| !is_part(place)).map_or(text.len(), |(at, _)| at);
    text[..end].parse().ok().filter(|number: &f64| number.is_finite())
}

fn to_dynamic<T: Clone + Send + Sync + 'static>(value: Option<T>) -> Dynamic {
    value.map_or(Dynamic::UNIT, Dynamic::from)
}

#[export_module]
mod functions {
    /// Returns the lines of a text that are not blank, without their line breaks.
    ///
    /// ```rhai
    /// text::lines("a\n\n b\r\n") == ["a", " b"]
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn lines(context: NativeCallContext, text: &str) -> Fallible<Array> {
        to_array(&context, text, text.lines().filter(|line| !line.trim().is_empty()))
    }

    /// Returns the words of a line, which are separated by blanks. A part in double quotes is one word.
    ///
    /// ```rhai
    /// text::words("0  36C \"P800 OAM\"") == ["0", "36C", "P800 OAM"]
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn words(context: NativeCallContext, line: &str) -> Fallible<Array> {
        to_array(&context, line, Words(line))
    }

    /// Returns the parts of a line between separators, without blanks around them.
    ///
    /// ```rhai
    /// text::cells("GPU-1, 34, 56 W", ",") == ["GPU-1", "34", "56 W"]
    /// ```
    #[rhai_fn(return_raw, volatile)]
    pub fn cells(context: NativeCallContext, line: &str, separator: &str) -> Fallible<Array> {
        if separator.is_empty() {
            return Err("the separator is empty".into());
        }
        to_array(&context, line, line.split(separator).map(str::trim))
    }

    /// Returns the number with which a text begins, whatever follows it; `()` if it begins with something else.
    ///
    /// ```rhai
    /// text::number("56.5W / 400W") == 56.5 && text::number("N/A") == ()
    /// ```
    #[rhai_fn(volatile)]
    pub fn number(text: &str) -> Dynamic {
        to_dynamic(leading_number(text))
    }

    /// Returns the number of mebibytes with which a text begins, in bytes; `()` if it begins with something else.
    ///
    /// ```rhai
    /// text::mebibytes("3 MiB") == 3145728 && text::mebibytes("[N/A]") == ()
    /// ```
    #[rhai_fn(volatile)]
    pub fn mebibytes(text: &str) -> Dynamic {
        let bytes = leading_number(text).map(|number| (number * f64::from(1 << 20)).round());
        // Larger numbers than these are no sizes of memories; the conversion cannot overflow.
        to_dynamic(bytes.filter(|bytes| bytes.abs() < 1e18).map(|bytes| bytes as i64))
    }

    /// Returns the percentage with which a text begins as a share, 0.07 for `7%`; `()` if it begins with something else.
    ///
    /// ```rhai
    /// text::percent("50%") == 0.5 && text::percent("N/A") == ()
    /// ```
    #[rhai_fn(volatile)]
    pub fn percent(text: &str) -> Dynamic {
        to_dynamic(leading_number(text).map(|number| number / 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_ends_where_something_else_begins() {
        for (text, number) in [
            ("34C", Some(34.0)),
            (" 56.25 W", Some(56.25)),
            ("-5", Some(-5.0)),
            ("0MiB", Some(0.0)),
            ("858/65536 MiB", Some(858.0)),
            ("1.2.3", None),
            ("N/A", None),
            ("", None),
            ("-", None),
            ("nan", None),
            ("inf", None),
        ] {
            assert_eq!(leading_number(text), number, "{text}");
        }
    }

    #[test]
    fn words_in_quotes_stay_together() {
        let words = |text: &'static str| Words(text).collect::<Vec<_>>();
        assert_eq!(words("  a  \"b c\" d "), ["a", "b c", "d"]);
        assert_eq!(words("a \"b c"), ["a", "\"b", "c"], "an open quote");
        assert_eq!(words(" \t"), [""; 0]);
    }
}
