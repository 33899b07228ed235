//! The table of exit codes in the help of the program.

use flagperf_core::exit_code::EXIT_CODES;

/// Returns the table.
pub(super) fn exit_code_lines() -> String {
    let lines = EXIT_CODES.iter().map(|(code, when)| format!("  {code:>3}  {when}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}
