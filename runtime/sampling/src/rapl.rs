//! The energy of the processors' packages and of their memory, from the kernel's power counters (RAPL).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Reading, Source, SourceContext, SourceReader};
use flagperf_core::measure::{Clock, Nanos};

/// The source of energy counters of processors.
pub(super) struct RaplSource;

impl Source for RaplSource {
    fn name(&self) -> &'static str {
        "rapl"
    }

    fn about(&self) -> &'static str {
        "energy of the processors' packages and their memory (RAPL)"
    }

    fn follows_passes(&self) -> bool {
        true
    }

    fn open(&self, context: &SourceContext) -> Result<Box<dyn SourceReader>, String> {
        let zones = find_zones(&context.powercap)?;
        Ok(Box::new(RaplReader { zones, clock: context.clock.clone(), before: None }))
    }
}

struct RaplReader {
    zones: Vec<Zone>,
    clock: Arc<dyn Clock>,
    /// Time and energy of the previous reading.
    before: Option<(Nanos, f64)>,
}

/// An energy counter: of a package, or of the memory of a package, which the package's counter does not include.
struct Zone {
    path: PathBuf,
    file: File,
    /// The value after which the counter wraps to 0, in microjoules.
    range: u64,
    last: u64,
    /// Microjoules since the first reading.
    counted: u64,
}

impl SourceReader for RaplReader {
    fn read(&mut self, _: bool) -> Result<Vec<Reading>, String> {
        let now = self.clock.now();
        for zone in &mut self.zones {
            let value = read_counter(&zone.file, &zone.path)?;
            zone.counted = zone.counted.saturating_add(difference(zone.last, value, zone.range));
            zone.last = value;
        }
        let energy_j = self.zones.iter().map(|zone| zone.counted as f64 / 1e6).sum();
        let power = |(at, energy): (Nanos, f64)| {
            let time = now.since(at).0;
            (time > 0.0).then(|| (energy_j - energy) / time)
        };
        let power_w = self.before.replace((now, energy_j)).and_then(power);
        Ok(vec![Reading::Rapl { energy_j, power_w }])
    }
}

/// Returns the increase of a counter that wraps to 0 after `range`.
fn difference(before: u64, now: u64, range: u64) -> u64 {
    now.checked_sub(before).unwrap_or_else(|| now.saturating_add(range.saturating_sub(before)))
}

/// Finds the counters of packages and of their memory. Counters of parts of a package (its cores) are ignored, because the
/// package's counter includes them. A second interface (`-mmio`) shows the same packages again and is ignored, too.
fn find_zones(folder: &Path) -> Result<Vec<Zone>, String> {
    let entries = fs::read_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("the kernel provides no power counters: `{}` does not exist", folder.display())
        }
        _ => format!("cannot read `{}`: {error}", folder.display()),
    })?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let name = |path: &Path| fs::read_to_string(path.join("name")).unwrap_or_default();
    let is_counted = |path: &PathBuf| {
        let zone = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name(path);
        !zone.contains("mmio") && (name.starts_with("package") || name.trim() == "dram")
    };
    paths.retain(is_counted);
    if paths.is_empty() {
        return Err(format!("the kernel provides no power counters of processors in `{}`", folder.display()));
    }
    paths.into_iter().map(open_zone).collect()
}

fn open_zone(path: PathBuf) -> Result<Zone, String> {
    let counter = path.join("energy_uj");
    let file = File::open(&counter).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!("only root may read the power counter `{}`", counter.display()),
        _ => format!("cannot read `{}`: {error}", counter.display()),
    })?;
    let last = read_counter(&file, &counter)?;
    let range = fs::read_to_string(path.join("max_energy_range_uj")).ok();
    let range = range.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Ok(Zone { path: counter, file, range, last, counted: 0 })
}

fn read_counter(file: &File, path: &Path) -> Result<u64, String> {
    let mut text = [0; 64];
    let read = file.read_at(&mut text, 0);
    let length = read.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&text[..length]);
    text.trim()
        .parse()
        .map_err(|_| format!("`{}` does not contain a number: `{}`", path.display(), text.trim().escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::FixedClock;

    fn zone(folder: &Path, zone: &str, name: &str, energy: &str) {
        let path = folder.join(zone);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("name"), format!("{name}\n")).unwrap();
        fs::write(path.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(path.join("max_energy_range_uj"), "1000000\n").unwrap();
    }

    fn context(folder: &Path) -> SourceContext {
        let mut context = SourceContext::new(Arc::new(FixedClock::stepping(500_000_000)), None, None);
        context.powercap = folder.to_owned();
        context
    }

    #[test]
    fn packages_and_their_memory_are_added_and_their_parts_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        zone(path, "intel-rapl:0", "package-0", "900000");
        zone(path, "intel-rapl:0:0", "core", "5");
        zone(path, "intel-rapl:0:1", "dram", "0");
        zone(path, "intel-rapl:1", "psys", "7");
        zone(path, "intel-rapl-mmio:0", "package-0", "8");
        let mut reader = RaplSource.open(&context(path)).unwrap();
        assert_eq!(reader.read(true).unwrap(), [Reading::Rapl { energy_j: 0.0, power_w: None }]);
        zone(path, "intel-rapl:0", "package-0", "300000");
        zone(path, "intel-rapl:0:1", "dram", "100000");
        let wrapped = Reading::Rapl { energy_j: 0.5, power_w: Some(1.0) };
        assert_eq!(reader.read(true).unwrap(), [wrapped], "the counter of the package began again at 0");
        zone(path, "intel-rapl:0:1", "dram", "garbage");
        assert!(reader.read(true).unwrap_err().ends_with("does not contain a number: `garbage`"));
    }

    #[test]
    fn a_machine_without_counters_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let reason = |path: &Path| RaplSource.open(&context(path)).err().unwrap();
        assert!(reason(&folder.path().join("none")).starts_with("the kernel provides no power counters: "));
        assert!(reason(folder.path()).starts_with("the kernel provides no power counters of processors in "));
    }

    #[test]
    fn a_counter_that_wraps_has_grown() {
        assert_eq!(difference(5, 9, 100), 4);
        assert_eq!(difference(90, 3, 100), 13);
        assert_eq!(difference(9, 9, 100), 0);
        assert_eq!(difference(9, 3, 0), 3, "an unknown range");
    }
}
