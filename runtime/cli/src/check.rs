//! `flagperf check`: checks the scripts and the files of planned cases.

use std::io;
use std::process::ExitCode;

use anyhow::Context as _;

use super::reply::print_reply;
use flagperf_prepare::CheckRequest;

/// Reads requests and prints the faults of each.
pub(super) fn check() -> anyhow::Result<ExitCode> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("cannot read the request from standard input")?;
    let requests: Vec<CheckRequest> =
        serde_json::from_str(&line).context("standard input contains no requests (expected: one line of JSON)")?;
    print_reply(|| flagperf_prepare::check(&requests))
}
