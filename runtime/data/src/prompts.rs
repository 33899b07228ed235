//! Prompts of language models: the lines of a text or JSON lines, tokenized and padded.

use std::path::PathBuf;

use serde_json::Value;

use super::line_file::LineFile;
use super::padding::{PaddingOptions, input_fields};
use super::tokenizer::{TextTokenizer, TokenizerFiles};
use super::tokens::write_tensor;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, OpenLength, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, Element, Tensor, TensorSpec};

/// The description of prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptOptions {
    /// The file: JSON lines if `key` is set, otherwise text with one prompt per line.
    pub file: PathBuf,
    /// The key of the prompt in each JSON object.
    pub key: Option<String>,
    /// A text in which `{}` stands for the prompt, such as a chat template.
    pub template: Option<String>,
    pub tokenizer: TokenizerFiles,
    /// Number of tokens of the model. `None` for no check.
    pub vocabulary: Option<u32>,
    /// Whether the tokenizer adds its special tokens.
    pub special_tokens: bool,
    pub padding: PaddingOptions,
    /// Further keys of the JSON objects: texts for the evaluator, each with the most bytes it may have.
    pub texts: Vec<(String, usize)>,
    /// Further keys of the JSON objects: lists of numbers.
    pub lists: Vec<NumberList>,
}

/// A key of the JSON objects whose value is a list of numbers, or a number if the length is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberList {
    pub name: String,
    pub length: usize,
    /// [`DType::I64`] or [`DType::F32`].
    pub dtype: DType,
    /// Whether the evaluator or the forward function receives it.
    pub role: FieldRole,
}

/// The content of one line: the tokens of the prompt, and the values of the further keys.
struct PromptLine {
    ids: Vec<i64>,
    texts: Vec<String>,
    lists: Vec<Tensor>,
}

/// Opened prompts. Fields: `input_ids` and `attention_mask` (`L,i64`), `lengths` (`i64`); truth: `tokens`, which is
/// `input_ids` with -1 as padding, the further texts as UTF-8 padded with zeros
/// (`B,u8`), and the further lists (`L,i64` or `L,f32`).
pub struct Prompts {
    lines: LineFile,
    tokenizer: TextTokenizer,
    options: PromptOptions,
    length: usize,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

impl Prompts {
    /// Opens the file and the tokenizer. With several buckets, every prompt is tokenized to find the longest.
    ///
    /// # Errors
    /// When a file cannot be read, or the tokenizer does not fit the model.
    pub fn open(root: &DataRoot, options: &PromptOptions) -> Result<Self, DataError> {
        let lines = LineFile::open(root, &options.file)?;
        let PromptOptions { file, key, padding, .. } = options;
        let mut tokenizer = TextTokenizer::load(root, &options.tokenizer, options.vocabulary)?;
        let unsuited = |reason| DataError::Invalid { path: options.tokenizer.path().to_owned(), reason };
        if options.vocabulary.is_some() {
            tokenizer.check_padding(padding.pad).map_err(unsuited)?;
        }
        if padding.truncate {
            tokenizer.truncate_to(padding.max()).map_err(unsuited)?;
        }
        let text = format!("prompts {}, key {key:?}, {padding:?}, {}", file.display(), tokenizer.description());
        let facts = root.facts(
            &root.path().join(file),
            lines.len(),
            hash_bytes(format!("{text}; {} bytes", lines.bytes).as_bytes()),
            vec![text],
        );
        let (length, options) = (padding.max(), options.clone());
        let mut prompts = Prompts { lines, tokenizer, options, length, fields: Vec::new(), facts };
        if prompts.options.padding.buckets.len() > 1 {
            let invalid = |reason| DataError::Invalid { path: prompts.lines.path().to_owned(), reason };
            prompts.length = prompts.longest_bucket().map_err(invalid)?;
        }
        prompts.fields = prompt_fields(prompts.length, &prompts.options);
        Ok(prompts)
    }

    fn longest_bucket(&self) -> Result<usize, String> {
        let mut longest = 0;
        for index in 0..self.lines.len() {
            let line = self.encode(index).map_err(|reason| format!("{}: {reason}", self.lines.place(index)))?;
            longest = longest.max(line.ids.len());
        }
        Ok(self.options.padding.bucket(longest))
    }

    /// Reads a line, and tokenizes its prompt.
    fn encode(&self, index: usize) -> Result<PromptLine, String> {
        let line = self.lines.read(index)?;
        let (prompt, texts, lists) = match &self.options.key {
            None => (line, Vec::new(), Vec::new()),
            Some(key) => {
                let object: Value = serde_json::from_str(&line).map_err(|error| format!("is not JSON: {error}"))?;
                let texts = self.options.texts.iter().map(|(name, _)| json_text(&object, name));
                let lists = self.options.lists.iter().map(|list| list.read(&object));
                (json_text(&object, key)?, texts.collect::<Result<_, _>>()?, lists.collect::<Result<_, _>>()?)
            }
        };
        let prompt = self.options.template.as_ref().map_or_else(|| prompt.clone(), |text| text.replace("{}", &prompt));
        let ids = self.tokenizer.encode(&prompt, self.options.special_tokens)?;
        let most = self.options.padding.max();
        if ids.len() > most {
            return Err(format!(
                "the prompt has {} tokens, more than `{}` allows: use a larger length or `truncate: true`",
                ids.len(),
                self.options.padding.max_option()
            ));
        }
        if ids.is_empty() {
            return Err("the prompt has no tokens".to_owned());
        }
        Ok(PromptLine { ids, texts, lists })
    }
}

impl Dataset for Prompts {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.lines.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn open_length(&self) -> Option<OpenLength> {
        self.options.padding.open_length(&[0, 1, 3], 2)
    }

    fn sample_name(&self, index: usize) -> String {
        self.lines.place(index)
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        let failed = |reason| SampleError { sample: self.sample_name(index), reason };
        let line = self.encode(index).map_err(failed)?;
        let ids = &line.ids[..line.ids.len().min(self.length)];
        self.options.padding.write_inputs(ids, self.length, &mut fields[..3]).map_err(failed)?;
        self.options.padding.write(ids, self.length, -1, fields[3]).map_err(failed)?;
        let (texts, lists) = fields[4..].split_at_mut(line.texts.len());
        for ((text, (name, _)), out) in line.texts.iter().zip(&self.options.texts).zip(texts) {
            write_text(name, text, out).map_err(failed)?;
        }
        line.lists.iter().zip(lists).try_for_each(|(list, out)| write_tensor(list, out).map_err(failed))
    }
}

impl NumberList {
    /// Reads the list from a JSON object.
    fn read(&self, object: &Value) -> Result<Tensor, String> {
        let NumberList { name, length, dtype, .. } = self;
        let value = &object[name.as_str()];
        let numbers = match value.as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(value),
        };
        let (kind, tensor) = match dtype {
            DType::F32 => ("number", tensor_of(numbers, |number| number.as_f64().map(|number| number as f32))),
            _ => ("whole number", tensor_of(numbers, Value::as_i64)),
        };
        tensor.filter(|_| numbers.len() == *length).ok_or_else(|| match length {
            1 => format!("`{name}` must be a {kind}"),
            _ => format!("`{name}` must be a list of {length} {kind}s"),
        })
    }
}

/// Returns JSON numbers as a tensor; `None` if one is not of the wanted kind.
fn tensor_of<T: Element>(numbers: &[Value], convert: impl Fn(&Value) -> Option<T>) -> Option<Tensor> {
    let numbers = numbers.iter().map(convert).collect::<Option<Vec<T>>>()?;
    Tensor::from_vec([numbers.len()], numbers).ok()
}

/// Returns the fields of a prompt with further texts and lists.
fn prompt_fields(length: usize, options: &PromptOptions) -> Vec<Field> {
    let field = |name: &str, length: usize, dtype, role| Field {
        name: name.to_owned(),
        role,
        spec: TensorSpec::new([length], dtype),
    };
    let mut fields = input_fields(length);
    fields.push(field("tokens", length, DType::I64, FieldRole::Truth));
    fields.extend(options.texts.iter().map(|(name, bytes)| field(name, *bytes, DType::U8, FieldRole::Truth)));
    fields.extend(options.lists.iter().map(|list| field(&list.name, list.length, list.dtype, list.role)));
    fields
}

/// Writes a text, padded with zeros.
pub(super) fn write_text(name: &str, text: &str, out: &mut [u8]) -> Result<(), String> {
    if text.len() > out.len() {
        return Err(format!("`{name}` has {} bytes, but its field only {}", text.len(), out.len()));
    }
    out.fill(0);
    out[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

/// Returns the text under a key of a JSON object.
fn json_text(object: &Value, key: &str) -> Result<String, String> {
    match &object[key] {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err(format!("has no key `{key}`")),
        _ => Err(format!("the value of `{key}` is neither a text nor a number")),
    }
}

#[cfg(test)]
mod tests;
