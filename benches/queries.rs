//! Measures how exactly queries arrive, and what it costs: a thread issues random queries, and another answers each at once.
//!
//! `cargo bench --bench queries [-- SECONDS [RATE..]]` prints for each rate, 1,000 to 512,000 queries per second by default, the rate
//! that was reached, how late queries were put in the queue, how long their answers took, and the processor time. A program that
//! answers MLPerf's LoadGen in the same way is to be run beside it.

use flagperf_core::hash::Seed;
use flagperf_core::measure::{Clock, Latency, MonotonicClock, Nanos};
use flagperf_core::units::Seconds;
use flagperf_load::{Issuer, QueryQueue, Schedule, Stop};
use nix::sys::resource::{UsageWho, getrusage};

/// Most queries that are taken at once.
const TAKEN_MAX: usize = 64;

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(3.0);
    let rates = match numbers.get(1..) {
        Some(rates) if !rates.is_empty() => rates.to_vec(),
        _ => (0..10).map(|power| 1000.0 * f64::from(1 << power)).collect(),
    };
    for rate in rates {
        let queries = (rate * seconds) as u64;
        let schedule = Schedule::Poisson { queries, queries_per_s: rate, seed: Seed::from([1; 32]) };
        let (queue, stop, clock) = (QueryQueue::default(), Stop::default(), MonotonicClock::start());
        let (begin, before) = (clock.now(), processor_time());
        let issuer = Issuer { schedule: &schedule, queue: &queue, stop: &stop, clock: &clock, begin };
        let (mut lateness, mut latency) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| issuer.run());
            while let Some(taken) = queue.take(TAKEN_MAX, Seconds(0.0), &clock) {
                let end: Nanos = clock.now();
                lateness.extend(taken.iter().map(|query| query.issued.since(query.scheduled)));
                latency.extend(taken.iter().map(|query| end.since(query.scheduled)));
            }
        });
        let (time, cpu) = (clock.now().since(begin).0, processor_time() - before);
        let [late, answer] = [lateness, latency].map(|times| Latency::of(&times).expect("queries arrived"));
        let us = |time: Seconds| time.0 * 1e6;
        println!(
            "{rate:>8.0}/s: reached {:>8.0}/s; late p50 {:.1} p99 {:.1} us; answered p50 {:.1} p99 {:.1} us; processor {:.1} %",
            queries as f64 / time,
            us(late.p50_s),
            us(late.p99_s),
            us(answer.p50_s),
            us(answer.p99_s),
            100.0 * cpu / time
        );
    }
}

/// Returns the processor time of this process in seconds.
fn processor_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process has a usage");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
