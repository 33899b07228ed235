//! The figures of a scenario as rows of text.

use super::rows::{latency_text, plural};
use super::text::{count, duration, rate};
use flagperf_core::measure::{Scenario, ScenarioFigures, TokenFigures, TrialFigures};
use flagperf_core::units::SamplesPerSecond;
use flagperf_result::{Record, latency_change_text, measured_scenario};

/// Returns the headline of a scenario; `None` without one.
pub(super) fn scenario_text(record: &Record) -> Option<String> {
    let (figures, trial) = measured_scenario(record)?;
    let scenario = &figures.report.as_ref()?.scenario;
    let name = scenario.kind.name();
    let median = trial.latency.map_or_else(String::new, |latency| format!(", median {}", duration(latency.p50_s)));
    Some(format!("{name}: {}{}{median}", rate_text(trial), percentile_text(scenario, trial)))
}

/// Returns the rate of the queries of a scenario and their latency, as cells of a table: `812.3` and `p99 at most 15 ms at 99 % confidence`;
/// `None` without a scenario that ended.
pub fn queries_text(record: &Record) -> Option<[String; 2]> {
    let (figures, trial) = measured_scenario(record)?;
    let scenario = &figures.report.as_ref()?.scenario;
    let queries = trial.queries_per_s.map_or_else(String::new, |found| rate(SamplesPerSecond(found)));
    Some([queries, percentile_text(scenario, trial).trim_start_matches(", ").to_owned()])
}

/// `812.3 queries/s`
fn rate_text(trial: &TrialFigures) -> String {
    let text = |found| format!("{} queries/s", rate(SamplesPerSecond(found)));
    trial.queries_per_s.map_or_else(|| "no queries".to_owned(), text)
}

/// `, p99 at most 15 ms at 99 % confidence`, the same of the tokens of a server that generates text, and whether the bound holds.
fn percentile_text(scenario: &Scenario, trial: &TrialFigures) -> String {
    let name = percentile_name(scenario.percentile);
    let estimate = match trial.percentile_s {
        Some(time) => format!(", {name} at most {} at 99 % confidence", duration(time)),
        None => format!(", too few queries for {name}"),
    };
    let holds = trial.holds.map(|holds| {
        let holds = if holds { "keeps" } else { "MISSES" };
        format!(" ({holds} the bound of {})", bounds_text(scenario))
    });
    let tokens = [("first", trial.first_token), ("next", trial.next_token)].into_iter();
    let tokens = tokens.filter_map(|(name, figures)| {
        Some(format!(", {name} token {}", duration(figures.and_then(|figures| figures.percentile_s)?)))
    });
    estimate + &tokens.collect::<String>() + &holds.unwrap_or_default()
}

/// `15 ms`, or `latency 10 s, first token 2 s` if tokens have bounds.
fn bounds_text(scenario: &Scenario) -> String {
    let text = |(name, bound)| match scenario.bounds_tokens() {
        true => format!("{name} {}", duration(bound)),
        false => duration(bound),
    };
    scenario.bounds().map(text).collect::<Vec<_>>().join(", ")
}

/// `p99`, `p99.9`
fn percentile_name(percentile: f64) -> String {
    // Rounds what multiplying adds: 0.999 * 100 is 99.9 only after it.
    let percent = (percentile * 1e6).round() / 1e4;
    format!("p{percent}")
}

/// Returns the rows of the section of a scenario; empty without one.
pub(super) fn scenario_rows(record: &Record) -> Vec<(&'static str, String)> {
    let Some((figures, trial)) = measured_scenario(record) else { return Vec::new() };
    let Some(report) = &figures.report else {
        let ended = ("not ended", format!("after {}", plural(figures.trials.len() as u64, "trial", "trials")));
        let trials = figures.trials.iter().map(|trial| ("trial", partial_text(trial)));
        return [ended].into_iter().chain(trials).collect();
    };
    let scenario = &report.scenario;
    let unit = &record.unit;
    let samples = trial.samples_per_s.map_or_else(String::new, |samples| format!(", {} {unit}s/s", rate(samples)));
    let scheduled = trial.scheduled_queries_per_s.map(|found| format!(", scheduled {}", rate(SamplesPerSecond(found))));
    let mut rows = vec![
        ("kind", scenario.kind.name().to_owned()),
        ("queries", format!("{} in {}", answered(trial), duration(trial.duration_s))),
        ("rate", format!("{}{}{samples}", rate_text(trial), scheduled.unwrap_or_default())),
    ];
    rows.extend(trial.latency.map(|latency| ("latency of a query", latency_text(&latency))));
    rows.extend(latency_change_text(trial).map(|text| ("latencies were", text)));
    rows.push(("percentile", percentile_text(scenario, trial).trim_start_matches(", ").to_owned()));
    for (name, figures) in [("first token", trial.first_token), ("next token", trial.next_token)] {
        rows.extend(figures.map(|figures| (name, token_text(scenario, &figures))));
    }
    if let Some(over) = trial.over_bound {
        let of = format!("{} of {} (bound {})", count(over), count(trial.queries), bounds_text(scenario));
        rows.push(("beyond the bound", of));
    }
    rows.extend(trial.lateness.map(|lateness| ("lateness of arrival", latency_text(&lateness))));
    let mean = trial.samples_per_batch(scenario);
    let core = trial.batch_core.map_or_else(String::new, |core| format!(", core {}", latency_text(&core)));
    let held = format!("{} in memory, drawn with replacement", plural(report.samples, "sample", "samples"));
    if trial.overlap {
        let core = trial.batch_core.map_or_else(String::new, |core| latency_text(&core));
        rows.extend(trial.sent.map(|sent| ("from issue to sending", latency_text(&sent))));
        rows.push(("from sending to the answer", core));
        rows.push(("data", format!("{held}; each query is sent by itself, while others are being answered")));
    } else {
        rows.push(("batches", format!("{} with {mean:.2} {unit}s on average{core}", count(trial.batches))));
        rows.push(("data", format!("{held}; a query waits up to {} for others", duration(report.queue_delay_s))));
    }
    let search = figures.trials.split_last().map_or(&[][..], |(_, search)| search);
    rows.extend(search.iter().map(|trial| ("trial", trial_text(figures, trial))));
    rows
}

/// `p99 at most 1.2 s, p50 0.4 s, ..`
fn token_text(scenario: &Scenario, figures: &TokenFigures) -> String {
    let name = percentile_name(scenario.percentile);
    let estimate = figures.percentile_s.map(|time| format!("{name} at most {} at 99 % confidence, ", duration(time)));
    estimate.unwrap_or_default() + &latency_text(&figures.latency)
}

/// `40.1 queries/s, 1 012 queries, p50 4.1 ms, ..`, of a trial whose scenario did not end
fn partial_text(trial: &TrialFigures) -> String {
    let latency = trial.latency.map_or_else(String::new, |latency| format!(", {}", latency_text(&latency)));
    format!("{}, {} queries{latency}", rate_text(trial), answered(trial))
}

/// `1 000`, or `the first 120 of 1 000` if the trial was cut.
fn answered(trial: &TrialFigures) -> String {
    match trial.is_cut {
        true => format!("the first {} of {}", count(trial.queries), count(trial.scheduled)),
        false => count(trial.queries),
    }
}

/// `406.2 queries/s: holds, p99 at most 8.2 ms, 1,012 queries`
fn trial_text(figures: &ScenarioFigures, trial: &TrialFigures) -> String {
    let scheduled = trial.scheduled_queries_per_s.map_or_else(String::new, |found| rate(SamplesPerSecond(found)));
    let holds = if trial.holds == Some(true) { "holds" } else { "does not hold" };
    let percentile = figures.report.as_ref().and_then(|report| {
        let time = duration(trial.percentile_s?);
        Some(format!(", {} at most {time}", percentile_name(report.scenario.percentile)))
    });
    format!("{scheduled} queries/s: {holds}{}, {} queries", percentile.unwrap_or_default(), answered(trial))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{Arrival, ChangeShape, Latency, ScenarioReport, TimeChange};
    use flagperf_core::step::Phase;
    use flagperf_core::units::Seconds;
    use flagperf_result::{PhaseRecord, testing};

    #[test]
    fn the_figures_of_a_search_are_those_of_its_last_trial_with_the_others_below() {
        let scenario = Scenario {
            kind: Arrival::Server,
            percentile: 0.999,
            latency_bound_s: Some(Seconds(0.015)),
            samples_per_query: 1,
            ..Scenario::default()
        };
        let trial = |scheduled: f64, holds: bool| TrialFigures {
            scheduled_queries_per_s: Some(scheduled),
            scheduled: 5000,
            is_cut: !holds,
            queries: if holds { 5000 } else { 120 },
            duration_s: Seconds(10.0),
            queries_per_s: Some(scheduled * 0.999),
            samples_per_s: Some(SamplesPerSecond(scheduled * 0.999)),
            latency: Latency::of(&[Seconds(0.004), Seconds(0.005)]),
            percentile_s: holds.then_some(Seconds(0.012)),
            over_bound: Some(if holds { 2 } else { 30 }),
            holds: Some(holds),
            latency_change: Some(TimeChange {
                shape: ChangeShape::Level,
                begin: 2999,
                end: 5000,
                relative_change: 0.031,
                p_value: 1e-5,
            }),
            lateness: Latency::of(&[Seconds(0.00001)]),
            batches: 2500,
            batch_core: Latency::of(&[Seconds(0.003)]),
            ..TrialFigures::default()
        };
        let report = ScenarioReport { scenario, samples: 100, ..ScenarioReport::default() };
        let figures = ScenarioFigures { report: Some(report), trials: vec![trial(600.0, false), trial(500.0, true)] };
        let mut record = testing::record();
        record.phases = vec![PhaseRecord { scenario: Some(figures), ..PhaseRecord::new(Phase::Infer) }];
        let rows: Vec<String> =
            scenario_rows(&record).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        assert_eq!(
            queries_text(&record).unwrap(),
            ["500", "p99.9 at most 12.0 ms at 99 % confidence (keeps the bound of 15.0 ms)"]
        );
        insta::assert_snapshot!(format!("{}\n{}", scenario_text(&record).unwrap(), rows.join("\n")), @r"
        server: 500 queries/s, p99.9 at most 12.0 ms at 99 % confidence (keeps the bound of 15.0 ms), median 4.50 ms
        kind: server
        queries: 5 000 in 10.0 s
        rate: 500 queries/s, scheduled 500, 500 samples/s
        latency of a query: p50 4.50 ms, p90 5.00 ms, p99 5.00 ms, p99.9 5.00 ms, min 4.00 ms, max 5.00 ms
        latencies were: 3.1 % longer from query 3000 of 5000 on (p < 0.001)
        percentile: p99.9 at most 12.0 ms at 99 % confidence (keeps the bound of 15.0 ms)
        beyond the bound: 2 of 5 000 (bound 15.0 ms)
        lateness of arrival: p50 10.0 µs, p90 10.0 µs, p99 10.0 µs, p99.9 10.0 µs, min 10.0 µs, max 10.0 µs
        batches: 2 500 with 2.00 samples on average, core p50 3.00 ms, p90 3.00 ms, p99 3.00 ms, p99.9 3.00 ms, min 3.00 ms, max 3.00 ms
        data: 100 samples in memory, drawn with replacement; a query waits up to 0 s for others
        trial: 600 queries/s: does not hold, the first 120 of 5 000 queries
        ");
    }
}
