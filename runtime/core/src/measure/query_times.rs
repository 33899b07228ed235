//! The times of the queries of a trial, and the compact form in which an event has them.

use serde::{Deserialize, Serialize};

use crate::units::Seconds;

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
    /// The core time of its batch; at a server, from its sending until its outputs were in host memory.
    pub core_s: Seconds,
    /// Index of its batch in the trial, from 0.
    pub batch: u64,
    /// When the first token of its answer had arrived, the latest of several answers; `None` if the model generates no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_s: Option<Seconds>,
    /// The time from its first event with tokens to its last, divided by the number of tokens after the first event; if all came in one, the
    /// time of the whole answer divided by the number of its tokens. The largest of several answers; `None` if there is only one token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token_s: Option<Seconds>,
}

impl QueryTimes {
    /// Returns its latency: from its scheduled arrival until its outputs were in host memory.
    pub fn latency(&self) -> Seconds {
        self.ended_s - self.scheduled_s
    }

    /// Returns the time to the first token of its answer: from its scheduled arrival.
    pub fn first_token(&self) -> Option<Seconds> {
        Some(self.first_token_s? - self.scheduled_s)
    }

    /// Returns whether its times can follow each other.
    fn is_possible(&self) -> bool {
        let first = self.first_token_s.unwrap_or(self.started_s);
        let in_order = [Seconds(0.0), self.scheduled_s, self.issued_s, self.started_s, first, self.ended_s];
        let core = self.core_s.0;
        in_order.is_sorted_by(|a, b| a.0 <= b.0)
            && self.next_token_s.is_none_or(|next| next.0 >= 0.0 && next.0 <= self.ended_s.0 - self.started_s.0 + 1e-9)
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
    /// From the start of a query to its first token; one value per query, or an empty list if the model generates no text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first_token_ns: Vec<Option<u64>>,
    /// As [`QueryTimes::next_token_s`]; one value per query, or an empty list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next_token_ns: Vec<Option<u64>>,
}

/// Returns a time in whole nanoseconds, which the clock counts.
fn nanos(time: Seconds) -> u64 {
    (time.0 * 1e9).round() as u64
}

impl From<QueryColumns> for Columns {
    fn from(QueryColumns(queries): QueryColumns) -> Self {
        let (first, batches) = (queries.first(), queries.chunk_by(|a, b| a.batch == b.batch));
        let column = |time: fn(&QueryTimes) -> Option<u64>| {
            let has_times = queries.iter().any(|query| time(query).is_some());
            if has_times { queries.iter().map(time).collect() } else { Vec::new() }
        };
        let mut columns = Columns {
            trial: first.map_or(0, |query| query.trial),
            first_batch: first.map_or(0, |query| query.batch),
            scheduled_ns: queries.iter().map(|query| nanos(query.scheduled_s)).collect(),
            late_ns: queries.iter().map(|query| nanos(query.issued_s) - nanos(query.scheduled_s)).collect(),
            queries: Vec::new(),
            started_ns: Vec::new(),
            computed_ns: Vec::new(),
            core_ns: Vec::new(),
            first_token_ns: column(|query| Some(nanos(query.first_token_s?) - nanos(query.started_s))),
            next_token_ns: column(|query| query.next_token_s.map(nanos)),
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
        let Columns { trial, first_batch, scheduled_ns, late_ns, queries, started_ns, computed_ns, core_ns, .. } =
            columns;
        let (first_token, next_token) = (columns.first_token_ns, columns.next_token_ns);
        let batches = [started_ns.len(), computed_ns.len(), core_ns.len()];
        let count: u64 = queries.iter().map(|count| u64::from(*count)).sum();
        let fits = |column: &[Option<u64>]| column.is_empty() || column.len() == scheduled_ns.len();
        let tokens_fit = fits(&first_token) && fits(&next_token);
        if count != scheduled_ns.len() as u64
            || late_ns.len() != scheduled_ns.len()
            || batches != [queries.len(); 3]
            || !tokens_fit
        {
            return Err("the columns of query times do not fit each other");
        }
        let sum = |start: u64, time: u64| start.checked_add(time).ok_or("a time of a query is too large");
        let mut times = Vec::with_capacity(scheduled_ns.len());
        let mut of_queries = scheduled_ns.into_iter().zip(late_ns);
        for (index, count) in queries.into_iter().enumerate() {
            let started = started_ns[index];
            let (ended, core_s) = (sum(started, computed_ns[index])?, Seconds::from_nanos(core_ns[index]));
            for (scheduled, late) in of_queries.by_ref().take(count as usize) {
                let of_query = |column: &[Option<u64>]| column.get(times.len()).copied().flatten();
                let first_token = of_query(&first_token).map(|time| sum(started, time)).transpose()?;
                let next_token = of_query(&next_token);
                times.push(QueryTimes {
                    trial,
                    scheduled_s: Seconds::from_nanos(scheduled),
                    issued_s: Seconds::from_nanos(sum(scheduled, late)?),
                    started_s: Seconds::from_nanos(started),
                    ended_s: Seconds::from_nanos(ended),
                    core_s,
                    batch: sum(first_batch, index as u64)?,
                    first_token_s: first_token.map(Seconds::from_nanos),
                    next_token_s: next_token.map(Seconds::from_nanos),
                });
            }
        }
        match times.iter().all(QueryTimes::is_possible) {
            true => Ok(QueryColumns(times)),
            false => Err("the times of a query are not in order"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ..QueryTimes::default()
        };
        let queries: Vec<QueryTimes> = (0..1001).map(query).collect();
        let text = serde_json::to_string(&QueryColumns(queries.clone())).unwrap();
        assert_eq!(serde_json::from_str::<QueryColumns>(&text).unwrap().0, queries);
        assert!(text.len() < 40 * queries.len(), "{} bytes", text.len());
        let text = serde_json::to_string(&QueryColumns(vec![query(1)])).unwrap();
        let expected = r#"{"trial":3,"first_batch":10,"scheduled_ns":[1000000007],"late_ns":[13],"queries":[1],"started_ns":[4000000000000],"computed_ns":[123457],"core_ns":[123400]}"#;
        assert_eq!(text, expected);
        let first_token_s = Some(at(4_000_000_000_100));
        let with_tokens = QueryTimes { first_token_s, next_token_s: Some(at(11)), ..query(1) };
        let text_with_tokens = serde_json::to_string(&QueryColumns(vec![with_tokens])).unwrap();
        assert_eq!(serde_json::from_str::<QueryColumns>(&text_with_tokens).unwrap().0, [with_tokens]);
        // An answer of one token has no time between tokens.
        let mixed = [with_tokens, QueryTimes { next_token_s: None, ..with_tokens }, query(1)];
        let mixed = mixed.into_iter().zip(0..).map(|(query, batch)| QueryTimes { batch, ..query }).collect::<Vec<_>>();
        let text_of_mixed = serde_json::to_string(&QueryColumns(mixed.clone())).unwrap();
        assert_eq!(serde_json::from_str::<QueryColumns>(&text_of_mixed).unwrap().0, mixed);
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
        for (from, to, error) in [
            ("\"first_token_ns\":[100]", "\"first_token_ns\":[123458]", order),
            ("\"next_token_ns\":[11]", "\"next_token_ns\":[123460]", order),
            ("\"next_token_ns\":[11]", "\"next_token_ns\":[11,11]", fit),
        ] {
            assert!(text_with_tokens.contains(from), "{text_with_tokens}");
            let changed = text_with_tokens.replace(from, to);
            assert_eq!(serde_json::from_str::<QueryColumns>(&changed).unwrap_err().to_string(), error, "{to}");
        }
        for wrong in ["[-1]", "[null]", "[1.5]"] {
            assert!(serde_json::from_str::<QueryColumns>(&text.replace("[1000000007]", wrong)).is_err(), "{wrong}");
        }
    }
}
