//! `flagperf read-devices`: runs a vendor's monitor.rhai on the output of the vendor's command.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::output::print_message;
use flagperf_core::exit_code;
use flagperf_core::measure::MonotonicClock;
use flagperf_script::{MonitorScript, run_on_script_stack};

/// Longest output of a command that is read, in bytes.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// Prints the devices as one line of JSON, or the reason as the last line of standard error.
pub(super) fn read_devices(script: &Path) -> anyhow::Result<ExitCode> {
    let mut output = Vec::new();
    io::stdin().take(INPUT_BYTES_MAX).read_to_end(&mut output).context("cannot read standard input")?;
    let output = String::from_utf8_lossy(&output);
    let read = || {
        let script = MonitorScript::load(script, Arc::new(MonotonicClock::start()))?;
        script.read_devices(&output)
    };
    let devices = match run_on_script_stack(MonitorScript::memory_max(), read) {
        Ok(Ok(devices)) => devices,
        Ok(Err(error)) => return Ok(fail(&error.to_string())),
        Err(reason) => return Ok(fail(&format!("`{}` {reason}", script.display()))),
    };
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(&devices)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the first line of a reason: the others show the line of the script.
fn fail(reason: &str) -> ExitCode {
    print_message(reason.lines().next().unwrap_or_default());
    ExitCode::from(exit_code::FAILED)
}
