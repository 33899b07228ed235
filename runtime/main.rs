//! The program `flagperf`.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    flagperf_cli::main()
}
