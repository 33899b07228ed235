//! Datasets of questions.

use rhai::plugin::*;
use rhai::{Dynamic, ImmutableString, Map, NativeCallContext};

use super::Pipeline;
use super::files::{pipeline_of, relative_path};
use super::text::{check_length, padding, tokenizer_files, vocabulary};
use crate::packages::options::FunctionOptions;
use crate::sandbox::{Fallible, script_state};
use flagperf_data::{QuestionOptions, SampleSource, SquadOptions};

/// Largest number of examples before a question.
const SHOTS_MAX: usize = 100;

/// Reads the option `subjects`: an array of names.
fn subjects(value: Option<Dynamic>) -> Fallible<Vec<String>> {
    let error = |actual: &str| format!("`questions`: `subjects` must be an array of names, not {actual}");
    let Some(value) = value else { return Ok(Vec::new()) };
    let names = value.into_typed_array::<ImmutableString>().map_err(error)?;
    names.iter().try_for_each(|name| check_name("subjects", name))?;
    Ok(names.into_iter().map(|name| name.to_string()).collect())
}

/// Checks that a name is that of a file or a folder rather than a path.
fn check_name(option: &str, name: &str) -> Fallible<()> {
    if relative_path(name)?.components().count() == 1 && name != "." && !name.contains('/') {
        return Ok(());
    }
    Err(format!("`questions`: `{option}` must be a name, not the path `{name}`").into())
}

#[export_module]
pub(super) mod functions {
    /// Describes multiple-choice questions as MMLU publishes them: a folder with `test/SUBJECT_test.csv` and the
    /// examples `dev/SUBJECT_dev.csv`, each with the columns question, A, B, C, D, answer and no header. Prompts have
    /// the format of the original evaluation, which ends with `Answer:`; a prompt longer than `length` drops examples
    /// from the last, as there, and is an error if it is too long without any. Fields: `input_ids` and `attention_mask`
    /// (`N,L,i64`), `lengths` (`N,i64`); truth: `answers` (`N,i64`, from 0), `choices` (`N,4,i64`: the token that each
    /// of ` A`, ` B`, ` C` and ` D` adds to `Answer:`, which must be one) and `subjects` (`N,B,u8`, as
    /// `metric::accuracy_by_group` takes them).
    ///
    /// Options: `tokenizer`, `length`, `max_length`, `pad`, `side`, `vocabulary` and `special_tokens` as for
    /// `data::prompts`; `shots`, the number of examples (default 5); `split`, the folder of the questions (default
    /// `test`); `subjects`, a list of names (default: all that have a file).
    ///
    /// ```rhai
    /// data::questions("mmlu", #{tokenizer: "tokenizer.json", length: 2048, shots: 5, subjects: ["abstract_algebra"]})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn questions(context: NativeCallContext, folder: &str, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("questions", options);
        let tokenizer = tokenizer_files("questions", &options.required("tokenizer")?)?;
        let padding = padding("questions", &mut options)?;
        let vocabulary = vocabulary(&mut options)?;
        let special_tokens = options.flag("special_tokens", true)?;
        let shots = options.size("shots")?.unwrap_or(5);
        let split = options.text("split")?.map_or_else(|| "test".to_owned(), |split| split.to_string());
        let subjects = subjects(options.value("subjects"))?;
        options.finish()?;
        if shots > SHOTS_MAX {
            return Err(format!("`questions`: `shots` must be from 0 to {SHOTS_MAX}, not {shots}").into());
        }
        check_name("split", &split)?;
        let folder = relative_path(folder)?;
        let options =
            QuestionOptions { folder, split, subjects, shots, tokenizer, vocabulary, special_tokens, padding };
        Ok(pipeline_of(SampleSource::Questions(options)))
    }

    /// Describes questions about contexts as SQuAD 1.1 publishes them: one JSON file. The tokenizer joins each question with
    /// a part of its context; a longer context becomes several windows, each a sample. Fields: `input_ids`,
    /// `token_type_ids` and `attention_mask` (`N,L,i64`); truth, as `metric::spans` takes it: `questions` (`N,i64`: the
    /// index of each window's question), `offsets` (`N,L,2,i64`: the range of each token in bytes of the window's text, -1
    /// outside the context), `contexts` (`N,B,u8`) and `answers` (`N,A,C,u8`). The texts are in memory, their tokens not.
    ///
    /// Options: `tokenizer`, `vocabulary` and `pad` as for `data::prompts`; `length` of a window with its question (default
    /// 384); `stride`, the tokens of the context from the beginning of a window to that of the next (default 128);
    /// `question_length`, to which a question is cut (default 64).
    ///
    /// ```rhai
    /// data::squad("dev-v1.1.json", #{tokenizer: "tokenizer.json", length: 384, stride: 128, vocabulary: 30522})
    /// ```
    #[rhai_fn(return_raw)]
    pub fn squad(context: NativeCallContext, file: &str, options: Map) -> Fallible<Pipeline> {
        script_state(&context)?.budget.check()?;
        let mut options = FunctionOptions::new("squad", options);
        let tokenizer = tokenizer_files("squad", &options.required("tokenizer")?)?;
        let vocabulary = vocabulary(&mut options)?;
        let length = check_length("squad", "length", options.size("length")?.unwrap_or(384))?;
        let stride = check_length("squad", "stride", options.size("stride")?.unwrap_or(128))?;
        let question_length = options.size("question_length")?.unwrap_or(64);
        let question_length = check_length("squad", "question_length", question_length)?;
        let pad = options.size("pad")?.unwrap_or(0) as i64;
        options.finish()?;
        let file = relative_path(file)?;
        let options = SquadOptions { file, tokenizer, vocabulary, length, stride, question_length, pad };
        Ok(pipeline_of(SampleSource::Squad(options)))
    }
}
