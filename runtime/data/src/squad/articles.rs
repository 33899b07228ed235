//! SQuAD's format: one JSON file of articles, whose paragraphs have questions with accepted answers.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::data_file::read_json;
use crate::{DataError, DataRoot};
use flagperf_core::hash::hexadecimal;

/// Largest size of a file in bytes; the texts stay in memory, and those of the training set have 30 MB.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Deserialize)]
struct SquadFile {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: Box<str>,
    qas: Vec<QuestionEntry>,
}

#[derive(Deserialize)]
struct QuestionEntry {
    id: Box<str>,
    question: Box<str>,
    #[serde(default)]
    answers: Vec<AnswerEntry>,
}

#[derive(Deserialize)]
struct AnswerEntry {
    text: Box<str>,
}

/// A question about a context.
pub struct SquadQuestion {
    pub id: Box<str>,
    /// Index of its context.
    pub context: usize,
    pub text: Box<str>,
    /// The accepted answers, at least one and each once.
    pub answers: Vec<Box<str>>,
}

/// The texts of a SQuAD file.
#[derive(Default)]
pub struct SquadTexts {
    pub contexts: Vec<Box<str>>,
    /// The questions, in the order of the file.
    pub questions: Vec<SquadQuestion>,
}

impl SquadTexts {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read or is not of the format, an id occurs twice, or a question has no answer.
    pub fn read(root: &DataRoot, path: &Path) -> Result<Self, DataError> {
        let invalid = |reason: String| DataError::Invalid { path: path.to_owned(), reason };
        let file: SquadFile = read_json(root, path, FILE_BYTES_MAX, "a SQuAD file")?;
        let mut texts = SquadTexts::default();
        let mut ids = HashSet::new();
        for paragraph in file.data.into_iter().flat_map(|article| article.paragraphs) {
            let context = texts.contexts.len();
            texts.contexts.push(paragraph.context);
            for entry in paragraph.qas {
                if !ids.insert(entry.id.clone()) {
                    return Err(invalid(format!("has two questions with the id `{}`", entry.id)));
                }
                texts.questions.push(question(entry, context).map_err(invalid)?);
            }
        }
        if texts.questions.is_empty() {
            return Err(invalid("has no questions".to_owned()));
        }
        Ok(texts)
    }

    /// Returns a hash of all texts.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        let mut update = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        self.contexts.iter().for_each(|context| update(context));
        for question in &self.questions {
            update(&format!("{} {}", question.context, question.id));
            update(&question.text);
            question.answers.iter().for_each(|answer| update(answer));
        }
        hexadecimal(&hash.finalize())
    }
}

fn question(entry: QuestionEntry, context: usize) -> Result<SquadQuestion, String> {
    let QuestionEntry { id, question: text, answers: entries } = entry;
    let mut answers: Vec<Box<str>> = Vec::with_capacity(entries.len());
    for AnswerEntry { text } in entries {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("question `{id}` has an answer that is empty or contains the character 0"));
        }
        if !answers.contains(&text) {
            answers.push(text);
        }
    }
    if answers.is_empty() {
        return Err(format!("question `{id}` has no answer: unanswerable questions (version 2) are not supported"));
    }
    Ok(SquadQuestion { id, context, text, answers })
}
