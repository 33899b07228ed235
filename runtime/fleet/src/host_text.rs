//! Text that a host states: it is shown on one line and of limited length, so that a host can neither forge a line nor flood
//! the terminal and the records.

use std::fmt;

use serde::{Deserialize, Serialize};

use flagperf_config::{Finding, Origin};
use flagperf_core::text::{one_line, truncate};

/// Largest number of bytes of a text of a host.
const TEXT_BYTES_MAX: usize = 2000;
/// Largest number of errors of a host that are shown.
const ERRORS_MAX: usize = 20;

/// Returns a text of a host as one line of limited length.
pub(super) fn short(text: &str) -> String {
    truncate(&one_line(text), TEXT_BYTES_MAX).into_owned()
}

/// An error on a host, because of which it does not run a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostError {
    /// The error, with its place.
    pub text: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl HostError {
    /// Returns an error without a hint.
    pub(super) fn new(text: impl Into<String>) -> Self {
        HostError { text: text.into(), hint: String::new() }
    }

    /// Returns the error as a host may state it.
    fn shortened(&self) -> Self {
        HostError { text: short(&self.text), hint: short(&self.hint) }
    }
}

impl From<&Finding> for HostError {
    fn from(finding: &Finding) -> Self {
        let place = if finding.origin == Origin::Default { String::new() } else { format!("{}: ", finding.origin) };
        HostError { text: format!("{place}{}", finding.message), hint: finding.hint.clone() }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = if self.hint.is_empty() { String::new() } else { format!("\n  hint: {}", self.hint) };
        write!(f, "{}{hint}", self.text)
    }
}

/// Returns the errors of a host as they are shown: the first ones, each shortened, and the number of the others.
pub(super) fn shown_errors(errors: &[HostError]) -> Vec<HostError> {
    let others = errors.len().saturating_sub(ERRORS_MAX);
    let others = (others > 0).then(|| HostError::new(format!("{others} more errors, which are not shown")));
    errors.iter().take(ERRORS_MAX).map(HostError::shortened).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_can_neither_forge_a_line_nor_flood_the_terminal() {
        let forged =
            HostError { text: "no data\nerror: host `h9`: x".into(), hint: format!("\x1b[2J{}", "a".repeat(9000)) };
        let shown = shown_errors(&vec![forged; 3000]);
        assert_eq!(shown.len(), ERRORS_MAX + 1);
        let text = shown[0].to_string();
        assert!(text.starts_with("no data\\nerror: host `h9`: x\n  hint: \\u{1b}[2Jaaa"), "{text}");
        assert!(text.len() < 3000 && text.lines().count() == 2, "{}", text.len());
        assert_eq!(shown[ERRORS_MAX].to_string(), "2980 more errors, which are not shown");
    }
}
