//! Tests of questions about contexts.

use std::str::FromStr;

use serde_json::{Value, json};
use tokenizers::{Tokenizer, TruncationParams, TruncationStrategy};

use super::*;
use crate::tokenizer::tests::words;

const CONTEXT: &str = "Zoë the cat sat the cat who the cat sat";

fn file() -> Value {
    json!({"version": "1.1", "data": [
        {"title": "Cats", "paragraphs": [
            {"context": CONTEXT, "qas": [
                {"id": "q1", "question": "who sat the sat", "answers": [
                    {"answer_start": 4, "text": "the cat"}, {"answer_start": 8, "text": "cat"},
                    {"answer_start": 4, "text": "the cat"}]},
                {"id": "q2", "question": "who", "answers": [{"answer_start": 0, "text": "Zoë"}]}
            ]},
            {"context": "sat", "qas": [{"id": "q3", "question": "who", "answers": [{"answer_start": 0, "text": "sat"}]}]}
        ]}
    ]})
}

fn options() -> SquadOptions {
    SquadOptions {
        file: "dev.json".into(),
        tokenizer: TokenizerFiles::Json("t.json".into()),
        vocabulary: Some(8),
        length: 12,
        stride: 3,
        question_length: 3,
        pad: 0,
    }
}

fn open_text(text: &str, options: &SquadOptions) -> Result<Squad, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dev.json"), text).unwrap();
    std::fs::write(folder.path().join("t.json"), words()).unwrap();
    Squad::open(&DataRoot::open(folder.path()).unwrap(), options).map_err(|error| error.to_string())
}

fn open(options: &SquadOptions) -> Result<Squad, String> {
    open_text(&file().to_string(), options)
}

/// Returns the bytes of every field of a sample.
fn read(squad: &Squad, index: usize) -> Vec<Vec<u8>> {
    let sizes = squad
        .fields()
        .iter()
        .map(|field| field.spec.fixed_shape().unwrap().iter().product::<usize>() * field.spec.dtype.size());
    let mut memory: Vec<Vec<u8>> = sizes.map(|size| vec![7; size]).collect();
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    squad.read(index, &mut slices).unwrap();
    memory
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// Returns the tokens, the segments and the texts of the context's tokens of all windows of a question.
fn windows(squad: &Squad, question: i64) -> Vec<(Vec<i64>, Vec<i64>, Vec<String>)> {
    let samples = (0..squad.len()).map(|index| read(squad, index)).filter(|fields| numbers(&fields[3]) == [question]);
    let window = |fields: Vec<Vec<u8>>| {
        let length = numbers(&fields[2]).iter().sum::<i64>() as usize;
        let offsets = numbers(&fields[4]);
        let texts = offsets
            .chunks(2)
            .filter(|range| range[0] >= 0)
            .map(|range| String::from_utf8(fields[5][range[0] as usize..range[1] as usize].to_vec()).unwrap());
        let texts = texts.collect();
        (numbers(&fields[0])[..length].to_vec(), numbers(&fields[1])[..length].to_vec(), texts)
    };
    samples.map(window).collect()
}

#[test]
fn windows_equal_those_of_the_tokenizers_crate() {
    let options = options();
    let squad = open(&options).unwrap();
    for (index, question, tokens) in [(0, "who sat the", 3), (1, "who", 1)] {
        let width = options.length - 3 - tokens;
        let truncation = TruncationParams {
            max_length: options.length,
            strategy: TruncationStrategy::OnlySecond,
            stride: width - options.stride,
            ..TruncationParams::default()
        };
        let mut tokenizer = Tokenizer::from_str(&words()).unwrap();
        tokenizer.with_truncation(Some(truncation)).unwrap();
        let whole = tokenizer.encode((question, CONTEXT), true).unwrap();
        let expected = [&whole].into_iter().chain(whole.get_overflowing()).map(|encoding| {
            let numbers = |values: &[u32]| values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>();
            let context = encoding.get_offsets().iter().zip(encoding.get_sequence_ids());
            let texts = context.filter(|(_, sequence)| *sequence == Some(1));
            let texts = texts.map(|((begin, end), _)| CONTEXT[*begin..*end].to_owned()).collect::<Vec<_>>();
            (numbers(encoding.get_ids()), numbers(encoding.get_type_ids()), texts)
        });
        assert_eq!(windows(&squad, index), expected.collect::<Vec<_>>(), "{question}");
    }
}

#[test]
fn a_sample_has_its_segments_its_question_and_the_accepted_answers() {
    let squad = open(&options()).unwrap();
    let specs: Vec<_> = squad.fields().iter().map(|field| format!("{} {}", field.name, field.spec)).collect();
    let expected = [
        "input_ids 12,i64",
        "token_type_ids 12,i64",
        "attention_mask 12,i64",
        "questions i64",
        "offsets 12,2,i64",
        "contexts 32,u8",
        "answers 2,7,u8",
    ];
    assert_eq!(specs, expected);
    let sample = read(&squad, squad.len() - 1);
    assert_eq!(numbers(&sample[0]), [1, 7, 2, 6, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(numbers(&sample[1]), [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(numbers(&sample[3]), [2]);
    assert_eq!(sample[6], b"sat\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(read(&squad, 0)[6], b"the catcat\0\0\0\0");
    assert_eq!(squad.sample_name(1), "dev.json: window 1 of question `q1`");
}

#[test]
fn bad_files_are_refused_with_the_id_of_the_question() {
    let refused = |place: &str, value: Value| {
        let mut file = file();
        *file.pointer_mut(place).unwrap() = value;
        open_text(&file.to_string(), &options()).err().unwrap()
    };
    let reason = refused("/data/0/paragraphs/0/qas/1/answers", json!([]));
    let expected = "`dev.json`: question `q2` has no answer: unanswerable questions (version 2) are not supported";
    assert_eq!(reason, expected);
    let reason = refused("/data/0/paragraphs/0/qas/1/id", json!("q1"));
    assert_eq!(reason, "`dev.json`: has two questions with the id `q1`");
    let reason = refused("/data/0/paragraphs/0/qas/1/answers/0/text", json!(""));
    assert_eq!(reason, "`dev.json`: question `q2` has an answer that is empty or contains the character 0");
    assert_eq!(refused("/data", json!([])), "`dev.json`: has no questions");
    let text = file().to_string();
    let reason = open_text(&text[..200], &options()).err().unwrap();
    assert!(reason.starts_with("`dev.json`: is not a SQuAD file: EOF while parsing a list at line 1"), "{reason}");
    let reason = open_text("[]", &options()).err().unwrap();
    let expected = "`dev.json`: is not a SQuAD file: invalid type: sequence, expected an object at line 1";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn windows_must_not_leave_out_tokens() {
    let reason = open(&SquadOptions { stride: 7, ..options() }).err().unwrap();
    let expected = "`dev.json`: question `q1`: 6 tokens of the question and special ones leave 6 of `length`: 12 for \
                    the context, fewer than `stride`: 7";
    assert_eq!(reason, expected);
    let reason = open(&SquadOptions { length: 5, ..options() }).err().unwrap();
    assert!(reason.contains("question `q1`") && reason.contains("leave 0 of `length`: 5"), "{reason}");
}

#[test]
fn a_context_with_too_many_windows_is_refused() {
    let mut file = file();
    *file.pointer_mut("/data/0/paragraphs/0/context").unwrap() = json!("cat ".repeat(6100));
    let reason = open_text(&file.to_string(), &options()).err().unwrap();
    let expected = "`dev.json`: question `q1`: its context of 6100 tokens has 2033 windows; at most 1000 are supported";
    assert_eq!(reason, expected);
}
