//! The `flops` expression: a sum of products of numbers. It is parsed, never executed.

/// An invalid `flops` expression.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlopsError {
    /// A part of the expression is not a number.
    #[error("`{expression}`: `{found}` at character {position} is not a number")]
    Number {
        expression: String,
        /// The text found in place of a number.
        found: String,
        /// Its position in characters, from 1.
        position: usize,
    },
    /// The value is not positive and finite.
    #[error("`{expression}` is {value}, but the number of operations must be positive and finite")]
    Value {
        expression: String,
        /// Its value.
        value: f64,
    },
}

/// Parses an expression such as `4.12e9`, `2*512*0.33e9` or `64*3*32*32 + 64*2` and returns its value.
///
/// # Errors
/// Fails when a part is not a number, or when the value is not positive and finite.
pub fn parse_flops(expression: &str) -> Result<f64, FlopsError> {
    let (mut sum, mut product) = (0.0, 1.0);
    let mut rest = expression;
    loop {
        let end = number_end(rest);
        let (part, after) = rest.split_at(end);
        product *= number(part).ok_or_else(|| {
            let before = &expression[..expression.len() - rest.len()];
            let spaces = part.chars().take_while(|c| c.is_whitespace()).count();
            let position = before.chars().count() + spaces + 1;
            FlopsError::Number { expression: expression.to_owned(), found: part.trim().to_owned(), position }
        })?;
        if !after.starts_with('*') {
            sum += std::mem::replace(&mut product, 1.0);
        }
        match after.get(1..) {
            Some(next) => rest = next,
            None => break,
        }
    }
    if sum > 0.0 && f64::is_finite(sum) {
        Ok(sum)
    } else {
        Err(FlopsError::Value { expression: expression.to_owned(), value: sum })
    }
}

/// Returns the end of the first part of a text, in bytes: the next `*` or `+`. A plus sign after `e`, as in `4.12e+9`,
/// belongs to the number.
fn number_end(text: &str) -> usize {
    let mut operators = text.match_indices(['*', '+']);
    let is_exponent = |at: usize| {
        let before = text[..at].trim_start();
        before.ends_with(['e', 'E']) && before.starts_with(|c: char| c.is_ascii_digit() || c == '.')
    };
    operators.find(|(at, sign)| *sign == "*" || !is_exponent(*at)).map_or(text.len(), |(at, _)| at)
}

/// Parses a decimal number; rejects `inf` and `nan`, which Rust would accept.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.').then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_products_have_a_value() {
        assert_eq!(parse_flops("4.12e9"), Ok(4.12e9));
        assert_eq!(parse_flops("4.12e+9"), Ok(4.12e9));
        assert_eq!(parse_flops("4120000000"), Ok(4.12e9));
        assert_eq!(parse_flops(" 2 * 512*0.33e9 "), Ok(2.0 * 512.0 * 0.33e9));
        assert_eq!(parse_flops("64*3*32*32 + 64*2"), Ok(196_736.0));
        assert_eq!(parse_flops("1e+2+2*3+4"), Ok(110.0));
    }

    #[test]
    fn anything_else_is_refused_with_its_position() {
        let message = |text: &str| parse_flops(text).unwrap_err().to_string();
        assert_eq!(message("2*x*3"), "`2*x*3`: `x` at character 3 is not a number");
        assert_eq!(message("2**3"), "`2**3`: `` at character 3 is not a number");
        assert_eq!(message("2* exit(1)"), "`2* exit(1)`: `exit(1)` at character 4 is not a number");
        assert_eq!(message("inf"), "`inf`: `inf` at character 1 is not a number");
        assert_eq!(message("2*3+"), "`2*3+`: `` at character 5 is not a number");
        assert_eq!(message("+1"), "`+1`: `` at character 1 is not a number");
        assert_eq!(message("2 + y*3"), "`2 + y*3`: `y` at character 5 is not a number");
        assert_eq!(message(""), "``: `` at character 1 is not a number");
        assert_eq!(message("-1"), "`-1`: `-1` at character 1 is not a number");
        assert_eq!(message("0*5"), "`0*5` is 0, but the number of operations must be positive and finite");
        assert_eq!(
            message("1e300*1e300"),
            "`1e300*1e300` is inf, but the number of operations must be positive and finite"
        );
    }
}
