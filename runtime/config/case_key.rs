//! The key of a case in `CASES`: `<case>:<framework>[_<version>]`.

use std::fmt;
use std::str::FromStr;

use super::ConfigProblem;

/// A case and its framework.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaseKey {
    /// The case: `resnet50`.
    pub case: String,
    /// The framework as written: `interpreter`, `pytorch_1.13`.
    pub framework: String,
}

impl CaseKey {
    /// Returns the framework without its version: `pytorch` for `pytorch_1.13`.
    pub fn framework_name(&self) -> &str {
        match self.framework.rsplit_once('_') {
            Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
            _ => &self.framework,
        }
    }

    /// Returns the name of the case's folder in a run, such as `resnet50_interpreter`.
    pub fn folder(&self) -> String {
        format!("{}_{}", self.case, self.framework)
    }
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.case, self.framework)
    }
}

impl FromStr for CaseKey {
    type Err = ConfigProblem;

    fn from_str(text: &str) -> Result<Self, ConfigProblem> {
        match text.split_once(':') {
            Some((case, framework)) if is_name(case) && is_name(framework) => {
                Ok(CaseKey { case: case.to_owned(), framework: framework.to_owned() })
            }
            _ => Err(ConfigProblem::CaseKey { key: text.to_owned() }),
        }
    }
}

/// Returns whether `text` is a valid folder name without path separators or `..`.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric())
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_key_is_a_case_and_a_framework_with_or_without_a_version() {
        let key: CaseKey = "resnet50:pytorch_1.13".parse().unwrap();
        assert_eq!((key.case.as_str(), key.framework.as_str()), ("resnet50", "pytorch_1.13"));
        assert_eq!(key.framework_name(), "pytorch");
        assert_eq!("bert:my_framework".parse::<CaseKey>().unwrap().framework_name(), "my_framework");
        assert_eq!(key.folder(), "resnet50_pytorch_1.13");
        assert_eq!(key.to_string(), "resnet50:pytorch_1.13");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["resnet50", "resnet50:", ":interpreter", "a:b:c", "../x:interpreter", "a/b:c"] {
            let message = text.parse::<CaseKey>().unwrap_err().to_string();
            assert_eq!(message, format!("`{text}` is not a case key (`<case>:<framework>[_<version>]`)"));
        }
    }
}
