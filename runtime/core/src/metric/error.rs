//! The errors of metrics.

/// Invalid input of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    #[error("{what} `{found}` (expected: {expected})")]
    Unsupported {
        /// The tensor, with its verb: `the scores are`.
        what: &'static str,
        found: String,
        expected: String,
    },
    #[error(
        "label {label} is out of range: the model has {classes} classes, 0 to {last}; \
         does the class list match the model?",
        last = .classes.saturating_sub(1)
    )]
    LabelOutOfRange { label: i64, classes: usize },
    #[error(
        "token {token} at row {row}, position {position} is out of range: the logits have {vocabulary} entries; does \
         the tokenizer match the model?"
    )]
    TokenOutOfRange {
        token: i64,
        /// Its row, from 0.
        row: usize,
        /// Its position in the row, from 0.
        position: usize,
        vocabulary: usize,
    },
    #[error("length {length} of row {row} is out of range (0 to {max})")]
    LengthOutOfRange {
        length: i64,
        /// Its row, from 0.
        row: usize,
        max: usize,
    },
    #[error("top-k accuracy needs at least one `k`")]
    NoK,
    #[error("duplicate `k` of top-k accuracy: `{k}` (again at position {position})")]
    DuplicateK {
        k: usize,
        /// Position of the duplicate, from 1.
        position: usize,
    },
    #[error("top-k: `k` is {k}, but must be from 1 to {classes} (the number of classes)")]
    KOutOfRange { k: usize, classes: usize },
    #[error("iou: {classes} classes (supported: 1 to {max})")]
    Classes { classes: usize, max: usize },
    #[error("more than {0} groups")]
    Groups(usize),
    #[error("the name of group {row} must be one line of UTF-8 text of 1 to {max} bytes, padded with zeros")]
    GroupName {
        /// Row of the group, from 0.
        row: usize,
        max: usize,
    },
    #[error("{found} predictions for {expected} answers")]
    Answers { found: usize, expected: usize },
    #[error("question {0} has no answer: an unanswerable question has the answer `\"\"`")]
    NoAnswer(usize),
    #[error("{what} {index} of image {image} is {found}: it must be finite and of a size of at least 0")]
    Box {
        /// Kind of the box: `detection` or `truth`.
        what: &'static str,
        /// Its index in the image, from 0.
        index: usize,
        /// Index of the image in the batch, from 0.
        image: usize,
        found: String,
    },
    #[error("more than {0} detections in a pass: a higher score threshold keeps fewer")]
    Detections(usize),
    #[error("more than {0} questions in a pass")]
    Questions(usize),
    #[error("the span of bytes {begin} to {end} is outside the context of row {row}")]
    Offset {
        /// Row of the window, from 0.
        row: usize,
        begin: i64,
        end: i64,
    },
    #[error("the metric `{0}` is computed in two ways or over different classes: give one another name")]
    Kinds(String),
}
