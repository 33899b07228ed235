//! Answers as spans of a context, from the logits of their first and last tokens: SQuAD 1.1.
//!
//! The best span follows `postprocess_qa_predictions` of Hugging Face's question-answering example, and the figures the
//! official evaluation, `evaluate-v1.1.py`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use super::answers::score_answer;
use super::elements::{for_each_row, integers, unsupported};
use super::state::MetricState;
use super::{Accumulator, MetricError};
use crate::tensor::{DType, Tensor};

/// Number of best first tokens, and of best last tokens, that are combined in a window.
const CANDIDATES: usize = 20;
/// Largest number of tokens of an answer.
const ANSWER_TOKENS_MAX: usize = 30;
/// The answer to a question without any valid span.
const NO_SPAN: &str = "empty";
/// Largest number of questions of a pass: about 50 bytes each.
const QUESTIONS_MAX: usize = 1 << 24;

/// The truth of the windows of a batch, as in the fields of `data::squad`.
#[derive(Clone, Copy, Debug)]
pub struct SpanTruth<'t> {
    /// `N` integers: the question of each window.
    pub questions: &'t Tensor,
    /// `N,L,2` integers: the range of each token in bytes of the context; negative outside the context.
    pub offsets: &'t Tensor,
    /// `N,B,u8`: the text of each window, padded with zeros.
    pub contexts: &'t Tensor,
    /// `N,A,C,u8`: the accepted answers, padded with zeros.
    pub answers: &'t Tensor,
}

/// The best answer to a question in the windows so far, with its score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct BestAnswer {
    /// Sum of the two logits.
    score: f64,
    exact: bool,
    f1: f64,
}

impl BestAnswer {
    fn yields_to(&self, other: &BestAnswer) -> bool {
        let is_worse = (other.f1, other.exact) < (self.f1, self.exact);
        self.score < other.score || (self.score == other.score && is_worse)
    }
}

/// The best answer to each question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnsweredQuestions {
    questions: BTreeMap<i64, BestAnswer>,
}

impl AnsweredQuestions {
    /// Adds the answers of further windows. Of two answers with equal scores the worse one counts, so that the order of the
    /// windows changes nothing.
    ///
    /// # Errors
    /// [`MetricError::Questions`] when there are too many questions.
    pub(super) fn merge(&mut self, other: &AnsweredQuestions) -> Result<(), MetricError> {
        other.questions.iter().try_for_each(|(question, answer)| self.add(*question, *answer))
    }

    fn add(&mut self, question: i64, answer: BestAnswer) -> Result<(), MetricError> {
        match self.questions.entry(question) {
            Entry::Vacant(entry) => drop(entry.insert(answer)),
            Entry::Occupied(mut entry) if entry.get().yields_to(&answer) => drop(entry.insert(answer)),
            Entry::Occupied(_) => {}
        }
        if self.questions.len() > QUESTIONS_MAX { Err(MetricError::Questions(QUESTIONS_MAX)) } else { Ok(()) }
    }

    pub(super) fn count(&self) -> u64 {
        self.questions.len() as u64
    }

    pub(super) fn names() -> Vec<String> {
        vec!["exact_match".to_owned(), "f1".to_owned()]
    }

    pub(super) fn finish(&self) -> Vec<(String, f64)> {
        let count = self.questions.len() as f64;
        let exact = self.questions.values().filter(|answer| answer.exact).count() as f64;
        let f1: f64 = self.questions.values().map(|answer| answer.f1).sum();
        AnsweredQuestions::names().into_iter().zip([exact / count, f1 / count]).collect()
    }
}

/// Computes `exact_match` and `f1` from 0 to 1, over questions rather than windows: of all windows of a question, the
/// span with the largest sum of logits is the answer. In each window, the 20 best first tokens are combined with the 20
/// best last ones; a span has at most 30 tokens, all of the context.
///
/// `start` and `end`: logits as `N,L` of a float type.
///
/// # Errors
/// When shapes or types differ from these, or an offset is outside its context.
pub fn spans(start: &Tensor, end: &Tensor, truth: SpanTruth<'_>) -> Result<Accumulator, MetricError> {
    let (&[rows, length], true) = (start.shape(), start.dtype().is_float()) else {
        return Err(unsupported("the start logits are", start, "`N,L` of a float type"));
    };
    if end.shape() != start.shape() || !end.dtype().is_float() {
        return Err(unsupported("the end logits are", end, &format!("`{rows},{length}` of a float type")));
    }
    let questions = integers(truth.questions).filter(|_| truth.questions.shape() == [rows]);
    let questions = questions
        .ok_or_else(|| unsupported("the questions are", truth.questions, &format!("`{rows}` of an integer type")))?;
    let offsets = integers(truth.offsets).filter(|_| truth.offsets.shape() == [rows, length, 2]).ok_or_else(|| {
        unsupported("the offsets are", truth.offsets, &format!("`{rows},{length},2` of an integer type"))
    })?;
    let contexts = byte_rows("the contexts are", truth.contexts, rows, 2)?;
    let answers = byte_rows("the answers are", truth.answers, rows, 3)?;
    let answer_bytes = truth.answers.shape()[2].max(1);
    let mut found = AnsweredQuestions::default();
    let ends = end.to_f64();
    for_each_row(
        start,
        |_| true,
        |row, starts| {
            let ranges = &offsets[row * length * 2..(row + 1) * length * 2];
            let best = best_span(starts, &ends[row * length..(row + 1) * length], ranges);
            let text = match best {
                Some((first, last, _)) => Some(text_of(contexts[row], ranges[2 * first], ranges[2 * last + 1], row)?),
                None => None,
            };
            let text = text.as_deref().filter(|text| !text.is_empty()).unwrap_or(NO_SPAN);
            let accepted: Vec<String> = answers[row].chunks_exact(answer_bytes).filter_map(padded_text).collect();
            let (exact, f1) = score_answer(text, &accepted);
            found.add(questions[row], BestAnswer { score: best.map_or(f64::MIN, |(.., score)| score), exact, f1 })
        },
    )?;
    Ok(Accumulator::of("exact_match", MetricState::Questions(found)))
}

/// Returns the bytes of each row of a tensor with this number of dimensions.
fn byte_rows<'t>(
    what: &'static str,
    tensor: &'t Tensor,
    rows: usize,
    dimensions: usize,
) -> Result<Vec<&'t [u8]>, MetricError> {
    let shape = tensor.shape();
    if tensor.dtype() != DType::U8 || shape.len() != dimensions || shape[0] != rows || tensor.is_empty() {
        let expected = if dimensions == 2 { "B,u8" } else { "A,C,u8" };
        return Err(unsupported(what, tensor, &format!("`{rows},{expected}`")));
    }
    Ok(tensor.bytes().chunks_exact(tensor.bytes().len() / rows).collect())
}

/// Returns the first and the last token of the best span and its score; `None` if there is no valid one.
fn best_span(starts: &[f64], ends: &[f64], ranges: &[i64]) -> Option<(usize, usize, f64)> {
    let is_context = |token: usize| ranges[2 * token] >= 0;
    let mut best: Option<(usize, usize, f64)> = None;
    let lasts = best_tokens(ends);
    for first in best_tokens(starts).into_iter().filter(|token| is_context(*token)) {
        let fits = |last: &&usize| is_context(**last) && (first..first + ANSWER_TOKENS_MAX).contains(*last);
        for last in lasts.iter().filter(fits) {
            // The reference adds in the precision of the logits.
            let score = f64::from(starts[first] as f32 + ends[*last] as f32).max(f64::MIN);
            if best.is_none_or(|(.., best)| score > best) {
                best = Some((first, *last, score));
            }
        }
    }
    best
}

/// Returns the tokens with the largest logits, best first; equal logits rank by position, NaN is left out.
fn best_tokens(logits: &[f64]) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..logits.len()).filter(|token| !logits[*token].is_nan()).collect();
    let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if tokens.len() > CANDIDATES {
        tokens.select_nth_unstable_by(CANDIDATES, order);
        tokens.truncate(CANDIDATES);
    }
    tokens.sort_by(order);
    tokens
}

/// Returns the text of a span of a window.
fn text_of(context: &[u8], begin: i64, end: i64, row: usize) -> Result<String, MetricError> {
    let position = |offset: i64| usize::try_from(offset).unwrap_or(usize::MAX);
    let text = context.get(position(begin)..position(end));
    text.map(|text| String::from_utf8_lossy(text).into_owned()).ok_or(MetricError::Offset { row, begin, end })
}

/// Returns a text without its padding; `None` when there is none.
fn padded_text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests;
