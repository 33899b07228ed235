//! Judges whether an engine computes while its outputs are copied to the host.
//!
//! The device is synchronised when *core* ends. An engine that computes after that shortens *core*; what its outputs take
//! beyond the time of a copy therefore counts as core. How long a copy takes is measured by copying outputs again: a case fails
//! if that takes longer than over any link, and is unofficial if it takes longer than over most links.

use flagperf_core::measure::{CopyTimeBound, Measurement};

/// Share of the time in *core* and *output* below which a time is too short to matter.
const SHARE_MIN: f64 = 0.1;

/// Factor by which each copy must exceed the bound for the case to fail: a busy machine may delay all of them.
const DELAY_FACTOR: f64 = 5.0;

/// The verdict on the time in *output*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTimeVerdict {
    /// The time is explained by copying, or too short to matter.
    Copying,
    /// The engine may compute while its outputs are copied. What exceeds a copy counts as core.
    Slow(String),
    /// A copy takes longer than over any link: the engine computes after it reported that it had finished.
    Computing(String),
}

impl OutputTimeVerdict {
    /// Judges the measured loop of a step.
    pub fn judge(measured: &Measurement) -> Self {
        let (Some(copy), Some(core)) = (&measured.output_copy, &measured.latency) else {
            return OutputTimeVerdict::Copying;
        };
        let (name, bytes, steps) = (measured.step.name(), copy.bytes.0, measured.steps.max(1) as f64);
        // A busy machine delays some copies, but hardly every one of them: the fastest one decides.
        let (again_s, deferred_s, core_s) = (copy.again_s[0].0, copy.deferred_s.0 / steps, core.mean_s.0);
        if again_s >= SHARE_MIN * (again_s + core_s) && again_s > CopyTimeBound::SLOW.seconds(copy.count, bytes) {
            let text = format!(
                "{name}: outputs of {bytes} bytes that had been copied to the host took at least {:.3} ms to be copied again (core: {:.3} \
                 ms)",
                1e3 * again_s,
                1e3 * core_s
            );
            return match again_s > DELAY_FACTOR * CopyTimeBound::SLOWEST.seconds(copy.count, bytes) {
                true => OutputTimeVerdict::Computing(format!("{text}: the engine computes outside core")),
                false => OutputTimeVerdict::Slow(format!("{text}: does the engine compute outside core?")),
            };
        }
        if deferred_s >= SHARE_MIN * core_s {
            return OutputTimeVerdict::Slow(format!(
                "{name}: {:.3} ms of {:.3} ms of core per step passed while outputs of {bytes} bytes were copied to the host, which \
                 takes {:.3} ms: does the engine compute outside core?",
                1e3 * deferred_s,
                1e3 * core_s,
                1e3 * again_s
            ));
        }
        OutputTimeVerdict::Copying
    }
}

/// Returns that an engine could compute unnoticed in the time of a copy, if that is long beside core: an engine that delays the
/// measured copies, too, looks like a slow link.
pub(super) fn unproven_copy(measured: &Measurement) -> Option<String> {
    let (copy, core_s) = (measured.output_copy.as_ref()?, measured.latency.as_ref()?.mean_s.0);
    let copy_s = copy.again_s[1].0.min(CopyTimeBound::SLOW.seconds(copy.count, copy.bytes.0));
    (copy_s >= SHARE_MIN * (copy_s + core_s)).then(|| {
        format!(
            "{}: whether the engine computes while its outputs of {} bytes are copied to the host, which takes {:.3} ms beside \
             {:.3} ms of core",
            measured.step.name(),
            copy.bytes.0,
            1e3 * copy_s,
            1e3 * core_s
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use flagperf_core::measure::{Latency, OutputCopy};
    use flagperf_core::step::Step;
    use flagperf_core::units::{Bytes, Seconds};

    /// Returns the figures of 100 steps.
    fn measured(core_s: f64, again_s: f64, deferred_s: f64, bytes: u64) -> Measurement {
        let mut measured = testing::measurement(Step::Inference);
        measured.steps = 100;
        measured.latency = Some(Latency { mean_s: Seconds(core_s), ..Latency::default() });
        measured.output_copy = Some(OutputCopy {
            count: 1,
            bytes: Bytes(bytes),
            again_s: [Seconds(again_s); 2],
            deferred_s: Seconds(100.0 * deferred_s),
            ..OutputCopy::default()
        });
        measured
    }

    fn judged(core_s: f64, again_s: f64, deferred_s: f64, bytes: u64) -> OutputTimeVerdict {
        OutputTimeVerdict::judge(&measured(core_s, again_s, deferred_s, bytes))
    }

    #[test]
    fn a_copy_that_is_long_beside_core_is_named_as_unproven() {
        let text = unproven_copy(&measured(1.4e-3, 5e-3, 0.0, 4_000_000)).expect("it is long");
        let expected = "inference: whether the engine computes while its outputs of 4000000 bytes are copied to the host, which \
                        takes 4.300 ms beside 1.400 ms of core";
        assert_eq!(text, expected, "at most the time that is not counted as core");
        assert_eq!(unproven_copy(&measured(1e-2, 1e-4, 0.0, 4000)), None);
    }

    #[test]
    fn an_engine_that_computes_at_each_copy_is_recognised() {
        let OutputTimeVerdict::Computing(text) = judged(1e-4, 2e-2, 0.0, 4000) else {
            panic!("the engine was not recognised")
        };
        let expected = "inference: outputs of 4000 bytes that had been copied to the host took at least 20.000 ms to be copied again \
                        (core: 0.100 ms): the engine computes outside core";
        assert_eq!(text, expected);
        assert!(matches!(judged(1e-3, 6e-4, 0.0, 4000), OutputTimeVerdict::Slow(_)));
    }

    #[test]
    fn an_engine_that_computes_while_outputs_are_copied_is_a_warning() {
        let OutputTimeVerdict::Slow(text) = judged(5e-3, 1e-4, 4e-3, 4000) else { panic!("no warning") };
        let expected = "inference: 4.000 ms of 5.000 ms of core per step passed while outputs of 4000 bytes were copied to the \
                        host, which takes 0.100 ms: does the engine compute outside core?";
        assert_eq!(text, expected);
    }

    #[test]
    fn copying_and_short_times_are_not_suspicious() {
        assert_eq!(judged(1e-2, 1e-4, 0.0, 4000), OutputTimeVerdict::Copying, "a sidecar's round trip");
        assert_eq!(judged(1e-5, 5e-5, 0.0, 4000), OutputTimeVerdict::Copying, "tiny models");
        assert_eq!(judged(1.0, 5e-2, 0.0, 4000), OutputTimeVerdict::Copying, "too short to matter");
        assert_eq!(judged(1e-2, 3e-2, 1e-4, 400 << 20), OutputTimeVerdict::Copying, "many bytes");
    }
}
