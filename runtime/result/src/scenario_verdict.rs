//! The verdict on a scenario: whether its queries arrived as they were to, were answered rightly, and kept the bound. Pure functions
//! of the record.

use super::{PhaseRecord, Record, Status};
use flagperf_core::measure::{Arrival, Scenario, ScenarioFigures, TrialFigures};
use flagperf_core::metric::AgreementLimits;
use flagperf_core::precision::Precision;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Seconds;

/// Share of the latency bound, or of the median latency without one, by which 99 % of the queries may be late at most.
const LATENESS_SHARE: f64 = 0.1;
/// Lateness that is never too much: it counts as latency, so that it makes no figure better.
const LATENESS_MIN: Seconds = Seconds(1e-3);
/// Shortest duration of an official scenario: MLPerf's rule.
const OFFICIAL_DURATION_MIN: Seconds = Seconds(600.0);
/// Ratio of the median core time of a batch to that of a step of the passes below which an engine may compute less for queries.
const CORE_RATIO_MIN: f64 = 0.5;
/// The same if the cost of an input depends on its content, for batches whose rows are full to this share.
const VARIABLE_RATIO_MIN: f64 = 0.125;
const FULL_SHARE: f64 = 0.9;

/// Returns the scenario that the settings of a record ask for; `None` without queries.
fn configured(record: &Record) -> Option<Scenario> {
    let setting = record.settings.get("scenario")?;
    let scenario: Scenario = serde_json::from_value(setting.value.clone()).ok()?;
    // A training and a case without a compiler are refused before they run.
    scenario.has_queries().then_some(scenario)
}

/// Returns the phase of inference if it succeeded.
fn inference(record: &Record) -> Option<&PhaseRecord> {
    record.phases.iter().find(|phase| phase.phase == Phase::Infer && phase.memory_bytes_max.is_some())
}

/// Returns the figures of the scenario of a record and its last trial, which is the measurement; `None` without one.
pub fn measured_scenario(record: &Record) -> Option<(&ScenarioFigures, &TrialFigures)> {
    let figures = record.phases.iter().find_map(|phase| phase.scenario.as_ref())?;
    Some((figures, figures.trials.last()?))
}

/// Returns why the figures of the scenario must not be used.
pub(super) fn scenario_failures(record: &Record) -> Vec<String> {
    let (Some(scenario), Some(phase)) = (configured(record), inference(record)) else { return Vec::new() };
    let report = phase.scenario.as_ref().and_then(|figures| figures.report.as_ref());
    let (Some(report), Some((_, trial))) = (report, measured_scenario(record)) else {
        return vec!["it was not run to its end".to_owned()];
    };
    let mut failures = Vec::new();
    if report.scenario != scenario {
        failures.push("another one was run than `scenario` states".to_owned());
    }
    failures.extend(unproven_overlap(phase, trial));
    failures.extend(unanswered(&scenario, trial));
    failures.extend(too_short(&scenario, trial));
    failures.extend(late_queries(&scenario, trial));
    let limits = limits_of(record, phase);
    failures.extend(report.agreement.outputs.iter().flat_map(|(name, figures)| {
        let violations = limits.violations(figures).into_iter();
        violations
            .map(move |reason| format!("output `{name}` differs from that of the same samples in the passes: {reason}"))
    }));
    failures
}

/// Returns that outputs of queries at a server are not known to be those of the passes, or that there was no server. An engine on this
/// machine answers one batch after the other, and the times of its batches are compared with those of the passes; nothing else is known
/// about a server.
fn unproven_overlap(phase: &PhaseRecord, trial: &TrialFigures) -> Vec<String> {
    if !trial.overlap {
        return Vec::new();
    }
    if phase.engine.as_ref().is_none_or(|engine| engine.server.is_none()) {
        return vec!["queries were answered at the same time, although no server answered them".to_owned()];
    }
    let report = phase.scenario.as_ref().and_then(|figures| figures.report.as_ref());
    let compared = report.map(|report| &report.agreement);
    let of_passes = phase.agreement.iter().flat_map(|agreement| agreement.outputs.keys());
    let missing = of_passes.filter(|name| compared.is_none_or(|compared| !compared.outputs.contains_key(*name)));
    let reasons = compared.map(|compared| compared.not_compared.join("; ")).unwrap_or_default();
    missing
        .map(|name| format!("output `{name}` of the queries cannot be compared with the passes: {reasons}"))
        .collect()
}

/// Returns the limits of agreement of the case, or else those of the precision of the engine.
fn limits_of(record: &Record, phase: &PhaseRecord) -> AgreementLimits {
    let precision =
        phase.engine.as_ref().and_then(|engine| serde_json::from_value(engine.precision.as_str().into()).ok());
    record.agreement.limits.unwrap_or_else(|| AgreementLimits::default_for(precision.unwrap_or(Precision::Fp32)))
}

/// Returns that queries were not answered, or too late.
fn unanswered(scenario: &Scenario, trial: &TrialFigures) -> Option<String> {
    let rate = trial.scheduled_queries_per_s.map_or_else(String::new, |rate| format!(" at {rate:.4} queries/s"));
    match (trial.over_bound, trial.holds) {
        (Some(over), Some(false)) => {
            let share = 100.0 * scenario.percentile;
            let queries = match trial.is_cut {
                true => format!("the first {} of {}", trial.queries, trial.scheduled),
                false => trial.queries.to_string(),
            };
            let bound = scenario.latency_bound_s;
            let alone = trial.batch_core.filter(|_| !trial.overlap);
            let alone = alone.filter(|core| bound.is_some_and(|bound| core.p50_s.0 > bound.0));
            let alone = alone.map_or_else(String::new, |core| {
                format!("; the median core time of a batch alone is {}", milliseconds(core.p50_s))
            });
            Some(format!(
                "{over} of {queries} queries{rate} {}: this does not show, with 99 % confidence, that {share} % of all queries keep \
                 it{alone}",
                beyond(scenario)
            ))
        }
        _ if trial.is_cut => Some(format!(
            "only {} of {} queries were answered{rate}: they arrived faster than they could be",
            trial.queries, trial.scheduled
        )),
        _ => None,
    }
}

/// Says what queries did that did not keep the bounds.
fn beyond(scenario: &Scenario) -> String {
    let bounds: Vec<_> = scenario.bounds().map(|(name, bound)| format!("{name} {}", milliseconds(bound))).collect();
    match (scenario.latency_bound_s, bounds.len()) {
        (Some(bound), 1) => format!("took longer than the bound of {}", milliseconds(bound)),
        _ => format!("exceeded the bound ({})", bounds.join(", ")),
    }
}

fn milliseconds(Seconds(time): Seconds) -> String {
    if time < 1e-6 { format!("{time:e} s") } else { format!("{:.3} ms", time * 1e3) }
}

/// Returns that queries arrived for a shorter time than the scenario states.
fn too_short(scenario: &Scenario, trial: &TrialFigures) -> Option<String> {
    let (least, Seconds(found)) = (scenario.min_duration_s.0, arrival_time(trial));
    // Rounding the number of queries may lose one, and a burst is at the beginning of its interval.
    (found < least * 0.99).then(|| format!("queries arrived for {found:.1} s, and `min_duration_s` is {least} s"))
}

/// Returns how long queries arrived: by a schedule on average, because the last of random queries may arrive earlier.
fn arrival_time(trial: &TrialFigures) -> Seconds {
    let by_rate = trial.scheduled_queries_per_s.map(|rate| Seconds(trial.scheduled as f64 / rate));
    by_rate.unwrap_or(trial.duration_s)
}

/// Returns that queries were issued too late, so that they did not arrive as the schedule says. Lateness counts as latency.
fn late_queries(scenario: &Scenario, trial: &TrialFigures) -> Option<String> {
    let lateness = trial.lateness?.p99_s;
    // A late query makes its answer and its first token late, and no later token.
    let bounds = [scenario.latency_bound_s, scenario.first_token_bound_s].into_iter().flatten();
    let smallest = bounds.reduce(|a, b| if b.0 < a.0 { b } else { a });
    let reference = smallest.or(trial.latency.map(|latency| latency.p50_s))?;
    let limit = (LATENESS_SHARE * reference.0).max(LATENESS_MIN.0);
    let bound = if smallest.is_some() { "a larger bound" } else { "a `latency_bound_s`" };
    (lateness.0 > limit).then(|| {
        format!(
            "at least 1 % of the queries were issued more than {} after their time (limit {}): the processors of the host were busy; \
             leave one to the thread that issues queries, or set {bound}",
            milliseconds(lateness),
            milliseconds(Seconds(limit))
        )
    })
}

/// Returns why a scenario is no official one.
pub(super) fn scenario_doubts(record: &Record) -> Vec<String> {
    let Some((figures, trial)) = measured_scenario(record).filter(|_| record.status == Status::Ok) else {
        return Vec::new();
    };
    let mut doubts = Vec::new();
    let duration = arrival_time(trial).0;
    // The division rounds.
    if duration < OFFICIAL_DURATION_MIN.0 - 1e-6 {
        doubts.push(format!("scenario: queries arrived for {duration:.0} s (official: at least 10 min)"));
    }
    let agreement = figures.report.iter().flat_map(|report| &report.agreement.not_compared);
    doubts
        .extend(agreement.map(|reason| format!("scenario: outputs are not known to be those of the passes: {reason}")));
    doubts.extend(fast_batches(record, trial));
    if trial.overlap {
        doubts.push("scenario: queries repeat samples, so that a server that keeps answers would be faster".to_owned());
    }
    doubts
}

/// Returns that batches of queries took much less time than the steps of the passes, although they have the same number of rows. An
/// engine that computes less may do so only for queries.
fn fast_batches(record: &Record, trial: &TrialFigures) -> Option<String> {
    let (batch, step) = (trial.batch_core?.p50_s.0, record.measurement(Step::Inference)?.latency?.p50_s.0);
    let is_fixed = record.settings.get("input_cost").is_none_or(|setting| setting.value == "fixed");
    // Rows without a query may cost nothing where the cost of an input depends on its content.
    let samples = configured(record).map_or(1, |scenario| u64::from(scenario.samples_per_query)) * trial.queries;
    let batch_size = record.measurement(Step::Inference)?.batch_size;
    let is_full = samples as f64 >= FULL_SHARE * trial.batches as f64 * f64::from(batch_size);
    let limit = if is_fixed { CORE_RATIO_MIN } else { VARIABLE_RATIO_MIN };
    ((is_fixed || is_full) && !trial.overlap && batch < limit * step).then(|| {
        format!(
            "scenario: the median core time of a batch is {:.2} times that of a step of the passes, which has as many rows",
            batch / step
        )
    })
}

/// Returns the hint about a scenario that failed.
pub(super) fn scenario_hint(record: &Record) -> &'static str {
    let trial = measured_scenario(record).map(|(_, trial)| trial);
    let (has_missed, overlap) =
        (trial.is_some_and(|trial| trial.holds == Some(false)), trial.is_some_and(|trial| trial.overlap));
    match configured(record).filter(|_| has_missed) {
        Some(scenario) if scenario.searches_rate() && overlap => "no rate keeps the bound: set a larger bound",
        Some(scenario) if scenario.searches_rate() => {
            "no rate keeps the bound: set a larger bound, or a smaller `batch_size`"
        }
        Some(scenario) if scenario.kind == Arrival::Server => {
            "set a lower `queries_per_s`, or leave it out to search for the highest rate that keeps the bound"
        }
        _ => "`scenario` in the case's parameters.yaml sets how queries arrive and their bound",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setting, testing};
    use super::*;
    use flagperf_core::event::{EngineFacts, ServerFacts};
    use flagperf_core::measure::{Latency, ScenarioReport};
    use flagperf_core::metric::{Agreement, OutputAgreement};
    use flagperf_core::units::Bytes;

    fn scenario() -> Scenario {
        Scenario {
            kind: Arrival::Server,
            percentile: 0.99,
            latency_bound_s: Some(Seconds(0.1)),
            min_duration_s: Seconds(60.0),
            samples_per_query: 1,
            queries_per_s: Some(100.0),
            ..Scenario::default()
        }
    }

    fn trial() -> TrialFigures {
        TrialFigures {
            scheduled_queries_per_s: Some(100.0),
            scheduled: 6000,
            queries: 6000,
            duration_s: Seconds(60.0),
            over_bound: Some(3),
            holds: Some(true),
            lateness: Some(Latency { p99_s: Seconds(0.001), ..Latency::default() }),
            ..TrialFigures::default()
        }
    }

    /// Returns a record with this trial, whose outputs differ so much.
    fn record(trial: TrialFigures, relative_l2: f64) -> Record {
        let mut record = testing::record();
        let value = serde_json::to_value(scenario()).unwrap();
        record.settings.insert("scenario".to_owned(), Setting { value, origin: String::new() });
        let figures = OutputAgreement { relative_l2, cosine: Some(1.0), ..OutputAgreement::default() };
        let agreement =
            Agreement { outputs: [("y".to_owned(), figures)].into_iter().collect(), ..Agreement::default() };
        let report = ScenarioReport { scenario: scenario(), agreement, ..ScenarioReport::default() };
        let scenario = Some(ScenarioFigures { report: Some(report), trials: vec![trial] });
        record.phases =
            vec![PhaseRecord { scenario, memory_bytes_max: Some(Bytes(1)), ..PhaseRecord::new(Phase::Infer) }];
        record
    }

    #[test]
    fn a_scenario_that_kept_its_bound_is_not_official_when_it_is_short() {
        let record = record(trial(), 0.0);
        assert_eq!(scenario_failures(&record), [""; 0]);
        assert_eq!(scenario_doubts(&record), ["scenario: queries arrived for 60 s (official: at least 10 min)"]);
    }

    #[test]
    fn each_fault_of_a_scenario_is_a_failure() {
        let of = |trial: TrialFigures, difference: f64| scenario_failures(&record(trial, difference)).join("\n");
        let missed = of(TrialFigures { over_bound: Some(61), holds: Some(false), ..trial() }, 0.0);
        assert_eq!(
            missed,
            "61 of 6000 queries at 100.0000 queries/s took longer than the bound of 100.000 ms: this does not show, with 99 % \
             confidence, that 99 % of all queries keep it"
        );
        let tokens = Scenario { first_token_bound_s: Some(Seconds(2.0)), ..scenario() };
        assert_eq!(beyond(&tokens), "exceeded the bound (latency 100.000 ms, first token 2000.000 ms)");
        let short = of(TrialFigures { scheduled: 100, ..trial() }, 0.0);
        assert_eq!(short, "queries arrived for 1.0 s, and `min_duration_s` is 60 s");
        let late = Some(Latency { p99_s: Seconds(0.011), ..Latency::default() });
        assert!(
            of(TrialFigures { lateness: late, ..trial() }, 0.0)
                .starts_with("at least 1 % of the queries were issued more than 11.000 ms")
        );
        assert!(of(trial(), 0.5).starts_with("output `y` differs from that of the same samples in the passes: "));
        let mut other = record(trial(), 0.0);
        let report = other.phases[0].scenario.as_mut().and_then(|figures| figures.report.as_mut());
        report.unwrap().scenario.latency_bound_s = Some(Seconds(1.0));
        assert_eq!(scenario_failures(&other), ["another one was run than `scenario` states"]);
        other.phases[0].scenario = None;
        assert_eq!(scenario_failures(&other), ["it was not run to its end"]);
    }

    #[test]
    fn queries_overlap_only_at_a_server_whose_outputs_were_compared() {
        let mut at_server = record(TrialFigures { overlap: true, ..trial() }, 0.0);
        let none = ["queries were answered at the same time, although no server answered them"];
        assert_eq!(scenario_failures(&at_server), none);
        let phase = &mut at_server.phases[0];
        phase.engine = Some(EngineFacts { server: Some(ServerFacts::default()), ..EngineFacts::default() });
        let output = OutputAgreement::default();
        let of_passes = Agreement { outputs: [("z".to_owned(), output)].into_iter().collect(), ..Agreement::default() };
        phase.agreement = Some(of_passes);
        let report = phase.scenario.as_mut().and_then(|figures| figures.report.as_mut()).unwrap();
        report.agreement.not_compared.push("output `z` has no row per sample".to_owned());
        assert_eq!(
            scenario_failures(&at_server),
            ["output `z` of the queries cannot be compared with the passes: output `z` has no row per sample"]
        );
        at_server.phases[0].agreement = None;
        assert_eq!(scenario_failures(&at_server), [""; 0]);
    }

    #[test]
    fn a_search_that_found_no_rate_says_so_by_its_last_trial() {
        let cut = TrialFigures { over_bound: Some(9), holds: Some(false), is_cut: true, queries: 9, ..trial() };
        let failures = scenario_failures(&record(cut, 0.0));
        assert!(failures[0].starts_with("9 of the first 9 of 6000 queries at "), "{failures:?}");
    }
}
