//! Reads assignments of a Python file as data: literals, names that were assigned before, arithmetic, and `from FILE import *` of a
//! file beside it. Nothing is executed; any other value is the reason why it is not read.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::Value;

use super::python_text::{PythonToken, Token, tokens};
use super::python_value::evaluate;
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
        let tokens = match tokens(&text) {
            Ok(tokens) => tokens,
            Err((line, reason)) => {
                problems.push(self.source.finding(below, line, &reason, "mend the file in the source"));
                return false;
            }
        };
        self.files.push(below.to_owned());
        for statement in tokens.split(|token| token.token == Token::End).filter(|statement| !statement.is_empty()) {
            self.read_statement(below, statement, problems);
        }
        self.files.pop();
        true
    }

    fn read_statement(&mut self, below: &Path, statement: &[PythonToken], problems: &mut Vec<Finding>) {
        let line = statement[0].line;
        let is_documentation = statement.iter().all(|token| matches!(token.token, Token::Text { .. }));
        match &statement[0].token {
            // The statement above, to which it belongs, is not read either.
            Token::Indent => return,
            _ if is_documentation => return,
            Token::Name(word) if word == "import" => return,
            Token::Name(word) if word == "from" && self.import(below, statement, problems) => return,
            Token::Name(name) => {
                if let Some((is_addition, expression)) = assigned(&statement[1..]) {
                    return self.assign(below, (name, line), is_addition, expression);
                }
            }
            _ => {}
        }
        let text: Vec<String> = statement.iter().take(8).map(|token| token.token.to_string()).collect();
        self.read.unread.push((self.source.name(below), line, text.join(" ")));
    }

    fn assign(&mut self, below: &Path, (name, line): (&str, usize), is_addition: bool, expression: &[PythonToken]) {
        let added = evaluate(expression, &self.read.names);
        let value = match self.read.names.get(name).filter(|_| is_addition).map(|before| before.value.clone()) {
            Some(Ok(Value::Array(mut before))) => added.and_then(|added| match added {
                Value::Array(added) => {
                    before.extend(added);
                    Ok(Value::Array(before))
                }
                _ => Err("something else is added to a list".to_owned()),
            }),
            _ if is_addition => Err("a value is added to it".to_owned()),
            _ => added,
        };
        let file = self.source.name(below);
        self.read.names.insert(name.to_owned(), Assignment { value, file, line });
    }

    /// Follows `from FILE import NAMES` to a file beside this one. Returns whether nothing remains to be said about it.
    fn import(&mut self, below: &Path, statement: &[PythonToken], problems: &mut Vec<Finding>) -> bool {
        let words: Vec<String> = statement[1..].iter().map(|token| token.token.to_string()).collect();
        let Some(at) = words.iter().position(|word| word == "import") else { return false };
        let (module, names) = (words[..at].concat(), &words[at + 1..]);
        let file = below.with_file_name(format!("{}.py", module.trim_start_matches('.')));
        let is_beside = !module.trim_start_matches('.').contains('.') && self.source.has(&file);
        if !is_beside {
            // Single names of a library are no settings.
            return !names.contains(&"*".to_owned());
        }
        if self.files.contains(&file) || self.files.len() >= IMPORTS_MAX {
            return false;
        }
        let mut imported = Reader { source: self.source, files: self.files.clone(), read: PythonFile::default() };
        if imported.read_file(&file, problems) {
            let is_imported = |name: &String| names.contains(&"*".to_owned()) || names.contains(name);
            self.read.names.extend(imported.read.names.into_iter().filter(|(name, _)| is_imported(name)));
            self.read.unread.extend(imported.read.unread);
        }
        true
    }
}

/// Returns the expression that is assigned by the rest of a statement after its name, and whether it is added.
fn assigned(rest: &[PythonToken]) -> Option<(bool, &[PythonToken])> {
    let is_operator = |token: &PythonToken, text: &str| token.token.is_operator(text);
    match rest.split_first()? {
        (first, expression) if is_operator(first, "=") => Some((false, expression)),
        (first, expression) if is_operator(first, "+=") => Some((true, expression)),
        // The type of the name is between the colon and the value.
        (first, typed) if is_operator(first, ":") => {
            let at = typed.iter().position(|token| is_operator(token, "="))?;
            Some((false, &typed[at + 1..]))
        }
        _ => None,
    }
}
