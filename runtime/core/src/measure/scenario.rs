//! Scenarios: how queries arrive at a model once its passes have ended, the times of each query, and the figures of them.
//!
//! The latency of a query is counted from the time at which its schedule wants it, not from the time at which the model takes it:
//! waiting for a slow predecessor is part of it, so that no slow query hides the others (coordinated omission).

use serde::{Deserialize, Serialize};

use super::Latency;
use super::early_stopping::{early_stopping_estimate, proves_percentile};
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

    /// Returns whether the highest rate of arrival is searched for.
    pub fn searches_rate(&self) -> bool {
        self.kind == Arrival::Server && self.queries_per_s.is_none()
    }
}

/// The times of one query of a trial, from the beginning of the trial, and its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryTimes {
    /// Index of the trial, from 0.
    pub trial: u32,
    /// When the schedule wants it.
    pub scheduled_s: Seconds,
    /// When it was put in the queue.
    pub issued_s: Seconds,
    /// When it was taken from the queue and its batch was formed.
    pub started_s: Seconds,
    /// When its outputs were in host memory.
    pub ended_s: Seconds,
    /// The core time of its batch.
    pub core_s: Seconds,
    /// Index of its batch in the trial, from 0.
    pub batch: u64,
}

impl QueryTimes {
    /// Returns its latency: from its scheduled arrival until its outputs were in host memory.
    pub fn latency(&self) -> Seconds {
        self.ended_s - self.scheduled_s
    }

    /// Returns whether its times can follow each other.
    fn is_possible(&self) -> bool {
        let in_order = [Seconds(0.0), self.scheduled_s, self.issued_s, self.started_s, self.ended_s];
        let core = self.core_s.0;
        in_order.is_sorted_by(|a, b| a.0 <= b.0)
            && self.ended_s.0.is_finite()
            && core >= 0.0
            // Both are differences of the same clock; rounding in the last digit is none of anybody's fault.
            && core <= self.ended_s.0 - self.started_s.0 + 1e-9
    }
}

/// The times of successive queries of one trial. An event has them as whole nanoseconds, those of a batch once, so that it takes less
/// than half the space of seconds: a run of ten minutes may have ten million queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Columns", into = "Columns")]
pub struct QueryColumns(pub Vec<QueryTimes>);

/// The form of an event. The first three columns after the indices have a value per query, the others one per batch.
#[derive(Clone, Serialize, Deserialize)]
struct Columns {
    trial: u32,
    /// Index of the first batch.
    first_batch: u64,
    scheduled_ns: Vec<u64>,
    /// From the scheduled time to that at which it was issued.
    late_ns: Vec<u64>,
    /// Queries of each batch.
    queries: Vec<u32>,
    started_ns: Vec<u64>,
    /// From the start of the batch to its end.
    computed_ns: Vec<u64>,
    core_ns: Vec<u64>,
}

/// Returns a time in whole nanoseconds, which the clock counts.
fn nanos(time: Seconds) -> u64 {
    (time.0 * 1e9).round() as u64
}

impl From<QueryColumns> for Columns {
    fn from(QueryColumns(queries): QueryColumns) -> Self {
        let (first, batches) = (queries.first(), queries.chunk_by(|a, b| a.batch == b.batch));
        let mut columns = Columns {
            trial: first.map_or(0, |query| query.trial),
            first_batch: first.map_or(0, |query| query.batch),
            scheduled_ns: queries.iter().map(|query| nanos(query.scheduled_s)).collect(),
            late_ns: queries.iter().map(|query| nanos(query.issued_s) - nanos(query.scheduled_s)).collect(),
            queries: Vec::new(),
            started_ns: Vec::new(),
            computed_ns: Vec::new(),
            core_ns: Vec::new(),
        };
        for batch in batches {
            columns.queries.push(batch.len() as u32);
            columns.started_ns.push(nanos(batch[0].started_s));
            columns.computed_ns.push(nanos(batch[0].ended_s) - nanos(batch[0].started_s));
            columns.core_ns.push(nanos(batch[0].core_s));
        }
        columns
    }
}

impl TryFrom<Columns> for QueryColumns {
    type Error = &'static str;

    /// Fails when the columns do not fit each other, or the times of a query cannot follow each other.
    fn try_from(columns: Columns) -> Result<Self, Self::Error> {
        let Columns { trial, first_batch, scheduled_ns, late_ns, queries, started_ns, computed_ns, core_ns } = columns;
        let batches = [started_ns.len(), computed_ns.len(), core_ns.len()];
        let count: u64 = queries.iter().map(|count| u64::from(*count)).sum();
        if count != scheduled_ns.len() as u64 || late_ns.len() != scheduled_ns.len() || batches != [queries.len(); 3] {
            return Err("the columns of query times do not fit each other");
        }
        let sum = |start: u64, time: u64| start.checked_add(time).ok_or("a time of a query is too large");
        let mut times = Vec::with_capacity(scheduled_ns.len());
        let mut of_queries = scheduled_ns.into_iter().zip(late_ns);
        for (index, count) in queries.into_iter().enumerate() {
            let started = started_ns[index];
            let (ended, core_s) = (sum(started, computed_ns[index])?, Seconds::from_nanos(core_ns[index]));
            for (scheduled, late) in of_queries.by_ref().take(count as usize) {
                times.push(QueryTimes {
                    trial,
                    scheduled_s: Seconds::from_nanos(scheduled),
                    issued_s: Seconds::from_nanos(sum(scheduled, late)?),
                    started_s: Seconds::from_nanos(started),
                    ended_s: Seconds::from_nanos(ended),
                    core_s,
                    batch: sum(first_batch, index as u64)?,
                });
            }
        }
        match times.iter().all(QueryTimes::is_possible) {
            true => Ok(QueryColumns(times)),
            false => Err("the times of a query are not in order"),
        }
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
    /// The latency that, with 99 % confidence, the scenario's share of all queries of an endless run keeps (MLPerf's early
    /// stopping); `None` with too few queries.
    pub percentile_s: Option<Seconds>,
    /// Queries beyond the bound; `None` without one.
    pub over_bound: Option<u64>,
    /// Whether the queries prove with 99 % confidence that the scenario's share of all queries keeps the bound; `None` without a
    /// bound.
    pub holds: Option<bool>,
    /// Distribution of the time by which queries were put in the queue after their schedule; `None` without a schedule.
    pub lateness: Option<Latency>,
    /// Batches that were computed.
    pub batches: u64,
    /// Distribution of the core time of a batch.
    pub batch_core: Option<Latency>,
}

impl TrialFigures {
    /// Computes the figures of the queries of a trial, in the order of their answers.
    pub fn of(end: &TrialEnd, queries: &[QueryTimes], scenario: &Scenario) -> Self {
        let mut latencies: Vec<Seconds> = queries.iter().map(QueryTimes::latency).collect();
        let latency = Latency::of(&latencies);
        latencies.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let answered = latencies.len() as u64;
        let over =
            scenario.latency_bound_s.map(|bound| answered - latencies.partition_point(|time| time.0 <= bound.0) as u64);
        let lateness: Vec<Seconds> = queries.iter().map(|query| query.issued_s - query.scheduled_s).collect();
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
            queries: answered,
            duration_s: duration,
            queries_per_s: rate,
            samples_per_s: rate.map(|rate| SamplesPerSecond(rate * f64::from(scenario.samples_per_query))),
            latency,
            percentile_s: early_stopping_estimate(&latencies, scenario.percentile),
            over_bound: over,
            holds: over.map(|over| !end.is_cut && proves_percentile(answered, over, scenario.percentile)),
            lateness: Latency::of(&lateness).filter(|_| !scenario.kind.waits_for_answers()),
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
        QueryTimes { scheduled_s: at, issued_s: at, started_s, ended_s, core_s: Seconds(0.25), batch, trial: 0 }
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
    fn a_trial_that_was_cut_never_holds() {
        let queries = vec![query(0.0, 1.0, 0); 1000];
        let end = TrialEnd { is_cut: true, scheduled: 2000, ..TrialEnd::default() };
        assert_eq!(TrialFigures::of(&end, &queries, &scenario(2.0)).holds, Some(false));
    }

    #[test]
    fn times_read_back_exactly_and_impossible_ones_are_refused() {
        let at = |ns: u64| Seconds::from_nanos(ns);
        let query = |number: u64| QueryTimes {
            trial: 3,
            scheduled_s: at(1_000_000_007 * number),
            issued_s: at(1_000_000_007 * number + 13),
            started_s: at(4_000_000_000_000 + number / 2),
            ended_s: at(4_000_000_123_457 + number / 2),
            core_s: at(123_400),
            batch: 10 + number / 2,
        };
        let queries: Vec<QueryTimes> = (0..1001).map(query).collect();
        let text = serde_json::to_string(&QueryColumns(queries.clone())).unwrap();
        assert_eq!(serde_json::from_str::<QueryColumns>(&text).unwrap().0, queries);
        assert!(text.len() < 40 * queries.len(), "{} bytes", text.len());
        let text = serde_json::to_string(&QueryColumns(vec![query(1)])).unwrap();
        let expected = r#"{"trial":3,"first_batch":10,"scheduled_ns":[1000000007],"late_ns":[13],"queries":[1],"started_ns":[4000000000000],"computed_ns":[123457],"core_ns":[123400]}"#;
        assert_eq!(text, expected);
        let (order, fit) =
            ("the times of a query are not in order", "the columns of query times do not fit each other");
        for (from, to, error) in [
            ("[4000000000000]", "[1000000019]", order),
            ("[123400]", "[123500]", order),
            ("\"late_ns\":[13]", "\"late_ns\":[]", fit),
            ("\"queries\":[1]", "\"queries\":[2]", fit),
            ("\"queries\":[1]", "\"queries\":[1,0]", fit),
            ("[123457]", "[18446744073709551615]", "a time of a query is too large"),
        ] {
            assert!(text.contains(from), "{text}");
            let found = serde_json::from_str::<QueryColumns>(&text.replace(from, to)).unwrap_err().to_string();
            assert_eq!(found, error, "{to}");
        }
        for wrong in ["[-1]", "[null]", "[1.5]"] {
            assert!(serde_json::from_str::<QueryColumns>(&text.replace("[1000000007]", wrong)).is_err(), "{wrong}");
        }
    }
}
