//! Engines that generate text: what they receive, what they return, and when the tokens of their answers arrived.
//!
//! Such an engine has one signature, whatever the model: token ids with a mask, and `new_tokens` tokens for each prompt.

use flagperf_onnx::ValueInfo;

use super::{EngineError, LoadOptions, Value, check_inputs};
use flagperf_core::measure::Nanos;
use flagperf_core::tensor::Tensor;

/// The key of the case that says how many tokens an answer has.
const NEW_TOKENS: &str = "new_tokens";
/// The task of cases with several ones in which text is generated.
const GENERATION: &str = "generation";
/// Most tokens of an answer.
const NEW_TOKENS_MAX: u64 = 1 << 20;

/// When the answer to a prompt arrived, by a clock that was started when the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerTimes {
    /// When the host began to send the prompt.
    pub sent: Nanos,
    /// When tokens arrived, and how many at once.
    pub arrivals: Vec<(Nanos, u64)>,
}

/// The inputs and outputs of an engine that generates text.
#[derive(Clone, Debug)]
pub(crate) struct Prompts {
    /// `input_ids` and `attention_mask`, which is 0 for padding: `N,S,i64`.
    pub(crate) inputs: Vec<ValueInfo>,
    /// `tokens`: `N,T,i64`.
    pub(crate) outputs: Vec<ValueInfo>,
    /// The tokens of an answer.
    pub(crate) new_tokens: usize,
}

impl Prompts {
    /// Returns the signature for the case of a load.
    ///
    /// # Errors
    /// When the case does not generate text, or draws tokens at random.
    pub(crate) fn of(engine: &'static str, options: &LoadOptions) -> Result<Self, EngineError> {
        let refused = |key, reason: String| Err(EngineError::CaseKey { engine, key, reason });
        if let Some(task) = options.config.get("task").and_then(serde_json::Value::as_str).filter(|t| *t != GENERATION)
        {
            return refused(
                "task",
                format!("it only generates text, but the task is `{task}`: set `task={GENERATION}`"),
            );
        }
        let found = options.config.get(NEW_TOKENS).and_then(serde_json::Value::as_u64);
        let Some(new_tokens) = found.filter(|count| (1..=NEW_TOKENS_MAX).contains(count)) else {
            let reason = format!(
                "engine `{engine}` only generates text: `{NEW_TOKENS}` of the case must be a number from 1 to {NEW_TOKENS_MAX}, and a \
                 case without this key generates no text"
            );
            return Err(EngineError::Failed(reason));
        };
        let sampled = options.config.get("temperature").and_then(serde_json::Value::as_f64);
        if sampled.is_some_and(|temperature| temperature != 0.0) {
            let reason = "answers can be compared only if each token is the most probable one: set `temperature=0`";
            return refused("temperature", reason.to_owned());
        }
        let info = |(name, spec): (&str, String)| ValueInfo {
            name: name.to_owned(),
            spec: spec.parse().expect("the specification is valid"),
        };
        let inputs = ["input_ids", "attention_mask"].map(|name| info((name, "N,S,i64".to_owned())));
        let outputs = vec![info(("tokens", format!("N,{new_tokens},i64")))];
        Ok(Prompts { inputs: inputs.to_vec(), outputs, new_tokens: new_tokens as usize })
    }

    /// Returns the tokens of each row of a batch, without padding. The last rows may be padding altogether; they are left out.
    ///
    /// # Errors
    /// When the inputs do not match the signature, or a prompt is empty.
    pub(crate) fn read(&self, inputs: &[Value]) -> Result<Vec<Vec<i64>>, EngineError> {
        check_inputs(&self.inputs, inputs)?;
        let [tokens, mask] = [inputs[0].to_host()?, inputs[1].to_host()?];
        let length = tokens.shape()[1];
        let rows = tokens.shape()[0];
        let [tokens, mask] = [&tokens, &mask].map(|tensor| tensor.as_slice::<i64>().expect("the type was checked"));
        let row = |row: usize| {
            let range = row * length..(row + 1) * length;
            let kept = tokens[range.clone()].iter().zip(&mask[range]).filter(|(_, real)| **real != 0);
            kept.map(|(token, _)| *token).collect::<Vec<_>>()
        };
        let mut prompts: Vec<_> = (0..rows).map(row).collect();
        prompts.truncate(prompts.iter().rposition(|prompt| !prompt.is_empty()).map_or(0, |last| last + 1).max(1));
        match prompts.iter().position(Vec::is_empty) {
            Some(row) => Err(EngineError::Failed(format!("the prompt in row {row} has no token"))),
            None => Ok(prompts),
        }
    }
}

/// An answer while it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    tokens: Vec<i64>,
    times: AnswerTimes,
}

impl Answer {
    /// Begins the answer to a prompt that is sent now.
    pub(crate) fn sent(at: Nanos) -> Self {
        Answer { tokens: Vec::new(), times: AnswerTimes { sent: at, arrivals: Vec::new() } }
    }

    /// The number of tokens that arrived.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Adds tokens that arrived.
    ///
    /// # Errors
    /// When there are more than the case asks for, or one is negative.
    pub(crate) fn add(&mut self, tokens: &[i64], at: Nanos, prompts: &Prompts) -> Result<(), String> {
        if tokens.is_empty() {
            return Ok(());
        }
        if let Some(token) = tokens.iter().find(|token| **token < 0) {
            return Err(format!("an answer has the token {token}, which no vocabulary has"));
        }
        if self.tokens.len() + tokens.len() > prompts.new_tokens {
            return Err(format!("an answer has more than the {} tokens that were requested", prompts.new_tokens));
        }
        self.tokens.extend(tokens);
        self.times.arrivals.push((at, tokens.len() as u64));
        Ok(())
    }
}

/// Returns the answers as the output of a run of so many rows, and when they arrived. Rows without an answer, which are padding, are zeros.
///
/// # Errors
/// When an answer has fewer tokens than the case asks for.
pub(crate) fn collect(
    answers: Vec<Answer>,
    rows: usize,
    prompts: &Prompts,
) -> Result<(Vec<Value>, Vec<AnswerTimes>), String> {
    if let Some((row, short)) = answers.iter().enumerate().find(|(_, a)| a.tokens.len() != prompts.new_tokens) {
        let (found, asked) = (short.tokens.len(), prompts.new_tokens);
        return Err(format!("the answer in row {row} has {found} of the {asked} tokens that were requested"));
    }
    let (tokens, times): (Vec<_>, Vec<_>) = answers.into_iter().map(|answer| (answer.tokens, answer.times)).unzip();
    let mut tokens = tokens.concat();
    tokens.resize(rows * prompts.new_tokens, 0);
    let tensor = Tensor::from_vec([rows, prompts.new_tokens], tokens).expect("each row has as many tokens");
    Ok((vec![Value::Host(tensor)], times))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompts(config: serde_json::Value) -> Result<Prompts, EngineError> {
        let config = serde_json::from_value(config).unwrap();
        Prompts::of("openai", &LoadOptions { config, ..LoadOptions::default() })
    }

    fn batch(tokens: Vec<i64>, mask: Vec<i64>) -> [Value; 2] {
        [tokens, mask].map(|values| Value::Host(Tensor::from_vec([2, values.len() / 2], values).unwrap()))
    }

    #[test]
    fn padding_on_either_side_is_not_part_of_a_prompt() {
        let prompts = prompts(json!({"new_tokens": 3})).unwrap();
        let read = prompts.read(&batch(vec![0, 5, 6, 7, 8, 0], vec![0, 1, 1, 1, 1, 0])).unwrap();
        assert_eq!(read, [[5, 6], [7, 8]]);
        assert_eq!(prompts.read(&batch(vec![1; 4], vec![1, 1, 0, 0])).unwrap(), [[1, 1]], "the second row is padding");
        for mask in [vec![0, 0, 1, 1], vec![0; 4]] {
            let error = prompts.read(&batch(vec![1; 4], mask)).unwrap_err().to_string();
            assert_eq!(error, "the prompt in row 0 has no token");
        }
    }

    #[test]
    fn cases_without_answers_of_a_known_length_are_refused() {
        for (config, part) in [
            (json!({}), "a case without this key generates no text"),
            (json!({"new_tokens": 0}), "must be a number from 1 to 1048576"),
            (json!({"new_tokens": 3, "task": "mmlu"}), "but the task is `mmlu`: set `task=generation`"),
            (json!({"new_tokens": 3, "temperature": 0.7}), "set `temperature=0`"),
        ] {
            let error = prompts(config).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_answer_must_have_as_many_tokens_as_were_requested() {
        let prompts = prompts(json!({"new_tokens": 3, "temperature": 0})).unwrap();
        let answer = |parts: &[&[i64]]| {
            let mut answer = Answer::sent(Nanos(5));
            let added = parts.iter().enumerate().map(|(at, part)| answer.add(part, Nanos(at as u64), &prompts));
            added.collect::<Result<Vec<_>, _>>().map(|_| answer)
        };
        let error = collect(vec![answer(&[&[1, 2]]).unwrap()], 1, &prompts).unwrap_err();
        assert_eq!(error, "the answer in row 0 has 2 of the 3 tokens that were requested");
        let error = answer(&[&[1, 2, 3], &[4]]).unwrap_err();
        assert_eq!(error, "an answer has more than the 3 tokens that were requested");
        assert_eq!(answer(&[&[1, -1]]).unwrap_err(), "an answer has the token -1, which no vocabulary has");
        let (outputs, times) = collect(vec![answer(&[&[1], &[], &[2, 3]]).unwrap()], 2, &prompts).unwrap();
        let tensor = outputs[0].to_host().unwrap();
        let expected = (&[2, 3][..], &[1, 2, 3, 0, 0, 0][..]);
        assert_eq!((tensor.shape(), tensor.as_slice::<i64>().unwrap()), expected, "the second row is padding");
        assert_eq!(times[0].arrivals, [(Nanos(0), 1), (Nanos(2), 2)]);
    }
}
