//! The figures of an exchange, from the raw times of all processes.

use std::collections::BTreeMap;

use flagperf_core::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, ProcessTimes, SeriesTimes};
use super::figures::{RawChecks, Reason, reasons_of_checks};

/// The figures of an exchange of tensors of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeFigures {
    /// The size of the tensor that each process contributes.
    pub bytes: Bytes,
    /// The median time of a call, each of which takes as long as in the slowest process.
    pub call_s: Seconds,
    /// The bus bandwidth: see [`bus_bytes_per_s`].
    pub bus_bytes_per_s: f64,
    /// Why the figures do not count; empty if they do.
    pub reasons: Vec<Reason>,
}

/// Returns the bytes per second that a device sends and, at the same time, receives in an all-reduce of `processes` tensors of `bytes`:
/// bytes / time · 2(n − 1)/n, because n processes reduce and then distribute a tensor with no less than 2(n − 1) of n parts sent by each
/// (nccl-tests, doc/PERFORMANCE.md); in a broadcast, bytes / time.
pub(crate) fn bus_bytes_per_s(exchange: Exchange, bytes: Bytes, call: Seconds, processes: usize) -> f64 {
    let share = match exchange {
        Exchange::AllReduce => 2.0 * (processes as f64 - 1.0) / processes as f64,
        Exchange::Broadcast => 1.0,
    };
    bytes.0 as f64 / call.0 * share
}

impl ExchangeFigures {
    /// Computes the figures of each size that all processes measured.
    pub fn of(exchange: Exchange, processes: &[ProcessTimes]) -> Vec<ExchangeFigures> {
        let sizes = processes.iter().map(|process| process.series.len()).min().unwrap_or(0);
        let of_size = |place: usize| -> Vec<&SeriesTimes> { processes.iter().map(|p| &p.series[place]).collect() };
        (0..sizes).filter_map(|place| Self::of_size(exchange, &of_size(place), processes)).collect()
    }

    fn of_size(exchange: Exchange, series: &[&SeriesTimes], processes: &[ProcessTimes]) -> Option<ExchangeFigures> {
        let largest = |time: &dyn Fn(&SeriesTimes) -> f64| series.iter().map(|own| time(own)).fold(0.0, f64::max);
        let calls = series.iter().map(|own| own.calls_s.len()).min()?;
        let mut slowest: Vec<f64> = (0..calls).map(|call| largest(&|own| own.calls_s[call].0)).collect();
        slowest.sort_unstable_by(f64::total_cmp);
        let (call_s, bytes) = (Seconds(*slowest.get(calls / 2)?), series.first()?.bytes);
        let checks = |(process, own): (&ProcessTimes, &&SeriesTimes)| {
            let checks = RawChecks {
                comparison: &own.comparison,
                comparison_of_new_inputs: &own.comparison_of_new_inputs,
                deferred: own.deferred_s,
                new_inputs: own.new_inputs_s,
                call: call_s,
                slowest_call: Seconds(*slowest.last()?),
            };
            let reasons = reasons_of_checks(&checks).into_iter();
            Some(reasons.map(|reason| format!("rank {}: {reason}", process.rank)).collect::<Vec<_>>())
        };
        let reasons =
            processes.iter().zip(series).filter_map(checks).flatten().chain(shared_devices(processes)).collect();
        Some(ExchangeFigures {
            bytes,
            call_s,
            bus_bytes_per_s: bus_bytes_per_s(exchange, bytes, call_s, processes.len()),
            reasons,
        })
    }
}

/// Returns which processes computed on the same device, if its id shows it. Devices of different hosts may have the same id.
fn shared_devices(processes: &[ProcessTimes]) -> Vec<Reason> {
    let mut ranks: BTreeMap<(Option<&str>, &str), Vec<String>> = BTreeMap::new();
    for process in processes {
        let device = (process.host.as_deref(), process.device_id.as_deref().unwrap_or_default());
        ranks.entry(device).or_default().push(process.rank.to_string());
    }
    let shared = ranks.into_iter().filter(|((_, id), ranks)| !id.is_empty() && ranks.len() > 1);
    shared
        .map(|((_, id), ranks)| format!("the ranks {} computed on the same device `{id}`", ranks.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::check::Comparison;
    use super::*;

    fn comparison(error: f64) -> Comparison {
        Comparison { error, limit: 1e-5, compared: 1, elements: 1, wrong: None }
    }

    fn process(rank: u32, bytes: &[u64], calls_s: [f64; 3], error: f64) -> ProcessTimes {
        let series = |bytes: &u64| SeriesTimes {
            bytes: Bytes(*bytes),
            calls_s: calls_s.map(Seconds).to_vec(),
            new_inputs_s: Seconds(calls_s[0]),
            deferred_s: Seconds(0.0),
            comparison: comparison(0.0),
            comparison_of_new_inputs: comparison(error),
        };
        ProcessTimes {
            rank,
            host: None,
            engine: "e".to_owned(),
            version: "1".to_owned(),
            device: "cuda:0".to_owned(),
            device_name: None,
            device_id: Some(format!("GPU-{}", rank.min(2))),
            series: bytes.iter().map(series).collect(),
        }
    }

    #[test]
    fn a_call_takes_as_long_as_in_the_slowest_process_and_the_median_counts() {
        let processes = [process(0, &[600, 1200], [3.0, 1.0, 9.0], 0.0), process(1, &[600], [1.0, 2.0, 1.0], 0.0)];
        let figures = ExchangeFigures::of(Exchange::AllReduce, &processes);
        let [one] = figures.as_slice() else { panic!("a size that one process did not measure: {figures:?}") };
        assert_eq!((one.bytes, one.call_s, one.bus_bytes_per_s), (Bytes(600), Seconds(3.0), 200.0));
        assert_eq!(one.reasons, Vec::<String>::new());
    }

    #[test]
    fn the_bus_bandwidth_is_what_each_of_the_processes_sends_at_least() {
        for (processes, expected) in [(2, 100.0), (4, 150.0), (8, 175.0)] {
            assert_eq!(bus_bytes_per_s(Exchange::AllReduce, Bytes(200), Seconds(2.0), processes), expected);
        }
    }

    #[test]
    fn wrong_outputs_and_a_shared_device_do_not_count() {
        let processes = [0, 1, 2, 3].map(|rank| process(rank, &[8], [1.0; 3], if rank == 1 { 1.0 } else { 0.0 }));
        assert_eq!(
            ExchangeFigures::of(Exchange::AllReduce, &processes)[0].reasons,
            [
                "rank 1: the outputs of a call with new inputs differ from the reference by 1.0e0 of its largest element (allowed: 1.0e-5)",
                "the ranks 2, 3 computed on the same device `GPU-2`",
            ]
        );
    }

    #[test]
    fn devices_of_different_hosts_are_different_whatever_their_ids() {
        let on_hosts = |hosts: [&str; 2]| {
            let process = |(rank, host): (u32, &str)| ProcessTimes {
                host: Some(host.to_owned()),
                ..process(rank, &[8], [1.0; 3], 0.0)
            };
            shared_devices(&[process((2, hosts[0])), process((3, hosts[1]))])
        };
        assert_eq!(on_hosts(["h1", "h2"]), Vec::<String>::new());
        assert_eq!(on_hosts(["h1", "h1"]), ["the ranks 2, 3 computed on the same device `GPU-2`"]);
    }
}
