//! The time of the machine's processors, from `/proc/stat`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{Reading, Source, SourceContext, SourceReader};

/// The source of processor time.
pub(super) struct ProcessorSource;

/// The first line, which has the sum of all processors, is within this many bytes.
const HEAD_BYTES: usize = 512;

impl Source for ProcessorSource {
    fn name(&self) -> &'static str {
        "processor"
    }

    fn about(&self) -> &'static str {
        "share of the time in which the processors of the machine are busy"
    }

    fn open(&self, _: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        let file = File::open("/proc/stat").map_err(|error| format!("cannot read `/proc/stat`: {error}"))?;
        Ok(Box::new(ProcessorReader { file, before: None }))
    }
}

struct ProcessorReader {
    file: File,
    before: Option<ProcessorTime>,
}

/// Time of all processors since the start of the machine, in units of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessorTime {
    busy: u64,
    total: u64,
}

impl SourceReader for ProcessorReader {
    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        let mut head = [0; HEAD_BYTES];
        let length = self.file.read_at(&mut head, 0).map_err(|error| format!("cannot read `/proc/stat`: {error}"))?;
        let text = String::from_utf8_lossy(&head[..length]);
        let now = parse(&text).ok_or("`/proc/stat` has an unknown format")?;
        let reading = self.before.and_then(|before| busy_share(before, now));
        self.before = Some(now);
        Ok(reading.map(|busy_share| Reading::Processor { busy_share }).into_iter().collect())
    }
}

/// Parses `cpu  user nice system idle iowait irq softirq steal guest guest_nice`. The last two are part of the first two.
fn parse(text: &str) -> Option<ProcessorTime> {
    let mut words = text.lines().next()?.split_whitespace();
    let times: Vec<u64> =
        words.next().filter(|name| *name == "cpu").and(words.map(|word| word.parse().ok()).collect())?;
    let [_, _, _, idle, ..] = times.as_slice() else { return None };
    let waiting = times.get(4).copied().unwrap_or(0);
    let total: u64 = times.iter().take(8).sum();
    Some(ProcessorTime { busy: total.checked_sub(idle + waiting)?, total })
}

/// Returns the share of busy time between two readings; `None` when no time has passed. The kernel's counters may decrease, so
/// a negative difference counts as zero.
fn busy_share(before: ProcessorTime, now: ProcessorTime) -> Option<f64> {
    let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
    Some((now.busy.saturating_sub(before.busy) as f64 / total as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_that_of_the_time_between_two_readings() {
        let before = parse("cpu  100 0 50 800 50 0 0 0 100 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, ProcessorTime { busy: 150, total: 1000 });
        let now = parse("cpu  160 0 60 900 60 10 5 5 150 0\n").unwrap();
        assert_eq!(busy_share(before, now), Some(90.0 / 200.0));
        assert_eq!(busy_share(now, now), None);
        assert_eq!(busy_share(now, before), None, "a counter that runs backwards");
        for text in ["", "cpu", "cpu0 1 2 3 4", "cpu a b c d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
