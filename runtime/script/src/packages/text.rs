//! `text`: parses what a program prints. Numbers may have units; a text that is not a number gives `()`.

use rhai::plugin::*;
use rhai::{Array, Dynamic, EvalAltResult, Module, NativeCallContext, Position};

use crate::sandbox::{ARRAY_ELEMENTS_MAX, Fallible, script_state};

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

/// Returns the number with which a text begins, and the text after it; `None` if the text begins with something else, or with a
/// number in a form whose value would be a guess: one with separators between its digits (`1,234`), one with several decimal
/// points (`1.2.3`), a hexadecimal one, an exponent without digits (`5e+`), or one beyond the range of `f64`.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start();
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let is_sign = |byte: Option<&u8>| usize::from(matches!(byte, Some(b'-' | b'+')));
    let mut end = is_sign(text.as_bytes().first());
    end += digits(&text[end..]);
    if text[end..].starts_with('.') {
        end += 1 + digits(&text[end + 1..]);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = is_sign(text.as_bytes().get(end + 1));
        match digits(&text[end + 1 + sign..]) {
            // Without a sign it may be a unit, as in `5eV`.
            0 if sign > 0 => return None,
            0 => {}
            exponent => end += 1 + sign + exponent,
        }
    }
    let (number, rest) = text.split_at(end);
    let mut next = rest.chars();
    let goes_on = match (next.next(), next.next()) {
        (Some('.'), _) => true,
        (Some(',' | '_' | '\''), Some(after)) => after.is_ascii_digit(),
        (Some('x' | 'X'), Some(after)) => number.trim_start_matches(['-', '+']) == "0" && after.is_ascii_hexdigit(),
        _ => false,
    };
    let number = number.parse().ok().filter(|number: &f64| number.is_finite() && !goes_on)?;
    Some((number, rest))
}

/// Returns the number with which a text begins, as [`split_number`] does.
fn leading_number(text: &str) -> Option<f64> {
    split_number(text).map(|(number, _)| number)
}

/// Units of memory other than the mebibyte, in lower case.
const OTHER_SIZES: [&str; 12] = ["b", "byte", "bytes", "k", "kb", "kib", "g", "gb", "gib", "t", "tb", "tib"];

/// Returns the number with which a text begins, unless its unit is one of [`OTHER_SIZES`].
fn leading_mebibytes(text: &str) -> Option<f64> {
    let (number, rest) = split_number(text)?;
    let unit: String = rest.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    Some(number).filter(|_| !OTHER_SIZES.contains(&unit.to_lowercase().as_str()))
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

    /// Returns the number with which a text begins, with its exponent if it has one. A unit or any other text may follow. Returns
    /// `()` if the text begins with something else, or if the number is written in a form that would have to be guessed: with
    /// separators between its digits (`1,234`), with several decimal points (`1.2.3`), or in hexadecimal digits (`0x10`).
    ///
    /// ```rhai
    /// text::number("56.5W / 400W") == 56.5 && text::number("3.5e+02") == 350.0 && text::number("N/A") == ()
    /// ```
    #[rhai_fn(volatile)]
    pub fn number(text: &str) -> Dynamic {
        to_dynamic(leading_number(text))
    }

    /// Returns the number of mebibytes with which a text begins, in bytes. The unit may be absent (`3`) or written as `M`, `MB` or
    /// `MiB`. Returns `()` if the text does not begin with a number that `text::number` reads, or has the unit of another size.
    ///
    /// ```rhai
    /// text::mebibytes("3 MiB") == 3145728 && text::mebibytes("3 GiB") == () && text::mebibytes("[N/A]") == ()
    /// ```
    #[rhai_fn(volatile)]
    pub fn mebibytes(text: &str) -> Dynamic {
        let bytes = leading_mebibytes(text).map(|number| (number * f64::from(1 << 20)).round());
        // No memory is larger, and the conversion cannot overflow.
        to_dynamic(bytes.filter(|bytes| bytes.abs() < 1e18).map(|bytes| bytes as i64))
    }

    /// Returns the percentage with which a text begins as a share, 0.07 for `7%`; `()` if it does not begin with a number that
    /// `text::number` reads.
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
            ("1e308", Some(1e308)),
            ("3.5e+02 W", Some(350.0)),
            ("7E-1W", Some(0.7)),
            ("5eV", Some(5.0)),
            ("5e+", None),
            ("1e999", None),
            ("1e5.5", None),
            ("16x(16x)", Some(16.0)),
            ("10x10", Some(10.0)),
            ("0x(", Some(0.0)),
            ("0x10", None),
            ("1, 2", Some(1.0)),
            ("1,234", None),
            ("1_000", None),
            ("1.2.3", None),
            ("12..5", None),
            (".5", Some(0.5)),
            (".", None),
            ("[Not Supported]", None),
            ("- 5", None),
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
    fn a_size_in_another_unit_is_not_taken_for_mebibytes() {
        for (text, number) in [
            ("858/65536 MiB", Some(858.0)),
            ("16", Some(16.0)),
            ("16MB", Some(16.0)),
            ("81920MiB)", Some(81920.0)),
            ("1.5e3 M", Some(1500.0)),
            ("80GiB", None),
            ("80 GB", None),
            ("512 bytes", None),
            ("N/A", None),
        ] {
            assert_eq!(leading_mebibytes(text), number, "{text}");
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
