//! The time until a run computes its first batch.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use flagperf::measure::{Clock, MonotonicClock};
use nix::sys::signal::Signal;

use crate::site::{Site, finish, kill};

/// Starts the run of a site, and interrupts it when `replicas` workers have reported a batch. Returns the seconds from the
/// start of the program until then.
pub fn until_first_batch(site: &Site, replicas: usize) -> f64 {
    let clock = MonotonicClock::start();
    let begin = clock.now();
    let mut run = site.start(&["run", "--plain"]);
    let mut begun = BTreeSet::new();
    let mut printed = Vec::new();
    for line in BufReader::new(run.stderr.take().expect("a pipe")).lines().map_while(Result::ok) {
        // `  [h1_noderank0] validation warm-up  1 step, not measured`; a single replica has no name.
        if line.contains("warm-up") {
            begun.insert(line.split(']').next().filter(|_| replicas > 1).unwrap_or_default().to_owned());
        }
        printed.push(line);
        if begun.len() == replicas {
            break;
        }
    }
    let time = clock.now().since(begin).0;
    assert_eq!(begun.len(), replicas, "not every worker has reported a batch:\n{}", printed.join("\n"));
    kill(&run, Signal::SIGINT);
    finish(run);
    time
}
