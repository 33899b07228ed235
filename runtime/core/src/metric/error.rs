//! The errors of metrics.

/// Invalid input of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// A tensor with an unsupported shape or type.
    #[error("{what} `{found}` (expected: {expected})")]
    Unsupported {
        /// The tensor, with its verb: `the scores are`.
        what: &'static str,
        /// Its specification.
        found: String,
        /// The supported specifications.
        expected: String,
    },
    /// A label that is not the index of a class.
    #[error(
        "label {label} is out of range: the model has {classes} classes, 0 to {last}; \
         does the class list match the model?",
        last = .classes.saturating_sub(1)
    )]
    LabelOutOfRange {
        /// The label.
        label: i64,
        /// Number of classes.
        classes: usize,
    },
    /// A token that is not in the vocabulary.
    #[error(
        "token {token} at row {row}, position {position} is out of range: the logits have {vocabulary} entries; does \
         the tokenizer match the model?"
    )]
    TokenOutOfRange {
        /// The token.
        token: i64,
        /// Its row, from 0.
        row: usize,
        /// Its position in the row, from 0.
        position: usize,
        /// Number of logits per position.
        vocabulary: usize,
    },
    /// A length that is not from 0 to the length of a row.
    #[error("length {length} of row {row} is out of range (0 to {max})")]
    LengthOutOfRange {
        /// The length.
        length: i64,
        /// Its row, from 0.
        row: usize,
        /// Length of the padded row.
        max: usize,
    },
    /// An empty list of `k`.
    #[error("top-k accuracy needs at least one `k`")]
    NoK,
    /// A duplicate `k`.
    #[error("duplicate `k` of top-k accuracy: `{k}` (again at position {position})")]
    DuplicateK {
        /// The k.
        k: usize,
        /// Position of the duplicate, from 1.
        position: usize,
    },
    /// A `k` that is zero or larger than the number of classes.
    #[error("top-k: `k` is {k}, but must be from 1 to {classes} (the number of classes)")]
    KOutOfRange {
        /// The k.
        k: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A number of classes outside the supported range.
    #[error("{classes} classes (supported: 1 to {max})")]
    Classes {
        /// The number.
        classes: usize,
        /// The largest supported number.
        max: usize,
    },
    /// Too many groups.
    #[error("more than {0} groups")]
    Groups(usize),
    /// A name of a group that cannot be part of a metric's name.
    #[error("the name of group {row} must be one line of UTF-8 text of 1 to {max} bytes, padded with zeros")]
    GroupName {
        /// Row of the group, from 0.
        row: usize,
        /// The largest length.
        max: usize,
    },
    /// Rows of predictions and of the truth do not correspond.
    #[error("{found} predictions for {expected} answers")]
    Answers {
        /// Number of predictions.
        found: usize,
        /// Number of answers.
        expected: usize,
    },
    /// A question without an answer to compare with.
    #[error("question {0} has no answer: an unanswerable question has the answer `\"\"`")]
    NoAnswer(usize),
    /// A score or box that is not a number, or a box of negative size.
    #[error("{what} {index} of image {image} is {found}: it must be finite and of a size of at least 0")]
    Box {
        /// Kind of the box: `detection` or `truth`.
        what: &'static str,
        /// Its index in the image, from 0.
        index: usize,
        /// Index of the image in the batch, from 0.
        image: usize,
        /// Its numbers.
        found: String,
    },
    /// More detections than are kept for a pass.
    #[error("more than {0} detections in a pass: a higher score threshold keeps fewer")]
    Detections(usize),
    /// More questions than are kept for a pass.
    #[error("more than {0} questions in a pass")]
    Questions(usize),
    /// A span that is outside the text of its window.
    #[error("the span of bytes {begin} to {end} is outside the context of row {row}")]
    Offset {
        /// Row of the window, from 0.
        row: usize,
        /// First byte.
        begin: i64,
        /// End of the bytes.
        end: i64,
    },
    /// A metric was computed in two ways.
    #[error("the metric `{0}` is computed in two ways or over different classes: give one another name")]
    Kinds(String),
}
