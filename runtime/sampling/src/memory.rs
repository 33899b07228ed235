//! The memory of the machine, from `/proc/meminfo`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{Reading, Source, SourceContext, SourceReader};

/// The source of memory in use.
pub(super) struct MemorySource;

/// The lines that are read are within this many bytes.
const HEAD_BYTES: usize = 1024;

impl Source for MemorySource {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "memory in use on the machine"
    }

    fn open(&self, _: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        let file = File::open("/proc/meminfo").map_err(|error| format!("cannot read `/proc/meminfo`: {error}"))?;
        Ok(Box::new(MemoryReader { file }))
    }
}

struct MemoryReader {
    file: File,
}

impl SourceReader for MemoryReader {
    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        let mut head = [0; HEAD_BYTES];
        let read = self.file.read_at(&mut head, 0);
        let length = read.map_err(|error| format!("cannot read `/proc/meminfo`: {error}"))?;
        let text = String::from_utf8_lossy(&head[..length]);
        parse(&text).map(|reading| vec![reading]).ok_or_else(|| "`/proc/meminfo` has an unknown format".to_owned())
    }
}

fn parse(text: &str) -> Option<Reading> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let (total_bytes, available) = (field("MemTotal")?, field("MemAvailable")?);
    Some(Reading::Memory { used_bytes: total_bytes.checked_sub(available)?, total_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_available_is_in_use() {
        let text = "MemTotal:       100 kB\nMemFree:   5 kB\nMemAvailable:    40 kB\nBuffers: 1 kB\n";
        assert_eq!(parse(text), Some(Reading::Memory { used_bytes: 60 * 1024, total_bytes: 100 * 1024 }));
        assert_eq!(parse("MemTotal: 100 kB\n"), None);
        assert_eq!(parse("MemTotal: 1 kB\nMemAvailable: 2 kB\n"), None);
    }
}
