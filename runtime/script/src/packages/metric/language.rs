//! Metrics of language models and of question answering.

use rhai::plugin::*;
use rhai::{Array, Dynamic, ImmutableString, Map, NativeCallContext};

use super::functions::host_tensors;
use super::return_value::Metrics;
use crate::packages::boxes::named_tensor;
use crate::packages::tensor::Tensor;
use crate::sandbox::{Fallible, script_state};
use flagperf_core::metric::{self, MetricError, Positions, SpanTruth};
use flagperf_core::tensor::{DType, Tensor as HostTensor};

/// Largest number of questions of a call.
const QUESTIONS_MAX: usize = 1 << 16;

/// Copies logits and other tensors to host memory. Only one row of the logits is converted at a time.
fn logits_on_host<const N: usize>(
    context: &NativeCallContext,
    logits: &Tensor,
    others: [Tensor; N],
) -> Fallible<(HostTensor, [HostTensor; N])> {
    let logits = logits.to_host(&script_state(context)?.budget)?;
    Ok((logits, host_tensors(context, others)?))
}

fn metrics(figures: Result<flagperf_core::metric::Accumulator, MetricError>) -> Fallible<Metrics> {
    figures.map(Metrics).map_err(|error| error.to_string().into())
}

fn text(value: &Dynamic) -> Fallible<ImmutableString> {
    let error = |actual: &str| format!("an answer must be a string, not {actual}").into();
    value.clone().into_immutable_string().map_err(error)
}

/// Returns the token ids of each row of `N,L` integers: those from 0.
fn token_rows(what: &str, tensor: &HostTensor) -> Fallible<Vec<Vec<i64>>> {
    let &[rows, length] = tensor.shape() else {
        return Err(format!("the {what} are `{}` (expected: `N,L` of an integer type)", tensor.spec()).into());
    };
    if tensor.dtype().is_float() || rows > QUESTIONS_MAX {
        return Err(format!("the {what} are `{}` (expected: `N,L` of an integer type)", tensor.spec()).into());
    }
    let ids = tensor.cast(DType::I64);
    let ids = ids.as_slice::<i64>().map_err(|error| error.to_string())?;
    let row = |at: usize| ids[at * length..(at + 1) * length].iter().copied().filter(|id| *id >= 0).collect();
    Ok((0..rows).map(row).collect())
}

#[export_module]
pub(super) mod functions {
    /// Returns the share of positions whose prediction is the label as `token_accuracy`: the accuracy of masked language
    /// modelling, with the original tokens at the masked positions and `ignore` everywhere else as the labels.
    /// `predictions` are logits as `N,L,V` of a float type or tokens as `N,L` of an integer type, `labels` is `N,L`.
    ///
    /// ```rhai
    /// let logits = tensor::from([0.1, 0.9, 0.8, 0.2], "1,2,2,f32");
    /// metric::token_accuracy(logits, tensor::from([1, -100], "1,2,i64"), -100)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn token_accuracy(
        context: NativeCallContext,
        predictions: Tensor,
        labels: Tensor,
        ignore: i64,
    ) -> Fallible<Metrics> {
        let (predictions, [labels]) = logits_on_host(&context, &predictions, [labels])?;
        metrics(metric::token_accuracy(&predictions, &labels, ignore))
    }

    /// Returns `perplexity`: the exponential of the mean negative log likelihood of each token given those before it, over
    /// all tokens of a pass. The logits at one position predict the token at the next. `logits` is `N,L,V` of a float
    /// type, or `N,L` with the log-probability of the next token, which a graph computes where its logits would be large;
    /// `tokens` is `N,L`; `lengths` is `N`: tokens from there on are padding.
    ///
    /// ```rhai
    /// let logits = tensor::from([0.1, 0.9, 0.8, 0.2, 0.0, 0.0], "1,3,2,f32");
    /// metric::perplexity(logits, tensor::from([0, 1, 0], "1,3,i64"), tensor::from([2], "1,i64"))
    /// ```
    #[rhai_fn(return_raw)]
    pub fn perplexity(
        context: NativeCallContext,
        logits: Tensor,
        tokens: Tensor,
        lengths: Tensor,
    ) -> Fallible<Metrics> {
        let (logits, [tokens, lengths]) = logits_on_host(&context, &logits, [tokens, lengths])?;
        metrics(metric::perplexity(&logits, &tokens, Positions::Lengths(&lengths)))
    }

    /// Returns `perplexity` over the tokens that are not `ignore`. As with `lengths`, the logits at one position predict the
    /// token at the next. The truth `tokens` of `data::prompts` is padded with -1: pass -1 as `ignore`.
    ///
    /// ```rhai
    /// let logits = tensor::from([0.1, 0.9, 0.8, 0.2], "1,2,2,f32");
    /// metric::perplexity(logits, tensor::from([0, 1], "1,2,i64"), -100)
    /// ```
    #[rhai_fn(name = "perplexity", return_raw)]
    pub fn perplexity_except(
        context: NativeCallContext,
        logits: Tensor,
        tokens: Tensor,
        ignore: i64,
    ) -> Fallible<Metrics> {
        let (logits, [tokens]) = logits_on_host(&context, &logits, [tokens])?;
        metrics(metric::perplexity(&logits, &tokens, Positions::Except(ignore)))
    }

    /// Returns `exact_match` and `f1` of answers as strings, from 0 to 1, normalised as SQuAD's evaluation does: lower
    /// case, without punctuation and articles. Each element of `answers` is a string or an array of accepted strings, of
    /// which the best counts; an unanswerable question has the answer `""`.
    ///
    /// ```rhai
    /// metric::answers(["the Eiffel Tower", "1889"], ["Eiffel tower", ["in 1889", "1889"]])
    /// ```
    #[rhai_fn(return_raw)]
    pub fn answers(context: NativeCallContext, predictions: Array, answers: Array) -> Fallible<Metrics> {
        script_state(&context)?.budget.check()?;
        let predictions: Vec<ImmutableString> = predictions.iter().map(text).collect::<Fallible<_>>()?;
        let accepted = |value: &Dynamic| match value.read_lock::<Array>() {
            Some(array) => array.iter().map(text).collect::<Fallible<Vec<_>>>(),
            None => Ok(vec![text(value)?]),
        };
        let answers: Vec<Vec<ImmutableString>> = answers.iter().map(accepted).collect::<Fallible<_>>()?;
        let predictions: Vec<&str> = predictions.iter().map(ImmutableString::as_str).collect();
        let answers: Vec<Vec<&str>> =
            answers.iter().map(|texts| texts.iter().map(ImmutableString::as_str).collect()).collect();
        metrics(metric::answers_in_words(&predictions, &answers))
    }

    /// Returns `exact_match` and `f1` of answers as token ids, which are compared without any normalisation. Both are
    /// `N,L` of an integer type with any `L`; negative numbers are padding.
    ///
    /// ```rhai
    /// metric::answers(tensor::from([5, 6, -1], "1,3,i64"), tensor::from([5, 6], "1,2,i64"))
    /// ```
    #[rhai_fn(name = "answers", return_raw)]
    pub fn answers_in_tokens(context: NativeCallContext, predictions: Tensor, answers: Tensor) -> Fallible<Metrics> {
        let [predictions, answers] = host_tensors(&context, [predictions, answers])?;
        let (predictions, answers) = (token_rows("predictions", &predictions)?, token_rows("answers", &answers)?);
        metrics(metric::answers_in_tokens(&predictions, &answers))
    }

    /// Returns `exact_match` and `f1` of answers that are parts of a context, equal to those of SQuAD 1.1's evaluation, from
    /// 0 to 1. They count questions rather than windows: of all windows of a question in a pass, the span with the largest
    /// sum of logits is the answer, among the 20 best first and the 20 best last tokens of each window and at most 30
    /// tokens long. `start_logits` and `end_logits` are `N,L` of a float type; `truth` has `questions`, `offsets`,
    /// `contexts` and `answers`, as in the fields of `data::squad`.
    ///
    /// ```rhai
    /// let logits = tensor::from([0.1, 0.9], "1,2,f32");
    /// let truth = #{questions: tensor::from([0], "1,i64"), offsets: tensor::from([0, 1, 2, 3], "1,2,2,i64")};
    /// truth.contexts = tensor::from([97, 32, 98], "1,3,u8");
    /// truth.answers = tensor::from([98], "1,1,1,u8");
    /// metric::spans(logits, logits, truth)
    /// ```
    #[rhai_fn(return_raw)]
    pub fn spans(
        context: NativeCallContext,
        start_logits: Tensor,
        end_logits: Tensor,
        truth: Map,
    ) -> Fallible<Metrics> {
        let field = |name| named_tensor(&truth, "the truth", name);
        let tensors = [start_logits, end_logits, field("questions")?, field("offsets")?, field("contexts")?];
        let [start, end, questions, offsets, contexts] = host_tensors(&context, tensors)?;
        let [answers] = host_tensors(&context, [field("answers")?])?;
        let truth = SpanTruth { questions: &questions, offsets: &offsets, contexts: &contexts, answers: &answers };
        metrics(metric::spans(&start, &end, truth))
    }

    /// Returns `clip_score`: the mean over the rows of 100 times the cosine of an image's and its text's embedding, at
    /// least 0. Both are `N,D` of a float type.
    ///
    /// ```rhai
    /// metric::clip_score(tensor::from([3, 4], "1,2,f32"), tensor::from([6, 8], "1,2,f32"))
    /// ```
    #[rhai_fn(return_raw)]
    pub fn clip_score(
        context: NativeCallContext,
        image_embeddings: Tensor,
        text_embeddings: Tensor,
    ) -> Fallible<Metrics> {
        let [images, texts] = host_tensors(&context, [image_embeddings, text_embeddings])?;
        metrics(metric::clip_score(&images, &texts))
    }
}
