//! Tests of multiple-choice questions.

use serde_json::json;

use super::*;
use crate::padding::PaddingSide;

/// A tokenizer of words, in which each answer is a token.
fn tokenizer(answers: &str) -> String {
    let words = ["[UNK]", "Answer", ":", ".", "What", "The", "subject"].into_iter().map(str::to_owned);
    let words = words.chain(answers.chars().map(String::from)).enumerate();
    let vocabulary: serde_json::Map<_, _> = words.map(|(id, word)| (word, json!(id))).collect();
    json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}})
    .to_string()
}

const TEST: &str = "What is 1?,one,two,three,four,A\n\n\"What\n\"\"is\"\" 2?\",\"o,ne\",two,three,four,B\r\n";
const DEV: &str = "What is 3?,a,b,c,three,D\nWhat is 4?,four,b,c,d,A\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(test: &str, dev: &str, tokenizer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["test", "dev"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("test/high_school_test.csv"), test).unwrap();
        std::fs::write(folder.path().join("test/art_test.csv"), "\u{feff}What?,1,2,3,4,C").unwrap();
        std::fs::write(folder.path().join("dev/high_school_dev.csv"), dev).unwrap();
        std::fs::write(folder.path().join("dev/art_dev.csv"), DEV).unwrap();
        std::fs::write(folder.path().join("t.json"), tokenizer).unwrap();
        Folder(folder)
    }

    fn open(&self, options: &QuestionOptions) -> Result<Questions, String> {
        Questions::open(&DataRoot::open(self.0.path()).unwrap(), options).map_err(|error| error.to_string())
    }
}

fn options(length: usize) -> QuestionOptions {
    QuestionOptions {
        folder: ".".into(),
        split: "test".into(),
        subjects: Vec::new(),
        shots: 2,
        tokenizer: TokenizerFiles::Json("t.json".into()),
        vocabulary: None,
        special_tokens: true,
        padding: PaddingOptions {
            buckets: vec![length],
            to_batch: false,
            pad: 0,
            side: PaddingSide::Left,
            truncate: false,
        },
    }
}

fn read(questions: &Questions, index: usize) -> Result<Vec<Vec<u8>>, String> {
    let sizes = questions
        .fields()
        .iter()
        .map(|field| field.spec.fixed_shape().unwrap().iter().product::<usize>() * field.spec.dtype.size());
    let mut memory: Vec<Vec<u8>> = sizes.map(|size| vec![7; size]).collect();
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    questions.read(index, &mut slices).map_err(|error| error.to_string())?;
    Ok(memory)
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytemuck::pod_collect_to_vec(bytes)
}

#[test]
fn a_prompt_has_the_published_format() {
    let folder = Folder::new(TEST, DEV, &tokenizer("ABCD"));
    let questions = folder.open(&options(500)).unwrap();
    let subject = questions.subject(2);
    // As `format_example` and `gen_prompt` of https://github.com/hendrycks/test write it.
    let expected = "The following are multiple choice questions (with answers) about  high school.\n\n\
                    What is 3?\nA. a\nB. b\nC. c\nD. three\nAnswer: D\n\n\
                    What is 4?\nA. four\nB. b\nC. c\nD. d\nAnswer: A\n\n\
                    What\n\"is\" 2?\nA. o,ne\nB. two\nC. three\nD. four\nAnswer:";
    let question = subject.questions.read(1).unwrap();
    assert_eq!(format!("{}{}{}", subject.heading, subject.examples.concat(), question.prompt()), expected);
}

#[test]
fn questions_have_their_answer_the_tokens_of_the_choices_and_the_subject() {
    let folder = Folder::new(TEST, DEV, &tokenizer("ABCD"));
    let questions = folder.open(&options(500)).unwrap();
    let places: Vec<_> = (0..questions.len()).map(|index| questions.sample_name(index)).collect();
    assert_eq!(places, ["./test/art_test.csv:1", "./test/high_school_test.csv:1", "./test/high_school_test.csv:3"]);
    let sample = read(&questions, 2).unwrap();
    assert_eq!(numbers(&sample[4]), [7, 8, 9, 10]);
    assert_eq!((numbers(&sample[3]), sample[5].as_slice()), (vec![1], &b"high_school"[..]));
    let sample = read(&questions, 0).unwrap();
    assert_eq!((numbers(&sample[3]), sample[5].as_slice()), (vec![2], &b"art\0\0\0\0\0\0\0\0"[..]));
    let (ids, length) = (numbers(&sample[0]), numbers(&sample[2])[0] as usize);
    assert_eq!(numbers(&sample[1]).iter().sum::<i64>() as usize, length);
    assert_eq!(ids[ids.len() - 2..], [1, 2], "the prompt ends with `Answer:`");
    let chosen = folder.open(&QuestionOptions { subjects: vec!["art".into()], ..options(500) }).unwrap();
    assert_eq!(chosen.len(), 1);
}

#[test]
fn a_prompt_that_is_too_long_drops_examples_and_then_fails() {
    let folder = Folder::new(TEST, DEV, &tokenizer("ABCD"));
    let lengths = |shots| {
        let questions = folder.open(&QuestionOptions { shots, ..options(500) }).unwrap();
        numbers(&read(&questions, 1).unwrap()[2])[0] as usize
    };
    let all = [lengths(0), lengths(1), lengths(2)];
    let questions = folder.open(&options(all[2] - 1)).unwrap();
    assert_eq!(numbers(&read(&questions, 1).unwrap()[2]), [all[1] as i64]);
    let questions = folder.open(&options(all[0] - 1)).unwrap();
    let most = all[0] - 1;
    let expected = format!(
        "./test/high_school_test.csv:1: the prompt has {} tokens without any example, more than `length: {most}` allows: \
         use a larger length",
        all[0]
    );
    assert_eq!(read(&questions, 1).unwrap_err(), expected);
    let padding = PaddingOptions { to_batch: true, ..options(most).padding };
    let questions = folder.open(&QuestionOptions { padding, ..options(most) }).unwrap();
    assert_eq!(read(&questions, 1).unwrap_err(), expected.replace("`length: ", "`max_length: "));
    let padding = PaddingOptions { buckets: vec![10, 200, 300], ..options(1).padding };
    let questions = folder.open(&QuestionOptions { padding, ..options(1) }).unwrap();
    assert_eq!(questions.length, 200);
}

#[test]
fn bad_questions_are_named_with_file_and_line() {
    let refused = |test: &str, dev: &str| Folder::new(test, dev, &tokenizer("ABCD")).open(&options(500)).err().unwrap();
    let in_test = |reason: &str| format!("`./test/high_school_test.csv`: {reason}");
    let cases = [
        ("q,1,2,3,4,A\nq,1,2,3,4,E\n", "line 2: the answer is `E`, not A, B, C or D"),
        ("q,1,2,3,A\n", "line 1: has 5 columns, not the 6 of question, A, B, C, D, answer"),
        ("q,1,2,3,4,A\n\"q,1,2,3,4,A\nq,1,2,3,4,A", "line 2: a quote begins here and is not closed"),
        ("\"q\"\"\n\",1,2,3,4,\"A\n\n", "line 2: a quote begins here and is not closed"),
        (
            "\"q,1,2,3,4,A\nq,\"1\",2,3,4,A\n",
            "line 1 (up to line 2: a quote may lack its end): has 5 columns, not the 6 of question, A, B, C, D, answer",
        ),
        ("", "has no questions"),
    ];
    for (text, reason) in cases {
        assert_eq!(refused(text, DEV), in_test(reason));
    }
    let few = "`./dev/high_school_dev.csv`: has 1 examples, fewer than the 2 shots";
    assert_eq!(refused(TEST, "q,1,2,3,4,A"), few);
    let folder = Folder::new(TEST, DEV, &tokenizer("ABCD"));
    std::fs::write(folder.0.path().join("test/art_test.csv"), b"q,1,\xff,3,4,A").unwrap();
    let reason = folder.open(&options(500)).err().unwrap();
    assert_eq!(reason, "`./test/art_test.csv`: line 1: column 3 is not UTF-8 text");
    std::fs::remove_file(folder.0.path().join("dev/art_dev.csv")).unwrap();
    std::fs::write(folder.0.path().join("test/art_test.csv"), b"q,1,2,3,4,A").unwrap();
    assert!(folder.open(&options(500)).err().unwrap().starts_with("there is no `./dev/art_dev.csv` in the data dir"));
}

#[test]
fn folders_and_tokenizers_that_do_not_fit_are_refused() {
    let folder = Folder::new(TEST, DEV, "{}");
    let reason = folder.open(&options(500)).err().unwrap();
    assert!(reason.starts_with("`t.json`: is not a tokenizer"), "{reason}");
    let folder = Folder::new(TEST, DEV, &tokenizer(""));
    let reason = folder.open(&options(500)).err().unwrap();
    assert_eq!(reason, "`t.json`: the tokenizer encodes the answer ` B` as it does another one");
    let folder = Folder::new(TEST, DEV, &tokenizer("ABCD"));
    let reason = folder.open(&QuestionOptions { split: "dev".into(), folder: "test".into(), ..options(9) }).err();
    assert!(reason.unwrap().starts_with("there is no `test/dev` in the data directory"));
    std::fs::create_dir(folder.0.path().join("val")).unwrap();
    let reason = folder.open(&QuestionOptions { split: "val".into(), ..options(9) }).err().unwrap();
    assert_eq!(reason, "`./val`: has no files `SUBJECT_val.csv`");
}
