//! Checks a vendor's monitor.rhai before anything runs.

use std::path::Path;
use std::sync::Arc;

use flagperf_config::{Finding, MONITOR_SCRIPT, Origin, Vendor};
use flagperf_core::measure::MonotonicClock;
use flagperf_script::{MonitorScript, ScriptError};

/// Compiles the script of a vendor's monitor command, and returns a finding if something is wrong. Paths in the finding are
/// relative to the checkout `root`.
pub fn check_monitor_script(vendor: &Vendor, root: &Path) -> Option<Finding> {
    let file = vendor.folder.join(MONITOR_SCRIPT);
    let has_script = file.symlink_metadata().is_ok();
    let origin = vendor.origin(&["monitor_command"]);
    match (&vendor.monitor_command, has_script) {
        (None, false) => None,
        (None, true) => {
            let hint = "set `monitor_command` to the command whose output the script reads";
            Some(Finding::warning(origin, format!("`{MONITOR_SCRIPT}` is never run")).with_hint(hint))
        }
        (Some(_), false) => {
            let message = format!("`monitor_command` has no script: `{MONITOR_SCRIPT}` does not exist");
            Some(Finding::error(origin, message).with_hint("vendors/README.md shows how to write it"))
        }
        (Some(_), true) => {
            let error = MonitorScript::load(&file, Arc::new(MonotonicClock::start())).err()?;
            Some(Finding::error(place(&error, root), error.reason))
        }
    }
}

fn place(error: &ScriptError, root: &Path) -> Origin {
    let file = error.file.strip_prefix(root).unwrap_or(&error.file).display().to_string().into();
    Origin::Script { file, line: error.line, column: error.column }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::fixture::Checkout;

    const VENDOR: &str = "name: chip\nabout: a\nframeworks: {}\ncompilers: {}\n";

    fn found(vendor: &str, script: Option<&str>) -> Option<String> {
        let mut checkout = Checkout::new().with("vendors/chip/vendor.yaml", &format!("{VENDOR}{vendor}"));
        if let Some(script) = script {
            checkout = checkout.with("vendors/chip/monitor.rhai", script);
        }
        let vendor = Vendor::read(checkout.root(), "chip").unwrap();
        check_monitor_script(&vendor, checkout.root()).map(|finding| finding.to_string())
    }

    #[test]
    fn a_command_needs_a_script_that_compiles_and_a_script_needs_a_command() {
        let command = "monitor_command: {command: [chip-smi]}\n";
        assert_eq!(found("", None), None);
        assert_eq!(found(command, Some("fn read_devices(output) { [] }")), None);
        assert_eq!(
            found(command, None).unwrap(),
            "vendors/chip/vendor.yaml:5: `monitor_command` has no script: `monitor.rhai` does not exist\n  hint: \
             vendors/README.md shows how to write it"
        );
        let broken = found(command, Some("fn read_devices(output) {\n    text::lins(output)\n}")).unwrap();
        assert!(broken.starts_with("vendors/chip/monitor.rhai:2:"), "{broken}");
        let unused = found("", Some("fn read_devices(output) { [] }")).unwrap();
        assert!(unused.contains("`monitor.rhai` is never run"), "{unused}");
    }
}
