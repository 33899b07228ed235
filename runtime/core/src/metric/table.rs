//! The table of metrics: names, ranges, and which direction is better.

use std::ops::RangeInclusive;

/// A metric whose range and direction the host knows, or a family of them.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Its name, or the word with which the names of the family begin.
    pub name: &'static str,
    /// How the names of its figures are formed.
    pub form: NameForm,
    /// One-line description.
    pub about: &'static str,
    /// The range of possible values.
    pub range: RangeInclusive<f64>,
    /// Whether a smaller value is better, so that a target is a maximum.
    pub is_cost: bool,
    /// Whether every sample is exactly one observation.
    pub counts_samples: bool,
    /// Typical names, for messages.
    pub examples: &'static [&'static str],
}

/// How the names of a metric's figures are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// One figure with the name itself.
    Word,
    /// The name and a number from 1: `top1`, `top5`.
    Numbered,
    /// The name, and the name with a group in brackets: `accuracy`, `accuracy[law]`.
    Grouped,
}

impl NameForm {
    /// Returns the regular expression of the names of a metric, for JSON Schemas.
    pub fn pattern(self, name: &str) -> String {
        match self {
            NameForm::Word => format!("^{name}$"),
            NameForm::Numbered => format!("^{name}[1-9][0-9]*$"),
            NameForm::Grouped => format!(r"^{name}(\[.+\])?$"),
        }
    }

    fn accepts(self, name: &str, found: &str) -> bool {
        let Some(rest) = found.strip_prefix(name) else { return false };
        match self {
            NameForm::Word => rest.is_empty(),
            NameForm::Numbered => {
                let begins = rest.starts_with(|first: char| ('1'..='9').contains(&first));
                begins && rest.chars().all(|c| c.is_ascii_digit())
            }
            NameForm::Grouped => rest.is_empty() || (rest.len() > 2 && rest.starts_with('[') && rest.ends_with(']')),
        }
    }
}

const fn share(name: &'static str, examples: &'static [&'static str], about: &'static str) -> Metric {
    let form = NameForm::Word;
    Metric { name, form, about, range: 0.0..=1.0, is_cost: false, counts_samples: false, examples }
}

/// An error that scripts or training programs report: the host does not compute it.
const fn reported_error(name: &'static str, examples: &'static [&'static str], about: &'static str) -> Metric {
    Metric { range: 0.0..=f64::MAX, is_cost: true, ..share(name, examples, about) }
}

/// Every metric whose range and direction the host knows. Scripts may report others with any finite value, of which a
/// greater one is better.
pub const METRICS: &[Metric] = &[
    Metric {
        form: NameForm::Numbered,
        counts_samples: true,
        ..share("top", &["top1", "top5"], "share of samples whose label is among the k best scores")
    },
    Metric {
        form: NameForm::Grouped,
        ..share("accuracy", &["accuracy"], "share of rows whose prediction is the label, over all rows and by group")
    },
    share("group_accuracy", &["group_accuracy"], "mean of the accuracies of the groups"),
    share("token_accuracy", &["token_accuracy"], "share of labelled tokens that are predicted"),
    Metric {
        range: 1.0..=f64::MAX,
        is_cost: true,
        ..share("perplexity", &["perplexity"], "exponential of the mean negative log likelihood of a token")
    },
    share("exact_match", &["exact_match"], "share of questions whose answer is an accepted one"),
    share("f1", &["f1"], "mean over the questions of the harmonic mean of precision and recall of an answer's words"),
    Metric {
        range: 0.0..=100.0,
        ..share("clip_score", &["clip_score"], "mean of 100 times the cosine of an image and its text, at least 0")
    },
    share("mean_iou", &["mean_iou"], "mean over the classes of intersection over union of their pixels"),
    share("pixel_accuracy", &["pixel_accuracy"], "share of pixels whose class is that of the truth"),
    share("pixel_agreement", &["pixel_agreement"], "share of mask pixels that equal the stored ones, as in FlagPerf"),
    share("map", &["map"], "COCO's mean average precision over intersection over union from 0.5 to 0.95"),
    share("map50", &["map50"], "COCO's mean average precision at an intersection over union of 0.5"),
    share("map75", &["map75"], "COCO's mean average precision at an intersection over union of 0.75"),
    share("map_small", &["map_small"], "`map` of objects below 32 x 32 pixels"),
    share("map_medium", &["map_medium"], "`map` of objects from 32 x 32 to 96 x 96 pixels"),
    share("map_large", &["map_large"], "`map` of objects above 96 x 96 pixels"),
    share("ar1", &["ar1"], "COCO's average recall with 1 detection per image and category"),
    share("ar10", &["ar10"], "COCO's average recall with 10 detections per image and category"),
    share("ar100", &["ar100"], "COCO's average recall with 100 detections per image and category"),
    share("ar_small", &["ar_small"], "`ar100` of objects below 32 x 32 pixels"),
    share("ar_medium", &["ar_medium"], "`ar100` of objects from 32 x 32 to 96 x 96 pixels"),
    share("ar_large", &["ar_large"], "`ar100` of objects above 96 x 96 pixels"),
    Metric { range: f64::MIN..=f64::MAX, ..reported_error("loss", &["loss"], "mean loss of a sample or token") },
    reported_error("ppl", &["ppl"], "`perplexity`, as programs call it"),
    reported_error("error", &["error"], "share of wrong predictions"),
    reported_error("mse", &["mse"], "mean squared error"),
    reported_error("rmse", &["rmse"], "root of the mean squared error"),
    reported_error("mae", &["mae"], "mean absolute error"),
    reported_error("wer", &["wer"], "word error rate: wrong, missing and additional words per word of the truth"),
    reported_error("cer", &["cer"], "`wer` of characters"),
    reported_error("fid", &["fid"], "Fréchet distance between the features of generated and of real images"),
];

/// Returns the row of the metric `name`; `None` when only a script can report it. What ends in the name of an error, such as
/// `val_loss`, is this error.
pub fn find(name: &str) -> Option<&'static Metric> {
    let end = name.rsplit_once('_').map_or(name, |(_, end)| end);
    let is_of = |metric: &&Metric, name| metric.form.accepts(metric.name, name);
    let mut metrics = METRICS.iter();
    metrics.find(|metric| is_of(metric, name) || metric.is_cost && is_of(metric, end))
}

/// Returns the range of the metric `name`: all finite values when only a script can report it.
pub fn range(name: &str) -> RangeInclusive<f64> {
    find(name).map_or(f64::MIN..=f64::MAX, |metric| metric.range.clone())
}

/// Returns whether `value` is in the range of the metric `name` and at least as good as `target`.
pub fn is_reached(name: &str, value: f64, target: f64) -> bool {
    let is_cost = find(name).is_some_and(|metric| metric.is_cost);
    range(name).contains(&value) && if is_cost { value <= target } else { value >= target }
}

/// Returns typical names of metrics, for messages.
pub fn examples() -> impl Iterator<Item = &'static str> {
    METRICS.iter().flat_map(|metric| metric.examples.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_metric_is_its_name_and_a_number_from_1() {
        for name in ["top1", "top5", "top10"] {
            assert_eq!(range(name), 0.0..=1.0, "{name}");
        }
        for name in ["top", "top0", "top01", "top1a", "Top1", "words", ""] {
            assert!(find(name).is_none(), "{name}");
            assert!(range(name).contains(&1e6) && !range(name).contains(&f64::INFINITY));
        }
    }

    #[test]
    fn a_grouped_metric_has_its_group_in_brackets() {
        assert_eq!(range("accuracy[high school physics]"), 0.0..=1.0);
        for name in ["accuracy[]", "accuracy[law", "accuracylaw", "map51", "f1x"] {
            assert!(find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_target_of_a_cost_is_a_maximum() {
        assert!(is_reached("perplexity", 9.5, 10.0) && !is_reached("perplexity", 10.5, 10.0));
        assert!(is_reached("wer", 0.05, 0.058) && !is_reached("wer", 0.06, 0.058));
        assert!(is_reached("val_loss", 0.5, 1.0) && !is_reached("val_loss", 1.5, 1.0));
        assert!(is_reached("train_top1", 0.5, 0.4), "a metric of which more is better may have any name");
        assert!(!is_reached("perplexity", 0.5, 10.0), "outside its range");
        assert!(is_reached("top1", 0.8, 0.7) && !is_reached("top1", 0.6, 0.7) && !is_reached("top1", 80.0, 0.7));
    }

    #[test]
    fn names_are_unique_lower_case_and_documented_and_their_examples_are_found() {
        for metric in METRICS {
            let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(metric.name.chars().all(lower) && !metric.about.is_empty());
            assert!(metric.examples.iter().all(|name| find(name).is_some_and(|found| found.name == metric.name)));
        }
        for name in examples() {
            assert_eq!(METRICS.iter().filter(|metric| metric.form.accepts(metric.name, name)).count(), 1, "{name}");
        }
    }
}
