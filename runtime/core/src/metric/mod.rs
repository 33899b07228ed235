//! Accuracy metrics, accumulated over the batches of a pass, and the agreement of two sets of outputs.
//!
//! Computes numbers from tensors. Knows nothing about datasets and engines.

mod accumulator;
mod agreement;
mod answers;
mod boxes;
mod detection;
mod elements;
mod error;
mod grouped;
mod language;
mod pass_difference;
mod segmentation;
mod similarity;
mod spans;
mod state;
mod table;
mod top_k;
mod variation;

pub use accumulator::Accumulator;
pub use agreement::{AGREEMENT_LIMITS, Agreement, AgreementLimits, AgreementMeter, OutputAgreement};
pub use answers::{answers_in_tokens, answers_in_words};
pub use boxes::{BoxForm, KeptBox, Suppression, corner_iou, suppress};
pub use detection::{DetectionMatches, ImageDetections, ImageTruth, coco_map};
pub use error::MetricError;
pub use grouped::{GroupedHits, accuracy_by_group};
pub use language::{Positions, perplexity, token_accuracy};
pub use pass_difference::PassDifference;
pub use segmentation::{ClassOverlap, iou, pixel_agreement};
pub use similarity::clip_score;
pub use spans::{AnsweredQuestions, SpanTruth, spans};
pub use state::{MetricState, MetricSum};
pub use table::{METRICS, Metric, NameForm, examples, find, is_reached, range};
pub use top_k::top_k;
