//! What the monitors of the current case read so far, from the files that they write while it runs.

use std::fs::{File, read_dir};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::curve::Curve;
use super::view::shown;
use crate::text::{bytes, digits, percent};
use flagperf_core::regular_file::open_regular;
use flagperf_core::run_files::MONITOR_FILE;
use flagperf_core::units::Bytes;
use flagperf_monitor::DeviceSample;
use flagperf_sampling::{Reading, Sample};

/// Most hosts and devices whose files are read.
const PLACES_MAX: usize = 8;
/// Most bytes that are read from a file at once: more than the monitors write between two readings.
const BYTES_MAX: u64 = 256 << 10;

/// Most readings of other devices between two of the device that is drawn, on a machine that has many.
const OTHERS_MAX: u32 = 64;

/// What is drawn as a curve.
pub(super) struct Quantity {
    pub(super) name: &'static str,
    value: fn(&Reading) -> Option<f64>,
    /// Formats a value with its unit.
    pub(super) text: fn(f64) -> String,
}

/// Every quantity, the most telling ones first: a small terminal has no place for the last ones.
pub(super) const QUANTITIES: [Quantity; 9] = [
    Quantity { name: "power", value: |reading| device(reading)?.power_w, text: watts },
    Quantity {
        name: "temperature",
        value: |reading| device(reading)?.temperature_c,
        text: |value| format!("{value:.0} °C"),
    },
    Quantity {
        name: "device memory",
        value: |reading| device(reading)?.memory_used_bytes.map(|bytes| bytes as f64),
        text: memory,
    },
    Quantity { name: "clock", value: |reading| device(reading)?.clock_mhz, text: |value| format!("{value:.0} MHz") },
    Quantity { name: "device busy", value: |reading| device(reading)?.utilization_share, text: percent },
    Quantity {
        name: "CPU power",
        value: |reading| if let Reading::Rapl { power_w, .. } = reading { *power_w } else { None },
        text: watts,
    },
    Quantity {
        name: "machine power",
        value: |reading| if let Reading::Ipmi { power_w } = reading { Some(*power_w) } else { None },
        text: watts,
    },
    Quantity {
        name: "CPU busy",
        value: |reading| if let Reading::Processor { busy_share } = reading { Some(*busy_share) } else { None },
        text: percent,
    },
    Quantity {
        name: "memory",
        value: |reading| if let Reading::Memory { used_bytes, .. } = reading { Some(*used_bytes as f64) } else { None },
        text: memory,
    },
];

fn device(reading: &Reading) -> Option<&DeviceSample> {
    if let Reading::Device(sample) = reading { Some(sample) } else { None }
}

fn watts(value: f64) -> String {
    format!("{} W", digits(value))
}

fn memory(value: f64) -> String {
    bytes(Bytes(value as u64))
}

/// The monitors of the current case.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    folder: Option<PathBuf>,
    pub(super) places: Vec<Place>,
}

/// The monitors of a case on one host or device.
#[derive(Debug)]
pub(super) struct Place {
    /// The name of its folder.
    pub(super) name: String,
    path: PathBuf,
    /// How much of its file was read.
    offset: u64,
    /// The id of the device that is drawn, as it is displayed; empty before one was read.
    pub(super) device: String,
    /// How many readings of other devices followed its last one.
    others: u32,
    pub(super) curves: [Curve; QUANTITIES.len()],
}

impl Monitors {
    /// Reads what was written since the last time. `folder` is that of the case, with a folder for each host and device.
    pub(super) fn read(&mut self, folder: Option<&Path>) {
        if self.folder.as_deref() != folder {
            *self = Monitors { folder: folder.map(Path::to_owned), places: Vec::new() };
        }
        let Some(folder) = folder else { return };
        if self.places.len() < PLACES_MAX {
            let entries = read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            let mut new: Vec<PathBuf> =
                entries.filter(|path| !self.places.iter().any(|place| place.path == *path)).collect();
            new.sort();
            self.places.extend(new.into_iter().take(PLACES_MAX - self.places.len()).map(Place::new));
        }
        self.places.iter_mut().for_each(Place::read);
    }
}

impl Place {
    fn new(path: PathBuf) -> Self {
        let name = shown(&path.file_name().unwrap_or_default().to_string_lossy());
        Place { name, path, offset: 0, device: String::new(), others: 0, curves: Default::default() }
    }

    /// Reads the complete lines after those that were read.
    fn read(&mut self) {
        let Ok(mut file) = open_regular(&self.path.join(MONITOR_FILE)) else { return };
        let mut text = Vec::new();
        let read = |file: &mut File, text: &mut Vec<u8>| {
            file.seek(SeekFrom::Start(self.offset))?;
            file.take(BYTES_MAX).read_to_end(text)
        };
        if read(&mut file, &mut text).is_err() {
            return;
        }
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
            // A line of this length is none of a monitor.
            self.offset += if text.len() as u64 == BYTES_MAX { BYTES_MAX } else { 0 };
            return;
        };
        self.offset += end as u64 + 1;
        for line in text[..end].split(|byte| *byte == b'\n') {
            if let Ok(Sample { reading, .. }) = serde_json::from_slice(line) {
                self.add(&reading);
            }
        }
    }

    fn add(&mut self, reading: &Reading) {
        if device(reading).is_some_and(|sample| !self.follows(&shown(&sample.device))) {
            return;
        }
        for (quantity, curve) in QUANTITIES.iter().zip(&mut self.curves) {
            (quantity.value)(reading).into_iter().for_each(|value| curve.add(value));
        }
    }

    /// Whether a device is the one that is drawn: the first one, or another if that is no longer read. Before an engine has chosen its
    /// device, all are read.
    fn follows(&mut self, device: &str) -> bool {
        self.others = if self.device == device { 0 } else { self.others + 1 };
        if self.device.is_empty() || self.others > OTHERS_MAX {
            (self.device, self.others) = (device.to_owned(), 0);
            self.curves = Default::default();
        }
        self.device == device
    }
}
