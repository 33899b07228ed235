//! Findings about a configuration: errors, warnings and notes, each with its position.

use std::fmt;

use super::{CaseKey, ConfigProblem, Origin};
use flagperf_core::event::Level;
use flagperf_core::text::one_line;

/// One finding about a configuration, with its position and a hint.
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
    /// Creates an error at `origin`.
    pub fn error(origin: Origin, problem: impl Into<MessageAndHint>) -> Self {
        Finding::new(Level::Error, origin, problem)
    }

    /// Creates a warning, which the reader of a result should know.
    pub fn warning(origin: Origin, problem: impl Into<MessageAndHint>) -> Self {
        Finding::new(Level::Warning, origin, problem)
    }

    /// Creates a note about the normal course of events, for the log.
    pub fn info(origin: Origin, problem: impl Into<MessageAndHint>) -> Self {
        Finding::new(Level::Info, origin, problem)
    }

    fn new(level: Level, origin: Origin, problem: impl Into<MessageAndHint>) -> Self {
        let MessageAndHint { message, hint, cause } = problem.into();
        Finding { level, origin, message, hint, cause, cases: Vec::new() }
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

/// A message, its hint and its cause. Every problem of `config` and `plan` is converted to this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAndHint {
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
    /// What has to change.
    pub cause: Cause,
}

impl From<ConfigProblem> for MessageAndHint {
    fn from(problem: ConfigProblem) -> Self {
        MessageAndHint { message: problem.to_string(), hint: problem.hint(), cause: Cause::Configuration }
    }
}

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
            let problem = MessageAndHint { message: "m".to_owned(), hint: String::new(), cause: Cause::Machine };
            let cases = cases.iter().map(|case| (*case).clone()).collect();
            Finding { cases, ..Finding::warning(Origin::Default, problem) }
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
        let (message, hint) = ("no `x\n  hint: y`\x07".to_owned(), "z\rerror: w".to_owned());
        let problem = MessageAndHint { message, hint, cause: Cause::Configuration };
        let text = Finding::error(origin, problem).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(r"\u{1b}[2J\nerror: no `x\n  hint: y`\u{7}"), "{text}");
        assert_eq!(lines[1], r"  hint: z\rerror: w");
    }
}
