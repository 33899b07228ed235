//! The samples of a case as series of points, read from `monitor.jsonl`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flagperf_core::regular_file::open_regular;

use super::files::MONITOR_BYTES_MAX;
use super::{Reading, Sample};
use flagperf_core::units::Seconds;
use flagperf_monitor::DeviceSample;

/// Longest line that is read, in bytes. A device with many processes has the longest.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Seconds since the case began.
    pub(super) at: f64,
    pub(super) value: f64,
}

/// The samples of a case as series, each in the order of time.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// Busy share of the processors.
    pub(super) busy: Vec<Point>,
    /// Bytes in use of the memory.
    pub(super) memory: Vec<Point>,
    /// Energy and power of the processors' packages.
    pub(super) processor: PowerSeries,
    pub(super) machine: PowerSeries,
    /// The devices by their ids.
    pub(super) devices: BTreeMap<String, DeviceSeries>,
}

/// Energy counter in joules and power in watts.
#[derive(Debug, Default)]
pub(super) struct PowerSeries {
    pub(super) energy: Vec<Point>,
    pub(super) power: Vec<Point>,
}

/// The samples of a device.
#[derive(Debug, Default)]
pub(super) struct DeviceSeries {
    pub(super) power: PowerSeries,
    /// Bytes in use by all processes.
    pub(super) memory: Vec<Point>,
    /// When each reading in `memory` began and ended.
    pub(super) spans: Vec<[f64; 2]>,
    /// Bytes in use by the processes of the run, where the memory of each of them is known.
    pub(super) own_memory: Vec<Point>,
    /// Number of processes that do not belong to the run, where the driver lists the processes.
    pub(super) other_processes: Vec<Point>,
    /// Clocks of the compute units and of the memory in MHz.
    pub(super) clock: Vec<Point>,
    pub(super) memory_clock: Vec<Point>,
    /// Degrees Celsius.
    pub(super) temperature: Vec<Point>,
    /// 1 where the device was slowed down for a reason that it stated, 0 where it was not.
    pub(super) throttled: Vec<Point>,
}

impl Series {
    /// Reads `monitor.jsonl`. Lines that are not samples, such as the first one, are ignored.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut lines = BufReader::new(open_regular(path)?.take(MONITOR_BYTES_MAX));
        let (mut series, mut line) = (Series::default(), Vec::new());
        loop {
            line.clear();
            if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(series);
            }
            if let Ok(sample) = serde_json::from_slice(&line) {
                series.add(sample);
            }
        }
    }

    /// Adds a sample. Impossible values are ignored, because anyone may have written the file.
    pub(super) fn add(&mut self, Sample { at_s: Seconds(at), took_s, reading }: Sample) {
        match reading.checked().1 {
            Some(Reading::Processor { busy_share }) => add(&mut self.busy, at, busy_share),
            Some(Reading::Memory { used_bytes, .. }) => add(&mut self.memory, at, used_bytes as f64),
            Some(Reading::Rapl { energy_j, power_w }) => self.processor.add(at, Some(energy_j), power_w),
            Some(Reading::Ipmi { power_w }) => self.machine.add(at, None, Some(power_w)),
            Some(Reading::Device(sample)) => {
                self.devices.entry(sample.device.clone()).or_default().add(at, took_s, &sample)
            }
            None => {}
        }
    }
}

impl PowerSeries {
    fn add(&mut self, at: f64, energy: Option<f64>, power: Option<f64>) {
        if let Some(energy) = energy {
            add(&mut self.energy, at, energy);
        }
        if let Some(power) = power {
            add(&mut self.power, at, power);
        }
    }
}

impl DeviceSeries {
    fn add(&mut self, at: f64, took: Seconds, sample: &DeviceSample) {
        self.power.add(at, sample.energy_j, sample.power_w);
        if let Some(used) = sample.memory_used_bytes {
            add(&mut self.memory, at, used as f64);
            // A reading that was not added has no span.
            self.spans.resize(self.memory.len(), [at - took.0 / 2.0, at + took.0 / 2.0]);
        }
        if let Some(processes) = &sample.processes {
            let others = processes.iter().filter(|process| process.own == Some(false)).count();
            add(&mut self.other_processes, at, others as f64);
        }
        let throttled = sample.throttling.as_ref().map(|reasons| if reasons.is_empty() { 0.0 } else { 1.0 });
        let values = [sample.clock_mhz, sample.memory_clock_mhz, sample.temperature_c, throttled];
        let series = [&mut self.clock, &mut self.memory_clock, &mut self.temperature, &mut self.throttled];
        for (series, value) in series.into_iter().zip(values) {
            if let Some(value) = value {
                add(series, at, value);
            }
        }
        if let Some(own) = own_memory(sample) {
            add(&mut self.own_memory, at, own as f64);
        }
    }
}

/// Returns the memory of the run's processes on a device; `None` if there is no such process, or the memory of one is unknown.
fn own_memory(sample: &DeviceSample) -> Option<u64> {
    let mut own = sample.processes.iter().flatten().filter(|process| process.own == Some(true)).peekable();
    own.peek()?;
    own.map(|process| process.memory_bytes).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))
}

/// Adds a point, unless it is not later than the last one.
fn add(points: &mut Vec<Point>, at: f64, value: f64) {
    if at.is_finite() && value.is_finite() && points.last().is_none_or(|last| last.at < at) {
        points.push(Point { at, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_monitor::DeviceProcess;

    #[test]
    fn the_memory_of_the_run_is_known_only_if_that_of_each_process_is() {
        let process = |own, memory_bytes| DeviceProcess { pid: 1, memory_bytes, own };
        let sum = |processes: &[DeviceProcess]| {
            own_memory(&DeviceSample { processes: Some(processes.to_vec()), ..DeviceSample::default() })
        };
        let (own, other) = (process(Some(true), Some(5)), process(Some(false), Some(90)));
        assert_eq!(sum(&[own.clone(), other.clone(), own.clone()]), Some(10));
        assert_eq!(sum(&[own, process(Some(true), None)]), None);
        assert_eq!(sum(&[other, process(None, Some(3))]), None);
        assert_eq!(own_memory(&DeviceSample::default()), None);
    }

    #[test]
    fn lines_that_are_no_samples_and_values_that_are_not_possible_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.jsonl");
        let text = "{\"format\":1}\n{\"at_s\":1.0,\"source\":\"ipmi\",\"power_w\":200.0}\ngarbage\n\
                    {\"at_s\":2.0,\"source\":\"ipmi\",\"power_w\":-200.0}\n{\"at_s\":0.5,\"source\":\"ipmi\",\"power_w\":1.0}\n\
                    {\"at_s\":null,\"source\":\"ipmi\",\"power_w\":2.0}\n{\"at_s\":3.0,\"source\":\"other\"}\n\
                    {\"at_s\":4.0,\"source\":\"ipmi\",\"power_w\":300.0}";
        std::fs::write(&path, text).unwrap();
        let series = Series::read(&path).unwrap();
        let points: Vec<_> = series.machine.power.iter().map(|point| (point.at, point.value)).collect();
        assert_eq!(points, [(1.0, 200.0), (4.0, 300.0)]);
    }
}
