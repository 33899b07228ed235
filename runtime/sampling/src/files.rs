//! The files of the monitors of a case: `monitor.jsonl` with every sample, and the logs in FlagPerf's formats.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Zoned;

use super::line_file::LineFile;
use super::{Reading, Sample};
use flagperf_core::run_files::MONITOR_FILE;
use flagperf_core::units::Seconds;
use flagperf_monitor::DeviceSample;

/// Version of its format, in its first line.
const FORMAT: u32 = 1;
/// Largest size of the file.
pub(super) const MONITOR_BYTES_MAX: u64 = 256 << 20;
/// Number of equal parts of the file: in the first, every reading is written, in the second every second one, in the third
/// every fourth, and so on. Each part lasts twice as long as the one before, so that a long case has samples up to its end.
const PARTS: f64 = 16.0;
/// Largest size of each log.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Beginnings of the names of the other logs. The log of a vendor with one of these names gets a longer name.
const OTHER_LOGS: [&str; 3] = ["cpu", "mem", "pwr"];
/// Time between two lines of a log, as in FlagPerf.
const LOG_INTERVAL: Seconds = Seconds(5.0);

/// The open files of the monitors of a case.
#[derive(Debug)]
pub struct MonitorFiles {
    samples: LineFile,
    /// Readings of each source so far.
    counts: BTreeMap<&'static str, u64>,
    processor: Log,
    memory: Log,
    power: Log,
    devices: Log,
    /// Mean busy share of the processors since the last line of their log.
    busy: Mean,
    /// Whether the power of the whole machine is known. Otherwise the log contains the power of the processors.
    has_machine_power: bool,
    /// Returns the wall time, which only the logs contain.
    wall_time: fn() -> Zoned,
    is_closed: bool,
}

/// A log in FlagPerf's format with a line, or a block of lines, every few seconds.
#[derive(Debug)]
struct Log {
    lines: LineFile,
    /// When the next line is due.
    next: Seconds,
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl MonitorFiles {
    /// Prepares the files in the folder of a case. Each file is created when its first line is written.
    pub fn new(folder: &Path, vendor: &str, rate_per_s: u32) -> Self {
        let log = |name: &str| Log {
            lines: LineFile::new(folder.join(format!("{name}_monitor.log")), LOG_BYTES_MAX),
            next: Seconds(0.0),
        };
        let mut samples = LineFile::new(folder.join(MONITOR_FILE), MONITOR_BYTES_MAX);
        if rate_per_s > 0 {
            samples.write(&format!("{{\"format\":{FORMAT},\"rate_per_s\":{rate_per_s}}}\n"));
        }
        MonitorFiles {
            samples,
            counts: BTreeMap::new(),
            processor: log(OTHER_LOGS[0]),
            memory: log(OTHER_LOGS[1]),
            power: log(OTHER_LOGS[2]),
            devices: if OTHER_LOGS.contains(&vendor) { log(&format!("{vendor}_device")) } else { log(vendor) },
            busy: Mean::default(),
            has_machine_power: false,
            wall_time: Zoned::now,
            is_closed: false,
        }
    }

    /// Writes the result of reading a source once, which took the time `took` around `at`. Does nothing after [`MonitorFiles::close`].
    pub fn write(&mut self, source: &'static str, at: Seconds, took: Seconds, readings: &[Reading]) {
        if self.is_closed || readings.is_empty() {
            return;
        }
        if self.is_kept(source) {
            for reading in readings {
                let sample = Sample { at_s: at, took_s: took, reading: reading.clone() };
                let text = serde_json::to_string(&sample).expect("a sample is plain data");
                self.samples.write(&(text + "\n"));
            }
        }
        self.write_logs(at, readings);
    }

    /// Returns whether this reading of a source is written.
    fn is_kept(&mut self, source: &'static str) -> bool {
        let halvings = (PARTS * (1.0 - self.samples.share_left())).min(PARTS - 1.0) as u32;
        let count = self.counts.entry(source).or_default();
        *count += 1;
        (*count - 1).is_multiple_of(1 << halvings)
    }

    fn write_logs(&mut self, at: Seconds, readings: &[Reading]) {
        let stamp = |time: fn() -> Zoned| time().strftime("%Y-%m-%d-%H:%M:%S").to_string();
        let time = self.wall_time;
        let line = |value: String| move || format!("{}\t{value}\n", stamp(time));
        let devices: Vec<&DeviceSample> = readings.iter().filter_map(as_device).collect();
        if !devices.is_empty() {
            let lines: String = devices.into_iter().map(device_line).collect();
            self.devices.write(at, || format!("{}\n{lines}\n", stamp(time)));
        }
        for reading in readings {
            match reading {
                Reading::Processor { busy_share } => {
                    self.busy.sum += busy_share;
                    self.busy.count += 1;
                    let mean = self.busy.sum / self.busy.count as f64;
                    if self.processor.write(at, line(format!("{mean:.4}"))) {
                        self.busy = Mean::default();
                    }
                }
                Reading::Memory { used_bytes, total_bytes } => {
                    let share = *used_bytes as f64 / *total_bytes as f64;
                    self.memory.write(at, line(format!("{share:.4}")));
                }
                Reading::Ipmi { power_w } => {
                    self.has_machine_power = true;
                    self.power.write(at, line(format!("{power_w:.1}")));
                }
                Reading::Rapl { power_w: Some(power_w), .. } if !self.has_machine_power => {
                    self.power.write(at, line(format!("{power_w:.1}")));
                }
                Reading::Rapl { .. } | Reading::Device(_) => {}
            }
        }
    }

    /// Closes the files, so that nothing more is written. Returns a message for each incomplete file.
    pub fn close(&mut self) -> Vec<String> {
        self.is_closed = true;
        let logs = [&self.processor, &self.memory, &self.power, &self.devices];
        let files = [&self.samples].into_iter().chain(logs.map(|log| &log.lines));
        files.filter_map(LineFile::error).collect()
    }

    /// Returns the number of lines of `monitor.jsonl` that could not be written.
    pub fn lines_lost(&self) -> u64 {
        self.samples.lost()
    }

    /// Checks that `monitor.jsonl` and the logs contain exactly what this process has written to them.
    ///
    /// # Errors
    /// When another program removed, replaced or changed one of them.
    pub fn check(&self) -> std::io::Result<()> {
        let logs = [&self.processor, &self.memory, &self.power, &self.devices];
        self.samples.check().and_then(|()| logs.into_iter().try_for_each(|log| log.lines.check()))
    }

    /// Returns the path of `monitor.jsonl`.
    pub fn path(&self) -> &Path {
        self.samples.path()
    }
}

impl Log {
    /// Writes text if a line is due, and returns whether it is.
    fn write(&mut self, at: Seconds, text: impl FnOnce() -> String) -> bool {
        let is_due = at.0 >= self.next.0;
        if is_due {
            // A late line does not delay the next ones.
            let passed = ((at.0 - self.next.0) / LOG_INTERVAL.0).floor() + 1.0;
            self.next = Seconds(self.next.0 + passed * LOG_INTERVAL.0);
            self.lines.write(&text());
        }
        is_due
    }
}

fn as_device(reading: &Reading) -> Option<&DeviceSample> {
    match reading {
        Reading::Device(sample) => Some(sample),
        _ => None,
    }
}

/// Formats a device in the columns of FlagPerf's monitors: `34C 56W 0MiB 40960MiB 0%`.
fn device_line(sample: &DeviceSample) -> String {
    let unknown = || "N/A".to_owned();
    let number = |value: Option<f64>, unit: &str| value.map_or_else(unknown, |value| format!("{value:.0}{unit}"));
    let memory = |bytes: Option<u64>| bytes.map_or_else(unknown, |bytes| format!("{}MiB", bytes >> 20));
    format!(
        "{} {} {} {} {}\n",
        number(sample.temperature_c, "C"),
        number(sample.power_w, "W"),
        memory(sample.memory_used_bytes),
        memory(sample.memory_total_bytes),
        number(sample.utilization_share.map(|share| 100.0 * share), "%")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> MonitorFiles {
        let wall_time = || jiff::Timestamp::from_second(1_720_000_000).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
        MonitorFiles { wall_time, ..MonitorFiles::new(folder, "chip", 1) }
    }

    fn text(folder: &Path, name: &str) -> String {
        std::fs::read_to_string(folder.join(name)).unwrap_or_default()
    }

    fn device(id: &str) -> Reading {
        Reading::Device(Box::new(DeviceSample {
            device: id.into(),
            temperature_c: Some(34.4),
            power_w: Some(56.0),
            memory_used_bytes: Some(3 << 20),
            memory_total_bytes: Some(40_960 << 20),
            ..DeviceSample::default()
        }))
    }

    #[test]
    fn logs_have_the_formats_of_flagperf_and_a_line_every_five_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        for second in 0..12_u32 {
            let at = Seconds(f64::from(second));
            files.write("processor", at, Seconds(0.0), &[Reading::Processor { busy_share: f64::from(second) / 100.0 }]);
            files.write("memory", at, Seconds(0.0), &[Reading::Memory { used_bytes: 1, total_bytes: 4 }]);
            files.write("device", at, Seconds(0.0), &[device("a"), device("b")]);
        }
        assert_eq!(files.close(), [""; 0]);
        let stamp = "2024-07-03-09:46:40";
        let cpu = format!("{stamp}\t0.0000\n{stamp}\t0.0300\n{stamp}\t0.0800\n");
        assert_eq!(text(folder.path(), "cpu_monitor.log"), cpu, "the mean since the line before");
        assert_eq!(text(folder.path(), "mem_monitor.log"), format!("{stamp}\t0.2500\n").repeat(3));
        let line = "34C 56W 3MiB 40960MiB N/A\n";
        assert_eq!(text(folder.path(), "chip_monitor.log"), format!("{stamp}\n{line}{line}\n").repeat(3));
        assert!(!folder.path().join("pwr_monitor.log").exists());
        assert_eq!(text(folder.path(), MONITOR_FILE).lines().count(), 1 + 12 * 4);
    }

    #[test]
    fn the_log_of_power_has_that_of_the_machine_if_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        let rapl = |power_w| Reading::Rapl { energy_j: 0.0, power_w };
        files.write("rapl", Seconds(0.0), Seconds(0.0), &[rapl(None)]);
        files.write("rapl", Seconds(1.0), Seconds(0.0), &[rapl(Some(80.0))]);
        files.write("ipmi", Seconds(5.0), Seconds(0.0), &[Reading::Ipmi { power_w: 231.0 }]);
        files.write("rapl", Seconds(10.0), Seconds(0.0), &[rapl(Some(81.0))]);
        let stamp = "2024-07-03-09:46:40";
        assert_eq!(text(folder.path(), "pwr_monitor.log"), format!("{stamp}\t80.0\n{stamp}\t231.0\n"));
    }

    #[test]
    fn nothing_is_written_after_the_files_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        files.close();
        files.write("device", Seconds(0.0), Seconds(0.0), &[device("a")]);
        assert_eq!(text(folder.path(), MONITOR_FILE), "{\"format\":1,\"rate_per_s\":1}\n");
        assert!(!folder.path().join("chip_monitor.log").exists());
    }

    #[test]
    fn a_step_of_the_wall_clock_changes_only_the_text_of_logs() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        let memory = [Reading::Memory { used_bytes: 1, total_bytes: 4 }];
        files.write("memory", Seconds(0.0), Seconds(0.0), &memory);
        files.wall_time = || jiff::Timestamp::from_second(1_719_996_400).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
        files.write("memory", Seconds(5.0), Seconds(0.0), &memory);
        let log = text(folder.path(), "mem_monitor.log");
        assert_eq!(log, "2024-07-03-09:46:40\t0.2500\n2024-07-03-08:46:40\t0.2500\n");
        assert!(text(folder.path(), MONITOR_FILE).lines().last().unwrap().starts_with("{\"at_s\":5.0,"));
    }

    #[test]
    fn a_file_that_fills_up_gets_fewer_samples_and_has_some_up_to_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        files.samples = LineFile::new(folder.path().join(MONITOR_FILE), 100 * 70);
        for second in 0..1000_u32 {
            let at = Seconds(f64::from(second));
            files.write("memory", at, Seconds(0.0), &[Reading::Memory { used_bytes: 1, total_bytes: 4 }]);
        }
        assert_eq!(files.close(), [""; 0]);
        let text = text(folder.path(), MONITOR_FILE);
        let last: Sample = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert!(last.at_s.0 > 800.0 && text.lines().count() < 100, "{text}");
    }
}
