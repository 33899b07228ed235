//! Times the start of a run with a container and without one.
//!
//!     cargo build --release && cargo bench --bench container_start [-- TURNS]     5 turns by default
//!
//! A turn starts the program twice with an engine that loads nothing, and prints the time until validation has ended, which
//! computes the first batches: without a container, and in a container whose image exists. The first run of all builds the image
//! and is not counted.

#[path = "support/first_batch.rs"]
mod first_batch;
#[path = "../tests/fleet/hosts/site.rs"]
#[expect(dead_code, reason = "the tests of hosts use the rest")]
mod site;
#[path = "../tests/support/mod.rs"]
mod support;

use first_batch::until_first_batch;
use site::Site;

fn main() {
    // `cargo bench` appends `--bench`.
    let turns = std::env::args().skip(1).find(|argument| argument != "--bench");
    let turns: usize = turns.map_or(5, |text| text.parse().expect("a number"));
    if let Err(error) = flagperf_container::ContainerEngine::connect() {
        return println!("this machine cannot run containers: {error}");
    }
    let case = "MONITOR_RATE: 10\nCASES:\n    \"tiny:own\": datasets/tiny\n";
    let (bare, contained) = (Site::new(case), Site::new(&format!("CONTAINER: docker\n{case}")));
    contained.write(
        "docker_images/side/own/Dockerfile",
        "FROM debian:bookworm-slim\nLABEL flagperf.bench=container_start\n",
    );
    until_first_batch(&contained, 1);
    for _ in 0..turns {
        println!(
            "until validation, which computes the first batches, has ended: {:.2} s; in a container: {:.2} s",
            until_first_batch(&bare, 1),
            until_first_batch(&contained, 1)
        );
    }
}
