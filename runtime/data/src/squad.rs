//! Extractive question answering as SQuAD 1.1 publishes it: the answer is a part of a context, which is cut into windows
//! that overlap.

mod articles;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tokenizers::{Encoding, TruncationDirection};

use self::articles::{SquadQuestion, SquadTexts};
use super::padding::{PaddingOptions, PaddingSide};
use super::prompts::write_text;
use super::tokenizer::{TextTokenizer, TokenizerFiles};
use super::tokens::write_field;
use super::{DataError, DataRoot, Dataset, Field, FieldRole, SAMPLE_BYTES_MAX, SampleError};
use flagperf_core::event::DatasetFacts;
use flagperf_core::hash::hash_bytes;
use flagperf_core::tensor::{DType, TensorSpec};

/// Largest number of windows of one context: each window tokenizes its whole context again.
const CONTEXT_WINDOWS_MAX: usize = 1000;

/// The description of questions about contexts.
#[derive(Clone, Debug, PartialEq)]
pub struct SquadOptions {
    /// The JSON file.
    pub file: PathBuf,
    pub tokenizer: TokenizerFiles,
    /// Number of tokens of the model. `None` for no check.
    pub vocabulary: Option<u32>,
    /// Tokens of a window with its question and special tokens.
    pub length: usize,
    /// Tokens of the context from the beginning of a window to that of the next.
    pub stride: usize,
    /// Largest number of tokens of a question; a longer one is cut.
    pub question_length: usize,
    /// The token that pads, on the right.
    pub pad: i64,
}

/// One sample: a window of the context of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContextWindow {
    question: u32,
    /// Number of the window in its context, from 0.
    number: u32,
}

/// Opened questions about contexts; the texts are in memory, their tokens are not. Fields: `input_ids`,
/// `token_type_ids` and `attention_mask` (`L,i64`); truth: `questions` (`i64`), `offsets` (`L,2,i64`: the range of each
/// token in bytes of the window's text, -1 outside the context), `contexts` (`B,u8`) and `answers` (`A,C,u8`), both
/// padded with zeros.
pub struct Squad {
    texts: SquadTexts,
    tokenizer: TextTokenizer,
    options: SquadOptions,
    windows: Vec<ContextWindow>,
    fields: Vec<Field>,
    facts: DatasetFacts,
}

/// The sizes of the texts of all windows, in bytes.
#[derive(Clone, Copy, Default)]
struct TextSizes {
    context: usize,
    answers: usize,
    answer: usize,
}

impl Squad {
    /// Reads the file, and tokenizes every question and every context once to find the windows.
    ///
    /// # Errors
    /// When a file cannot be read or is not of the format, the tokenizer does not fit the model, or a question leaves
    /// fewer tokens for the context than `stride`.
    pub fn open(root: &DataRoot, options: &SquadOptions) -> Result<Self, DataError> {
        let (texts, tokenizer) = Squad::load(root, options)?;
        let invalid = |reason| DataError::Invalid { path: options.file.clone(), reason };
        let (windows, sizes) = find_windows(&texts, &tokenizer, options).map_err(invalid)?;
        if sizes.context.max(sizes.answers * sizes.answer) > SAMPLE_BYTES_MAX / 4 {
            return Err(invalid("has a text that is too long for a field".to_owned()));
        }
        let SquadOptions { file, length, stride, question_length, .. } = options;
        let text = format!(
            "squad {}, {} questions, windows of {length} with stride {stride}, questions of at most {question_length}, \
             {}",
            file.display(),
            texts.questions.len(),
            tokenizer.description()
        );
        let facts = root.facts(
            &root.path().join(file),
            windows.len(),
            hash_bytes(format!("{text}; {}", texts.hash()).as_bytes()),
            vec![text],
        );
        let fields = squad_fields(*length, sizes);
        Ok(Squad { texts, tokenizer, options: options.clone(), windows, fields, facts })
    }

    /// Checks what [`Squad::open`] checks without tokenizing.
    ///
    /// # Errors
    /// Those errors of [`Squad::open`] that can be found this way.
    pub fn check(root: &DataRoot, options: &SquadOptions) -> Result<(), DataError> {
        Squad::load(root, options).map(drop)
    }

    fn load(root: &DataRoot, options: &SquadOptions) -> Result<(SquadTexts, TextTokenizer), DataError> {
        let tokenizer = TextTokenizer::load(root, &options.tokenizer, options.vocabulary)?;
        Ok((SquadTexts::read(root, &options.file)?, tokenizer))
    }

    /// Returns the tokens of a window with its question, and the text from its first to its last token.
    fn encode(&self, window: ContextWindow) -> Result<(Encoding, (usize, usize)), String> {
        let question = &self.texts.questions[window.question as usize];
        let first = encode_question(&self.tokenizer, question, &self.options)?;
        let mut context = self.tokenizer.encode_with_offsets(&self.texts.contexts[question.context])?;
        let width = width(&first, &self.tokenizer, &self.options)?;
        context.truncate(width, width - self.options.stride.min(width), TruncationDirection::Right);
        let mut others = context.take_overflowing();
        let second = match window.number as usize {
            0 => context,
            number if number <= others.len() => others.swap_remove(number - 1),
            number => return Err(format!("window {number} does not exist")),
        };
        let range = text_range(second.get_offsets());
        Ok((self.tokenizer.join(first, second)?, range))
    }

    fn read_sample(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), String> {
        let [input_ids, token_type_ids, attention_mask, questions, offsets, contexts, answers] = fields else {
            return Err(format!("{} fields requested, but a sample has 7", fields.len()));
        };
        let window = self.windows[index];
        let question = &self.texts.questions[window.question as usize];
        let (encoding, (begin, end)) = self.encode(window)?;
        let padding = PaddingOptions {
            buckets: vec![self.options.length],
            to_batch: false,
            pad: self.options.pad,
            side: PaddingSide::Right,
            truncate: false,
        };
        let numbers = |values: &[u32]| values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>();
        let length = self.options.length;
        padding.write(&numbers(encoding.get_ids()), length, padding.pad, input_ids)?;
        padding.write(&numbers(encoding.get_type_ids()), length, 0, token_type_ids)?;
        padding.write(&vec![1; encoding.len()], length, 0, attention_mask)?;
        write_field(&[i64::from(window.question)], DType::I64, questions)?;
        padding.write(&context_offsets(&encoding, begin), 2 * length, -1, offsets)?;
        let context = self.texts.contexts[question.context].get(begin..end);
        write_text("contexts", context.ok_or("the tokenizer splits a character")?, contexts)?;
        answers.fill(0);
        let places = answers.chunks_exact_mut(self.answer_bytes());
        places.zip(&question.answers).try_for_each(|(out, answer)| write_text("answers", answer, out))
    }

    fn answer_bytes(&self) -> usize {
        self.fields[6].spec.fixed_shape().and_then(|shape| shape.last().copied()).unwrap_or(1)
    }
}

impl Dataset for Squad {
    fn facts(&self) -> &DatasetFacts {
        &self.facts
    }

    fn len(&self) -> usize {
        self.windows.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn sample_name(&self, index: usize) -> String {
        let ContextWindow { question, number } = self.windows[index];
        let id = &self.texts.questions[question as usize].id;
        format!("{}: window {number} of question `{id}`", self.options.file.display())
    }

    fn read(&self, index: usize, fields: &mut [&mut [u8]]) -> Result<(), SampleError> {
        self.read_sample(index, fields).map_err(|reason| SampleError { sample: self.sample_name(index), reason })
    }
}

fn encode_question(
    tokenizer: &TextTokenizer,
    question: &SquadQuestion,
    options: &SquadOptions,
) -> Result<Encoding, String> {
    let mut encoding = tokenizer.encode_with_offsets(&question.text)?;
    encoding.truncate(options.question_length, 0, TruncationDirection::Right);
    encoding.take_overflowing();
    Ok(encoding)
}

/// Returns the number of tokens of the context in a window with this question.
fn width(question: &Encoding, tokenizer: &TextTokenizer, options: &SquadOptions) -> Result<usize, String> {
    let others = question.len() + tokenizer.special_tokens_of_pair();
    let width = options.length.saturating_sub(others);
    if width == 0 || width < options.stride {
        return Err(format!(
            "{others} tokens of the question and special ones leave {width} of `length`: {} for the context, fewer than \
             `stride`: {}",
            options.length, options.stride
        ));
    }
    Ok(width)
}

/// Returns the first and the last byte of the text of some tokens.
fn text_range(offsets: &[(usize, usize)]) -> (usize, usize) {
    let begin = offsets.iter().map(|(begin, _)| *begin).min().unwrap_or(0);
    (begin, offsets.iter().map(|(_, end)| *end).max().unwrap_or(begin))
}

/// Returns the windows of all questions and the largest texts.
fn find_windows(
    texts: &SquadTexts,
    tokenizer: &TextTokenizer,
    options: &SquadOptions,
) -> Result<(Vec<ContextWindow>, TextSizes), String> {
    let offsets = |context: &str| Ok(tokenizer.encode_with_offsets(context)?.get_offsets().to_vec());
    // Collecting the results first makes the first error win.
    let contexts: Vec<Result<_, String>> = texts.contexts.par_iter().map(|context| offsets(context)).collect();
    let contexts: Vec<Vec<(usize, usize)>> = contexts.into_iter().collect::<Result<_, _>>()?;
    let width = |question: &SquadQuestion| {
        let width = encode_question(tokenizer, question, options).and_then(|first| width(&first, tokenizer, options));
        width.map_err(|reason| format!("question `{}`: {reason}", question.id))
    };
    let widths: Vec<Result<usize, String>> = texts.questions.par_iter().map(width).collect();
    let widths: Vec<usize> = widths.into_iter().collect::<Result<_, _>>()?;
    let (mut windows, mut sizes) = (Vec::new(), TextSizes::default());
    for (index, (question, width)) in texts.questions.iter().zip(widths).enumerate() {
        let tokens = &contexts[question.context];
        let count = tokens.len().saturating_sub(width).div_ceil(options.stride) + 1;
        if count > CONTEXT_WINDOWS_MAX {
            return Err(format!(
                "question `{}`: its context of {} tokens has {count} windows; at most {CONTEXT_WINDOWS_MAX} are supported",
                question.id,
                tokens.len()
            ));
        }
        for number in 0..count {
            let first = number * options.stride;
            let (begin, end) = text_range(&tokens[first..tokens.len().min(first + width)]);
            sizes.context = sizes.context.max(end - begin);
            windows.push(ContextWindow { question: index as u32, number: number as u32 });
        }
        sizes.answers = sizes.answers.max(question.answers.len());
        sizes.answer = question.answers.iter().map(|answer| answer.len()).fold(sizes.answer, usize::max);
    }
    Ok((windows, sizes))
}

/// Returns the range of each token of the context in bytes from `begin`, and -1 for every other token.
fn context_offsets(encoding: &Encoding, begin: usize) -> Vec<i64> {
    let pairs = encoding.get_offsets().iter().zip(encoding.get_sequence_ids());
    let range = |((from, to), sequence): (&(usize, usize), Option<usize>)| match sequence {
        Some(1) => [(*from - begin) as i64, (*to - begin) as i64],
        _ => [-1, -1],
    };
    pairs.flat_map(range).collect()
}

fn squad_fields(length: usize, sizes: TextSizes) -> Vec<Field> {
    let field = |name: &str, role, shape: &[usize], dtype| Field {
        name: name.to_owned(),
        role,
        spec: TensorSpec::new(shape.to_vec(), dtype),
    };
    let input = |name| field(name, FieldRole::Input, &[length], DType::I64);
    let truth = |name, shape: &[usize], dtype| field(name, FieldRole::Truth, shape, dtype);
    vec![
        input("input_ids"),
        input("token_type_ids"),
        input("attention_mask"),
        truth("questions", &[], DType::I64),
        truth("offsets", &[length, 2], DType::I64),
        truth("contexts", &[sizes.context.max(1)], DType::U8),
        truth("answers", &[sizes.answers, sizes.answer], DType::U8),
    ]
}
