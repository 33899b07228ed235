//! How long the outputs of a step may take to reach the host: what takes longer is computation, and counts as core.

use crate::units::Seconds;

/// An upper bound on the time of copying: a constant for each output plus the time of its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyTimeBound {
    /// Seconds for each output.
    pub output_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

impl CopyTimeBound {
    /// Slower than most links: than a copy from a GPU (0.12 ms for 64 kB from an H200), a sidecar's round trip, and one core
    /// that copies from memory that is not mapped yet.
    pub const SLOW: CopyTimeBound = CopyTimeBound { output_s: 3e-4, bytes_per_s: 1e9 };
    /// Slower than any link between a device and its host.
    pub const SLOWEST: CopyTimeBound = CopyTimeBound { output_s: 1e-3, bytes_per_s: 1e8 };

    /// Returns the bound for so many outputs and bytes.
    pub fn seconds(&self, outputs: u32, bytes: u64) -> f64 {
        f64::from(outputs) * self.output_s + bytes as f64 / self.bytes_per_s
    }
}

/// The link from the device to the host, measured by copying the outputs of a step again.
///
/// An engine that computes while its outputs are copied shortens *core*, which no comparison of outputs shows. When the same
/// outputs are copied again, nothing is left to compute. An engine could delay that copy, too, so that what it may take is
/// bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutputLink {
    /// Shortest and longest time of a copy.
    pub again_s: [Seconds; 2],
    /// Bytes that it copied.
    pub bytes: u64,
}

impl OutputLink {
    /// The resolution with which times of copies are compared, in seconds.
    const TOLERANCE_S: f64 = 1e-5;

    /// Returns the part of the time `output_s`, in which `bytes` of outputs reached the host, that a copy does not explain.
    pub fn deferred(&self, output_s: Seconds, outputs: u32, bytes: u64) -> Seconds {
        let scale = (bytes as f64 / self.bytes.max(1) as f64).max(1.0);
        let copy_s = (self.again_s[1].0 * scale + Self::TOLERANCE_S).min(CopyTimeBound::SLOW.seconds(outputs, bytes));
        Seconds((output_s.0 - copy_s).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_a_copy_is_deferred_computation() {
        let link = OutputLink { again_s: [Seconds(1e-3); 2], bytes: 4_000_000 };
        let deferred = |output_s: f64, bytes: u64| (link.deferred(Seconds(output_s), 1, bytes).0 * 1e6).round();
        assert_eq!(deferred(1e-3, 4_000_000), 0.0);
        assert_eq!(deferred(5e-3, 4_000_000), 3990.0);
        assert_eq!(deferred(2e-3, 8_000_000), 0.0, "twice the bytes");
        let delayed = OutputLink { again_s: [Seconds(1.0); 2], bytes: 4_000_000 };
        assert_eq!((delayed.deferred(Seconds(1.0), 1, 4_000_000).0 * 1e4).round(), 9957.0, "the bound: 4.3 ms");
    }
}
