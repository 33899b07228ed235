//! Variants of one case, measured in turns: each has one result for each round.

use std::path::PathBuf;

use flagperf_core::metric::{AgreementLimits, OutputAgreement};
use flagperf_core::units::Bytes;
use flagperf_result::Record;
use indexmap::IndexMap;
use serde::Serialize;

use super::comparable::{BATCH_SIZE, Difference, differences, headline};
use super::comparison::{Figure, Side, core, speed, whole};
use super::outputs::{OutputsError, agreement_of};
use super::ratio::{CONFIDENCE, RatioInterval};

/// Fewest rounds for an interval.
const ROUNDS_MIN: usize = 2;

/// A case with some settings.
#[derive(Clone, Debug)]
pub struct Variant {
    /// One result for each round, up to the one in which it failed.
    pub side: Side,
    /// Why it failed; `None` if it did not.
    pub failure: Option<String>,
}

/// What was measured of a variant.
#[derive(Clone, Debug, Serialize)]
pub struct VariantFigures {
    /// The geometric mean over the rounds of the throughput without the loader and the evaluator.
    pub core_samples_per_s: Option<f64>,
    /// The same of whole passes.
    pub whole_samples_per_s: Option<f64>,
    /// The longest median time of a step of the rounds, of which *core* is the sum.
    pub step_p50_s: Option<f64>,
    /// The largest memory of the device in all rounds; `None` if nothing reports it.
    pub device_memory_bytes_max: Option<Bytes>,
    /// How closely the outputs of the last round match those of the first variant, by name.
    pub outputs: IndexMap<String, OutputAgreement>,
    /// Why the outputs do not agree, or are not of the same work; one fragment each.
    pub disagreement: Vec<String>,
    /// Why the outputs were not compared; `None` if they were, and for the first variant.
    pub not_compared: Option<String>,
    /// The metrics of its last result.
    pub metrics: IndexMap<String, f64>,
    pub results: Vec<PathBuf>,
    /// Why it failed, after the rounds of `results`; `None` if it did not.
    pub failure: Option<String>,
}

impl VariantFigures {
    /// Computes the figures of a variant, and compares its outputs with those of `first`; `None` for the first variant itself.
    pub(super) fn new(variant: &Variant, first: Option<&Variant>) -> Self {
        let Variant { side, failure } = variant;
        let (outputs, disagreement, not_compared) = match first {
            None => (IndexMap::new(), Vec::new(), None),
            Some(first) => match judge(first.side.results.last(), side.results.last()) {
                Ok((outputs, disagreement)) => (outputs, disagreement, None),
                Err(OutputsError::Unlike(reason)) => (IndexMap::new(), vec![reason], None),
                Err(OutputsError::Unknown(reason)) => (IndexMap::new(), Vec::new(), Some(reason)),
            },
        };
        let loops = || side.results.iter().filter_map(|(_, record)| headline(record));
        let mean = |figure: Figure| {
            let figures = speed([side, side], true, figure, CONFIDENCE);
            figures.map(|figures| figures.throughput_samples_per_s[0]).filter(|mean| mean.is_finite())
        };
        VariantFigures {
            core_samples_per_s: mean(core),
            whole_samples_per_s: mean(whole),
            step_p50_s: loops().filter_map(|measured| Some(measured.latency.as_ref()?.p50_s.0)).reduce(f64::max),
            device_memory_bytes_max: loops()
                .filter_map(|measured| measured.device_memory_bytes_max)
                .max_by_key(|memory| memory.0),
            outputs,
            disagreement,
            not_compared,
            metrics: loops().next_back().map(|measured| measured.accuracy.clone()).unwrap_or_default(),
            results: side.results.iter().map(|(folder, _)| folder.clone()).collect(),
            failure: failure.clone(),
        }
    }

    /// Returns whether the variant was measured, and no output is known to differ from that of the first one.
    pub fn is_sound(&self) -> bool {
        self.failure.is_none() && self.disagreement.is_empty()
    }
}

/// Returns the number of rounds of the variant that has most.
pub(super) fn rounds<'v>(variants: impl Iterator<Item = &'v Variant>) -> usize {
    variants.map(|variant| variant.side.results.len()).max().unwrap_or(0)
}

/// The ratio of the throughputs of two variants, with its interval over the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effect {
    /// Of throughput without the loader and the evaluator.
    pub core: Option<RatioInterval>,
    /// Of throughput of whole passes.
    pub whole: Option<RatioInterval>,
    /// Why a ratio is missing; `None` if both are there.
    pub unknown: Option<String>,
}

impl Effect {
    /// Returns the ratio of the throughputs of the second variant by those of the first, which were measured in turns or not.
    pub(super) fn between(first: Option<&Variant>, second: Option<&Variant>, interleaved: bool) -> Effect {
        let unknown = |reason: &str| Effect { unknown: Some(reason.to_owned()), ..Effect::default() };
        let (Some(first), Some(second)) = (first, second) else { return unknown("it was not measured") };
        let failure = |variant: &Variant| variant.failure.clone().filter(|_| variant.side.results.len() < ROUNDS_MIN);
        if let Some(reason) = failure(first).or_else(|| failure(second)) {
            return unknown(&reason);
        }
        let ratio = |figure: Figure| speed([&first.side, &second.side], interleaved, figure, CONFIDENCE)?.ratio;
        let (core, whole) = (ratio(core), ratio(whole));
        let is_known = core.is_some() && whole.is_some();
        Effect { core, whole, unknown: (!is_known).then(|| "an interval needs two results of each".to_owned()) }
    }
}

/// Compares the outputs of two results by the more generous limits of the two, since their precisions may differ. Returns
/// also the limits that are exceeded.
fn judge(
    first: Option<&(PathBuf, Record)>,
    second: Option<&(PathBuf, Record)>,
) -> Result<(IndexMap<String, OutputAgreement>, Vec<String>), OutputsError> {
    let unknown = |reason: &str| OutputsError::Unknown(reason.to_owned());
    let (Some((first, first_record)), Some((second, second_record))) = (first, second) else {
        return Err(unknown("one of the two has no result"));
    };
    // A variant may have another batch size.
    let other_work =
        differences(first_record, second_record).into_iter().find(|found| found.prevents && found.what != BATCH_SIZE);
    if let Some(Difference { what, first, second, .. }) = other_work {
        return Err(OutputsError::Unlike(format!("it is not the same work: {what} is {first} and {second}")));
    }
    let both = [first_record, second_record].into_iter().filter_map(|record| record.agreement.limits);
    let generous = both.max_by(|a, b| a.relative_l2.total_cmp(&b.relative_l2));
    let limits: AgreementLimits = generous.ok_or_else(|| unknown("the results have no limits of agreement"))?;
    let outputs = agreement_of(first, second)?;
    let exceeded = outputs.iter().flat_map(|(name, figures)| {
        limits.violations(figures).into_iter().map(move |reason| format!("output `{name}`: {reason}"))
    });
    let exceeded = exceeded.collect();
    Ok((outputs, exceeded))
}
