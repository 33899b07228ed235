//! Judges whether the time in *output* is explained by copying the outputs to the host.
//!
//! The device is synchronised when *core* ends. An engine that computes after that, while its outputs are copied,
//! shortens *core* and thereby raises its core throughput. A comparison of outputs cannot detect this. Copying has a
//! minimum speed, however: a case fails if its outputs take longer than over any link, and gets a warning if they take
//! longer than over most links.

use flagperf_core::measure::{Measurement, OutputCopy};

/// Share of *output* in *core* plus *output* below which the time in *output* is too short to matter.
const SHARE_MIN: f64 = 0.1;
/// Number of steps from which the fastest one is reliable enough to fail a case.
const STEPS_MIN: u64 = 10;
/// With fewer steps, a case fails only if every step exceeds the bound by this factor.
const FEW_STEPS_FACTOR: f64 = 5.0;
/// Number of steps below which a case never fails.
const FEW_STEPS_MIN: u64 = 3;

/// An upper bound on the time of copying: a constant per output plus the time of its bytes.
struct CopyTimeBound {
    output_s: f64,
    bytes_per_s: f64,
}

/// Bound above which there is a warning. It is slower than a copy from a GPU (0.12 ms for 64 kB from an H200), a
/// sidecar's round trip, and one core that copies from memory that is not mapped yet.
const SLOW_COPY: CopyTimeBound = CopyTimeBound { output_s: 3e-4, bytes_per_s: 1e9 };
/// Bound above which the case fails. It is slower than any link between a device and its host.
const SLOWEST_COPY: CopyTimeBound = CopyTimeBound { output_s: 1e-3, bytes_per_s: 1e8 };

impl CopyTimeBound {
    fn seconds(&self, copy: &OutputCopy) -> f64 {
        f64::from(copy.count) * self.output_s + copy.bytes.0 as f64 / self.bytes_per_s
    }
}

/// The verdict on the time in *output*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTimeVerdict {
    /// The time is explained by copying, or too short to matter.
    Copying,
    /// The time exceeds that of copying on most links. With few steps, a single delay may be the cause.
    Slow(String),
    /// The time exceeds that of any copying: the engine computed after it reported that it had finished.
    Computing(String),
}

impl OutputTimeVerdict {
    /// Judges the measured loop of a step.
    pub fn judge(measured: &Measurement) -> Self {
        let (Some(copy), Some(core)) = (&measured.output_copy, &measured.latency) else {
            return OutputTimeVerdict::Copying;
        };
        let (output_s, core_s) = (copy.latency.p50_s.0, core.p50_s.0);
        if output_s < SHARE_MIN * (output_s + core_s) || output_s <= SLOW_COPY.seconds(copy) {
            return OutputTimeVerdict::Copying;
        }
        let text = format!(
            "{}: outputs of {} bytes took {:.3} ms per step to reach the host after the device was synchronised (core: \
             {:.3} ms)",
            measured.step.name(),
            copy.bytes.0,
            1e3 * output_s,
            1e3 * core_s
        );
        // A busy machine delays many steps, but hardly every one of them: the fastest step decides.
        let factor = match measured.steps {
            STEPS_MIN.. => 1.0,
            FEW_STEPS_MIN.. => FEW_STEPS_FACTOR,
            _ => f64::INFINITY,
        };
        if copy.latency.min_s.0 > factor * SLOWEST_COPY.seconds(copy) {
            return OutputTimeVerdict::Computing(format!("{text}: the engine computes outside core"));
        }
        OutputTimeVerdict::Slow(format!("{text}: does the engine compute outside core?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flagperf_core::measure::Latency;
    use flagperf_core::step::Step;
    use flagperf_core::units::{Bytes, Seconds};

    fn judged(steps: u64, core_s: f64, output_s: f64, bytes: u64) -> OutputTimeVerdict {
        let latency = |p50_s| Latency { p50_s: Seconds(p50_s), min_s: Seconds(p50_s / 2.0), ..Latency::default() };
        let mut measured = testing::measurement(Step::Inference);
        measured.steps = steps;
        measured.latency = Some(latency(core_s));
        measured.output_copy = Some(OutputCopy { count: 1, bytes: Bytes(bytes), latency: latency(output_s) });
        OutputTimeVerdict::judge(&measured)
    }

    #[test]
    fn an_engine_that_computes_while_outputs_are_copied_is_recognised() {
        let OutputTimeVerdict::Computing(text) = judged(100, 1e-4, 1e-2, 4000) else {
            panic!("the engine was not recognised")
        };
        let expected = "inference: outputs of 4000 bytes took 10.000 ms per step to reach the host after the device \
                        was synchronised (core: 0.100 ms): the engine computes outside core";
        assert_eq!(text, expected);
    }

    #[test]
    fn copying_and_short_times_are_not_suspicious() {
        assert_eq!(judged(100, 1e-2, 1e-4, 4000), OutputTimeVerdict::Copying, "a sidecar's round trip");
        assert_eq!(judged(100, 1e-5, 5e-5, 4000), OutputTimeVerdict::Copying, "tiny models");
        assert_eq!(judged(100, 1.0, 5e-2, 4000), OutputTimeVerdict::Copying, "too short to matter");
        assert_eq!(judged(100, 1e-2, 3e-2, 400 << 20), OutputTimeVerdict::Copying, "many bytes");
    }

    #[test]
    fn an_ambiguous_time_is_a_warning() {
        assert!(matches!(judged(100, 1e-3, 6e-4, 4000), OutputTimeVerdict::Slow(_)));
        assert!(matches!(judged(100, 2.6e-2, 1.9e-3, 4000), OutputTimeVerdict::Copying), "a short part of core");
        assert!(
            matches!(judged(100, 5e-3, 1.9e-3, 4000), OutputTimeVerdict::Slow(_)),
            "the fastest of many delayed steps is as fast as a copy"
        );
        assert!(
            matches!(judged(3, 1e-4, 8e-3, 4000), OutputTimeVerdict::Slow(_)),
            "three steps may all have been delayed"
        );
        assert!(matches!(judged(3, 1e-4, 7e-2, 4000), OutputTimeVerdict::Computing(_)), "but not by so much");
    }
}
