//! The scenario of a case: how queries arrive at its model once its passes have ended.

use flagperf_core::measure::{Arrival, Scenario};
use flagperf_core::units::Seconds;
use indexmap::IndexMap;
use serde_json::Value;

use super::entries::describe_node;
use super::finding::nearest_note;
use super::yaml::{Content, Node};
use super::{Finding, ValueKind, list_names, nearest};

/// Largest number of queries that a schedule may have, so that their times fit into memory.
pub const QUERIES_MAX: u64 = 20_000_000;
/// Longest time in which queries arrive: a day, as for the passes of an official result.
const DURATION_MAX: f64 = 86_400.0;
/// Latency bounds that the search for a rate lasts at least: at a rate above what the model can compute, latency grows with time.
pub const BOUNDS_MIN: f64 = 10.0;
/// Shortest time in which queries arrive, unless the case sets another one.
const MIN_DURATION: f64 = 60.0;
const EXAMPLE: &str = "for example `scenario: {kind: server, latency_bound_s: 0.015}` or `scenario: single_stream`";

const QUERIES: &[Arrival] =
    &[Arrival::SingleStream, Arrival::MultiStream, Arrival::Server, Arrival::Burst, Arrival::Replay];

/// A key of a scenario.
pub(super) struct ScenarioKey {
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    /// The scenarios that have the key.
    pub(super) of: &'static [Arrival],
    pub(super) about: &'static str,
}

/// The keys of a scenario beside `kind`.
pub(super) const KEYS: &[ScenarioKey] = &[
    ScenarioKey {
        name: "percentile",
        kind: ValueKind::PositiveNumber,
        of: QUERIES,
        about: "the share of queries that must keep the bound, from 0.5 to 0.9999; 0.9 for `single_stream`, otherwise 0.99",
    },
    ScenarioKey {
        name: "latency_bound_s",
        kind: ValueKind::PositiveNumber,
        of: QUERIES,
        about: "the largest latency of that share of the queries, in seconds",
    },
    ScenarioKey {
        name: "first_token_bound_s",
        kind: ValueKind::PositiveNumber,
        of: QUERIES,
        about: "the largest time to the first token of an answer, in seconds; needs a server that generates text",
    },
    ScenarioKey {
        name: "next_token_bound_s",
        kind: ValueKind::PositiveNumber,
        of: QUERIES,
        about: "the largest mean time between the tokens of an answer, in seconds; needs a server that generates text",
    },
    ScenarioKey {
        name: "min_duration_s",
        kind: ValueKind::PositiveNumber,
        of: QUERIES.split_at(4).0,
        about: "the shortest time in which queries arrive, in seconds (official: at least 600); 60",
    },
    ScenarioKey {
        name: "samples_per_query",
        kind: ValueKind::Count,
        of: QUERIES.split_at(1).1,
        about: "samples of a query, at most `batch_size`; 8 for `multi_stream`, otherwise 1",
    },
    ScenarioKey {
        name: "queries_per_s",
        kind: ValueKind::PositiveNumber,
        of: &[Arrival::Server, Arrival::Burst],
        about: "queries that arrive per second; without it, `server` searches for the highest number that keeps the bound",
    },
    ScenarioKey {
        name: "queries_per_burst",
        kind: ValueKind::Count,
        of: &[Arrival::Burst],
        about: "queries that arrive at once",
    },
    ScenarioKey {
        name: "schedule",
        kind: ValueKind::RelativePath,
        of: &[Arrival::Replay],
        about: "a file below the data directory with a column `scheduled_s`, such as queries.csv of a result",
    },
];

/// Returns the names of the scenarios.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    Arrival::ALL.into_iter().map(|(name, _)| name)
}

/// Reads the value of `scenario`: a name, or a mapping with `kind`.
///
/// # Errors
/// When a key or a value is unknown, out of range, missing or of another scenario.
pub(super) fn read_scenario(node: &Node) -> Result<Scenario, Finding> {
    let no_keys = IndexMap::new();
    let (kind, keys) = match &node.content {
        Content::Scalar { .. } => (node, &no_keys),
        Content::Map(keys) => (keys.get("kind").ok_or_else(|| refused("`kind` is missing".to_owned()))?, keys),
        Content::List(_) => return Err(refused(format!("must be a name or a mapping, not {}", describe_node(node)))),
    };
    let kind = read_kind(kind)?;
    let mut values: IndexMap<&str, Value> = IndexMap::new();
    for (name, node) in keys.iter().filter(|(name, _)| *name != "kind") {
        let known = || ["kind"].into_iter().chain(KEYS.iter().map(|key| key.name));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let near = nearest_note(nearest(name, known()));
            return Err(refused(format!("unknown key `{name}`{near}; known: {}", list_names(known()))));
        };
        if !key.of.contains(&kind) {
            let of: Vec<&str> = key.of.iter().map(|kind| kind.name()).collect();
            return Err(refused(format!(
                "`{name}` applies to {}, not to `{}`",
                list_names(of.into_iter()),
                kind.name()
            )));
        }
        let value = key.kind.read(node).ok_or_else(|| {
            let (expected, found) = (key.kind.expected(), describe_node(node));
            refused(format!("`{name}` must be {expected}, not {found}")).with_hint(key.about)
        })?;
        values.insert(key.name, value);
    }
    let number = |name: &str| values.get(name).and_then(Value::as_f64);
    let whole = |name: &str| values.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let percentile = if kind == Arrival::SingleStream { 0.9 } else { 0.99 };
    let samples = if kind == Arrival::MultiStream { 8 } else { 1 };
    let has_duration = kind != Arrival::Replay;
    let scenario = match kind {
        Arrival::Offline => Scenario::default(),
        _ => Scenario {
            kind,
            percentile: number("percentile").unwrap_or(percentile),
            latency_bound_s: number("latency_bound_s").map(Seconds),
            first_token_bound_s: number("first_token_bound_s").map(Seconds),
            next_token_bound_s: number("next_token_bound_s").map(Seconds),
            min_duration_s: Seconds(if has_duration { number("min_duration_s").unwrap_or(MIN_DURATION) } else { 0.0 }),
            samples_per_query: whole("samples_per_query").unwrap_or(samples),
            queries_per_s: number("queries_per_s"),
            queries_per_burst: whole("queries_per_burst").unwrap_or_default(),
            schedule: values.get("schedule").and_then(Value::as_str).map(str::to_owned),
        },
    };
    check(&scenario).map_err(refused)?;
    Ok(scenario)
}

fn read_kind(node: &Node) -> Result<Arrival, Finding> {
    let Content::Scalar { text, .. } = &node.content else {
        return Err(refused(format!("`kind` must be a name, not {}", describe_node(node))));
    };
    Arrival::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, kind)| kind).ok_or_else(|| {
        refused(format!(
            "unknown scenario `{text}`{} (known: {})",
            nearest_note(nearest(text, names())),
            list_names(names())
        ))
    })
}

/// Checks the values of a scenario against each other.
fn check(scenario: &Scenario) -> Result<(), String> {
    let Scenario { kind, percentile, min_duration_s, queries_per_s, .. } = scenario;
    if !scenario.has_queries() {
        return Ok(());
    }
    if !(0.5..=0.9999).contains(percentile) {
        return Err(format!("`percentile` must be a number from 0.5 to 0.9999, not {percentile}"));
    }
    if min_duration_s.0 > DURATION_MAX {
        return Err(format!("`min_duration_s` must be at most {DURATION_MAX}, not {:e}", min_duration_s.0));
    }
    for (name, bound) in [
        ("latency_bound_s", scenario.latency_bound_s),
        ("first_token_bound_s", scenario.first_token_bound_s),
        ("next_token_bound_s", scenario.next_token_bound_s),
    ] {
        let least = BOUNDS_MIN * bound.unwrap_or_default().0;
        if scenario.searches_rate() && least > min_duration_s.0 {
            return Err(format!(
                "`min_duration_s` must be at least {least} if a rate is searched for: {BOUNDS_MIN} times `{name}`"
            ));
        }
    }
    let needs = |name: &str, why: &str| Err(format!("`{}` needs `{name}`, {why}", kind.name()));
    if scenario.searches_rate() && !scenario.has_bound() {
        return needs(
            "latency_bound_s",
            "the latency up to which it searches for a rate (or a bound for tokens), or `queries_per_s`, the rate itself",
        );
    }
    if scenario.next_token_bound_s.is_some() && scenario.bounds().count() == 1 {
        return needs(
            "first_token_bound_s",
            "or `latency_bound_s`, beside `next_token_bound_s`: tokens that are held back arrive together",
        );
    }
    if *kind == Arrival::Burst && scenario.queries_per_burst == 0 {
        return needs("queries_per_burst", "the number of queries that arrive at once");
    }
    if *kind == Arrival::Burst && queries_per_s.is_none() {
        return needs("queries_per_s", "the number of queries that arrive per second");
    }
    if *kind == Arrival::Replay && scenario.schedule.is_none() {
        return needs("schedule", "the file with the times of arrival");
    }
    // A burst is never divided.
    let queries = (queries_per_s.unwrap_or(0.0) * min_duration_s.0).max(scenario.queries_per_burst.into());
    if queries > QUERIES_MAX as f64 {
        let rate = queries_per_s.unwrap_or_default();
        let bursts = if *kind == Arrival::Burst { " in whole bursts" } else { "" };
        return Err(format!(
            "{rate:e} queries per second for {} s{bursts} are {queries:e} queries (at most {QUERIES_MAX})",
            min_duration_s.0
        ));
    }
    Ok(())
}

fn refused(reason: String) -> Finding {
    Finding::unplaced(format!("`scenario`: {reason}")).with_hint(EXAMPLE)
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn read(text: &str) -> Result<Scenario, String> {
        read_scenario(&yaml::parse(text).unwrap()).map_err(|finding| finding.message)
    }

    #[test]
    fn a_name_alone_has_the_values_of_mlperf() {
        let single = read("single_stream").unwrap();
        assert_eq!((single.percentile, single.samples_per_query, single.min_duration_s), (0.9, 1, Seconds(60.0)));
        let multi = read("{kind: multi_stream}").unwrap();
        assert_eq!((multi.percentile, multi.samples_per_query), (0.99, 8));
        assert_eq!(read("offline").unwrap(), Scenario::default());
    }

    #[test]
    fn a_scenario_reads_back_from_the_value_that_is_recorded() {
        for text in ["offline", "{kind: server, latency_bound_s: 0.015}", "{kind: replay, schedule: a/queries.csv}"] {
            let scenario = read(text).unwrap();
            let value = serde_json::to_value(&scenario).unwrap();
            assert_eq!(serde_json::from_value::<Scenario>(value.clone()).unwrap(), scenario);
            let again = yaml::parse(&value.to_string()).unwrap();
            assert_eq!(read_scenario(&again).unwrap(), scenario, "--set takes what a record states");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_known() {
        for (text, message) in [
            ("sever", "`scenario`: unknown scenario `sever` (nearest: `server`) (known: "),
            ("[server]", "`scenario`: must be a name or a mapping, not a list"),
            ("{percentile: 0.9}", "`scenario`: `kind` is missing"),
            ("server", "`scenario`: `server` needs `latency_bound_s`, "),
            (
                "{kind: server, latency_bound: 1}",
                "`scenario`: unknown key `latency_bound` (nearest: `latency_bound_s`); known: ",
            ),
            ("{kind: server, latency_bound_s: 0}", "`scenario`: `latency_bound_s` must be a number greater than 0, "),
            (
                "{kind: single_stream, queries_per_s: 1}",
                "`scenario`: `queries_per_s` applies to server, burst, not to `single_stream`",
            ),
            (
                "{kind: single_stream, percentile: 1}",
                "`scenario`: `percentile` must be a number from 0.5 to 0.9999, not 1",
            ),
            (
                "{kind: server, latency_bound_s: 0.2, min_duration_s: 1}",
                "`scenario`: `min_duration_s` must be at least 2 if a rate is searched for: 10 times `latency_bound_s`",
            ),
            (
                "{kind: server, next_token_bound_s: 0.2}",
                "`scenario`: `server` needs `first_token_bound_s`, or `latency_bound_s`, beside `next_token_bound_s`",
            ),
            (
                "{kind: single_stream, min_duration_s: 1e9}",
                "`scenario`: `min_duration_s` must be at most 86400, not 1e9",
            ),
            ("{kind: burst, queries_per_burst: 4}", "`scenario`: `burst` needs `queries_per_s`, "),
            ("{kind: burst, queries_per_s: 4}", "`scenario`: `burst` needs `queries_per_burst`, "),
            ("replay", "`scenario`: `replay` needs `schedule`, "),
            (
                "{kind: replay, schedule: ../a}",
                "`scenario`: `schedule` must be a path below the data directory, without `..`, ",
            ),
            (
                "{kind: burst, queries_per_burst: 99999999, queries_per_s: 10, min_duration_s: 1}",
                "`scenario`: 1e1 queries per second for 1 s in whole bursts are 9.9999999e7 queries (at most ",
            ),
            (
                "{kind: server, queries_per_s: 1e6}",
                "`scenario`: 1e6 queries per second for 60 s are 6e7 queries (at most ",
            ),
            ("{kind: offline, min_duration_s: 1}", "`scenario`: `min_duration_s` applies to "),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(message), "{text}: {found}");
        }
    }
}
