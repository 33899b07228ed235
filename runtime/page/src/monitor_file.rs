//! The readings of the monitors while steps were measured, from `monitor.jsonl`.

use std::io::{self, BufRead, BufReader};
use std::path::Path;

use flagperf_core::regular_file::open_regular;
use flagperf_core::text::one_line;
use flagperf_sampling::{Reading, Sample};
use indexmap::IndexMap;

use super::envelope::Envelope;

/// Bytes that are read at once, and the longest line.
const PIECE_BYTES: usize = 1 << 16;
const LINE_BYTES_MAX: u64 = 1 << 20;
/// The shortest distance of two readings that are drawn separately, in seconds.
const WIDTH_S: f64 = 1e-3;
/// Most lines of a chart.
const LINES_MAX: usize = 8;

/// What a chart of monitors shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Quantity {
    Power,
    Clock,
    Temperature,
    /// In GiB.
    Memory,
    Busy,
}

impl Quantity {
    /// Every quantity, in the order of the charts.
    pub(super) const ALL: [Quantity; 5] =
        [Quantity::Power, Quantity::Clock, Quantity::Temperature, Quantity::Memory, Quantity::Busy];
}

/// Readings by quantity and by the name of what was read.
pub(super) type Readings = IndexMap<(Quantity, String), Envelope>;

/// Reads the samples within each of some windows, which are begins and ends in seconds since the case began.
///
/// # Errors
/// When the file cannot be read. A line that is not a sample is left out.
pub(super) fn read_monitors(path: &Path, windows: &[(f64, f64)], buckets_max: usize) -> io::Result<Vec<Readings>> {
    let mut found = vec![Readings::new(); windows.len()];
    let mut file = BufReader::with_capacity(PIECE_BYTES, open_regular(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut file, LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let Ok(Sample { at_s, reading, .. }) = serde_json::from_slice(&line) else { continue };
        for (readings, (begin, end)) in found.iter_mut().zip(windows) {
            if (*begin..=*end).contains(&at_s.0) {
                add(readings, (*begin, at_s.0), &reading, buckets_max);
            }
        }
    }
}

fn add(readings: &mut Readings, (begin, at): (f64, f64), reading: &Reading, buckets_max: usize) {
    let mut push = |quantity, name: &str, value: Option<f64>| {
        let Some(value) = value else { return };
        let is_full = readings.keys().filter(|(known, _)| *known == quantity).count() >= LINES_MAX;
        let key = (quantity, one_line(name).into_owned());
        if !is_full || readings.contains_key(&key) {
            readings.entry(key).or_insert_with(|| Envelope::new(begin, WIDTH_S, buckets_max)).add(at, value);
        }
    };
    match reading {
        Reading::Processor { busy_share } => push(Quantity::Busy, "processors", Some(*busy_share)),
        Reading::Memory { used_bytes, .. } => push(Quantity::Memory, "machine", Some(gib(*used_bytes))),
        Reading::Rapl { power_w, .. } => push(Quantity::Power, "processors", *power_w),
        Reading::Ipmi { power_w } => push(Quantity::Power, "machine", Some(*power_w)),
        Reading::Device(sample) => {
            push(Quantity::Power, &sample.device, sample.power_w);
            push(Quantity::Clock, &sample.device, sample.clock_mhz);
            push(Quantity::Temperature, &sample.device, sample.temperature_c);
            push(Quantity::Memory, &sample.device, sample.memory_used_bytes.map(gib));
            push(Quantity::Busy, &sample.device, sample.utilization_share);
        }
    }
}

/// Returns bytes in GiB.
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_sorted_by_window_and_quantity_and_other_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.jsonl");
        let text = r#"{"format":1,"rate_per_s":1}
{"at_s":0.5,"source":"processor","busy_share":0.1}
{"at_s":1.5,"source":"processor","busy_share":0.25}
{"at_s":1.6,"source":"device","device":"a<b","power_w":70.0,"temperature_c":40.0}
no sample
{"at_s":3.0,"source":"device","device":"a<b","power_w":90.0}
"#;
        std::fs::write(&path, text).unwrap();
        let found = read_monitors(&path, &[(1.0, 2.0), (2.5, 3.5)], 100).unwrap();
        let shown = |readings: &Readings| {
            let line = |((quantity, name), series): (&(Quantity, String), &Envelope)| {
                (*quantity, name.clone(), series.range().unwrap().1)
            };
            readings.iter().map(line).collect::<Vec<_>>()
        };
        let device = || "a<b".to_owned();
        assert_eq!(
            shown(&found[0]),
            [
                (Quantity::Busy, "processors".to_owned(), 0.25),
                (Quantity::Power, device(), 70.0),
                (Quantity::Temperature, device(), 40.0)
            ]
        );
        assert_eq!(shown(&found[1]), [(Quantity::Power, device(), 90.0)]);
    }
}
