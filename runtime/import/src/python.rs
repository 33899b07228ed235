//! Reads assignments of a Python file as data: literals, names that were assigned before, arithmetic, and `from FILE import *` of a
//! file beside it. Nothing is executed; any other value is the reason why it is not read.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use ruff_python_ast::{Expr, Stmt, StmtImportFrom};
use ruff_text_size::Ranged;
use serde_json::Value;

use super::python_text::{PythonText, with_statements};
use super::python_value::{combine, evaluate};
use super::source::SourceTree;
use flagperf_config::Finding;

/// Files that may import each other in a row.
const IMPORTS_MAX: usize = 8;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// The value, or why it is not read.
    pub(super) value: Result<Value, String>,
    /// The file, as in messages.
    pub(super) file: String,
    /// Line, from 1.
    pub(super) line: usize,
}

/// The names of a file, with those of the files that it imports.
#[derive(Clone, Debug, Default)]
pub(super) struct PythonFile {
    pub(super) names: IndexMap<String, Assignment>,
    /// The statements that are no assignments: file, line and beginning.
    pub(super) unread: Vec<(String, usize, String)>,
}

impl PythonFile {
    /// Returns the value of a name, if it could be read.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.names.get(name)?.value.as_ref().ok()
    }

    /// Returns the texts of a list.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<String>> {
        self.value(name)?.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
    }

    /// Reads a file. One that cannot be used becomes a finding.
    pub(super) fn read(source: &SourceTree, below: &Path, problems: &mut Vec<Finding>) -> Option<PythonFile> {
        let mut reader = Reader { source, files: Vec::new(), read: PythonFile::default() };
        reader.read_file(below, problems).then_some(reader.read)
    }
}

struct Reader<'s> {
    source: &'s SourceTree,
    /// The files that are being read: the first one, and those through which it imports the last one.
    files: Vec<PathBuf>,
    read: PythonFile,
}

impl Reader<'_> {
    /// Reads a file and returns whether that was possible.
    fn read_file(&mut self, below: &Path, problems: &mut Vec<Finding>) -> bool {
        let Some(text) = self.source.text(below, problems) else { return false };
        self.files.push(below.to_owned());
        let read = with_statements(&text, |text, statements| {
            for statement in statements {
                if !self.read_statement(below, text, statement, problems) {
                    let line = text.line(statement.start());
                    self.read.unread.push((self.source.name(below), line, text.excerpt(statement)));
                }
            }
        });
        self.files.pop();
        let refused = read.err();
        if let Some((line, reason)) = &refused {
            problems.push(self.source.finding(below, *line, reason, "mend the file in the source"));
        }
        refused.is_none()
    }

    /// Reads a statement and returns whether nothing remains to be said about it.
    fn read_statement(
        &mut self,
        below: &Path,
        text: &PythonText<'_>,
        statement: &Stmt,
        problems: &mut Vec<Finding>,
    ) -> bool {
        let (targets, value) = match statement {
            // Documentation.
            Stmt::Expr(expression) => return expression.value.is_string_literal_expr(),
            Stmt::Import(_) => return true,
            Stmt::ImportFrom(import) => return self.import(below, import, problems),
            Stmt::Assign(assign) => (&assign.targets[..], evaluate(&assign.value, text, &self.read.names)),
            Stmt::AnnAssign(assign) => match &assign.value {
                Some(value) => (std::slice::from_ref(&*assign.target), evaluate(value, text, &self.read.names)),
                None => return false,
            },
            Stmt::AugAssign(assign) => {
                let names = &self.read.names;
                let before = evaluate(&assign.target, text, names);
                let value = before.and_then(|before| combine(before, assign.op, evaluate(&assign.value, text, names)?));
                (std::slice::from_ref(&*assign.target), value)
            }
            _ => return false,
        };
        let mut are_names = true;
        for target in targets {
            let Expr::Name(name) = target else {
                are_names = false;
                continue;
            };
            let assignment =
                Assignment { value: value.clone(), file: self.source.name(below), line: text.line(statement.start()) };
            self.read.names.insert(name.id.to_string(), assignment);
        }
        are_names
    }

    /// Follows `from FILE import NAMES` to a file beside this one. Returns whether nothing remains to be said about it.
    fn import(&mut self, below: &Path, import: &StmtImportFrom, problems: &mut Vec<Finding>) -> bool {
        let module = import.module.as_ref().map_or("", |module| module.as_str());
        let file = below.with_file_name(format!("{module}.py"));
        let is_beside = import.level <= 1 && !module.contains('.') && self.source.has(&file);
        if !is_beside {
            // Single names of a library are no settings.
            return !import.names.iter().any(|alias| &alias.name == "*");
        }
        if self.files.contains(&file) || self.files.len() >= IMPORTS_MAX {
            return false;
        }
        let mut imported = Reader { source: self.source, files: self.files.clone(), read: PythonFile::default() };
        if imported.read_file(&file, problems) {
            self.read.unread.extend(imported.read.unread);
            self.read.names.extend(imported.read.names.into_iter().filter_map(|(name, assignment)| {
                let alias = import.names.iter().find(|alias| &alias.name == "*" || alias.name.as_str() == name)?;
                Some((alias.asname.as_ref().map_or(name, |own| own.to_string()), assignment))
            }));
        }
        true
    }
}
