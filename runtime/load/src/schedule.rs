//! Schedules: when each query arrives.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, Exp1};

use flagperf_core::hash::Seed;
use flagperf_core::units::Seconds;

/// The times of arrival of queries, from the beginning of a trial, in order.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Queries that arrive at random and independently of each other.
    Poisson { queries: u64, queries_per_s: f64, seed: Seed },
    /// Groups of `size` queries that arrive at once, so often that `queries_per_s` arrive on average.
    Bursts { queries: u64, queries_per_s: f64, size: u32 },
    /// Times that were recorded.
    Recorded(Vec<Seconds>),
}

impl Schedule {
    /// Returns the number of queries.
    pub fn len(&self) -> u64 {
        match self {
            Schedule::Poisson { queries, .. } | Schedule::Bursts { queries, .. } => *queries,
            Schedule::Recorded(times) => times.len() as u64,
        }
    }

    /// Returns whether no query arrives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the mean rate of arrival; `None` if all arrive at once.
    pub fn queries_per_s(&self) -> Option<f64> {
        match self {
            Schedule::Poisson { queries_per_s, .. } | Schedule::Bursts { queries_per_s, .. } => Some(*queries_per_s),
            Schedule::Recorded(times) => {
                let duration = times.last()?.0 - times.first()?.0;
                (duration > 0.0).then(|| (times.len() - 1) as f64 / duration)
            }
        }
    }

    /// Returns the times. Those between two random queries are exponentially distributed with the mean 1 / rate.
    pub fn times(&self) -> Box<dyn Iterator<Item = Seconds> + Send + '_> {
        match self {
            Schedule::Poisson { queries, queries_per_s, seed } => {
                let mut random = ChaCha8Rng::from_seed(seed.bytes());
                let mut at = 0.0;
                Box::new((0..*queries).map(move |_| {
                    let gap: f64 = Exp1.sample(&mut random);
                    at += gap / queries_per_s;
                    Seconds(at)
                }))
            }
            Schedule::Bursts { queries, queries_per_s, size } => {
                let (size, interval) = (u64::from(*size).max(1), f64::from(*size) / queries_per_s);
                Box::new((0..*queries).map(move |number| Seconds((number / size) as f64 * interval)))
            }
            Schedule::Recorded(times) => Box::new(times.iter().copied()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poisson(seed: u8) -> Vec<f64> {
        let schedule = Schedule::Poisson { queries: 100_000, queries_per_s: 50.0, seed: Seed::from([seed; 32]) };
        schedule.times().map(|time| time.0).collect()
    }

    #[test]
    fn random_arrivals_have_the_mean_and_the_variance_of_a_poisson_process() {
        let times = poisson(1);
        let gaps: Vec<f64> = [0.0].iter().chain(&times).zip(&times).map(|(before, after)| after - before).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 0.02 && (variance.sqrt() * 50.0 - 1.0).abs() < 0.02, "{mean} {variance}");
        // Numbers of arrivals in a second: mean and variance are both the rate.
        let mut counts = vec![0.0; times.last().map_or(0, |last| *last as usize)];
        times.iter().for_each(|time| counts.get_mut(*time as usize).into_iter().for_each(|count| *count += 1.0));
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean / 50.0 - 1.0).abs() < 0.02 && (variance / 50.0 - 1.0).abs() < 0.1, "{mean} {variance}");
    }

    #[test]
    fn a_seed_has_one_schedule_and_another_seed_another() {
        assert_eq!(poisson(1), poisson(1));
        assert_ne!(poisson(1), poisson(2));
    }

    #[test]
    fn bursts_arrive_at_once_and_at_the_mean_rate() {
        let schedule = Schedule::Bursts { queries: 6, queries_per_s: 8.0, size: 4 };
        let times: Vec<f64> = schedule.times().map(|time| time.0).collect();
        assert_eq!(times, [0.0, 0.0, 0.0, 0.0, 0.5, 0.5]);
    }

    #[test]
    fn recorded_times_have_the_rate_between_the_first_and_the_last() {
        let schedule = Schedule::Recorded([1.0, 2.0, 5.0].map(Seconds).to_vec());
        assert_eq!((schedule.len(), schedule.queries_per_s()), (3, Some(0.5)));
        assert_eq!(Schedule::Recorded(vec![Seconds(0.0); 2]).queries_per_s(), None);
    }
}
