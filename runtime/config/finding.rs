//! What is to be said about a configuration: errors, warnings and notes, each with its place.

use std::fmt;

use super::{ConfigProblem, Origin};
use crate::event::Level;
use crate::text::one_line;

/// One thing to say about a configuration, with its place and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How serious; an error stops everything before anything starts.
    pub level: Level,
    /// Where.
    pub origin: Origin,
    /// Lower-case fragment with the value in backticks.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl Finding {
    /// An error at `origin`.
    pub fn error(origin: Origin, problem: impl Into<Explained>) -> Self {
        Finding::new(Level::Error, origin, problem)
    }

    /// Something the reader of a result should know.
    pub fn warning(origin: Origin, problem: impl Into<Explained>) -> Self {
        Finding::new(Level::Warning, origin, problem)
    }

    /// Normal course, for the log.
    pub fn info(origin: Origin, problem: impl Into<Explained>) -> Self {
        Finding::new(Level::Info, origin, problem)
    }

    fn new(level: Level, origin: Origin, problem: impl Into<Explained>) -> Self {
        let Explained { message, hint } = problem.into();
        Finding { level, origin, message, hint }
    }
}

/// A message and its hint: what every problem of `config` and `plan` becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What is wrong.
    pub message: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl From<ConfigProblem> for Explained {
    fn from(problem: ConfigProblem) -> Self {
        Explained { message: problem.to_string(), hint: problem.hint() }
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

/// Everything found, in order. As an error it holds at least one [`Level::Error`].
#[derive(Clone, Debug, Default, PartialEq, thiserror::Error)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Whether something is wrong enough to stop.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Error)
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
    fn what_a_file_says_cannot_begin_a_line_of_a_finding_or_steer_a_terminal() {
        let origin = Origin::CommandLine("--set a=\x1b[2J\nerror".to_owned());
        let explained = Explained { message: "no `x\n  hint: y`\x07".to_owned(), hint: "z\rerror: w".to_owned() };
        let said = Finding::error(origin, explained).to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].ends_with(r"\u{1b}[2J\nerror: no `x\n  hint: y`\u{7}"), "{said}");
        assert_eq!(lines[1], r"  hint: z\rerror: w");
    }
}
