//! Watches the device of a phase from the conductor, which shares no memory with the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use flagperf_host::{descends_from, program_name};
use flagperf_monitor::{DeviceReading, Monitor};
use flagperf_result::DeviceConditions;

/// Time between two readings. A reading only queries the driver and does not use the device.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the last reading. The thread of a driver that does not answer is abandoned.
const LAST_READING_WAIT: Duration = Duration::from_secs(2);
/// Largest number of foreign processes that are named.
const PROCESSES_NAMED: usize = 20;

/// Reads a device in a thread of its own until it is finished or dropped.
pub(super) struct DeviceWatch {
    /// Ends the thread when it is dropped.
    running: Sender<()>,
    conditions: Receiver<DeviceConditions>,
}

impl DeviceWatch {
    /// Starts to read the device with this id. A process on it is this program's own if it descends from this process or
    /// from `worker`, which a container engine may have started; without a worker nothing is known about processes.
    pub(super) fn start(monitor: &'static dyn Monitor, id: &str, worker: Option<u32>) -> Self {
        let (running, stopped) = channel::<()>();
        let (sender, conditions) = channel();
        let id = id.to_owned();
        std::thread::spawn(move || {
            let mut log = ReadingLog::default();
            let own = worker.map(|worker| [std::process::id(), worker]);
            while let Some(reading) = monitor.reading(&id) {
                log.add(&reading, |pid| descends_from(pid, own.as_ref()?));
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            if log.readings > 0 {
                // This fails when nobody waits any more.
                let _ = sender.send(log.conditions());
            }
        });
        DeviceWatch { running, conditions }
    }

    /// Stops reading and returns what was read; `None` when the monitor does not tell, or the driver does not answer.
    pub(super) fn finish(self) -> Option<DeviceConditions> {
        drop(self.running);
        self.conditions.recv_timeout(LAST_READING_WAIT).ok()
    }
}

/// The readings of a device so far.
#[derive(Debug, Default)]
struct ReadingLog {
    readings: u64,
    /// Whether the driver listed processes.
    lists_processes: bool,
    /// Whether a listed process was one that this program started. Otherwise the driver may number processes differently,
    /// as outside a container, and nothing is known about the others.
    knows_own: bool,
    others: BTreeMap<u32, String>,
    reports_throttling: bool,
    throttling: BTreeSet<String>,
    clock: Option<[u32; 2]>,
    clock_max: Option<u32>,
    limit: Option<f64>,
    at_limit: u64,
    limit_readings: u64,
    power: (f64, u64),
    busy_share: Option<f64>,
    temperature: Option<u32>,
}

impl ReadingLog {
    /// Adds a reading. `is_own` returns whether this program started a process; `None` if the process is not visible.
    fn add(&mut self, reading: &DeviceReading, is_own: impl Fn(u32) -> Option<bool>) {
        self.readings += 1;
        for pid in reading.processes.iter().flatten() {
            match is_own(*pid) {
                Some(true) => self.knows_own = true,
                Some(false) => drop(self.others.insert(*pid, program_name(*pid).unwrap_or_default())),
                None => drop(self.others.entry(*pid).or_default()),
            }
        }
        self.lists_processes |= reading.processes.is_some();
        self.reports_throttling |= reading.throttling.is_some();
        self.throttling.extend(reading.throttling.iter().flatten().map(|reason| (*reason).to_owned()));
        if let (Some(limit), Some(usual)) = (reading.power_limit_w, reading.power_limit_default_w)
            && limit < usual
        {
            self.throttling.insert(format!("power limit of {limit:.0} W (by default {usual:.0} W)"));
        }
        if let Some(clock) = reading.clock_mhz {
            let [low, high] = self.clock.unwrap_or([clock; 2]);
            self.clock = Some([low.min(clock), high.max(clock)]);
        }
        if let Some(at_limit) = reading.at_power_limit {
            self.at_limit += u64::from(at_limit);
            self.limit_readings += 1;
        }
        if let Some(power) = reading.power_w {
            self.power = (self.power.0 + power, self.power.1 + 1);
        }
        if let Some(share) = reading.busy_share {
            self.busy_share = Some(self.busy_share.unwrap_or(0.0).max(share));
        }
        self.temperature = self.temperature.max(reading.temperature_c);
        self.clock_max = reading.clock_max_mhz.or(self.clock_max);
        self.limit = reading.power_limit_w.or(self.limit);
    }

    fn conditions(self) -> DeviceConditions {
        let share = |part: f64, of: u64| (of > 0).then(|| part / of as f64);
        let name =
            |(pid, name): (u32, String)| if name.is_empty() { pid.to_string() } else { format!("{pid} (`{name}`)") };
        let others = self.others.into_iter().take(PROCESSES_NAMED).map(name).collect();
        DeviceConditions {
            readings: self.readings,
            other_processes: (self.lists_processes && self.knows_own).then_some(others),
            throttling: self.reports_throttling.then(|| self.throttling.into_iter().collect()),
            at_power_limit_share: share(self.at_limit as f64, self.limit_readings),
            clock_mhz: self.clock,
            clock_max_mhz: self.clock_max,
            power_limit_w: self.limit,
            power_w_mean: share(self.power.0, self.power.1),
            busy_share_max: self.busy_share,
            temperature_c_max: self.temperature,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the conditions after readings of a device. Process 1 is this program's, 2 is another, and others are not
    /// visible.
    fn conditions(readings: &[DeviceReading]) -> DeviceConditions {
        let mut log = ReadingLog::default();
        for reading in readings {
            log.add(reading, |pid| (pid < 3).then_some(pid == 1));
        }
        log.conditions()
    }

    fn processes(pids: &[u32]) -> DeviceReading {
        DeviceReading { processes: Some(pids.to_vec()), ..DeviceReading::default() }
    }

    #[test]
    fn other_processes_are_known_only_if_the_driver_lists_those_of_this_program() {
        assert_eq!(conditions(&[processes(&[1])]).other_processes, Some(Vec::new()));
        let seen = conditions(&[processes(&[1]), processes(&[1, 4_000_000_000])]).other_processes;
        assert_eq!(seen, Some(vec!["4000000000".to_owned()]));
        assert_eq!(conditions(&[processes(&[2, 4_000_000_000])]).other_processes, None, "another numbering");
        assert_eq!(conditions(&[processes(&[])]).other_processes, None);
        assert_eq!(conditions(&[DeviceReading::default()]).other_processes, None);
    }

    #[test]
    fn a_lowered_power_limit_is_throttling_and_the_usual_one_is_not() {
        let at = |limit: f64| DeviceReading {
            throttling: Some(vec!["thermal (software)"]),
            at_power_limit: Some(limit < 600.0),
            power_limit_w: Some(limit),
            power_limit_default_w: Some(700.0),
            ..DeviceReading::default()
        };
        assert_eq!(conditions(&[at(700.0)]).throttling, Some(vec!["thermal (software)".to_owned()]));
        let lowered = conditions(&[at(700.0), at(500.0)]);
        let expected = ["power limit of 500 W (by default 700 W)", "thermal (software)"].map(str::to_owned);
        assert_eq!((lowered.throttling, lowered.at_power_limit_share), (Some(expected.to_vec()), Some(0.5)));
        assert_eq!(conditions(&[DeviceReading::default()]).throttling, None);
    }

    #[test]
    fn readings_are_summarised() {
        let at = |clock, power, temperature| DeviceReading {
            clock_mhz: Some(clock),
            clock_max_mhz: Some(1980),
            power_w: Some(power),
            temperature_c: Some(temperature),
            busy_share: Some(power / 1000.0),
            ..DeviceReading::default()
        };
        let found =
            conditions(&[at(1500, 300.0, 60), at(1200, 500.0, 70), at(1600, 400.0, 65), DeviceReading::default()]);
        assert_eq!((found.readings, found.clock_mhz, found.clock_max_mhz), (4, Some([1200, 1600]), Some(1980)));
        assert_eq!((found.power_w_mean, found.temperature_c_max), (Some(400.0), Some(70)));
        assert_eq!((found.busy_share_max, conditions(&[DeviceReading::default()]).busy_share_max), (Some(0.5), None));
    }

    #[test]
    fn nothing_is_known_from_a_monitor_that_does_not_tell() {
        let processor = flagperf_monitor::find("processor").unwrap();
        assert_eq!(DeviceWatch::start(processor, "cpu", None).finish(), None);
    }
}
