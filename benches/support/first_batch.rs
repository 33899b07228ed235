//! The time until a run has computed its first batches.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use flagperf_core::measure::{Clock, MonotonicClock};
use nix::sys::signal::Signal;

use crate::site::{Site, finish, kill};

/// Starts the run of a site, and interrupts it when `replicas` workers have ended validation. Its engine computes nothing, so
/// validation takes a tenth of a second. Returns the seconds from the start of the program until then.
pub fn until_first_batch(site: &Site, replicas: usize) -> f64 {
    let clock = MonotonicClock::start();
    let begin = clock.now();
    let mut run = site.start(&["run", "--plain"]);
    let mut begun = BTreeSet::new();
    let mut printed = Vec::new();
    for line in BufReader::new(run.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
        // `  [h1 device 0] validation 74.8 ms`; a single worker has no name. A step that begins has a text instead of a time.
        let (name, step) = line.trim_start().rsplit_once("] ").unwrap_or(("", line.trim_start()));
        let mut words = step.split_whitespace();
        let has_ended = |word: &str| word.parse::<f64>().is_ok();
        if words.next() == Some("validation") && words.next().is_some_and(has_ended) {
            begun.insert(name.to_owned());
        }
        printed.push(line);
        if begun.len() == replicas {
            break;
        }
    }
    let time = clock.now().since(begin).0;
    assert_eq!(begun.len(), replicas, "not every worker has ended validation:\n{}", printed.join("\n"));
    kill(&run, Signal::SIGINT);
    finish(run);
    time
}
