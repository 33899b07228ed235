//! Finds contradictions in the readings of devices: a device that one reading contains several times, and an energy
//! counter that decreased.
//!
//! Reads no device and keeps no record.

use std::collections::{BTreeMap, BTreeSet};

use super::Reading;

/// The energy counters of the readings so far, in joules, by the ids of the devices.
#[derive(Debug, Default)]
pub(super) struct ContradictionFinder {
    energy: BTreeMap<String, f64>,
}

impl ContradictionFinder {
    /// Keeps only the first reading of each device, and returns a message for each contradiction.
    pub(super) fn check(&mut self, readings: &mut Vec<Reading>) -> Vec<String> {
        let (mut devices, mut found) = (BTreeSet::new(), Vec::new());
        readings.retain(|reading| {
            let Reading::Device(sample) = reading else { return true };
            if !devices.insert(sample.device.clone()) {
                found.push(format!("a reading contains device `{}` more than once (the first is used)", sample.device));
                return false;
            }
            let Some(now) = sample.energy_j else { return true };
            let before = self.energy.insert(sample.device.clone(), now);
            if let Some(before) = before.filter(|before| now < *before) {
                found.push(format!(
                    "the energy counter of device `{}` decreased from {before} J to {now} J",
                    sample.device
                ));
            }
            true
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_monitor::DeviceSample;

    fn device(id: &str, energy_j: Option<f64>) -> Reading {
        Reading::Device(Box::new(DeviceSample { device: id.to_owned(), energy_j, ..DeviceSample::default() }))
    }

    #[test]
    fn only_the_first_reading_of_a_device_is_kept() {
        let mut readings = vec![device("0", Some(5.0)), device("1", None), device("0", Some(9.0))];
        let found = ContradictionFinder::default().check(&mut readings);
        assert_eq!(found, ["a reading contains device `0` more than once (the first is used)"]);
        assert_eq!(readings, [device("0", Some(5.0)), device("1", None)]);
    }

    #[test]
    fn an_energy_counter_that_decreases_is_named_with_both_values() {
        let mut finder = ContradictionFinder::default();
        let mut check = |energy_j| finder.check(&mut vec![device("0", energy_j), device("1", Some(1.0))]);
        assert_eq!(check(Some(500.0)), [""; 0]);
        assert_eq!(check(None), [""; 0]);
        assert_eq!(check(Some(500.0)), [""; 0]);
        assert_eq!(check(Some(20.5)), ["the energy counter of device `0` decreased from 500 J to 20.5 J"]);
        assert_eq!(check(Some(30.0)), [""; 0]);
    }
}
