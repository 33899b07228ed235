//! Whether the time that outputs took to arrive on the host can have been copying.
//!
//! The device is synchronised when *core* ends. An engine that computes later, while its outputs are copied, takes that
//! time out of *core*: its throughput in *core* is wrong. Copying has a speed, so much of such time is recognised.

use crate::measure::{Measurement, OutputCopy};

/// From this share of *core* and *output* together, time in *output* changes the figure.
const SHARE: f64 = 0.1;
/// Steps from which the median is trusted enough to fail a case.
const STEPS: u64 = 10;
/// With fewer, every step must take longer by this factor, and there must be this many.
const BY_FAR: f64 = 5.0;
const FEW_STEPS: u64 = 3;

/// The longest that copying can take: for each output once, and for every byte.
struct Bound {
    output_s: f64,
    bytes_per_s: f64,
}

/// Slower than a copy from a GPU (0.12 ms for 64 kB from an H200), a sidecar's round trip, and one core that copies from memory
/// not yet mapped: worth a warning.
const SLOW: Bound = Bound { output_s: 3e-4, bytes_per_s: 1e9 };
/// Slower than any link between a device and its host.
const IMPOSSIBLE: Bound = Bound { output_s: 1e-3, bytes_per_s: 1e8 };

impl Bound {
    fn seconds(&self, copy: &OutputCopy) -> f64 {
        f64::from(copy.count) * self.output_s + copy.bytes.0 as f64 / self.bytes_per_s
    }
}

/// What the time in *output* shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTime {
    /// No more than copying takes, or too little to change a figure.
    Copying,
    /// More than copying takes on most links; with few steps, one delay may be the reason.
    Slow(String),
    /// More than any copying takes: the engine computed after it said that it had finished.
    Computing(String),
}

impl OutputTime {
    /// Judges the measured loop of a step.
    pub fn judge(measured: &Measurement) -> Self {
        let (Some(copy), Some(core)) = (&measured.output_copy, &measured.latency) else { return OutputTime::Copying };
        let (output_s, core_s) = (copy.latency.p50_s.0, core.p50_s.0);
        if output_s < SHARE * (output_s + core_s) || output_s <= SLOW.seconds(copy) {
            return OutputTime::Copying;
        }
        let text = format!(
            "{}: outputs of {} bytes took {:.3} ms a step to arrive after the device was synchronised, core {:.3} ms",
            measured.step.name(),
            copy.bytes.0,
            1e3 * output_s,
            1e3 * core_s
        );
        // One delay of the machine makes a step long, not every step by far.
        let always = measured.steps >= FEW_STEPS && copy.latency.min_s.0 > BY_FAR * IMPOSSIBLE.seconds(copy);
        if always || (measured.steps >= STEPS && output_s > IMPOSSIBLE.seconds(copy)) {
            return OutputTime::Computing(format!("{text}: the engine computes outside core"));
        }
        OutputTime::Slow(format!("{text}: does the engine compute outside core?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Latency;
    use crate::result::testing;
    use crate::step::Step;
    use crate::units::{Bytes, Seconds};

    fn judged(steps: u64, core_s: f64, output_s: f64, bytes: u64) -> OutputTime {
        let latency = |p50_s| Latency { p50_s: Seconds(p50_s), min_s: Seconds(p50_s / 2.0), ..Latency::default() };
        let mut measured = testing::measurement(Step::Inference);
        measured.steps = steps;
        measured.latency = Some(latency(core_s));
        measured.output_copy = Some(OutputCopy { count: 1, bytes: Bytes(bytes), latency: latency(output_s) });
        OutputTime::judge(&measured)
    }

    #[test]
    fn an_engine_that_computes_while_outputs_are_copied_is_recognised() {
        let OutputTime::Computing(text) = judged(100, 1e-4, 1e-2, 4000) else { panic!("it was not recognised") };
        let expected = "inference: outputs of 4000 bytes took 10.000 ms a step to arrive after the device was \
                        synchronised, core 0.100 ms: the engine computes outside core";
        assert_eq!(text, expected);
    }

    #[test]
    fn copying_and_short_times_are_no_reason_to_doubt() {
        assert_eq!(judged(100, 1e-2, 1e-4, 4000), OutputTime::Copying, "a sidecar's round trip");
        assert_eq!(judged(100, 1e-5, 5e-5, 4000), OutputTime::Copying, "tiny models");
        assert_eq!(judged(100, 1.0, 5e-2, 4000), OutputTime::Copying, "too little to change the figure");
        assert_eq!(judged(100, 1e-2, 3e-2, 400 << 20), OutputTime::Copying, "many bytes");
    }

    #[test]
    fn what_cannot_be_told_apart_is_a_warning() {
        assert!(matches!(judged(100, 1e-3, 6e-4, 4000), OutputTime::Slow(_)));
        assert!(matches!(judged(3, 1e-4, 8e-3, 4000), OutputTime::Slow(_)), "three steps may all have been delayed");
        assert!(matches!(judged(3, 1e-4, 7e-2, 4000), OutputTime::Computing(_)), "but not by so much");
    }
}
