//! Datasets of tokens and of texts.

use rhai::plugin::*;
use rhai::{Dynamic, ImmutableString, Map, NativeCallContext};

use super::Pipeline;
use super::files::{pipeline_of, relative_path};
use crate::packages::options::{FunctionOptions, size};
use crate::sandbox::{Fallible, script_state};
use flagperf_core::tensor::DType;
use flagperf_data::{
    FieldRole, Masking, NumberList, PaddingOptions, PaddingSide, PromptOptions, SAMPLE_BYTES_MAX, SampleSource,
    StoredType, TokenStreamOptions, TokenizerFiles,
};

/// Largest number of tokens of a sample: it has at most four fields of 8 bytes.
const LENGTH_MAX: usize = SAMPLE_BYTES_MAX / 64;

pub(super) fn check_length(function: &str, name: &str, length: usize) -> Fallible<usize> {
    if length == 0 || length > LENGTH_MAX {
        return Err(format!("`{function}`: `{name}` must be from 1 to {LENGTH_MAX}, not {length}").into());
    }
    Ok(length)
}

pub(super) fn vocabulary(options: &mut FunctionOptions) -> Fallible<Option<u32>> {
    let size = options.size("vocabulary")?;
    let whole = |size: usize| u32::try_from(size).map_err(|_| format!("a vocabulary of {size} tokens is too large"));
    Ok(size.map(whole).transpose()?)
}

/// Reads the option `masking`.
fn masking(map: Map, size: Option<u32>) -> Fallible<Option<Masking>> {
    if map.is_empty() {
        return Ok(None);
    }
    let mut options = FunctionOptions::new("tokens", map);
    let share = options.number("share")?.unwrap_or(0.15);
    let mask = options.required_size("mask")? as i64;
    let special = options.list("special")?.unwrap_or_default().into_iter().map(|token| token as i64).collect();
    let seed = options.size("seed")?.unwrap_or(0) as u64;
    options.finish()?;
    let vocabulary = size.ok_or("`tokens`: masking requires `vocabulary`, the number of tokens of the model")?;
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("`tokens`: `share` must be from 0 to 1, not {share}").into());
    }
    if mask >= i64::from(vocabulary) {
        return Err(format!("`tokens`: the mask {mask} is outside the vocabulary of {vocabulary}").into());
    }
    Ok(Some(Masking { share, mask, vocabulary, special, seed }))
}

/// Reads the option `tokenizer`: the path of `tokenizer.json`, or `#{vocab: .., merges: ..}`.
pub(super) fn tokenizer_files(function: &'static str, value: &Dynamic) -> Fallible<TokenizerFiles> {
    if let Some(map) = value.read_lock::<Map>() {
        let mut options = FunctionOptions::new(function, map.clone());
        let (vocabulary, merges) = (options.required_text("vocab")?, options.required_text("merges")?);
        options.finish()?;
        return Ok(TokenizerFiles::Merges { vocabulary: relative_path(&vocabulary)?, merges: relative_path(&merges)? });
    }
    let error =
        |actual| format!("`{function}`: `tokenizer` must be a path or `#{{vocab: .., merges: ..}}`, not {actual}");
    Ok(TokenizerFiles::Json(relative_path(&value.clone().into_immutable_string().map_err(error)?)?))
}

/// Reads the options `length`, `max_length`, `pad` and `side`.
pub(super) fn padding(function: &'static str, options: &mut FunctionOptions) -> Fallible<PaddingOptions> {
    let to_batch = options.take_if_text("length", "batch");
    let longest = options.size("max_length")?;
    let mut buckets = match (to_batch, longest) {
        (true, Some(longest)) => vec![longest],
        (true, None) => return Err(format!("`{function}`: `length: \"batch\"` requires `max_length`").into()),
        (false, Some(_)) => return Err(format!("`{function}`: `max_length` belongs to `length: \"batch\"`").into()),
        (false, None) => options.list("length")?.unwrap_or_default(),
    };
    buckets.sort_unstable();
    if buckets.is_empty() {
        return Err(options.missing("length").into());
    }
    buckets.iter().try_for_each(|length| check_length(function, "length", *length).map(drop))?;
    let side = match options.text("side")?.as_ref().map(ImmutableString::as_str) {
        None | Some("right") => PaddingSide::Right,
        Some("left") => PaddingSide::Left,
        Some(other) => return Err(format!("`{function}`: `side` must be `left` or `right`, not `{other}`").into()),
    };
    let pad = options.size("pad")?.unwrap_or(0) as i64;
    Ok(PaddingOptions { buckets, to_batch, pad, side, truncate: false })
}

/// The options of prompts with further lists of numbers.
const LISTS: [(&str, DType, FieldRole); 3] = [
    ("integers", DType::I64, FieldRole::Truth),
    ("floats", DType::F32, FieldRole::Truth),
    ("inputs", DType::I64, FieldRole::Input),
];

/// Reads the further texts or lists: the length of each by name.
fn further_keys(map: Map) -> Fallible<Vec<(String, usize)>> {
    let field = |(name, length): (rhai::Identifier, Dynamic)| {
        let length =
            length.as_int().map_err(|actual| format!("the length of `{name}` must be a number, not {actual}"))?;
        Ok((name.to_string(), check_length("prompts", &name, size("the length of a further key", length)?)?))
    };
    map.into_iter().map(field).collect()
}

#[export_module]
pub(super) mod functions {
    /// Describes a stream of tokens in one file, cut into samples. Fields: `input_ids` (input) and `labels` (truth, `i64`).
    /// The file is .npy, .safetensors (with `key` if it has several tensors), or flat little-endian numbers with their
    /// type as `stored`: `u16`, `u32`, `i32` or `i64`. Options: `length` of a sample; `stride` between the beginnings of
    /// samples (default `length`); `vocabulary`, the number of tokens of the model, which every token is checked against;
    /// `ids`, the type of `input_ids` (`i64` or `i32`); `masking`.
    ///
    /// With `masking: #{mask: 103}`, tokens are hidden as in BERT: each is chosen with the probability `share` (default
    /// 0.15); of the chosen, 80 % become `mask`, 10 % a random token, and 10 % stay. `special` lists tokens that are never
    /// chosen; `seed` is 0 by default. The labels are the chosen tokens, and -100 elsewhere.
    ///
    /// ```rhai
    /// let masking = #{mask: 103, special: [101, 102], seed: 7};
    /// data::tokens("text.bin", #{stored: "u16", length: 512, vocabulary: 30522, masking: masking})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn tokens(context: NativeCallContext, file: &str, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("tokens", options);
        let length = check_length("tokens", "length", options.required_size("length")?)?;
        let stride = check_length("tokens", "stride", options.size("stride")?.unwrap_or(length))?;
        let vocabulary = vocabulary(&mut options)?;
        let stored = match options.text("stored")? {
            None => None,
            Some(name) => Some(
                StoredType::parse(&name)
                    .ok_or_else(|| format!("`tokens`: unknown type `{name}` (supported: u16, u32, i32, i64)"))?,
            ),
        };
        let id_type = match options.text("ids")?.as_ref().map(ImmutableString::as_str) {
            None | Some("i64") => DType::I64,
            Some("i32") => DType::I32,
            Some(other) => return Err(format!("`tokens`: `ids` must be `i64` or `i32`, not `{other}`").into()),
        };
        let masking = masking(options.map("masking")?, vocabulary)?;
        let key = options.text("key")?.map(|key| key.to_string());
        options.finish()?;
        let file = relative_path(file)?;
        let options = TokenStreamOptions { file, stored, key, length, stride, vocabulary, masking, id_type };
        Ok(pipeline_of(SampleSource::Tokens(options)))
    }

    /// Describes prompts: the lines of a text file, or of JSON lines under `key`, tokenized and padded. Fields:
    /// `input_ids` and `attention_mask` (`L,i64`), `lengths` (`i64`); truth: `tokens` (`L,i64`, padded with -1).
    ///
    /// Options: `tokenizer`, the path of `tokenizer.json`, or `#{vocab: .., merges: ..}`; BPE dropout, which is for
    /// training, is switched off; `length`, which is a number;
    /// an array of numbers, of which the smallest that holds the longest prompt is used for all batches; or `"batch"`,
    /// which pads each batch to its longest prompt, of at most `max_length` tokens, and requires an open dimension in
    /// the model; `pad`, the token that pads (default 0), and its `side` (`right` or `left`, default `right`);
    /// `truncate` (default false: a longer prompt is an error), which cuts the end of a prompt and keeps the special
    /// tokens; `special_tokens` that the tokenizer adds (default true); `template`, a text in which `{}` stands for the
    /// prompt; `vocabulary`, the number of tokens of the model; `texts`, further keys for the evaluator with the most
    /// bytes of each, as UTF-8 padded with zeros (`B,u8`); `integers`, further keys whose value is a list of whole
    /// numbers, with its length (`L,i64`); `floats`, the same with any numbers (`L,f32`); `inputs`, the same as `integers` for
    /// the forward function, such as a seed for each prompt: random numbers then do not depend on the batch. `jq -c '.annotations[]'` writes captions as COCO publishes them as JSON
    /// lines, whose key is `caption`.
    ///
    /// ```rhai
    /// let options = #{tokenizer: "tokenizer.json", length: [64, 128], vocabulary: 49152, key: "question"};
    /// data::prompts("questions.jsonl", options + #{texts: #{answer: 256}})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn prompts(context: NativeCallContext, file: &str, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("prompts", options);
        let tokenizer = tokenizer_files("prompts", &options.required("tokenizer")?)?;
        let padding = padding("prompts", &mut options)?;
        let padding = PaddingOptions { truncate: options.flag("truncate", false)?, ..padding };
        let vocabulary = vocabulary(&mut options)?;
        let special_tokens = options.flag("special_tokens", true)?;
        let text = |text: Option<ImmutableString>| text.map(|text| text.to_string());
        let (key, template) = (text(options.text("key")?), text(options.text("template")?));
        let texts = further_keys(options.map("texts")?)?;
        let mut lists = Vec::new();
        for (kind, dtype, role) in LISTS {
            let keys = further_keys(options.map(kind)?)?;
            lists.extend(keys.into_iter().map(|(name, length)| NumberList { name, length, dtype, role }));
        }
        options.finish()?;
        if key.is_none() && !(texts.is_empty() && lists.is_empty()) {
            let kinds = "`texts`, `integers`, `floats` and `inputs`";
            return Err(format!("`prompts`: {kinds} are keys of JSON lines, which requires `key`").into());
        }
        if template.as_ref().is_some_and(|template| !template.contains("{}")) {
            return Err("`prompts`: the `template` lacks `{}`, which stands for the prompt".into());
        }
        let file = relative_path(file)?;
        let options =
            PromptOptions { file, key, template, tokenizer, vocabulary, special_tokens, padding, texts, lists };
        Ok(pipeline_of(SampleSource::Prompts(options)))
    }
}
