//! Times the start of a run on one host and on sixteen, with 50 ms of network delay in each direction.
//!
//!     cargo build --release --examples && cargo bench --bench fleet_start [-- HOSTS [TURNS]]     16 hosts and 5 turns by default
//!
//! The hosts are containers with sshd on this machine (tests/lab), so they share its processors. A turn runs the case once on
//! the first host and once on all hosts, and prints the time from the start of the program until the worker of the last host
//! has ended validation, which computes the first batches, their ratio, and the processor time of one host: all that runs on it,
//! with sshd, until the run has been interrupted. The program and the files of the checkout are on every host before the first
//! turn.

#[path = "support/first_batch.rs"]
mod first_batch;
#[path = "../tests/fleet/hosts/site.rs"]
#[expect(dead_code, reason = "the tests of hosts use the rest")]
mod site;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use first_batch::until_first_batch;
use site::Site;
use support::lab::Lab;

const DELAY: Duration = Duration::from_millis(50);
/// What the container's control group has used, in nanoseconds (version 1) or in microseconds (version 2).
const PROCESSOR_TIME: &str = "cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null || \
                              awk '/^usage_usec/ { print $2 * 1000 }' /sys/fs/cgroup/cpu.stat";

fn main() {
    // `cargo bench` appends `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number =
        |place: usize, default: usize| arguments.get(place).map_or(default, |text| text.parse().expect("a number"));
    let (hosts, turns) = (number(0, 16), number(1, 5));
    let Some(lab) = Lab::hosts(hosts) else {
        return println!("this machine cannot run hosts: `tests/lab/hosts check`");
    };
    let site = |count: usize| {
        let hosts = lab.names()[..count].join(", ");
        let config = lab.delayed_config(DELAY);
        let host = format!("HOSTS: [{hosts}]\nSSH_CONFIG: {}\nMONITOR_RATE: 0\n", config.display());
        Site::new(&format!("{host}CASES:\n    \"tiny:own:{count}x1\": datasets/tiny\n"))
    };
    let (one, all) = (site(1), site(hosts));
    start(&lab, &all, hosts);
    for _ in 0..turns {
        let (first, _) = start(&lab, &one, 1);
        let (last, processor) = start(&lab, &all, hosts);
        println!(
            "one host: {first:.2} s; {hosts} hosts: {last:.2} s; ratio {:.2}; processor time of a host: {processor:.2} s",
            last / first
        );
    }
}

/// Returns the seconds from the start of a run until every host has ended validation, and the processor time of a host, in
/// seconds.
fn start(lab: &Lab, site: &Site, count: usize) -> (f64, f64) {
    let used =
        || (1..=count).map(|host| lab.host(host).exec(PROCESSOR_TIME).trim().parse::<f64>().expect("a time")).sum();
    let before: f64 = used();
    let time = until_first_batch(site, count);
    let after: f64 = used();
    (time, (after - before) / count as f64 * 1e-9)
}
