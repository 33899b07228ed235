//! Findings about a configuration: errors, warnings and notes, each with its position.

use std::fmt;

use super::{CaseKey, Origin, list_names, nearest};
use flagperf_core::event::Level;
use flagperf_core::text::one_line;

/// What is wrong with a configuration, or should be known about it. A function that finds it builds all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Severity; an error prevents the run.
    pub level: Level,
    /// Position of the cause.
    pub origin: Origin,
    /// Lower-case fragment with the value in backticks.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// What has to change.
    pub cause: Cause,
    /// The cases that it is about; empty for the site, the vendor or all cases.
    pub cases: Vec<CaseKey>,
}

/// What has to change so that a finding disappears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The configuration or a script: the same mistake on every machine.
    Configuration,
    /// The machine: something that a case uses is missing or does not work here.
    Machine,
}

impl Finding {
    /// Creates an error in the configuration at `origin`.
    pub fn error(origin: Origin, message: impl Into<String>) -> Self {
        let (level, cause) = (Level::Error, Cause::Configuration);
        Finding { level, origin, message: message.into(), hint: String::new(), cause, cases: Vec::new() }
    }

    /// Creates a warning, which the reader of a result should know.
    pub fn warning(origin: Origin, message: impl Into<String>) -> Self {
        Finding { level: Level::Warning, ..Finding::error(origin, message) }
    }

    /// Creates a note about the normal course of events, for the log.
    pub fn info(origin: Origin, message: impl Into<String>) -> Self {
        Finding { level: Level::Info, ..Finding::error(origin, message) }
    }

    /// Creates an error whose position only the caller knows; it adds the position with [`Finding::at`].
    pub fn unplaced(message: impl Into<String>) -> Self {
        Finding::error(Origin::Default, message)
    }

    /// Sets the position.
    pub fn at(self, origin: Origin) -> Self {
        Finding { origin, ..self }
    }

    /// Sets what to do about it.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Finding { hint: hint.into(), ..self }
    }

    /// Notes that the machine has to change, not the configuration.
    pub fn on_machine(self) -> Self {
        Finding { cause: Cause::Machine, ..self }
    }

    /// Returns whether the reader of a case's record should know the finding: it is about this case, or about all.
    pub fn concerns(&self, case: &CaseKey) -> bool {
        self.cases.is_empty() || self.cases.contains(case)
    }

    /// Notes that these findings are about a case.
    pub fn assign(findings: &mut [Finding], case: &CaseKey) {
        findings.iter_mut().for_each(|finding| finding.cases = vec![case.clone()]);
    }

    /// Merges findings that differ only in their cases: several cases may share a script or an engine.
    pub fn merge(findings: Vec<Finding>) -> Vec<Finding> {
        let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
        for finding in findings {
            let cases = finding.cases.clone();
            let same = |known: &&mut Finding| Finding { cases: cases.clone(), ..(**known).clone() } == finding;
            match merged.iter_mut().find(same) {
                // One that is about all cases stays so.
                Some(known) if known.cases.is_empty() || cases.is_empty() => known.cases.clear(),
                Some(known) => {
                    let new = cases.into_iter().filter(|case| !known.cases.contains(case)).collect::<Vec<_>>();
                    known.cases.extend(new);
                }
                None => merged.push(finding),
            }
        }
        merged
    }
}

/// Returns the known name that was probably meant, as the end of a message; empty if there is none.
pub(super) fn nearest_note(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (nearest: `{name}`)"))
}

/// Returns the hint that names what was probably meant, or else another one.
pub fn did_you_mean(nearest: Option<&str>, otherwise: &str) -> String {
    nearest.map_or_else(|| otherwise.to_owned(), |name| format!("did you mean `{name}`?"))
}

/// Returns the error about a case that has no folder in `configs/`.
pub fn unknown_case<'n>(case: &str, known: impl Iterator<Item = &'n str> + Clone) -> Finding {
    let hint = did_you_mean(nearest(case, known.clone()), "a case has a folder in configs/ and one in scripts/");
    Finding::unplaced(format!("unknown case `{case}` (known: {})", list_names(known))).with_hint(hint)
}

/// Returns the error about a required key that a file lacks; `about` describes the key.
pub fn missing_key(key: &str, about: &str) -> Finding {
    Finding::unplaced(format!("`{key}` is missing")).with_hint(about)
}

impl std::error::Error for Finding {}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Default {
            write!(f, "{}: ", one_line(&self.origin.to_string()))?;
        }
        write!(f, "{}", one_line(&self.message))?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", one_line(&self.hint))?;
        }
        Ok(())
    }
}

/// All findings, in order. When returned as an error, they contain at least one [`Level::Error`].
#[derive(Clone, Debug, Default, PartialEq, thiserror::Error)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Returns whether there is an error among the findings.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Error)
    }

    /// Returns whether one of the errors is a mistake in the configuration or in a script, not a fault of the machine.
    pub fn has_mistakes(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Error && finding.cause == Cause::Configuration)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.0.iter().filter(|finding| finding.level == Level::Error);
        for (index, finding) in errors.enumerate() {
            write!(f, "{}{finding}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_finding_about_several_cases_is_kept_once_with_all_of_them() {
        let key = |text: &str| text.parse::<CaseKey>().unwrap();
        let (first, second) = (key("a:x"), key("b:x"));
        let finding = |cases: &[&CaseKey]| {
            let cases = cases.iter().map(|case| (*case).clone()).collect();
            Finding { cases, ..Finding::warning(Origin::Default, "m").on_machine() }
        };
        let merged = Finding::merge(vec![finding(&[&first]), finding(&[&second]), finding(&[&first])]);
        assert_eq!(merged, [finding(&[&first, &second])]);
        assert!(merged[0].concerns(&second) && !merged[0].concerns(&key("b:y")));
        let merged = Finding::merge(vec![finding(&[&first]), finding(&[])]);
        assert!(merged.len() == 1 && merged[0].concerns(&second));
    }

    #[test]
    fn text_of_a_file_cannot_begin_a_line_of_a_finding_or_control_a_terminal() {
        let origin = Origin::CommandLine("--set a=\x1b[2J\nerror".to_owned());
        let text = Finding::error(origin, "no `x\n  hint: y`\x07").with_hint("z\rerror: w").to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(r"\u{1b}[2J\nerror: no `x\n  hint: y`\u{7}"), "{text}");
        assert_eq!(lines[1], r"  hint: z\rerror: w");
    }
}
