//! The values that a device reports at one moment, with units in their names.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The values that a device reports at one moment. A field is `None` if the device does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// Id of the device in the vendor's monitor: a UUID, or a number.
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Memory in use by all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Share of the time in which the device computed, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Energy in joules: a counter that increases from an unspecified start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// Clock of the compute units in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// The reasons why the device is slowed down; empty when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Vec<String>>,
    /// Memory errors that were corrected since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected_errors: Option<u64>,
    /// Memory errors that were not corrected since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected_errors: Option<u64>,
    /// The processes that compute on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<DeviceProcess>>,
}

/// A process on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceProcess {
    /// Process id in the PID namespace of the driver.
    pub pid: u32,
    /// Memory of the device that the process uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whether the process belongs to the run; `None` when the process is not visible, for example in another PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
}

/// A numeric field of a sample: its name, its possible values, and access to it.
pub struct SampleNumber {
    pub name: &'static str,
    /// Possible values. A value outside this range is a mistake of the driver or of a script.
    pub range: RangeInclusive<f64>,
    /// Returns the field.
    pub field: fn(&mut DeviceSample) -> &mut Option<f64>,
}

/// The fields of a sample that are real numbers.
pub const SAMPLE_NUMBERS: &[SampleNumber] = &[
    SampleNumber { name: "utilization_share", range: 0.0..=1.0, field: |sample| &mut sample.utilization_share },
    SampleNumber { name: "power_w", range: f64::MIN_POSITIVE..=100_000.0, field: |sample| &mut sample.power_w },
    SampleNumber { name: "energy_j", range: 0.0..=1e15, field: |sample| &mut sample.energy_j },
    SampleNumber { name: "clock_mhz", range: 0.0..=100_000.0, field: |sample| &mut sample.clock_mhz },
    SampleNumber { name: "memory_clock_mhz", range: 0.0..=100_000.0, field: |sample| &mut sample.memory_clock_mhz },
    SampleNumber { name: "temperature_c", range: -100.0..=300.0, field: |sample| &mut sample.temperature_c },
];

/// Largest possible memory of a device in bytes.
pub const MEMORY_BYTES_POSSIBLE: u64 = 1 << 50;

impl DeviceSample {
    /// Removes impossible values, such as a negative power, and returns a message for each.
    pub fn remove_impossible(&mut self) -> Vec<String> {
        let mut removed = Vec::new();
        for number in SAMPLE_NUMBERS {
            let field = (number.field)(self);
            // A comparison with NaN is false.
            if let Some(value) = field.take_if(|value| !number.range.contains(value)) {
                removed.push(format!("`{}` of device `{}` is {value}", number.name, self.device));
            }
        }
        for (name, field) in
            [("memory_used_bytes", &mut self.memory_used_bytes), ("memory_total_bytes", &mut self.memory_total_bytes)]
        {
            if let Some(value) = field.take_if(|value| *value > MEMORY_BYTES_POSSIBLE) {
                removed.push(format!("`{name}` of device `{}` is {value}", self.device));
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_possible_are_removed_and_named() {
        let mut sample = DeviceSample {
            device: "0".into(),
            power_w: Some(-5.0),
            temperature_c: Some(f64::NAN),
            utilization_share: Some(1.0),
            energy_j: Some(f64::INFINITY),
            memory_used_bytes: Some(u64::MAX),
            memory_total_bytes: Some(1 << 40),
            ..DeviceSample::default()
        };
        assert_eq!(
            sample.remove_impossible(),
            [
                "`power_w` of device `0` is -5",
                "`energy_j` of device `0` is inf",
                "`temperature_c` of device `0` is NaN",
                "`memory_used_bytes` of device `0` is 18446744073709551615"
            ]
        );
        let mut unread = DeviceSample { power_w: Some(0.0), ..DeviceSample::default() };
        assert_eq!(unread.remove_impossible(), ["`power_w` of device `` is 0"], "every device that works draws power");
        assert_eq!(unread.power_w, None);
        let kept = DeviceSample {
            device: "0".into(),
            utilization_share: Some(1.0),
            memory_total_bytes: Some(1 << 40),
            ..DeviceSample::default()
        };
        assert_eq!(sample, kept);
        assert_eq!(sample.remove_impossible(), [""; 0]);
    }

    #[test]
    fn every_real_number_of_a_sample_is_in_the_table() {
        let mut sample = DeviceSample::default();
        for number in SAMPLE_NUMBERS {
            *(number.field)(&mut sample) = Some(1.0);
        }
        let value = serde_json::to_value(&sample).unwrap();
        let named: Vec<&str> = SAMPLE_NUMBERS.iter().map(|number| number.name).collect();
        let written = value.as_object().unwrap().iter().filter(|(_, value)| value.is_number());
        let mut written: Vec<&str> = written.map(|(name, _)| name.as_str()).collect();
        written.sort_by_key(|name| named.iter().position(|known| known == name));
        assert_eq!(written, named);
    }
}
