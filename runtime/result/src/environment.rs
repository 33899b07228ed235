//! Settings of the machine on which speed depends: the governor and the clock of the processor, and the container.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Largest part of a file that is read.
const BYTES_MAX: u64 = 64 << 10;

/// How the system sets the clock of the first processor core. `None` when the system does not tell, as in most virtual
/// machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ProcessorClock {
    /// The governor: `performance`, `powersave`.
    pub governor: Option<String>,
    /// Highest clock that the governor may select, in MHz.
    pub limit_mhz: Option<u64>,
    /// Highest clock of the processor, in MHz.
    pub max_mhz: Option<u64>,
}

impl ProcessorClock {
    /// Reads the settings of the current machine.
    pub fn read() -> Self {
        Self::read_in(Path::new("/sys/devices/system/cpu/cpu0/cpufreq"))
    }

    fn read_in(folder: &Path) -> Self {
        let text = |name: &str| read_word(&folder.join(name));
        let megahertz = |name: &str| Some(text(name)?.parse::<u64>().ok()? / 1000);
        ProcessorClock {
            governor: text("scaling_governor"),
            limit_mhz: megahertz("scaling_max_freq"),
            max_mhz: megahertz("cpuinfo_max_freq"),
        }
    }
}

/// A container that contains this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct ContainerRecord {
    /// The kind of the container: `docker`, `podman`, `kubernetes`.
    pub kind: String,
    /// The image, if the container tells.
    pub image: Option<String>,
    /// Id of the image, if the container tells.
    pub image_id: Option<String>,
}

impl ContainerRecord {
    /// Finds out whether this process is in a container; `None` when nothing indicates one.
    pub fn detect() -> Option<Self> {
        Self::detect_in(Path::new("/"))
    }

    /// Podman describes the container in a file; the others only leave traces.
    fn detect_in(root: &Path) -> Option<Self> {
        let of_kind = |kind: &str| Some(ContainerRecord { kind: kind.to_owned(), ..ContainerRecord::default() });
        if let Ok(text) = flagperf_core::regular_file::read_regular_text(&root.join("run/.containerenv"), BYTES_MAX) {
            let value = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
                Some(line.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
            };
            return Some(ContainerRecord {
                kind: "podman".to_owned(),
                image: value("image"),
                image_id: value("imageid"),
            });
        }
        if root.join("var/run/secrets/kubernetes.io").is_dir() {
            return of_kind("kubernetes");
        }
        if root.join(".dockerenv").exists() { of_kind("docker") } else { None }
    }
}

/// Reads a file that contains one word.
fn read_word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|word| !word.is_empty() && word.len() < 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn governor_and_clocks_are_read_and_may_be_unknown() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ProcessorClock::read_in(folder.path()), ProcessorClock::default());
        for (name, text) in
            [("scaling_governor", "performance\n"), ("scaling_max_freq", "3500000\n"), ("cpuinfo_max_freq", "fast")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let expected = ProcessorClock { governor: Some("performance".into()), limit_mhz: Some(3500), max_mhz: None };
        assert_eq!(ProcessorClock::read_in(folder.path()), expected);
    }

    #[test]
    fn a_container_is_recognised_by_its_traces() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(ContainerRecord::detect_in(root.path()), None);
        fs::write(root.path().join(".dockerenv"), "").unwrap();
        assert_eq!(ContainerRecord::detect_in(root.path()).unwrap().kind, "docker");
        fs::create_dir(root.path().join("run")).unwrap();
        fs::write(root.path().join("run/.containerenv"), "engine=\"podman-4\"\nimage=\"a/b:1\"\nimageid=\"cd\"\n")
            .unwrap();
        let found = ContainerRecord::detect_in(root.path()).unwrap();
        assert_eq!((found.image.as_deref(), found.image_id.as_deref()), (Some("a/b:1"), Some("cd")));
    }
}
