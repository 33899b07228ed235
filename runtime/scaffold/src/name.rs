//! The names that a new case, vendor or engine may have.

use super::ScaffoldError;
use flagperf_config::{KEYS_FOLDER, SHARED_SCRIPTS};

const LENGTH_MAX: usize = 64;

/// Words that YAML reads as another value than text: null, a truth value or a number.
const YAML_WORDS: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "none"];

/// Checks the name of a case.
///
/// # Errors
/// When the name is not allowed.
pub fn check_case(name: &str) -> Result<(), ScaffoldError> {
    let what = "a case";
    check(what, name)?;
    let reason = match name {
        SHARED_SCRIPTS => "scripts/lib contains the shared scripts",
        "api" => "scripts/api describes the functions of the host",
        KEYS_FOLDER => "configs/keys has public keys",
        _ => return Ok(()),
    };
    Err(ScaffoldError::Reserved { what, name: name.to_owned(), reason })
}

/// Checks the name of a vendor or an engine: what begins with a letter and has only letters, digits, `_` and `-` is the
/// same in a path, in YAML, in a shell and in `--set`.
///
/// # Errors
/// When the name is not allowed.
pub fn check(what: &'static str, name: &str) -> Result<(), ScaffoldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
    if !begins || name.len() > LENGTH_MAX || !name.chars().all(allowed) {
        return Err(ScaffoldError::Name { what, name: name.to_owned() });
    }
    if YAML_WORDS.contains(&name.to_ascii_lowercase().as_str()) {
        let reason = "YAML reads it as another value than text";
        return Err(ScaffoldError::Reserved { what, name: name.to_owned(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_in_a_path_in_yaml_and_in_a_shell() {
        for name in ["bert", "Bert-base_2", "x", &"x".repeat(64)] {
            check_case(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for name in ["", "../x", "a/b", "a b", "2x", "_x", "-x", "a.b", "a:b", "é", "a$b", &"x".repeat(65)] {
            let error = check_case(name).unwrap_err();
            assert!(matches!(error, ScaffoldError::Name { .. }), "{name}: {error}");
            assert!(error.hint().contains("begins with a letter"), "{name}");
        }
    }

    #[test]
    fn a_name_with_another_meaning_is_refused() {
        assert_eq!(
            check_case("lib").unwrap_err().to_string(),
            "`lib` cannot be the name of a case: scripts/lib contains the shared scripts"
        );
        check("a vendor", "lib").unwrap();
        for name in ["null", "True", "no"] {
            assert!(matches!(check("a vendor", name).unwrap_err(), ScaffoldError::Reserved { .. }), "{name}");
        }
    }
}
