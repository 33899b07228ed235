//! The columns of the table of all cases with figures and what they are of. Those of scenarios are there if a result has one.

use flagperf_core::measure::ThroughputInterval;
use flagperf_report::{duration, headline_rows, queries_text, rate};
use flagperf_result::Record;

use super::entry::Entry;
use super::page::throughput;
use super::result::text;
use super::words::Language;

/// Which columns a table has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Columns {
    has_queries: bool,
    has_devices: bool,
}

impl Columns {
    pub(super) fn of(rows: &[(Entry, String)]) -> Self {
        let has = |condition: fn(&Entry) -> bool| rows.iter().any(|(entry, _)| condition(entry));
        Columns {
            has_queries: has(|entry| queries_text(entry.record()).is_some()),
            has_devices: has(|entry| entry.summary.is_some()),
        }
    }

    /// Returns the heads of the columns.
    pub(super) fn head(self, language: Language) -> Vec<String> {
        let word = |word| language.word(word).to_owned();
        let mut head = vec![format!("{}, core", word("throughput")), word("95 % interval"), word("whole")];
        if self.has_queries {
            head.extend(["queries/s", "latency of queries"].map(word));
        }
        head.extend(["median step", "accuracy"].map(word));
        if self.has_devices {
            head.push(word("devices"));
        }
        head.extend(["device", "precision", "batch size", "departures"].map(word));
        head
    }

    /// Returns the cells of a result. The sum over several devices has neither an interval nor times of its own.
    pub(super) fn cells(self, entry: &Entry, language: Language) -> Vec<String> {
        let record = entry.record();
        let own = Some(record).filter(|_| entry.summary.is_none());
        let of_record = |cell: fn(&Record) -> Option<String>| own.and_then(cell).unwrap_or_default();
        let interval = own.and_then(|record| interval(record, language));
        let mut cells = vec![
            throughput(entry.core(), &record.unit),
            interval.unwrap_or_default(),
            throughput(entry.whole(), &record.unit),
        ];
        if self.has_queries {
            cells.extend(own.and_then(queries_text).unwrap_or_default());
        }
        cells.extend([of_record(median), of_record(accuracy)]);
        if self.has_devices {
            cells.push(entry.devices_text(language));
        }
        let precision = record.finish_info.precision.clone();
        cells.extend([entry.device_names(), precision, record.finish_info.batchsize.to_string()]);
        cells.push(record.departures.join(" "));
        cells.into_iter().map(|cell| text(&cell)).collect()
    }
}

/// `79.1 to 81.0`
fn interval(record: &Record, language: Language) -> Option<String> {
    let ThroughputInterval { low_samples_per_s, high_samples_per_s, .. } =
        record.measured_loops().next_back()?.throughput_core_interval?;
    let high = high_samples_per_s.map_or_else(|| "\u{221e}".to_owned(), rate);
    Some(language.sentence("{} to {}", &[&rate(low_samples_per_s), &high]))
}

fn median(record: &Record) -> Option<String> {
    Some(duration(record.measured_loops().next_back()?.latency.as_ref()?.p50_s))
}

fn accuracy(record: &Record) -> Option<String> {
    headline_rows(record).into_iter().find(|(name, _)| name == "accuracy").map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use flagperf_core::measure::{Arrival, Observation, Scenario, ScenarioFigures, ScenarioReport, TrialFigures};
    use flagperf_core::units::{SamplesPerSecond, Seconds};
    use flagperf_result::testing;

    use super::super::result::{Check, ReadResult};
    use super::*;

    #[test]
    fn the_interval_of_throughput_and_the_queries_of_scenarios_have_columns() {
        let mut record = testing::record();
        record.phases[0].measured[0].throughput_core_interval = Some(ThroughputInterval {
            low_samples_per_s: SamplesPerSecond(79.0),
            high_samples_per_s: Some(SamplesPerSecond(81.0)),
            relative_half_width: 0.0125,
            observations: 5,
            of: Observation::Pass,
            degrees_of_freedom: 4,
        });
        let of = |record: &Record| {
            let result =
                (ReadResult { path: "r/record.json".into(), record: record.clone(), digest: None }, Check::TooLarge);
            let rows = [(Entry::of_result(&result), String::new())];
            let columns = Columns::of(&rows);
            (columns.head(Language::English), columns.cells(&rows[0].0, Language::English))
        };
        let (head, cells) = of(&record);
        assert_eq!((head[1].as_str(), cells[1].as_str()), ("95 % interval", "79.0 to 81.0"));
        assert!(!head.contains(&"queries/s".to_owned()) && head.len() == cells.len(), "{head:?} {cells:?}");
        let scenario = Scenario { kind: Arrival::Server, percentile: 0.99, ..Scenario::default() };
        let report = Some(ScenarioReport { scenario, ..ScenarioReport::default() });
        let percentile_s = Some(Seconds(0.012));
        let trial = TrialFigures { queries_per_s: Some(500.0), percentile_s, ..TrialFigures::default() };
        record.phases[0].scenario = Some(ScenarioFigures { report, trials: vec![trial] });
        let (head, cells) = of(&record);
        assert_eq!((head[3].as_str(), cells[3].as_str()), ("queries/s", "500"));
        assert_eq!(cells[4], "p99 at most 12.0 ms at 99 % confidence");
        assert_eq!(head.len(), cells.len());
    }
}
