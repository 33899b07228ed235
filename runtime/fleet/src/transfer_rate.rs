//! The rate that a transfer needs, so that a slow connection is waited for, and a host that sends a byte now and then is not
//! waited for without end.

use flagperf_core::units::Seconds;

/// Smallest number of bytes per second of a connection that is used. A slower one would take days for the program.
pub(super) const BYTES_PER_S_MIN: f64 = 4096.0;

/// Returns whether a transfer is too slow that has moved `bytes` in the time `taken`: each byte adds to the time `limit`.
pub(super) fn is_too_slow(taken: Seconds, bytes: u64, limit: Seconds) -> bool {
    taken.0 > limit.0 + bytes as f64 / BYTES_PER_S_MIN
}

/// Returns what is wrong with a transfer that was too slow.
pub(super) fn slow_reason(taken: Seconds, bytes: u64) -> String {
    format!("only {bytes} bytes in {:.0} s (needed: {BYTES_PER_S_MIN} bytes per second)", taken.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_connection_is_waited_for_and_a_byte_a_second_is_not() {
        let is_slow = |taken: f64, bytes: u64| is_too_slow(Seconds(taken), bytes, Seconds(60.0));
        assert!(!is_slow(59.0, 0) && is_slow(61.0, 0) && is_slow(61.0, 61));
        // 10 kB/s for an hour.
        assert!(!is_slow(3600.0, 36_000_000));
        assert!(is_slow(3600.0, 3600));
    }
}
