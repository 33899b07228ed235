//! Scenarios: how queries arrive at a model once its passes have ended, the times of each query, and the figures of them.
//!
//! The latency of a query is counted from the time at which its schedule wants it, not from the time at which the model takes it:
//! waiting for a slow predecessor is part of it, so that no slow query hides the others (coordinated omission).

use serde::{Deserialize, Serialize};

use super::early_stopping::{early_stopping_estimate, proves_percentile};
use super::{Latency, QueryTimes, TimeChange};
use crate::metric::Agreement;
use crate::units::{SamplesPerSecond, Seconds};

/// How queries arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// No queries: the passes over the dataset are all that is measured.
    #[default]
    Offline,
    /// Each query arrives when its predecessor has been answered, with one sample.
    SingleStream,
    /// The same with several samples.
    MultiStream,
    /// At random, independently of each other (a Poisson process).
    Server,
    /// Several at once, at regular intervals.
    Burst,
    /// At the times in a file.
    Replay,
}

impl Arrival {
    /// Every kind with its name.
    pub const ALL: [(&'static str, Arrival); 6] = [
        ("offline", Arrival::Offline),
        ("single_stream", Arrival::SingleStream),
        ("multi_stream", Arrival::MultiStream),
        ("server", Arrival::Server),
        ("burst", Arrival::Burst),
        ("replay", Arrival::Replay),
    ];

    /// Returns the name as configurations and records have it.
    pub fn name(self) -> &'static str {
        Arrival::ALL.into_iter().find(|(_, kind)| *kind == self).map_or("offline", |(name, _)| name)
    }

    /// Returns whether queries wait for the answers to their predecessors, instead of following a schedule.
    pub fn waits_for_answers(self) -> bool {
        matches!(self, Arrival::SingleStream | Arrival::MultiStream)
    }
}

/// A scenario with all its values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// How queries arrive.
    pub kind: Arrival,
    /// The share of queries that must keep the bound, and the percentile that is estimated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub percentile: f64,
    /// The largest latency of that share of the queries; `None` for figures without a verdict.
    #[serde(default, skip_serializing_if = "is_default")]
    pub latency_bound_s: Option<Seconds>,
    /// The largest time to the first token of that share of the queries; `None` without this bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_token_bound_s: Option<Seconds>,
    /// The largest mean time between the tokens of an answer of that share of the queries; `None` without this bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_token_bound_s: Option<Seconds>,
    /// The shortest time in which queries arrive; 0 with a file of times, all of which are used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_duration_s: Seconds,
    /// Samples of a query.
    #[serde(default, skip_serializing_if = "is_default")]
    pub samples_per_query: u32,
    /// Mean number of queries that arrive per second; `None` searches for the highest that keeps the bound.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queries_per_s: Option<f64>,
    /// Queries that arrive at once; 0 if each arrives alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queries_per_burst: u32,
    /// Path in the data directory of the file with the times of arrival.
    #[serde(default, skip_serializing_if = "is_default")]
    pub schedule: Option<String>,
}

/// Returns whether a value need not be written, because it is read back as this one without it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Scenario {
    /// Returns whether queries arrive at all.
    pub fn has_queries(&self) -> bool {
        self.kind != Arrival::Offline
    }

    /// Returns the times that have a bound, each with its bound.
    pub fn bounds(&self) -> impl Iterator<Item = (&'static str, Seconds)> {
        let all = [
            ("latency", self.latency_bound_s),
            ("first token", self.first_token_bound_s),
            ("next token", self.next_token_bound_s),
        ];
        all.into_iter().filter_map(|(name, bound)| Some((name, bound?)))
    }

    /// Returns whether a query has to be answered within a time.
    pub fn has_bound(&self) -> bool {
        self.bounds().next().is_some()
    }

    /// Returns whether tokens of an answer have to arrive within a time.
    pub fn bounds_tokens(&self) -> bool {
        self.first_token_bound_s.is_some() || self.next_token_bound_s.is_some()
    }

    /// Returns whether a query keeps every bound. One whose tokens have no times keeps no bound of them; one with a single token, which
    /// has no time between tokens, keeps its bound.
    pub fn is_kept_by(&self, query: &QueryTimes) -> bool {
        let keeps = |bound: Option<Seconds>, time: Option<Seconds>| {
            bound.is_none_or(|bound| time.is_some_and(|time| time.0 <= bound.0))
        };
        let between_tokens = query.next_token_s.or(query.first_token_s.map(|_| Seconds(0.0)));
        keeps(self.latency_bound_s, Some(query.latency()))
            && keeps(self.first_token_bound_s, query.first_token())
            && keeps(self.next_token_bound_s, between_tokens)
    }

    /// Returns whether the highest rate of arrival is searched for.
    pub fn searches_rate(&self) -> bool {
        self.kind == Arrival::Server && self.queries_per_s.is_none()
    }
}

/// A trial that has ended: queries that arrived at one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialEnd {
    /// Index of the trial, from 0.
    pub trial: u32,
    /// The rate of its schedule; `None` without one.
    pub queries_per_s: Option<f64>,
    /// Queries of its schedule, all of which were answered unless the trial ended early.
    pub scheduled: u64,
    /// Whether it ended early because it could no longer keep the bound.
    pub is_cut: bool,
    /// Whether queries were sent to a server, each by itself and while others were being answered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overlap: bool,
}

/// What a scenario observed beside the times of its queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ScenarioReport {
    /// The scenario.
    pub scenario: Scenario,
    /// Samples in memory, from which those of each query were drawn.
    pub samples: u64,
    /// The longest time that a query waited for others to fill its batch.
    pub queue_delay_s: Seconds,
    /// How outputs of some queries, drawn at random, differ from those of the same samples in the passes.
    pub agreement: Agreement,
}

/// The figures of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ScenarioFigures {
    /// What the worker reported; `None` when the scenario did not end.
    pub report: Option<ScenarioReport>,
    /// The trials in order. The last one is the measurement, those before it belong to the search for its rate.
    pub trials: Vec<TrialFigures>,
}

/// The figures of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TrialFigures {
    /// Mean rate of arrival of the schedule; `None` without one.
    pub scheduled_queries_per_s: Option<f64>,
    /// Queries of the schedule.
    pub scheduled: u64,
    /// Whether the trial ended early because it could no longer keep the bound.
    pub is_cut: bool,
    /// Whether queries were sent to a server, each by itself and while others were being answered: a batch is then one query.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overlap: bool,
    /// Queries that were answered.
    pub queries: u64,
    /// From the first arrival to the last answer.
    pub duration_s: Seconds,
    /// Answered queries divided by the duration.
    pub queries_per_s: Option<f64>,
    /// Their samples divided by the duration.
    pub samples_per_s: Option<SamplesPerSecond>,
    /// Distribution of the latency of a query.
    pub latency: Option<Latency>,
    /// How the latencies changed from the first arrival to the last, the first having index 0; `None` if they did not, as far as a test
    /// shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_change: Option<TimeChange>,
    /// The latency that, with 99 % confidence, the scenario's share of all queries of an endless run keeps (MLPerf's early
    /// stopping); `None` with too few queries.
    pub percentile_s: Option<Seconds>,
    /// The time to the first token of an answer; `None` if the model generates no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token: Option<TokenFigures>,
    /// The mean time between the tokens of an answer; `None` if the model generates no text, or one token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<TokenFigures>,
    /// Queries beyond one of the bounds; `None` without any.
    pub over_bound: Option<u64>,
    /// Whether the queries prove with 99 % confidence that the scenario's share of all queries keeps every bound; `None` without a
    /// bound.
    pub holds: Option<bool>,
    /// Distribution of the time by which queries were put in the queue after their schedule; `None` without a schedule.
    pub lateness: Option<Latency>,
    /// Distribution of the time from the issue of a query until it was prepared and sent; `None` unless queries overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Latency>,
    /// Batches that were computed.
    pub batches: u64,
    /// Distribution of the core time of a batch.
    pub batch_core: Option<Latency>,
}

/// A time of tokens of the queries of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct TokenFigures {
    pub latency: Latency,
    /// As [`TrialFigures::percentile_s`].
    pub percentile_s: Option<Seconds>,
}

impl TokenFigures {
    /// Returns the figures of the times that are known; `None` if none is.
    fn of(times: impl Iterator<Item = Option<Seconds>>, percentile: f64) -> Option<Self> {
        let mut times: Vec<Seconds> = times.flatten().collect();
        times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Some(TokenFigures { latency: Latency::of(&times)?, percentile_s: early_stopping_estimate(&times, percentile) })
    }
}

impl TrialFigures {
    /// Computes the figures of the queries of a trial, in the order of their answers.
    pub fn of(end: &TrialEnd, queries: &[QueryTimes], scenario: &Scenario) -> Self {
        let mut arrivals: Vec<&QueryTimes> = queries.iter().collect();
        arrivals.sort_by(|a, b| a.scheduled_s.0.total_cmp(&b.scheduled_s.0));
        let moments: Vec<Seconds> = arrivals.iter().map(|query| query.scheduled_s).collect();
        let mut latencies: Vec<Seconds> = arrivals.into_iter().map(QueryTimes::latency).collect();
        let latency_change = TimeChange::over_time(&latencies, &moments);
        let latency = Latency::of(&latencies);
        latencies.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let answered = latencies.len() as u64;
        let over =
            scenario.has_bound().then(|| queries.iter().filter(|query| !scenario.is_kept_by(query)).count() as u64);
        let lateness: Vec<Seconds> = queries.iter().map(|query| query.issued_s - query.scheduled_s).collect();
        let sent: Vec<Seconds> = queries.iter().map(|query| query.ended_s - query.core_s - query.issued_s).collect();
        let batches: Vec<Seconds> =
            queries.chunk_by(|a, b| a.batch == b.batch).map(|queries| queries[0].core_s).collect();
        let begin = queries.iter().map(|query| query.scheduled_s.0).reduce(f64::min);
        let last = queries.iter().map(|query| query.ended_s.0).reduce(f64::max);
        let duration = Seconds(last.unwrap_or(0.0) - begin.unwrap_or(0.0));
        let rate = (duration.0 > 0.0).then(|| answered as f64 / duration.0);
        TrialFigures {
            scheduled_queries_per_s: end.queries_per_s,
            scheduled: end.scheduled,
            is_cut: end.is_cut,
            overlap: end.overlap,
            queries: answered,
            duration_s: duration,
            queries_per_s: rate,
            // The scenario of a trial that was interrupted is unknown.
            samples_per_s: rate
                .filter(|_| scenario.samples_per_query > 0)
                .map(|rate| SamplesPerSecond(rate * f64::from(scenario.samples_per_query))),
            latency,
            latency_change,
            percentile_s: early_stopping_estimate(&latencies, scenario.percentile),
            first_token: TokenFigures::of(queries.iter().map(QueryTimes::first_token), scenario.percentile),
            next_token: TokenFigures::of(queries.iter().map(|query| query.next_token_s), scenario.percentile),
            over_bound: over,
            holds: over.map(|over| !end.is_cut && proves_percentile(answered, over, scenario.percentile)),
            lateness: Latency::of(&lateness).filter(|_| !scenario.kind.waits_for_answers()),
            sent: Latency::of(&sent).filter(|_| end.overlap),
            batches: batches.len() as u64,
            batch_core: Latency::of(&batches),
        }
    }

    /// Returns the mean number of samples of a batch.
    pub fn samples_per_batch(&self, scenario: &Scenario) -> f64 {
        self.queries as f64 * f64::from(scenario.samples_per_query) / self.batches.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(scheduled: f64, ended: f64, batch: u64) -> QueryTimes {
        let at = Seconds(scheduled);
        let (started_s, ended_s) = (Seconds(ended - 0.5), Seconds(ended));
        QueryTimes {
            scheduled_s: at,
            issued_s: at,
            started_s,
            ended_s,
            core_s: Seconds(0.25),
            batch,
            ..QueryTimes::default()
        }
    }

    fn scenario(bound: f64) -> Scenario {
        Scenario {
            kind: Arrival::Server,
            percentile: 0.9,
            latency_bound_s: Some(Seconds(bound)),
            samples_per_query: 2,
            ..Scenario::default()
        }
    }

    #[test]
    fn the_latency_of_a_query_includes_its_wait_for_a_slow_predecessor() {
        // One arrives each second; the answer to the first takes 10 s, and the others follow at once.
        let queries: Vec<QueryTimes> =
            (0u32..10).map(|n| query(f64::from(n), 10.0 + 0.5 * f64::from(n + 1), n.into())).collect();
        let figures = TrialFigures::of(&TrialEnd { scheduled: 10, ..TrialEnd::default() }, &queries, &scenario(2.0));
        assert_eq!(
            figures.over_bound,
            Some(10),
            "all but the first arrived while it was computed, and none is within 2 s"
        );
        assert_eq!(figures.latency.unwrap().max_s, Seconds(10.5));
        assert_eq!((figures.duration_s, figures.samples_per_s), (Seconds(15.0), Some(SamplesPerSecond(20.0 / 15.0))));
    }

    #[test]
    fn a_bound_holds_only_if_enough_queries_prove_it() {
        let figures = |count: u64, slow: u64| {
            let queries: Vec<QueryTimes> =
                (0..count).map(|n| query(n as f64, n as f64 + if n < slow { 3.0 } else { 1.0 }, n / 2)).collect();
            TrialFigures::of(&TrialEnd { scheduled: count, ..TrialEnd::default() }, &queries, &scenario(2.0))
        };
        assert_eq!((figures(43, 0).holds, figures(44, 0).holds), (Some(false), Some(true)));
        assert_eq!((figures(63, 1).holds, figures(64, 1).holds), (Some(false), Some(true)));
        assert_eq!((figures(64, 0).batches, figures(64, 2).over_bound), (32, Some(2)));
        assert_eq!((figures(63, 0).percentile_s, figures(64, 0).percentile_s), (None, Some(Seconds(1.0))));
    }

    #[test]
    fn a_latency_that_becomes_longer_is_found_in_the_order_of_arrival() {
        let latency = |n: u32| 1.0 + 0.01 * f64::from(n * 7 % 5) + if n >= 120 { 0.5 } else { 0.0 };
        let mut queries: Vec<QueryTimes> =
            (0..200u32).map(|n| query(f64::from(n), f64::from(n) + latency(n), n.into())).collect();
        queries.swap(3, 190);
        let figures = TrialFigures::of(&TrialEnd { scheduled: 200, ..TrialEnd::default() }, &queries, &scenario(2.0));
        let change = figures.latency_change.unwrap();
        assert_eq!((change.shape, change.begin, change.end), (super::super::ChangeShape::Level, 120, 200));
        assert!((change.relative_change - 0.5).abs() < 0.02, "{change:?}");
    }

    #[test]
    fn a_trial_that_was_cut_never_holds() {
        let queries = vec![query(0.0, 1.0, 0); 1000];
        let end = TrialEnd { is_cut: true, scheduled: 2000, ..TrialEnd::default() };
        assert_eq!(TrialFigures::of(&end, &queries, &scenario(2.0)).holds, Some(false));
    }

    #[test]
    fn a_query_keeps_the_bounds_only_if_its_tokens_do() {
        let tokens = |first: f64, next: f64| QueryTimes {
            first_token_s: Some(Seconds(first)),
            next_token_s: Some(Seconds(next)),
            ..query(1.0, 9.0, 0)
        };
        let limits = |first: Option<f64>, next: Option<f64>| Scenario {
            first_token_bound_s: first.map(Seconds),
            next_token_bound_s: next.map(Seconds),
            latency_bound_s: None,
            ..scenario(0.0)
        };
        for (scenario, query, keeps) in [
            (limits(Some(8.0), Some(0.1)), tokens(9.0, 0.1), true),
            (limits(Some(7.9), Some(0.1)), tokens(9.0, 0.1), false),
            (limits(Some(8.0), Some(0.09)), tokens(9.0, 0.1), false),
            (limits(None, Some(0.1)), tokens(9.0, 0.1), true),
            (limits(Some(100.0), None), query(1.0, 9.0, 0), false),
            (limits(None, Some(0.1)), query(1.0, 9.0, 0), false),
            (limits(None, Some(0.1)), QueryTimes { next_token_s: None, ..tokens(9.0, 0.0) }, true),
        ] {
            assert_eq!(scenario.is_kept_by(&query), keeps, "{scenario:?}");
        }
        let queries: Vec<QueryTimes> =
            (0..64).map(|n| if n == 0 { tokens(9.0, 0.2) } else { tokens(8.5, 0.1) }).collect();
        let end = TrialEnd { scheduled: 64, overlap: true, ..TrialEnd::default() };
        let figures = TrialFigures::of(&end, &queries, &limits(Some(8.0), Some(0.1)));
        assert_eq!((figures.over_bound, figures.holds), (Some(1), Some(true)));
        let (first, next) = (figures.first_token.unwrap(), figures.next_token.unwrap());
        assert_eq!(
            (first.latency.max_s, first.percentile_s, next.latency.max_s),
            (Seconds(8.0), Some(Seconds(8.0)), Seconds(0.2))
        );
    }
}
