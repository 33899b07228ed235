//! Multiple-choice questions as MMLU publishes them: a CSV file for each subject, with examples in another.

mod question_file;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use self::question_file::{CHOICES, QuestionFile};
use super::image_folder::visible_files;
use super::padding::{PaddingOptions, input_fields};
use super::prompts::write_text;
use super::tokenizer::{TextTokenizer, TokenizerFiles};
use super::tokens::write_field;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, OpenLength, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, TensorSpec};

/// Largest length of the name of a subject in bytes.
const SUBJECT_BYTES_MAX: usize = 150;

/// The description of questions.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionOptions {
    /// The folder that contains `test` and `dev`.
    pub folder: PathBuf,
    /// The folder of the questions in it, whose files end with `_<split>.csv`.
    pub split: String,
    /// The subjects; all that have a file if empty.
    pub subjects: Vec<String>,
    /// Number of examples before each question.
    pub shots: usize,
    pub tokenizer: TokenizerFiles,
    /// Number of tokens of the model. `None` for no check.
    pub vocabulary: Option<u32>,
    /// Whether the tokenizer adds its special tokens.
    pub special_tokens: bool,
    /// Padding; it never truncates.
    pub padding: PaddingOptions,
}

/// The questions of a subject.
struct Subject {
    name: String,
    questions: QuestionFile,
    /// Index of its first question.
    first: usize,
    /// The first line of every prompt.
    heading: String,
    /// The examples with their answers.
    examples: Vec<String>,
}

/// Opened questions. Fields: `input_ids` and `attention_mask` (`L,i64`), `lengths` (`i64`); truth: `answers` (`i64`, from
/// 0), `choices` (`4,i64`: the token of each answer) and `subjects` (`B,u8`, padded with zeros).
pub struct Questions {
    options: QuestionOptions,
    tokenizer: TextTokenizer,
    subjects: Vec<Subject>,
    samples: usize,
    /// The tokens of the answers.
    choices: Vec<i64>,
    length: usize,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

impl Questions {
    /// Opens the files, finds the questions and checks their columns. With several buckets, every prompt is tokenized to
    /// find the longest.
    ///
    /// # Errors
    /// When a file is missing or not of the format, or the tokenizer does not fit the model or the answers.
    pub fn open(root: &DataRoot, options: &QuestionOptions) -> Result<Self, DataError> {
        let tokenizer = TextTokenizer::load(root, &options.tokenizer, options.vocabulary)?;
        let unsuited = |reason| DataError::Invalid { path: options.tokenizer.path().to_owned(), reason };
        let choices = choice_tokens(&tokenizer).map_err(unsuited)?;
        let mut index = String::new();
        let (mut subjects, mut samples) = (Vec::new(), 0);
        for (name, path) in subject_files(root, options)? {
            let subject = Subject::open(root, options, name, &path, samples)?;
            index += &format!("{}\0{}\n", path.display(), subject.questions.sha256);
            samples += subject.questions.len();
            subjects.push(subject);
        }
        let QuestionOptions { folder, split, shots, padding, .. } = options;
        let text = format!(
            "questions {}, {split} of {} subjects, {shots} shots, {padding:?}, {}",
            folder.display(),
            subjects.len(),
            tokenizer.description()
        );
        let facts = root.facts(&root.path().join(folder), samples, hash_bytes(index.as_bytes()), vec![text]);
        let (length, options) = (padding.max(), options.clone());
        let fields = Vec::new();
        let mut questions = Questions { options, tokenizer, subjects, samples, choices, length, fields, facts };
        if questions.options.padding.buckets.len() > 1 {
            let invalid = |reason| DataError::Invalid { path: questions.options.folder.clone(), reason };
            questions.length = questions.longest_bucket().map_err(invalid)?;
        }
        questions.fields = question_fields(questions.length, &questions.subjects);
        Ok(questions)
    }

    fn longest_bucket(&self) -> Result<usize, String> {
        let mut longest = 0;
        for index in 0..self.samples {
            let (ids, _) = self.encode(index).map_err(|reason| format!("{}: {reason}", self.sample_name(index)))?;
            longest = longest.max(ids.len());
        }
        Ok(self.options.padding.bucket(longest))
    }

    fn subject(&self, index: usize) -> &Subject {
        &self.subjects[self.subjects.partition_point(|subject| subject.first <= index) - 1]
    }

    /// Returns the tokens of the prompt and the answer of a question. As in the original evaluation, examples are dropped
    /// from the last until the prompt fits.
    fn encode(&self, index: usize) -> Result<(Vec<i64>, i64), String> {
        let subject = self.subject(index);
        let question = subject.questions.read(index - subject.first)?;
        let most = self.options.padding.max();
        for shots in (0..=subject.examples.len()).rev() {
            let prompt = format!("{}{}{}", subject.heading, subject.examples[..shots].concat(), question.prompt());
            let ids = self.tokenizer.encode(&prompt, self.options.special_tokens)?;
            if ids.len() <= most {
                return Ok((ids, question.answer as i64));
            }
            if shots == 0 {
                return Err(format!(
                    "the prompt has {} tokens without any example, more than `{}` allows: use a larger length",
                    ids.len(),
                    self.options.padding.max_option()
                ));
            }
        }
        Err("the prompt does not fit".to_owned())
    }

    fn read_sample(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), String> {
        let [inputs @ .., answers, choices, subjects] = fields else {
            return Err(format!("{} fields requested, but a sample has 6", fields.len()));
        };
        let (ids, answer) = self.encode(index)?;
        self.options.padding.write_inputs(&ids, self.length, inputs)?;
        write_field(&[answer], DType::I64, answers)?;
        write_field(&self.choices, DType::I64, choices)?;
        write_text("subjects", &self.subject(index).name, subjects)
    }
}

impl Subject {
    fn open(
        root: &DataRoot,
        options: &QuestionOptions,
        name: String,
        path: &Path,
        first: usize,
    ) -> Result<Self, DataError> {
        let questions = QuestionFile::open(root, path)?;
        let invalid = |path: &Path, reason| DataError::Invalid { path: path.to_owned(), reason };
        if name.len() > SUBJECT_BYTES_MAX {
            return Err(invalid(path, format!("the name of the subject is longer than {SUBJECT_BYTES_MAX} bytes")));
        }
        let mut examples = Vec::with_capacity(options.shots);
        if options.shots > 0 {
            let path = options.folder.join("dev").join(format!("{name}_dev.csv"));
            let file = QuestionFile::open(root, &path)?;
            if file.len() < options.shots {
                let reason = format!("has {} examples, fewer than the {} shots", file.len(), options.shots);
                return Err(invalid(&path, reason));
            }
            for at in 0..options.shots {
                let question = file.read(at).map_err(|reason| invalid(&path, reason))?;
                examples.push(question.example());
            }
        }
        // The original evaluation writes two spaces before the name of the subject.
        let heading = format!(
            "The following are multiple choice questions (with answers) about  {}.\n\n",
            name.replace('_', " ")
        );
        Ok(Subject { name, questions, first, heading, examples })
    }
}

impl Dataset for Questions {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn open_length(&self) -> Option<OpenLength> {
        self.options.padding.open_length(&[0, 1], 2)
    }

    fn sample_name(&self, index: usize) -> String {
        let subject = self.subject(index);
        subject.questions.place(index - subject.first)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_sample(index, fields).map_err(|reason| SampleError { sample: self.sample_name(index), reason })
    }
}

fn question_fields(length: usize, subjects: &[Subject]) -> Vec<Field> {
    let truth = |name: &str, shape: &[usize], dtype| Field {
        name: name.to_owned(),
        role: FieldRole::Truth,
        spec: TensorSpec::new(shape.to_vec(), dtype),
    };
    let name_bytes = subjects.iter().map(|subject| subject.name.len()).max().unwrap_or(1);
    let mut fields = input_fields(length);
    fields.push(truth("answers", &[], DType::I64));
    fields.push(truth("choices", &[CHOICES.len()], DType::I64));
    fields.push(truth("subjects", &[name_bytes], DType::U8));
    fields
}

/// Returns the name and the file of each subject.
fn subject_files(root: &DataRoot, options: &QuestionOptions) -> Result<Vec<(String, PathBuf)>, DataError> {
    let folder = options.folder.join(&options.split);
    let end = format!("_{}.csv", options.split);
    if !options.subjects.is_empty() {
        let file = |name: &String| (name.clone(), folder.join(format!("{name}{end}")));
        return Ok(options.subjects.iter().map(file).collect());
    }
    let files = visible_files(root, &root.resolve(&folder)?)?;
    let subject = |(file, _): &(String, u64)| Some((file.strip_suffix(&end)?.to_owned(), folder.join(file)));
    let found: Vec<_> = files.iter().filter_map(subject).collect();
    if found.is_empty() {
        return Err(DataError::Invalid { path: folder, reason: format!("has no files `SUBJECT{end}`") });
    }
    Ok(found)
}

/// Returns the token of each answer: the one that follows `Answer:`.
fn choice_tokens(tokenizer: &TextTokenizer) -> Result<Vec<i64>, String> {
    let before = tokenizer.encode("Answer:", false)?;
    let token = |choice: &&str| match tokenizer.encode(&format!("Answer: {choice}"), false)?.strip_prefix(&before[..]) {
        Some(&[token]) => Ok(token),
        _ => Err(format!("the tokenizer does not encode the answer ` {choice}` as one token")),
    };
    let tokens: Vec<i64> = CHOICES.iter().map(token).collect::<Result<_, String>>()?;
    let is_twice = |at: usize| tokens[..at].contains(&tokens[at]);
    match (1..tokens.len()).find(|at| is_twice(*at)) {
        Some(at) => Err(format!("the tokenizer encodes the answer ` {}` as it does another one", CHOICES[at])),
        None => Ok(tokens),
    }
}
