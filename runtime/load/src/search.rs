//! The search for the highest rate of arrival that keeps a bound: pure, so that a trial may take as long as it needs.

/// Largest ratio of the lowest rate that does not hold to the highest that does, at which the search ends.
const RATIO: f64 = 1.05;
/// Number of successive halvings after which no rate is found.
const HALVINGS_MAX: u32 = 5;
/// Factor by which a rate is lowered that held in the search and does not hold in the measurement.
const LOWERED: f64 = 0.95;
/// Number of measurements after which no rate is found.
const MEASUREMENTS_MAX: u32 = 8;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// A short trial at this rate, in queries per second.
    Try(f64),
    /// A trial of full length at this rate, which is the result if it holds.
    Measure(f64),
    /// The last trial held and is the result.
    Found,
    /// No rate holds.
    NotFound,
}

/// The search: rates double until one does not hold, or halve until one does; then the interval is bisected.
#[derive(Clone, Debug)]
pub struct RateSearch {
    /// The highest rate that held.
    low: Option<f64>,
    /// The lowest rate that did not hold.
    high: Option<f64>,
    rate: f64,
    halvings: u32,
    /// Number of trials of full length so far.
    measurements: u32,
}

impl RateSearch {
    /// Starts a search at a rate, which must be above 0.
    pub fn new(rate: f64) -> Self {
        RateSearch { low: None, high: None, rate, halvings: 0, measurements: 0 }
    }

    /// Returns the first step.
    pub fn first(&self) -> SearchStep {
        SearchStep::Try(self.rate)
    }

    /// Returns the step after a trial at the rate of the last step, which held or did not.
    pub fn next(&mut self, held: bool) -> SearchStep {
        if self.measurements > 0 {
            return self.after_measurement(held);
        }
        if held {
            self.low = Some(self.rate)
        } else {
            self.high = Some(self.rate)
        }
        match (self.low, self.high) {
            (Some(low), Some(high)) if high <= low * RATIO => return self.measure(low),
            (Some(low), Some(high)) => self.rate = (low * high).sqrt(),
            (Some(low), None) => self.rate = low * 2.0,
            (None, _) if self.halvings == HALVINGS_MAX => return SearchStep::NotFound,
            (None, _) => {
                self.halvings += 1;
                self.rate /= 2.0;
            }
        }
        SearchStep::Try(self.rate)
    }

    fn after_measurement(&mut self, held: bool) -> SearchStep {
        match held {
            true => SearchStep::Found,
            false if self.measurements == MEASUREMENTS_MAX => SearchStep::NotFound,
            false => self.measure(self.rate * LOWERED),
        }
    }

    fn measure(&mut self, rate: f64) -> SearchStep {
        self.rate = rate;
        self.measurements += 1;
        SearchStep::Measure(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with a system that holds up to `capacity` in short trials and up to `measured` in long ones. Returns the rates.
    fn search(start: f64, capacity: f64, measured: f64) -> (Vec<f64>, SearchStep) {
        let mut search = RateSearch::new(start);
        let (mut rates, mut step) = (Vec::new(), search.first());
        loop {
            let held = match step {
                SearchStep::Try(rate) => {
                    rates.push(rate);
                    rate <= capacity
                }
                SearchStep::Measure(rate) => {
                    rates.push(rate);
                    rate <= measured
                }
                end => return (rates, end),
            };
            step = search.next(held);
        }
    }

    #[test]
    fn the_rate_is_found_within_five_percent_from_any_start() {
        for start in [0.5, 90.0, 100.0, 110.0, 2000.0] {
            let (rates, end) = search(start, 100.0, 100.0);
            assert_eq!(end, SearchStep::Found, "{start}");
            let found = *rates.last().unwrap();
            assert!(found <= 100.0 && found * RATIO >= 100.0, "{start}: {found}");
            assert!(rates.len() <= 15, "{start}: {rates:?}");
        }
    }

    #[test]
    fn a_rate_that_does_not_hold_for_the_full_time_is_lowered() {
        let (rates, end) = search(80.0, 100.0, 90.0);
        assert_eq!(end, SearchStep::Found);
        assert!(rates.last().is_some_and(|rate| *rate <= 90.0 && *rate > 90.0 * LOWERED), "{rates:?}");
    }

    #[test]
    fn a_system_that_keeps_the_bound_at_no_rate_ends_the_search() {
        let (rates, end) = search(100.0, 0.0, 0.0);
        assert_eq!((rates, end), (vec![100.0, 50.0, 25.0, 12.5, 6.25, 3.125], SearchStep::NotFound));
        assert_eq!(search(100.0, 100.0, 0.0).1, SearchStep::NotFound);
    }
}
