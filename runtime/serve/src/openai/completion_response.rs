//! Answers as JSON: whole, or as the parts of a stream.

use serde_json::{Value, json};

use super::answer_reader::{Finish, Part, Usage};
use super::completion_request::{CompletionRequest, Kind};

/// What all objects of an answer have in common.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    kind: Kind,
    id: String,
    /// Seconds since 1970.
    created: i64,
    model: String,
    returns_tokens: bool,
    includes_usage: bool,
}

impl ResponseHead {
    /// Begins the answer to a request.
    pub fn new(request: &CompletionRequest) -> Self {
        let prefix = if request.kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        // Without random numbers of the system, ids are not unique, which hurts nobody.
        let number = getrandom::u64().unwrap_or(0);
        ResponseHead {
            kind: request.kind,
            id: format!("{prefix}-{number:016x}"),
            created: jiff::Timestamp::now().as_second(),
            model: request.model.clone(),
            returns_tokens: request.returns_tokens,
            includes_usage: request.includes_usage,
        }
    }

    /// Returns the whole answer.
    pub fn whole(&self, text: &str, tokens: &[i64], finish: Finish, usage: Usage) -> Value {
        let object = if self.kind == Kind::Chat { "chat.completion" } else { "text_completion" };
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": finish.word()});
        match self.kind {
            Kind::Chat => choice["message"] = json!({"role": "assistant", "content": text, "refusal": null}),
            Kind::Completion => choice["text"] = text.into(),
        }
        if self.returns_tokens {
            choice["token_ids"] = tokens.into();
        }
        let mut answer = self.object(object, &json!([choice]));
        answer["usage"] = usage_json(usage);
        answer
    }

    /// Returns the first part of a stream; `None` if it begins with text.
    pub fn first(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        (self.kind == Kind::Chat)
            .then(|| self.chunk(&json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null})))
    }

    /// Returns a part of a stream; `None` if there is nothing to say.
    pub fn part(&self, part: &Part) -> Option<Value> {
        if part.text.is_empty() && part.finish.is_none() && !self.returns_tokens {
            return None;
        }
        let finish = part.finish.map(Finish::word);
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": finish});
        match self.kind {
            Kind::Chat if part.text.is_empty() && finish.is_some() => choice["delta"] = json!({}),
            Kind::Chat => choice["delta"] = json!({"content": part.text}),
            Kind::Completion => choice["text"] = part.text.as_str().into(),
        }
        if self.returns_tokens {
            choice["token_ids"] = json!([part.token]);
        }
        Some(self.chunk(&choice))
    }

    /// Returns the part with the numbers of tokens, if it was asked for.
    pub fn usage(&self, usage: Usage) -> Option<Value> {
        let mut part = self.object(self.chunk_object(), &json!([]));
        part["usage"] = usage_json(usage);
        self.includes_usage.then_some(part)
    }

    fn chunk(&self, choice: &Value) -> Value {
        let mut part = self.object(self.chunk_object(), &json!([choice]));
        if self.includes_usage {
            part["usage"] = Value::Null;
        }
        part
    }

    fn chunk_object(&self) -> &'static str {
        if self.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" }
    }

    fn object(&self, object: &str, choices: &Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }
}

fn usage_json(usage: Usage) -> Value {
    let Usage { prompt_tokens, answer_tokens } = usage;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": answer_tokens,
        "total_tokens": prompt_tokens + answer_tokens,
    })
}
