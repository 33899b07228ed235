//! The monitor scripts of the repository's vendors, each on the example of its command's output.

#![expect(clippy::unwrap_used, reason = "test helpers may panic, too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagperf_config::{MONITOR_SCRIPT, Vendor};
use flagperf_core::measure::MonotonicClock;
use flagperf_monitor::DeviceSample;
use flagperf_script::MonitorScript;

/// The example of a command's output in a vendor's folder, and the devices that the script finds in it.
const OUTPUT: &str = "monitor_output.txt";
const DEVICES: &str = "monitor_devices.json";

/// Returns the folders of the vendors with a monitor script.
fn vendors() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendors");
    let mut folders: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join(MONITOR_SCRIPT).exists());
    folders.sort();
    folders
}

fn read_devices(folder: &Path, output: &str) -> Result<Vec<DeviceSample>, String> {
    let script = MonitorScript::load(&folder.join(MONITOR_SCRIPT), Arc::new(MonotonicClock::start()));
    script.and_then(|script| script.read_devices(output)).map_err(|error| error.to_string())
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn each_script_finds_the_devices_in_the_example_of_its_vendor() {
    let vendors = vendors();
    assert!(vendors.len() >= 9, "{vendors:?}");
    let update = std::env::vars().any(|(name, _)| name == "UPDATE_API");
    for folder in vendors {
        let output = fs::read_to_string(folder.join(OUTPUT)).unwrap();
        let mut devices = read_devices(&folder, &output).unwrap_or_else(|error| panic!("{error}"));
        assert!(!devices.is_empty(), "{}", name(&folder));
        assert_eq!(devices.iter_mut().flat_map(|d| d.remove_impossible()).collect::<Vec<_>>(), [""; 0]);
        let text = serde_json::to_string_pretty(&devices).unwrap() + "\n";
        let file = folder.join(DEVICES);
        if update {
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap_or_default(), text, "{}: run with UPDATE_API=1", file.display());
    }
}

#[test]
fn no_script_fails_on_what_is_not_an_output_of_its_command() {
    let header: String = "| 0 | a:b | 0% | 1 / 2 | MiB C W stb\n".repeat(3);
    for folder in vendors() {
        let example = fs::read_to_string(folder.join(OUTPUT)).unwrap();
        let cut: Vec<String> = (0..example.len())
            .filter(|at| example.is_char_boundary(*at))
            .step_by(37)
            .map(|at| example[..at].to_owned())
            .collect();
        let garbage = ["", "\n\n", "No devices were found", "|||||||", header.as_str()].map(str::to_owned);
        for output in garbage.into_iter().chain(cut) {
            if let Err(error) = read_devices(&folder, &output) {
                panic!("{}: {error}\n--- output:\n{output}", name(&folder));
            }
        }
    }
}

#[test]
fn each_script_belongs_to_a_command_of_its_vendor() {
    for folder in vendors() {
        let vendor = Vendor::read(Path::new(env!("CARGO_MANIFEST_DIR")), &name(&folder)).unwrap();
        assert!(vendor.monitor_command.is_some(), "{}", vendor.name);
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains(OUTPUT), "vendors/{}/README.md says where the example is from", vendor.name);
    }
}
