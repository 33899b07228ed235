//! From a request to a prompt in a model's queue: tokens, limits and the choice of tokens, which depend on the model.

use std::sync::Arc;

use flagperf_core::measure::Nanos;
use tokio::sync::mpsc::unbounded_channel;

use super::answer_reader::AnswerReader;
use super::completion_request::{CompletionRequest, Input, Kind};
use super::openai_error::OpenAiError;
use crate::api_error::ApiError;
use crate::generation::{Answer, GenerationRequest, LanguageModel, Refusal, Sampler, Sampling, TextModel};
use crate::model::Model;

/// The most tokens of a completion that does not say how many.
const COMPLETION_TOKENS: usize = 16;

/// Puts a request into the queue of a model; `None` if the model was unloaded in the meantime.
///
/// # Errors
/// When the request does not fit the model, or the model cannot answer now.
pub fn submit(
    model: &Arc<Model>,
    request: &CompletionRequest,
    arrived: Nanos,
) -> Result<Option<AnswerReader>, OpenAiError> {
    let text = text_model(model)?;
    // It takes long for a long text.
    let prompt = tokio::task::block_in_place(|| prompt_tokens(text.language(), request))?;
    let tokens_max = tokens_max(text.language(), request, prompt.len())?;
    let sampler = Sampler::new(sampling(text.language(), request)?);
    if model.ready_instances() == 0 {
        let title = &model.shared().title;
        return Err(ApiError::unavailable(format!("{title}: {}", model.why_not_ready())).into());
    }
    let (events, answer) = unbounded_channel();
    let prompt_tokens = prompt.len();
    let generation = GenerationRequest {
        prompt,
        tokens_max,
        ignores_ends: request.ignores_ends,
        sampler,
        arrived: model.shared().clock.now(),
        events,
    };
    // A request may wait as long for a row as for another model's run.
    let answer = Answer::new(text.clone(), answer, model.shared().limit * 2);
    match text.queue().push(generation) {
        Ok(()) => Ok(Some(AnswerReader::new(model.clone(), answer, request, prompt_tokens, tokens_max, arrived))),
        Err((refusal, _)) => {
            let mut answer = answer;
            answer.end();
            match refusal {
                Refusal::Closed => Ok(None),
                Refusal::Full => Err(too_many(model)),
            }
        }
    }
}

/// Returns the language model.
///
/// # Errors
/// When the model is of another kind.
pub fn text_model(model: &Model) -> Result<&Arc<TextModel>, OpenAiError> {
    let name = &model.source().name;
    model.text().ok_or_else(|| {
        let message = format!("model `{name}` is no language model: ask it at `/v2/models/{name}/infer`");
        OpenAiError::field("model", message)
    })
}

fn too_many(model: &Model) -> OpenAiError {
    model.statistics().add_refused();
    let size = model.source().settings.queue_size;
    ApiError::too_many(format!("{}: {size} requests wait already", model.shared().title)).into()
}

fn prompt_tokens(language: &LanguageModel, request: &CompletionRequest) -> Result<Vec<i64>, OpenAiError> {
    let (param, tokens) = match &request.input {
        Input::Text(text) => ("prompt", language.encode(text, true)),
        Input::Tokens(tokens) => ("prompt", known_tokens(language, tokens)),
        Input::Messages(messages) => {
            let tokens = language.encode_messages(messages).ok_or_else(|| {
                let message =
                    "the model has no chat template (`chat_template` of tokenizer_config.json): use /v1/completions";
                OpenAiError::field("messages", message)
            })?;
            ("messages", tokens)
        }
    };
    match tokens.map_err(|reason| OpenAiError::field(param, reason))? {
        tokens if tokens.is_empty() => Err(OpenAiError::field(param, "the prompt has no tokens")),
        tokens => Ok(tokens),
    }
}

fn known_tokens(language: &LanguageModel, tokens: &[i64]) -> Result<Vec<i64>, String> {
    let known = language.vocabulary();
    let is_known = |token: i64| usize::try_from(token).is_ok_and(|token| token < known);
    match tokens.iter().find(|token| !is_known(**token)) {
        Some(token) => Err(format!("the model has no token {token}: it has {known}, from 0")),
        None => Ok(tokens.to_vec()),
    }
}

/// Returns the most tokens of the answer.
fn tokens_max(language: &LanguageModel, request: &CompletionRequest, prompt: usize) -> Result<usize, OpenAiError> {
    let length = language.graph().length;
    let param = if request.kind == Kind::Chat { "messages" } else { "prompt" };
    let room = length.checked_sub(prompt).filter(|room| *room > 0).ok_or_else(|| {
        let message = format!(
            "the prompt has {prompt} tokens, but the model's context has {length} for the prompt and the answer"
        );
        OpenAiError::too_long(param, message)
    })?;
    match request.tokens_max {
        Some(wanted) if wanted > room => {
            let message = format!(
                "the model's context has {length} tokens, but the request needs more: {prompt} of the prompt and {wanted} of \
                 the answer"
            );
            Err(OpenAiError::too_long(param, message))
        }
        Some(wanted) => Ok(wanted),
        None if request.kind == Kind::Chat => Ok(room),
        None => Ok(room.min(COMPLETION_TOKENS)),
    }
}

/// Returns how tokens are chosen. A graph that returns only the most probable token cannot have a temperature.
fn sampling(language: &LanguageModel, request: &CompletionRequest) -> Result<Sampling, OpenAiError> {
    let has_logits = language.graph().has_logits;
    let temperature = request.temperature.unwrap_or(if has_logits { 1.0 } else { 0.0 });
    if temperature > 0.0 && !has_logits {
        let message = format!(
            "`temperature` is {temperature}, but the model was exported without the scores of tokens and returns only the most \
             probable one: use 0"
        );
        return Err(OpenAiError::field("temperature", message));
    }
    Ok(Sampling { temperature, top_p: request.top_p, top_k: request.top_k, seed: request.seed })
}
