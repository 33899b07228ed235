//! The text side of a language model: tokenizer, chat template, the tokens that end an answer, and the limits of a prompt.

use std::fmt;
use std::path::Path;

use flagperf_core::regular_file::read_regular_text;
use flagperf_data::{DataRoot, TextTokenizer, TokenizerFiles};
use serde_json::Value;

use super::chat_template::{ChatTemplate, Message, TemplateError};
use super::source::TextSource;
use crate::decoder::DecoderGraph;

/// The most bytes of a file beside the tokenizer.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What turns text into tokens and tokens into text.
pub struct LanguageModel {
    tokenizer: TextTokenizer,
    template: Option<ChatTemplate>,
    ends: Vec<i64>,
    graph: DecoderGraph,
    /// The number of tokens that the model and the tokenizer know.
    vocabulary: usize,
    longest_token_bytes: usize,
}

impl fmt::Debug for LanguageModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LanguageModel")
            .field("graph", &self.graph)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl LanguageModel {
    /// Reads the files of a language model whose decoder is in the file `model`.
    ///
    /// # Errors
    /// When a file cannot be read, or they do not belong together.
    pub fn load(source: &TextSource, model: &Path) -> Result<Self, String> {
        let graph = DecoderGraph::read(model)?;
        let tokenizer = read_tokenizer(&source.tokenizer, graph.vocabulary)?;
        let configuration = Configuration::read(&source.configuration, &source.template)?;
        let number = |token: &String| {
            let number = tokenizer.token_number(token).map(i64::from);
            number.ok_or_else(|| {
                format!("`{}` has no token `{token}`, which is to end an answer", source.tokenizer.display())
            })
        };
        let ends = configuration.eos_token.iter().chain(&source.end_tokens).map(number).collect::<Result<_, _>>()?;
        let Configuration { template, bos_token, eos_token } = configuration;
        let template = template.map(|template| ChatTemplate::new(template, bos_token, eos_token)).transpose();
        let template =
            template.map_err(|error| format!("`{}`: the chat template: {error}", source.configuration.display()))?;
        let vocabulary = graph.vocabulary.unwrap_or_else(|| tokenizer.token_count());
        let longest_token_bytes = tokenizer.longest_token_bytes();
        Ok(LanguageModel { tokenizer, template, ends, graph, vocabulary, longest_token_bytes })
    }

    /// Returns the sizes of the decoder.
    pub fn graph(&self) -> &DecoderGraph {
        &self.graph
    }

    /// Returns the number of tokens.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns whether a token ends an answer.
    pub fn ends_answer(&self, token: i64) -> bool {
        self.ends.contains(&token)
    }

    /// Returns the tokens of a prompt; with the tokenizer's own special tokens around them if `special`.
    ///
    /// # Errors
    /// When it surely has more tokens than the cache, or the tokenizer fails.
    pub fn encode(&self, prompt: &str, special: bool) -> Result<Vec<i64>, String> {
        let (length, longest) = (self.graph.length, self.longest_token_bytes);
        if prompt.len() > length.saturating_mul(longest.max(1)) {
            let least = prompt.len().div_ceil(longest.max(1));
            return Err(format!("the prompt has at least {least} tokens, but the model's context has {length}"));
        }
        self.tokenizer.encode(prompt, special).map_err(|reason| format!("the prompt {reason}"))
    }

    /// Returns the tokens of a conversation; `None` if the model has no chat template.
    ///
    /// # Errors
    /// As [`LanguageModel::encode`], and when the template refuses the messages.
    pub fn encode_messages(&self, messages: &[Message]) -> Option<Result<Vec<i64>, String>> {
        let rendered = self.template.as_ref()?.render(messages).map_err(|error: TemplateError| error.to_string());
        // The template has the special tokens.
        Some(rendered.and_then(|text| self.encode(&text, false)))
    }

    /// Returns the text of tokens.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(tokens)
    }
}

fn read_tokenizer(file: &Path, vocabulary: Option<usize>) -> Result<TextTokenizer, String> {
    let named =
        |error: &dyn fmt::Display| format!("the tokenizer in `{}`: {error}", file.parent().unwrap_or(file).display());
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let root = DataRoot::open(folder).map_err(|error| named(&error))?;
    let files = TokenizerFiles::Json(file.file_name().unwrap_or_default().into());
    let vocabulary = vocabulary.and_then(|vocabulary| u32::try_from(vocabulary).ok());
    TextTokenizer::load(&root, &files, vocabulary).map_err(|error| named(&error))
}

/// What tokenizer_config.json says.
#[derive(Debug, Default)]
struct Configuration {
    template: Option<String>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

impl Configuration {
    fn read(file: &Path, template_file: &Path) -> Result<Self, String> {
        let read = |file: &Path| match file.symlink_metadata() {
            Ok(_) => {
                let text = read_regular_text(file, FILE_BYTES_MAX);
                text.map(Some).map_err(|error| format!("`{}`: {error}", file.display()))
            }
            Err(_) => Ok(None),
        };
        let configuration = match read(file)? {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| format!("`{}` is not JSON: {error}", file.display()))?
            }
            None => Value::Null,
        };
        let template = read(template_file)?.or_else(|| template_of(&configuration["chat_template"]));
        let token = |name: &str| token_text(&configuration[name]);
        Ok(Configuration { template, bos_token: token("bos_token"), eos_token: token("eos_token") })
    }
}

/// Returns a token: its text, or an object that has it.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

/// Returns the template: a text, or the one named `default` of a list.
fn template_of(value: &Value) -> Option<String> {
    let named = || value.as_array()?.iter().find(|template| template["name"] == "default")?["template"].as_str();
    value.as_str().or_else(named).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_and_templates_are_read_in_both_published_forms() {
        assert_eq!(token_text(&json!("</s>")), Some("</s>".to_owned()));
        assert_eq!(token_text(&json!({"content": "</s>", "lstrip": false})), Some("</s>".to_owned()));
        assert_eq!(token_text(&Value::Null), None);
        let list = json!([{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]);
        assert_eq!((template_of(&list), template_of(&json!("c"))), (Some("b".to_owned()), Some("c".to_owned())));
    }

    #[test]
    fn a_template_of_its_own_file_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let (file, template) = (folder.path().join("tokenizer_config.json"), folder.path().join("chat_template.jinja"));
        assert!(Configuration::read(&file, &template).unwrap().template.is_none());
        std::fs::write(&file, json!({"chat_template": "old", "eos_token": "</s>"}).to_string()).unwrap();
        std::fs::write(&template, "new").unwrap();
        let read = Configuration::read(&file, &template).unwrap();
        assert_eq!((read.template.as_deref(), read.eos_token.as_deref()), (Some("new"), Some("</s>")));
        std::fs::write(&file, "{").unwrap();
        assert!(Configuration::read(&file, &template).unwrap_err().contains("is not JSON"));
    }
}
