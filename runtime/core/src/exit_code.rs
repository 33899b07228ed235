//! The exit codes of the program.

/// Every case succeeded and every record was written.
pub const OK: u8 = 0;
/// A case failed, or its result is not valid although that was required.
pub const FAILED: u8 = 1;
/// Invalid arguments or configuration; nothing was run.
pub const MISTAKE: u8 = 2;
/// Results could not be written.
pub const UNWRITTEN: u8 = 3;
/// The run was interrupted.
pub const INTERRUPTED: u8 = 130;

/// The exit codes, each with its meanings.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (OK, "every case succeeded; `verify`: every result is authentic or consistent; `import`: everything was converted"),
    (
        FAILED,
        "a case failed, or with --official a result is not valid: the record states the reason; `verify`: a result is wrong; \
         `import`: a file cannot be converted",
    ),
    (
        MISTAKE,
        "invalid arguments or configuration; nothing was run; `verify`: a result cannot be checked; `import`: nothing can be converted",
    ),
    (UNWRITTEN, "results could not be written, or a result has no manifest; `import`: a file could not be written"),
    (INTERRUPTED, "interrupted (Ctrl-C, SIGTERM, SIGQUIT, SIGHUP): the records are marked as interrupted"),
];
