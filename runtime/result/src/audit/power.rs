//! Whether the times of an audit could have shown an engine that keeps results for a share of the measured steps.

use statrs::distribution::{Binomial, ContinuousCDF, Discrete, DiscreteCDF, StudentsT};
use statrs::statistics::Statistics;

use super::LATER_SIGNIFICANCE;
use crate::paired_times::{DIFFERENCE_MIN, PAIRS_MIN, TIME_RATIO, group_by_pass, median};
use flagperf_core::measure::{AuditReport, Measurement};
use flagperf_core::units::Seconds;

/// Share of steps with kept results that the audit of an official result would have found.
pub(crate) const SHARE_MAX: f64 = 0.2;
/// The same if the cost of an input depends on its content: a batch is then compared with itself alone, not with the mean of a
/// pass.
const SHARE_MAX_OF_VARIABLE: f64 = 0.4;
/// Probability with which an audit of an official result finds such an engine.
pub(crate) const PROBABILITY_MIN: f64 = 0.9;
/// Number of steps from which chance hardly changes the share of them that is kept.
const MANY_STEPS: u64 = 100;

/// A time of the audit and a mean time of measured steps, with which it is compared.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    time_s: f64,
    measured_s: f64,
    /// Number of steps behind the mean.
    steps: u64,
}

/// Returns that the times could not have shown an engine that keeps a fifth of the results and is honest in the audit.
pub(super) fn missed_in_fixed(audit: &AuditReport, measured: &Measurement) -> Option<String> {
    let steps = measured.steps / (measured.passes.len() as u64).max(1);
    missed(&comparisons(audit, &audit.fresh_s, &audit.pass_s, Some(steps)), SHARE_MAX)
}

/// The same for inputs whose cost depends on their content, and two fifths of the results.
pub(super) fn missed_in_variable(audit: &AuditReport) -> Option<String> {
    missed(&comparisons(audit, &audit.repeated_s, &audit.measured_s, None), SHARE_MAX_OF_VARIABLE)
}

fn missed(compared: &[Comparison], share_max: f64) -> Option<String> {
    let found = match smallest_share(compared, LATER_SIGNIFICANCE) {
        Some(found) if found <= share_max => return None,
        Some(found) => format!("only results that were kept in {:.0} % of the steps or more", 100.0 * found),
        None => "no kept results".to_owned(),
    };
    Some(format!(
        "the times of the audit could reveal {found} (official: in {:.0} %): increase `repeat`, or `batch_size` if steps are short",
        100.0 * share_max
    ))
}

/// Returns what the audit compares: passes or, with few of them, pairs. `steps` is the number of steps behind each of
/// `measured`, if they are means.
fn comparisons(audit: &AuditReport, times: &[Seconds], measured: &[Seconds], steps: Option<u64>) -> Vec<Comparison> {
    let comparison = |time: Seconds, measured: Seconds, pairs: usize| {
        let steps = steps.unwrap_or(pairs as u64).max(1);
        Comparison { time_s: time.0, measured_s: measured.0, steps }
    };
    let by_pass = group_by_pass(&audit.after_pass, times, measured);
    match by_pass.len() < PAIRS_MIN {
        true => times.iter().zip(measured).map(|(time, measured)| comparison(*time, *measured, 1)).collect(),
        false => by_pass.iter().map(|pass| comparison(pass.time, pass.other, pass.pairs)).collect(),
    }
}

/// Returns the smallest share of kept steps, in steps of 5 %, that comparisons like these reveal at a significance with a
/// probability of at least 90 %; `None` if they reveal none.
fn smallest_share(compared: &[Comparison], significance: f64) -> Option<f64> {
    let shares = (1..20).map(|twentieths| f64::from(twentieths) / 20.0);
    shares.into_iter().find(|share| detection_probability(compared, *share, significance) >= PROBABILITY_MIN)
}

/// Returns the probability with which comparisons that vary like these show that the results of a share of the steps were
/// kept. An engine that does keep some has measured times that are too short, so that those of an honest one are at least
/// as long as the times in the audit.
fn detection_probability(compared: &[Comparison], share: f64, significance: f64) -> f64 {
    if compared.len() < PAIRS_MIN {
        return 0.0;
    }
    let times: Vec<f64> = compared.iter().map(|pair| pair.time_s).collect();
    by_means(compared, &times, share, significance).max(by_signs(compared, &times, share, significance))
}

/// Returns the probability that Welch's test finds the difference: its statistic is distributed around the one of the expected
/// times.
fn by_means(compared: &[Comparison], times: &[f64], share: f64, significance: f64) -> f64 {
    let measured: Vec<f64> = compared.iter().map(|pair| pair.measured_s).collect();
    let (count, mean) = (times.len() as f64, times.mean());
    let (honest, measured_mean) = (measured.as_slice().mean().max(mean), measured.as_slice().mean());
    let (kept, scale) = ((1.0 - share) * honest, (1.0 - share) * honest / measured_mean);
    if mean - kept <= DIFFERENCE_MIN.0 {
        return 0.0;
    }
    let steps = compared.iter().map(|pair| 1.0 / pair.steps as f64).collect::<Vec<_>>();
    let by_chance = honest.powi(2) * share * (1.0 - share) * steps.as_slice().mean();
    let own = times.variance() / count;
    let other = TIME_RATIO.powi(2) * (scale.powi(2) * measured.as_slice().variance() + by_chance) / count;
    let difference = mean - TIME_RATIO * kept;
    if own + other == 0.0 {
        return if difference > 0.0 { 1.0 } else { 0.0 };
    }
    let freedom = (own + other).powi(2) / ((own.powi(2) + other.powi(2)) / (count - 1.0));
    let statistic = difference / (own + other).sqrt();
    StudentsT::new(0.0, 1.0, freedom)
        .map_or(0.0, |chance| chance.cdf(statistic - chance.inverse_cdf(1.0 - significance)))
}

/// Returns the probability that the sign test finds the difference, from the share of pairs that would then be slower.
fn by_signs(compared: &[Comparison], times: &[f64], share: f64, significance: f64) -> f64 {
    let measured: Vec<f64> = compared.iter().map(|pair| pair.measured_s).collect();
    let scale = (median(times) / median(&measured)).max(1.0);
    if times.mean() - (1.0 - share) * scale * measured.as_slice().mean() <= DIFFERENCE_MIN.0 {
        return 0.0;
    }
    let is_slower = |pair: &Comparison, kept: f64| {
        f64::from(u8::from(pair.time_s > TIME_RATIO * scale * pair.measured_s * (1.0 - kept)))
    };
    let slower = |pair: &Comparison| match Binomial::new(share, pair.steps) {
        Ok(kept) if pair.steps < MANY_STEPS => {
            let probability = |steps: u64| kept.pmf(steps) * is_slower(pair, steps as f64 / pair.steps as f64);
            (0..=pair.steps).map(probability).sum()
        }
        _ => is_slower(pair, share),
    };
    let pairs = compared.len() as u64;
    let probability = compared.iter().map(slower).sum::<f64>() / pairs as f64;
    let chance = Binomial::new(0.5, pairs).expect("0.5 is a probability");
    let needed = (0..pairs).find(|fewer| chance.sf(*fewer) < significance);
    match (needed, Binomial::new(probability.min(1.0), pairs)) {
        (Some(fewer), Ok(found)) => found.sf(fewer),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired_times::PairedTimes;

    /// Returns numbers between 0 and 1, by the generator of Knuth's MMIX.
    fn numbers(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Returns the audit of a run whose steps take `step` seconds, some of them up to 1.3 times as long, by an engine that
    /// keeps the results of a share of the measured ones.
    fn run(seed: u64, (passes, steps): (u32, u64), step: f64, share: f64) -> AuditReport {
        let mut number = numbers(seed);
        let mut audit = AuditReport::default();
        for group in 0..48u32 {
            audit.after_pass.push(group % passes);
        }
        let mut time = move |share: f64| match number() < share {
            true => 1e-6,
            false => step * (1.0 + 0.3 * number().powi(4)),
        };
        let means: Vec<f64> =
            (0..passes).map(|_| (0..steps).map(|_| time(share)).sum::<f64>() / steps as f64).collect();
        for pass in audit.after_pass.clone() {
            audit.pass_s.push(Seconds(means[pass as usize]));
            audit.measured_s.push(Seconds(time(share)));
            audit.fresh_s.push(Seconds(time(0.0)));
        }
        audit.repeated_s.clone_from(&audit.fresh_s);
        audit
    }

    fn is_found(audit: &AuditReport, measured: &[Seconds]) -> bool {
        PairedTimes::by_pass(&audit.after_pass, &audit.fresh_s, measured)
            .is_some_and(|times| times.is_slower(LATER_SIGNIFICANCE))
    }

    #[test]
    fn the_share_that_a_run_could_reveal_is_found_in_most_runs_of_its_kind() {
        for (kind, step) in [((8, 100), 5e-3), ((8, 3), 5e-3), ((4, 20), 0.1), ((8, 100), 1.5e-3)] {
            let honest = run(1, kind, step, 0.0);
            let compared = comparisons(&honest, &honest.fresh_s, &honest.pass_s, Some(kind.1));
            let share = smallest_share(&compared, LATER_SIGNIFICANCE).unwrap();
            let runs = (0..200).map(|seed| run(7 + seed, kind, step, share));
            let found = runs.filter(|audit| is_found(audit, &audit.pass_s)).count();
            assert!(found >= 160, "{kind:?}, {step} s: {share}, {found} of 200");
        }
    }

    #[test]
    fn few_steps_and_short_ones_reveal_only_large_shares() {
        let share = |kind: (u32, u64), step| {
            let audit = run(3, kind, step, 0.0);
            smallest_share(&comparisons(&audit, &audit.fresh_s, &audit.pass_s, Some(kind.1)), LATER_SIGNIFICANCE)
        };
        assert!(share((8, 100), 5e-3).unwrap() <= 0.2);
        assert!(share((8, 3), 5e-3).unwrap() > 0.2);
        assert!(share((8, 100), 1.5e-3).unwrap() > 0.3, "0.5 ms of a step are not judged");
        assert_eq!(share((8, 100), 4e-4), None);
    }

    #[test]
    fn an_engine_that_keeps_results_and_is_missed_has_a_reason() {
        let runs = (0..200).map(|seed| run(seed, (8, 3), 5e-3, 0.2));
        let mut count = 0;
        for audit in runs.filter(|audit| !is_found(audit, &audit.pass_s)) {
            let compared = comparisons(&audit, &audit.fresh_s, &audit.pass_s, Some(3));
            let reason = missed(&compared, SHARE_MAX).unwrap_or_default();
            assert!(
                reason.contains("only results that were kept in") && reason.ends_with("if steps are short"),
                "{reason}"
            );
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn inputs_of_variable_cost_reveal_two_fifths() {
        let share = |passes| {
            let audit = run(5, (passes, 10), 0.05, 0.0);
            smallest_share(&comparisons(&audit, &audit.repeated_s, &audit.measured_s, None), LATER_SIGNIFICANCE)
        };
        assert!(share(12).unwrap() <= SHARE_MAX_OF_VARIABLE, "{:?}", share(12));
        let runs = (0..200).map(|seed| run(seed, (12, 10), 0.05, SHARE_MAX_OF_VARIABLE));
        assert!(runs.filter(|audit| is_found(audit, &audit.measured_s)).count() >= 160);
    }
}
