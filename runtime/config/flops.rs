//! The `flops` expression: numbers joined by `*`. It is parsed, never executed.

/// An invalid `flops` expression.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlopsError {
    /// A factor is not a number.
    #[error("`{expression}`: `{found}` at character {position} is not a number")]
    Number {
        /// The expression.
        expression: String,
        /// The text found in place of a number.
        found: String,
        /// Its position in characters, from 1.
        position: usize,
    },
    /// The product is not positive and finite.
    #[error("`{expression}` is {value}, but the number of operations must be positive and finite")]
    Product {
        /// The expression.
        expression: String,
        /// Its value.
        value: f64,
    },
}

/// Parses an expression such as `4.12e9` or `2*512*0.33e9` and returns its product.
///
/// # Errors
/// Fails when a factor is not a number, or when the product is not positive and finite.
pub fn parse_flops(expression: &str) -> Result<f64, FlopsError> {
    let mut position = 1;
    let mut product = 1.0;
    for factor in expression.split('*') {
        product *= number(factor).ok_or_else(|| FlopsError::Number {
            expression: expression.to_owned(),
            found: factor.trim().to_owned(),
            position: position + factor.chars().take_while(|c| c.is_whitespace()).count(),
        })?;
        position += factor.chars().count() + 1;
    }
    if product > 0.0 && f64::is_finite(product) {
        Ok(product)
    } else {
        Err(FlopsError::Product { expression: expression.to_owned(), value: product })
    }
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
    }

    #[test]
    fn anything_else_is_refused_with_its_position() {
        let message = |text: &str| parse_flops(text).unwrap_err().to_string();
        assert_eq!(message("2*x*3"), "`2*x*3`: `x` at character 3 is not a number");
        assert_eq!(message("2**3"), "`2**3`: `` at character 3 is not a number");
        assert_eq!(message("2* exit(1)"), "`2* exit(1)`: `exit(1)` at character 4 is not a number");
        assert_eq!(message("inf"), "`inf`: `inf` at character 1 is not a number");
        assert_eq!(message(""), "``: `` at character 1 is not a number");
        assert_eq!(message("-1"), "`-1`: `-1` at character 1 is not a number");
        assert_eq!(message("0*5"), "`0*5` is 0, but the number of operations must be positive and finite");
        assert_eq!(
            message("1e300*1e300"),
            "`1e300*1e300` is inf, but the number of operations must be positive and finite"
        );
    }
}
