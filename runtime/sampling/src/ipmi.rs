//! The power of the whole machine, from its management controller, through the command `ipmitool`.

use std::path::Path;

use super::{Reading, Source, SourceContext, SourceReader};
use flagperf_core::units::Seconds;
use flagperf_host::{CapturedCommand, capture};

/// The source of the machine's power.
pub(super) struct IpmiSource;

/// The device files of the kernel for the management controller.
const DEVICES: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];
/// Time between two readings: a controller may take seconds for each.
const INTERVAL: Seconds = Seconds(10.0);
/// Time limit of a reading, and largest size of its text in bytes.
const TIME_MAX: Seconds = Seconds(20.0);
const BYTES_MAX: u64 = 1 << 20;

/// A command, and the function that finds the power in its text.
type PowerCommand = (&'static [&'static str], fn(&str) -> Option<f64>);

/// The commands in the order in which they are tried.
const COMMANDS: [PowerCommand; 2] =
    [(&["ipmitool", "dcmi", "power", "reading"], parse_dcmi), (&["ipmitool", "sdr"], parse_sensors)];

impl Source for IpmiSource {
    fn name(&self) -> &'static str {
        "ipmi"
    }

    fn about(&self) -> &'static str {
        "power of the whole machine, from its management controller (`ipmitool`)"
    }

    fn open(&self, context: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        if !DEVICES.iter().any(|device| Path::new(device).exists()) {
            return Err(
                "the kernel provides no access to a management controller: `/dev/ipmi0` does not exist".to_owned()
            );
        }
        let mut reader = IpmiReader { context: context.clone(), command: 0 };
        let first = reader.power();
        if first.is_err() {
            reader.command = 1;
            reader.power().map_err(|second| format!("{}; {second}", first.err().unwrap_or_default()))?;
        }
        Ok(Box::new(reader))
    }
}

struct IpmiReader {
    context: SourceContext,
    /// Index of the command that works.
    command: usize,
}

impl IpmiReader {
    fn power(&self) -> Result<f64, String> {
        let (argv, parse) = COMMANDS[self.command];
        let argv_text = argv.join(" ");
        let argv = argv.iter().map(Into::into).collect();
        let command =
            CapturedCommand { argv, folder: None, input: Vec::new(), bytes_max: BYTES_MAX, time_max: TIME_MAX };
        let output = capture(&command, &*self.context.clock, || self.context.has_ended());
        let output = output.map_err(|error| error.to_string())?;
        parse(&String::from_utf8_lossy(&output)).ok_or_else(|| format!("`{argv_text}` printed no power reading"))
    }
}

impl SourceReader for IpmiReader {
    fn interval_min(&self) -> Seconds {
        INTERVAL
    }

    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        Ok(vec![Reading::Ipmi { power_w: self.power()? }])
    }
}

/// Parses `Instantaneous power reading:   220 Watts`. A controller without a sensor reports 0.
fn parse_dcmi(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with("Instantaneous power reading"))?;
    let power: f64 = line.split(':').nth(1)?.split_whitespace().next()?.parse().ok()?;
    (power > 0.0).then_some(power)
}

/// Returns the largest power of all sensors, as FlagPerf does: `Sys Power | 220 Watts | ok`. If there is a sensor for the whole
/// machine, its power is the largest.
fn parse_sensors(text: &str) -> Option<f64> {
    let power = |line: &str| line.split('|').nth(1)?.trim().strip_suffix("Watts")?.trim().parse::<f64>().ok();
    text.lines().filter_map(power).filter(|power| *power > 0.0).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_of_both_commands_is_found() {
        let dcmi = "\n    Instantaneous power reading:                   220 Watts\n    Minimum during sampling period:                4 Watts\n";
        assert_eq!(parse_dcmi(dcmi), Some(220.0));
        assert_eq!(parse_dcmi("    Instantaneous power reading:   0 Watts\n"), None);
        assert_eq!(parse_dcmi("garbage"), None);
        let sensors = "CPU1 Temp        | 43 degrees C      | ok\nPSU1 Power       | 112 Watts         | ok\n\
                       Sys Power        | 231 Watts         | ok\nPSU2 Power       | no reading        | ns\n";
        assert_eq!(parse_sensors(sensors), Some(231.0));
        assert_eq!(parse_sensors("a | b | c"), None);
    }
}
