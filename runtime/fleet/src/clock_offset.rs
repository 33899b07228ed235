//! The offset of a host's wall clock from the clock of this machine.

use flagperf_core::units::Seconds;

/// The difference of two wall clocks, with the largest error that its measurement may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockOffset {
    /// By how much the other clock is ahead.
    pub ahead: Seconds,
    /// Largest error: half of the time that the answer took.
    pub error_max: Seconds,
}

impl ClockOffset {
    /// Returns the offset of a clock that showed `time` when it answered a request. The request was sent, and the answer
    /// received, at these times of the clock of this machine.
    pub(super) fn measured(sent: Seconds, received: Seconds, time: Seconds) -> Self {
        ClockOffset {
            ahead: Seconds(time.0 - (sent.0 + received.0) / 2.0),
            error_max: Seconds((received.0 - sent.0).abs() / 2.0),
        }
    }

    /// Returns the newer offset if it is at least as exact as this one or contradicts it, because a clock was set; otherwise
    /// this one.
    pub(super) fn or_newer(self, newer: Self) -> Self {
        let differs = (newer.ahead.0 - self.ahead.0).abs() > newer.error_max.0 + self.error_max.0;
        if differs || newer.error_max.0 <= self.error_max.0 { newer } else { self }
    }

    /// Returns the time of the clock of this machine at which the other clock showed `time`.
    pub(super) fn time_here(self, time: Seconds) -> Seconds {
        Seconds(time.0 - self.ahead.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_took_long_replaces_an_exact_offset_only_if_the_clock_was_set() {
        let exact = ClockOffset::measured(Seconds(10.0), Seconds(10.2), Seconds(110.1));
        assert!((exact.ahead.0 - 100.0).abs() < 1e-9 && (exact.error_max.0 - 0.1).abs() < 1e-9);
        assert!((exact.time_here(Seconds(150.0)).0 - 50.0).abs() < 1e-9);
        // The answer waited for four seconds, so it seems to be two seconds off.
        let slow = ClockOffset::measured(Seconds(20.0), Seconds(24.0), Seconds(124.0));
        assert_eq!(exact.or_newer(slow), exact);
        let after_a_step = ClockOffset::measured(Seconds(30.0), Seconds(34.0), Seconds(3732.0));
        assert_eq!(exact.or_newer(after_a_step), after_a_step);
        assert_eq!(after_a_step.or_newer(exact), exact);
    }
}
