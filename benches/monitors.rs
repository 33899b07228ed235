//! Measures the processor time of the monitors of a case.
//!
//! `cargo bench --bench monitors [-- MONITOR [SECONDS]]` reads every source of this machine ten times a second for 60 s, with the
//! devices of a row of the table of monitors, `nvml` by default, and prints the share of one core that this took, beside that of
//! a process that reads nothing.

use std::sync::Arc;
use std::time::Duration;

use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_sampling::{MonitorFiles, Sampler, SamplerOptions, SourceContext, TABLE};
use nix::sys::resource::{UsageWho, getrusage};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let monitor = arguments.first().map_or("nvml", String::as_str);
    let seconds = arguments.get(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    for rate in [0, 1, 10] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::start());
        let (began, before) = (clock.now(), processor_time());
        let context = SourceContext::new(clock.clone(), Some(monitor), None);
        let options = SamplerOptions { rate_per_s: rate, started: began };
        let files = MonitorFiles::new(folder.path(), "bench", rate);
        let sampler = Sampler::start(options, context, files, TABLE);
        std::thread::sleep(Duration::from_secs(seconds));
        let (record, warnings) = sampler.finish();
        let share = (processor_time() - before) / clock.now().since(began).0;
        println!("{rate:>2} readings per second: {:.3} % of a core", 100.0 * share);
        for (name, source) in &record.sources {
            println!("   {name}: {} readings, {} late, {:?}", source.readings, source.late, source.unavailable);
        }
        warnings.iter().for_each(|warning| println!("   {warning}"));
    }
}

/// Returns the processor time of this process in seconds.
fn processor_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process has a usage");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
