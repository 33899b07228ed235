//! The table of exit codes.

/// The exit codes, each with its meaning.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "every case succeeded; `verify`: every result is authentic or consistent; `import`: everything was converted"),
    (
        1,
        "a case failed, or with --official a result is not valid: the record states the reason; `verify`: a result is wrong; \
         `import`: a file cannot be converted",
    ),
    (
        2,
        "invalid arguments or configuration; nothing was run; `verify`: a result cannot be checked; `import`: nothing can be converted",
    ),
    (3, "results could not be written, or a result has no manifest; `import`: a file could not be written"),
    (130, "interrupted (Ctrl-C, SIGTERM, SIGQUIT, SIGHUP): the records are marked as interrupted"),
];

/// Returns the table for the help of the program.
pub(super) fn exit_code_lines() -> String {
    let lines = EXIT_CODES.iter().map(|(code, when)| format!("  {code:>3}  {when}\n"));
    format!("Exit codes:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_run::RunOutcome;

    #[test]
    fn every_exit_code_of_a_run_is_in_the_table() {
        for code in [RunOutcome::OK, RunOutcome::FAILED, RunOutcome::UNWRITTEN, RunOutcome::INTERRUPTED] {
            assert!(EXIT_CODES.iter().any(|(known, _)| *known == code), "{code}");
        }
    }
}
