//! A series of broken connections to one host, and when the host counts as lost.
//!
//! Connections that break one after the other without any progress between them are one outage, so a host that answers and
//! then breaks at the same point each time is given up like one that does not answer.

use flagperf_core::measure::Nanos;
use flagperf_core::units::Seconds;

/// The outage of a host since its last progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outage {
    since: Option<Nanos>,
    /// Number of connections that broke without progress, beside the first.
    fruitless: u32,
}

impl Outage {
    /// Notes that a connection has broken, which was opened at `opened`. `progress` is when the run last made progress.
    pub(super) fn broke(&mut self, opened: Nanos, progress: Nanos, now: Nanos, limit: Seconds) {
        // A connection that has lasted longer than the limit worked, even if there was nothing to send.
        let continues = self.since.is_some_and(|since| progress < since) && now.since(opened).0 <= limit.0;
        match continues {
            true => self.fruitless += 1,
            false => *self = Outage { since: Some(now), fruitless: 0 },
        }
    }

    /// Returns how long the outage has lasted.
    pub(super) fn length(&self, now: Nanos) -> Seconds {
        self.since.map_or(Seconds(0.0), |since| now.since(since))
    }

    /// Describes an outage that has lasted too long.
    pub(super) fn reason(&self, now: Nanos, last_error: &str) -> String {
        let length = self.length(now).0;
        match self.fruitless {
            0 => format!("no contact for {length:.0} s; last error: {last_error}"),
            count => format!(
                "no progress for {length:.0} s, in which {count} connections were opened and broke; last error: {last_error}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_break_without_progress_are_one_outage() {
        let second = |second: u64| Nanos(second * 1_000_000_000);
        let limit = Seconds(60.0);
        let mut outage = Outage::default();
        outage.broke(second(0), second(0), second(100), limit);
        assert_eq!(outage.length(second(130)).0, 30.0);
        assert_eq!(outage.reason(second(161), "x"), "no contact for 61 s; last error: x");
        // Opened again twice; both broke, and nothing of the run had arrived.
        outage.broke(second(110), second(99), second(120), limit);
        outage.broke(second(130), second(99), second(150), limit);
        assert_eq!(outage.length(second(170)).0, 70.0);
        let reason = "no progress for 70 s, in which 2 connections were opened and broke; last error: x";
        assert_eq!(outage.reason(second(170), "x"), reason);
        // Progress, or a connection that lasted, begins a new outage.
        outage.broke(second(171), second(172), second(180), limit);
        assert_eq!(outage.length(second(181)).0, 1.0);
        outage.broke(second(181), second(172), second(300), limit);
        assert_eq!(outage.length(second(301)).0, 1.0);
    }
}
