//! The files that make a language model of an ONNX file.

use std::path::{Path, PathBuf};

use flagperf_config::ServedModel;

/// The tokenizer in the folder of a model.
const TOKENIZER_FILE: &str = "tokenizer.json";
/// Beside it, what published models say about the end of an answer and the form of a conversation.
const CONFIGURATION_FILE: &str = "tokenizer_config.json";
/// In newer models, the chat template as a file of its own.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// The rows of a model whose model.yaml names no `max_batch_size`.
const ROWS: u32 = 8;

/// The files of a language model besides the ONNX file, and how it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSource {
    /// `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// `tokenizer_config.json`, which may be missing.
    pub configuration: PathBuf,
    /// `chat_template.jinja`, which may be missing.
    pub template: PathBuf,
    /// Tokens that end an answer, besides the one that the configuration names.
    pub end_tokens: Vec<String>,
    /// The most tokens of a prompt that a run reads.
    pub chunk: usize,
}

impl TextSource {
    /// Returns the files of a model whose folder has a tokenizer, and gives its settings a number of rows; `None` for another
    /// model.
    pub fn of_folder(folder: &Path, settings: &mut ServedModel) -> Option<Self> {
        let tokenizer = folder.join(TOKENIZER_FILE);
        tokenizer.exists().then(|| Self::of_tokenizer(tokenizer, settings))
    }

    /// Returns the files beside a tokenizer, and gives the settings a number of rows.
    pub fn of_tokenizer(tokenizer: PathBuf, settings: &mut ServedModel) -> Self {
        if settings.max_batch_size == 0 {
            settings.max_batch_size = ROWS;
        }
        TextSource {
            configuration: tokenizer.with_file_name(CONFIGURATION_FILE),
            template: tokenizer.with_file_name(TEMPLATE_FILE),
            tokenizer,
            end_tokens: settings.end_tokens.clone(),
            chunk: settings.prompt_chunk as usize,
        }
    }
}
