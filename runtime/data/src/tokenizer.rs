//! Tokenizers as Hugging Face publishes them: `tokenizer.json`, or a vocabulary with its merges.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use flagperf_core::file_kind;
use flagperf_core::regular_file::read_regular_text;
use serde_json::json;
use tokenizers::models::ModelWrapper;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationParams};

use super::{DataError, DataRoot};

/// Largest size of a tokenizer's file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 28;

/// The files of a tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerFiles {
    /// `tokenizer.json`.
    Json(PathBuf),
    /// The vocabulary and the merges of a byte-level BPE, as GPT-2 has them.
    Merges {
        /// `vocab.json`: the number of each token.
        vocabulary: PathBuf,
        /// `merges.txt`: one pair per line, best first.
        merges: PathBuf,
    },
}

impl TokenizerFiles {
    /// Returns the file by which errors name the tokenizer.
    pub fn path(&self) -> &Path {
        match self {
            TokenizerFiles::Json(path) | TokenizerFiles::Merges { vocabulary: path, .. } => path,
        }
    }
}

/// A loaded tokenizer, which tokenizes a text in the same way each time.
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// The files, and what was changed.
    description: String,
}

impl TextTokenizer {
    /// Loads a tokenizer without its own truncation and padding, and without BPE dropout, which is for training: with it,
    /// each reading of a sample would have other tokens. `vocabulary` is the number of tokens of the model.
    ///
    /// # Errors
    /// When a file cannot be read or parsed, or the tokenizer has more tokens than the model.
    pub fn load(root: &DataRoot, files: &TokenizerFiles, vocabulary: Option<u32>) -> Result<Self, DataError> {
        let read = |path: &Path| {
            read_regular_text(&root.resolve(path)?, FILE_BYTES_MAX)
                .map_err(|error| DataError::Unreadable { path: path.to_owned(), reason: error.to_string() })
        };
        let invalid = |reason: String| DataError::Invalid { path: files.path().to_owned(), reason };
        let mut tokenizer = match files {
            TokenizerFiles::Json(path) => {
                let text = read(path)?;
                let other = |reason: String| file_kind::reason_for(text.as_bytes(), || reason);
                let parsed = Tokenizer::from_str(&text).map_err(|error| other(error.to_string()));
                parsed.map_err(|reason| invalid(format!("is not a tokenizer: {reason}")))?
            }
            TokenizerFiles::Merges { vocabulary, merges } => {
                byte_level(&read(vocabulary)?, &read(merges)?).map_err(invalid)?
            }
        };
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| invalid(error.to_string()))?;
        let tokens = tokenizer.get_vocab(true).into_values().max().map_or(0, |last| u64::from(last) + 1);
        if let Some(vocabulary) = vocabulary.filter(|vocabulary| u64::from(*vocabulary) < tokens) {
            return Err(invalid(format!(
                "the tokenizer has {tokens} tokens, but the model only {vocabulary}: it belongs to another model"
            )));
        }
        let mut description = format!("tokenizer {files:?}");
        if let Some(dropout) = switch_off_dropout(&mut tokenizer) {
            description += &format!(" without its BPE dropout of {dropout}");
        }
        Ok(TextTokenizer { tokenizer, description })
    }

    /// Checks that the tokenizer has the token that pads.
    ///
    /// # Errors
    /// When it has no such token.
    pub fn check_padding(&self, pad: i64) -> Result<(), String> {
        let known = u32::try_from(pad).ok().and_then(|pad| self.tokenizer.id_to_token(pad));
        let tokens = self.tokenizer.get_vocab_size(true);
        known.map(drop).ok_or_else(|| {
            format!(
                "the tokenizer has no token {pad}, which pads (`pad`), among its {tokens}: it belongs to another model"
            )
        })
    }

    /// Returns the files of the tokenizer and what was changed, for the record.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Lets the tokenizer cut the end of texts, so that they have at most `length` tokens with their special tokens.
    ///
    /// # Errors
    /// When the special tokens alone are more.
    pub fn truncate_to(&mut self, length: usize) -> Result<(), String> {
        let truncation = TruncationParams { max_length: length, ..TruncationParams::default() };
        self.tokenizer.with_truncation(Some(truncation)).map(drop).map_err(|error| error.to_string())
    }

    /// Returns the tokens of a text, with the tokenizer's special tokens around them if `special`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<i64>, String> {
        let encoding =
            self.tokenizer.encode_fast(text, special).map_err(|error| format!("cannot be tokenized: {error}"))?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// Returns the text of tokens, without special tokens. Bytes that are no whole character become U+FFFD.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(tokens, true).map_err(|error| format!("cannot be written as text: {error}"))
    }

    /// Returns the number of a token; `None` if there is no such token.
    pub fn token_number(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Returns the number of tokens: one more than the highest number of a token.
    pub fn token_count(&self) -> usize {
        self.tokenizer.get_vocab(true).into_values().max().map_or(0, |last| last as usize + 1)
    }

    /// Returns the bytes of the longest token as the file writes it.
    pub fn longest_token_bytes(&self) -> usize {
        self.tokenizer.get_vocab(true).keys().map(String::len).max().unwrap_or(0)
    }

    /// Returns the tokens of a text without special tokens, with the range of bytes of each.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode_with_offsets(&self, text: &str) -> Result<Encoding, String> {
        self.tokenizer.encode(text, false).map_err(|error| format!("cannot be tokenized: {error}"))
    }

    /// Returns the number of special tokens of a pair of texts.
    pub fn special_tokens_of_pair(&self) -> usize {
        self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(true))
    }

    /// Joins the tokens of two texts with the tokenizer's special tokens and segments.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn join(&self, first: Encoding, mut second: Encoding) -> Result<Encoding, String> {
        second.set_type_ids(vec![1; second.len()]);
        self.tokenizer.post_process(first, Some(second), true).map_err(|error| format!("cannot be joined: {error}"))
    }
}

/// Removes the dropout of a BPE and returns it; `None` if there is none.
fn switch_off_dropout(tokenizer: &mut Tokenizer) -> Option<f32> {
    let ModelWrapper::BPE(model) = tokenizer.get_model() else { return None };
    let dropout = model.dropout.filter(|dropout| *dropout > 0.0)?;
    let mut model = model.clone();
    model.dropout = None;
    tokenizer.with_model(model);
    Some(dropout)
}

/// Builds a byte-level BPE from the texts of `vocab.json` and `merges.txt`.
fn byte_level(vocabulary: &str, merges: &str) -> Result<Tokenizer, String> {
    let vocabulary: serde_json::Value =
        serde_json::from_str(vocabulary).map_err(|error| format!("is not a vocabulary: {error}"))?;
    let pairs = merges.lines().enumerate().filter(|(_, line)| !line.starts_with("#version") && !line.is_empty());
    let missing = |number: usize| format!("line {} of the merges is not a pair", number + 1);
    let merges = pairs
        .map(|(number, line)| line.split_once(' ').ok_or_else(|| missing(number)))
        .collect::<Result<Vec<_>, String>>()?;
    let splitter = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let whole = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": splitter,
        "decoder": splitter,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    Tokenizer::from_str(&whole.to_string()).map_err(|error| format!("the merges do not fit the vocabulary: {error}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A tokenizer of words with `[CLS]` and `[SEP]` around each text.
    pub(crate) fn words() -> String {
        let vocabulary =
            json!({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "the": 4, "cat": 5, "sat": 6, "who": 7});
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
        };
        let piece = |kind: &str, id: &str, segment: u32| json!({kind: {"id": id, "type_id": segment}});
        let pair = json!([
            piece("SpecialToken", "[CLS]", 0),
            piece("Sequence", "A", 0),
            piece("SpecialToken", "[SEP]", 0),
            piece("Sequence", "B", 1),
            piece("SpecialToken", "[SEP]", 1)
        ]);
        let single =
            json!([piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)]);
        let tokens = json!({"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}});
        let template = json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens});
        json!({"version": "1.0", "added_tokens": [special(1, "[CLS]"), special(2, "[SEP]")],
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": template,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}})
        .to_string()
    }

    fn load(
        files: &[(&str, &str)],
        tokenizer: &TokenizerFiles,
        vocabulary: Option<u32>,
    ) -> Result<TextTokenizer, String> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        let root = DataRoot::open(folder.path()).unwrap();
        TextTokenizer::load(&root, tokenizer, vocabulary).map_err(|error| error.to_string())
    }

    #[test]
    fn a_tokenizer_file_is_read_with_its_special_tokens() {
        let tokenizer = load(&[("t.json", &words())], &TokenizerFiles::Json("t.json".into()), Some(8)).unwrap();
        assert_eq!(tokenizer.encode("the cat ran", true).unwrap(), [1, 4, 5, 0, 2]);
        assert_eq!(tokenizer.encode("the cat", false).unwrap(), [4, 5]);
    }

    #[test]
    fn a_vocabulary_with_merges_is_a_byte_level_bpe() {
        let files = TokenizerFiles::Merges { vocabulary: "vocab.json".into(), merges: "merges.txt".into() };
        let vocabulary = r#"{"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4, "\u0120": 5}"#;
        let tokenizer = load(&[("vocab.json", vocabulary), ("merges.txt", "#version: 0.2\nl o\nlo w\n")], &files, None);
        assert_eq!(tokenizer.unwrap().encode("low lo", false).unwrap(), [4, 5, 3]);
        let reason = load(&[("vocab.json", vocabulary), ("merges.txt", "l o\nlow\n")], &files, None).err().unwrap();
        assert_eq!(reason, "`vocab.json`: line 2 of the merges is not a pair");
    }

    #[test]
    fn bpe_dropout_is_switched_off_and_the_record_says_so() {
        let tokenizer = |dropout: &str| {
            let text = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "dropout": DROPOUT,
                "vocab": {"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4}, "merges": ["l o", "lo w"]}}"#;
            let text = text.replace("DROPOUT", dropout);
            load(&[("t.json", &text)], &TokenizerFiles::Json("t.json".into()), None).unwrap()
        };
        let dropped = tokenizer("0.5");
        for _ in 0..32 {
            assert_eq!(dropped.encode("lowlowlow", false).unwrap(), [4, 4, 4]);
        }
        assert_eq!(dropped.description(), "tokenizer Json(\"t.json\") without its BPE dropout of 0.5");
        assert_eq!(tokenizer("0.0").description(), "tokenizer Json(\"t.json\")");
    }

    #[test]
    fn a_tokenizer_of_another_model_and_a_file_that_is_none_are_refused() {
        let file = TokenizerFiles::Json("t.json".into());
        let reason = load(&[("t.json", &words())], &file, Some(7)).err().unwrap();
        let expected = "`t.json`: the tokenizer has 8 tokens, but the model only 7: it belongs to another model";
        assert_eq!(reason, expected);
        let reason = load(&[("t.json", "{}")], &file, None).err().unwrap();
        assert!(reason.starts_with("`t.json`: is not a tokenizer: "), "{reason}");
    }
}
