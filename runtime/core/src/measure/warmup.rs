//! Warm-up: unmeasured steps, repeated until their times are steady.

use crate::units::Seconds;

/// Number of successive steps whose times must agree before warm-up ends.
const WINDOW: usize = 3;
/// Step times agree when the longest in the window is at most this many times the shortest.
const SPREAD: f64 = 1.1;

/// Decides when warm-up ends: when the last three step times differ by at most 10 %, or at a limit of steps or of time.
#[derive(Debug, Clone)]
pub struct Warmup {
    times: Vec<Seconds>,
    steps_max: usize,
    time_max: Seconds,
}

impl Warmup {
    /// Creates a warm-up of at most `steps_max` steps that ends after the first step that reaches `time_max` in total.
    pub fn new(steps_max: usize, time_max: Seconds) -> Self {
        Warmup { times: Vec::new(), steps_max, time_max }
    }

    /// Adds the time of a warm-up step.
    pub fn push(&mut self, time: Seconds) {
        self.times.push(time);
    }

    /// Whether the times of the last three steps agree.
    pub fn is_steady(&self) -> bool {
        let Some(window) = self.times.len().checked_sub(WINDOW).map(|from| &self.times[from..]) else {
            return false;
        };
        let (shortest, longest) = window.iter().fold((f64::INFINITY, 0.0f64), |(lo, hi), t| (lo.min(t.0), hi.max(t.0)));
        longest <= shortest * SPREAD
    }

    /// Whether warm-up is over.
    pub fn is_done(&self) -> bool {
        self.is_steady() || self.times.len() >= self.steps_max || self.total().0 >= self.time_max.0
    }

    /// Returns the number of warm-up steps so far.
    pub fn steps(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Returns the total time of the warm-up steps so far.
    pub fn total(&self) -> Seconds {
        self.times.iter().copied().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_steps(times: &[f64]) -> Warmup {
        let mut warmup = Warmup::new(10, Seconds(60.0));
        times.iter().for_each(|t| warmup.push(Seconds(*t)));
        warmup
    }

    #[test]
    fn warm_up_continues_after_a_slow_first_step() {
        assert!(!after_steps(&[5.0, 1.0, 1.0]).is_done());
        assert!(after_steps(&[5.0, 1.0, 1.0, 1.05]).is_steady());
    }

    #[test]
    fn warm_up_of_an_unsteady_engine_ends_at_the_limit_and_is_not_steady() {
        let warmup = after_steps(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        assert!(warmup.is_done() && !warmup.is_steady());
        assert!(after_steps(&[61.0]).is_done());
    }
}
