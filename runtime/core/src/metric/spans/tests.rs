//! Tests of answers as spans against SQuAD's evaluation.

use super::*;

#[derive(serde::Deserialize)]
struct Reference {
    length: usize,
    figures: BTreeMap<String, f64>,
    questions: Vec<Question>,
}

#[derive(serde::Deserialize)]
struct Question {
    context: String,
    answers: Vec<String>,
    windows: Vec<Window>,
}

#[derive(serde::Deserialize)]
struct Window {
    start: Vec<f32>,
    end: Vec<f32>,
    offsets: Vec<[i64; 2]>,
}

/// Returns texts as `N,B,u8`, padded with zeros.
fn padded(texts: &[&str], bytes: usize) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain(std::iter::repeat(0)).take(bytes).collect::<Vec<_>>()).collect()
}

/// Computes the figures of some windows with the indices of their questions.
fn figures(length: usize, windows: &[(usize, &Question, &Window)]) -> Result<Accumulator, MetricError> {
    let rows = windows.len();
    let floats = |of: fn(&Window) -> &Vec<f32>| {
        let values = windows.iter().flat_map(|(.., window)| of(window).clone()).collect();
        Tensor::from_vec([rows, length], values).unwrap()
    };
    let (start, end) = (floats(|window| &window.start), floats(|window| &window.end));
    let questions = Tensor::from_vec([rows], windows.iter().map(|(index, ..)| *index as i64).collect()).unwrap();
    let offsets = windows.iter().flat_map(|(.., window)| window.offsets.concat()).collect();
    let offsets = Tensor::from_vec([rows, length, 2], offsets).unwrap();
    let contexts: Vec<&str> = windows.iter().map(|(_, question, _)| question.context.as_str()).collect();
    let contexts = Tensor::from_bytes([rows, 1000], DType::U8, &padded(&contexts, 1000)).unwrap();
    let answers = windows.iter().flat_map(|(_, question, _)| {
        let mut texts: Vec<&str> = question.answers.iter().map(String::as_str).collect();
        texts.resize(3, "");
        padded(&texts, 60)
    });
    let answers = Tensor::from_bytes([rows, 3, 60], DType::U8, &answers.collect::<Vec<_>>()).unwrap();
    let truth = SpanTruth { questions: &questions, offsets: &offsets, contexts: &contexts, answers: &answers };
    spans(&start, &end, truth)
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../../../../../tests/reference/spans.json")).unwrap()
}

fn all_windows(reference: &Reference) -> Vec<(usize, &Question, &Window)> {
    let windows = |(index, question): (usize, &'_ Question)| (index, question.windows.len());
    let counts: Vec<_> = reference.questions.iter().enumerate().map(windows).collect();
    let window = |(index, count): (usize, usize)| {
        let question = &reference.questions[index];
        (0..count).map(move |at| (index, question, &question.windows[at]))
    };
    counts.into_iter().flat_map(window).collect()
}

#[test]
fn the_figures_equal_those_of_torchmetrics() {
    let reference = reference();
    let all = all_windows(&reference);
    let found = figures(reference.length, &all).unwrap().finish();
    for (name, expected) in &reference.figures {
        // torchmetrics computes in single precision.
        assert!((found[name] - expected).abs() < 1e-7, "{name}: {} instead of {expected}", found[name]);
    }
    assert!(reference.figures["exact_match"] > 0.3 && reference.figures["f1"] < 0.9, "{:?}", reference.figures);
}

#[test]
fn the_windows_of_a_question_may_be_in_different_batches() {
    let reference = reference();
    let all = all_windows(&reference);
    let mut merged = Accumulator::default();
    all.chunks(3).for_each(|batch| merged.merge(&figures(reference.length, batch).unwrap()).unwrap());
    assert_eq!(merged, figures(reference.length, &all).unwrap());
    assert_eq!(merged.observations(), reference.questions.len() as u64);
    assert_eq!(merged.names().collect::<Vec<_>>(), ["exact_match", "f1"]);
}

fn question(answers: &[&str]) -> Question {
    let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
    Question { context: "a the cat".to_owned(), answers, windows: Vec::new() }
}

#[test]
fn of_two_windows_with_equal_scores_the_worse_answer_counts_in_either_order() {
    let (question, other) = (question(&["cat"]), question(&["cat"]));
    let right = Window { start: vec![1.0], end: vec![1.0], offsets: vec![[6, 9]] };
    let wrong = Window { start: vec![1.0], end: vec![1.0], offsets: vec![[2, 5]] };
    for windows in [[(0, &question, &right), (0, &other, &wrong)], [(0, &other, &wrong), (0, &question, &right)]] {
        assert_eq!(figures(1, &windows).unwrap().finish()["exact_match"], 0.0);
    }
}

#[test]
fn a_text_without_words_is_exact_but_has_no_f1_as_in_version_1() {
    let window = Window { start: vec![1.0, 0.0], end: vec![1.0, 0.0], offsets: vec![[0, 1], [2, 5]] };
    let found = figures(2, &[(0, &question(&["the"]), &window)]).unwrap().finish();
    assert_eq!((found["exact_match"], found["f1"]), (1.0, 0.0));
}

#[test]
fn logits_that_are_not_numbers_are_never_the_best() {
    let window = Window { start: vec![f32::NAN, 0.0], end: vec![f32::NAN, -1.0], offsets: vec![[0, 1], [6, 9]] };
    let found = figures(2, &[(0, &question(&["cat"]), &window)]).unwrap().finish();
    assert_eq!(found["exact_match"], 1.0);
}

#[test]
fn an_offset_outside_its_context_and_tensors_that_do_not_correspond_are_refused() {
    let window = Window { start: vec![0.0], end: vec![0.0], offsets: vec![[0, 2000]] };
    let error = figures(1, &[(0, &question(&["cat"]), &window)]).unwrap_err();
    assert_eq!(error.to_string(), "the span of bytes 0 to 2000 is outside the context of row 0");
    let ints = |shape: &[usize]| Tensor::from_vec(shape.to_vec(), vec![0i64; shape.iter().product()]).unwrap();
    let logits = Tensor::from_vec([1, 2], vec![0.0f32; 2]).unwrap();
    let (questions, offsets) = (ints(&[1]), ints(&[1, 3, 2]));
    let text = Tensor::from_bytes([1, 1], DType::U8, b"a").unwrap();
    let truth = SpanTruth { questions: &questions, offsets: &offsets, contexts: &text, answers: &text };
    let error = spans(&logits, &logits, truth).unwrap_err();
    assert_eq!(error.to_string(), "the offsets are `1,3,2,i64` (expected: `1,2,2` of an integer type)");
    let offsets = ints(&[1, 2, 2]);
    let error = spans(&logits, &logits, SpanTruth { offsets: &offsets, ..truth }).unwrap_err();
    assert_eq!(error.to_string(), "the answers are `1,1,u8` (expected: `1,A,C,u8`)");
}
