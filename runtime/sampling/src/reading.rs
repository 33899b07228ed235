//! One line of `monitor.jsonl`: when a source was read and what it reported.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use flagperf_core::units::Seconds;
use flagperf_monitor::DeviceSample;

/// A reading with its time; one line of `monitor.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the case began, by the conductor's clock, which is also the clock of the events.
    pub at_s: Seconds,
    /// How long the reading took; `at_s` is in the middle of this time. Zero in an older file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub took_s: Seconds,
    #[serde(flatten)]
    pub reading: Reading,
}

fn is_zero(time: &Seconds) -> bool {
    time.0 == 0.0
}

/// The values that a source reported at one moment. Sources are the rows of [`super::TABLE`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Reading {
    /// The processors of the machine.
    Processor {
        /// Share of the time since the previous reading in which the processors were busy, from 0 to 1.
        busy_share: f64,
    },
    /// The memory of the machine.
    Memory {
        /// Memory that is not available to a new process without swapping.
        used_bytes: u64,
        /// Memory of the machine.
        total_bytes: u64,
    },
    /// The energy counters of the processors' packages and their memory (RAPL).
    Rapl {
        /// Energy since the first reading, in joules. A wrapped counter is taken into account.
        energy_j: f64,
        /// Mean power since the previous reading, in watts; `None` in the first reading.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        power_w: Option<f64>,
    },
    /// The power of the whole machine, from its management controller (IPMI).
    Ipmi {
        /// Power in watts.
        power_w: f64,
    },
    /// A device of the vendor.
    Device(Box<DeviceSample>),
}

impl Reading {
    /// Removes impossible values. Returns a message for each of them, and the remaining reading, if any.
    pub(super) fn checked(self) -> (Vec<String>, Option<Reading>) {
        let within = |name: &str, value: f64, range: RangeInclusive<f64>| {
            if range.contains(&value) { Vec::new() } else { vec![format!("`{name}` is {value}")] }
        };
        let possible = |name: &str, value: f64, max: f64| within(name, value, 0.0..=max);
        // A machine that works draws power: a monitor that reports none has not read it.
        let power = |value: f64| within("power_w", value, f64::MIN_POSITIVE..=1e6);
        let faults = match &self {
            Reading::Processor { busy_share } => possible("busy_share", *busy_share, 1.0),
            Reading::Memory { used_bytes, total_bytes } if used_bytes > total_bytes => {
                vec![format!("{used_bytes} of {total_bytes} bytes are in use")]
            }
            Reading::Memory { .. } => Vec::new(),
            Reading::Rapl { energy_j, power_w } => {
                [possible("energy_j", *energy_j, 1e15), power_w.map(power).unwrap_or_default()].concat()
            }
            Reading::Ipmi { power_w } => power(*power_w),
            Reading::Device(_) => Vec::new(),
        };
        match self {
            Reading::Device(mut sample) => {
                let removed = sample.remove_impossible();
                (removed, Some(Reading::Device(sample)))
            }
            _ if !faults.is_empty() => (faults, None),
            possible => (Vec::new(), Some(possible)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_the_source_and_units_in_its_keys() {
        let sample =
            Sample { at_s: Seconds(1.5), took_s: Seconds(0.0), reading: Reading::Processor { busy_share: 0.25 } };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(text, r#"{"at_s":1.5,"source":"processor","busy_share":0.25}"#);
        let device = DeviceSample { device: "0".into(), power_w: Some(71.5), ..DeviceSample::default() };
        let sample = Sample { at_s: Seconds(0.1), took_s: Seconds(0.25), reading: Reading::Device(Box::new(device)) };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(text, r#"{"at_s":0.1,"took_s":0.25,"source":"device","device":"0","power_w":71.5}"#);
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }

    #[test]
    fn readings_that_are_not_possible_are_refused() {
        let faults = |reading: Reading| reading.checked().0;
        assert_eq!(faults(Reading::Processor { busy_share: f64::NAN }), ["`busy_share` is NaN"]);
        assert_eq!(faults(Reading::Ipmi { power_w: -1.0 }), ["`power_w` is -1"]);
        assert_eq!(faults(Reading::Rapl { energy_j: 5.0, power_w: Some(-2.0) }), ["`power_w` is -2"]);
        assert_eq!(faults(Reading::Memory { used_bytes: 9, total_bytes: 8 }), ["9 of 8 bytes are in use"]);
        assert_eq!(faults(Reading::Ipmi { power_w: 0.0 }), ["`power_w` is 0"]);
        assert_eq!(faults(Reading::Rapl { energy_j: 0.0, power_w: None }), [""; 0]);
    }
}
