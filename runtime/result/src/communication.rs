//! What training together costs: steps of the training compared with steps without any exchange.

use serde::{Deserialize, Serialize};

use flagperf_core::measure::{Latency, LocalSteps};
use flagperf_core::units::Seconds;

/// What training together with other processes costs a process: the part of a step that it would not take alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct Communication {
    /// Number of timed steps without exchange.
    pub local_steps: u64,
    /// Median of their core times; if gradients of several steps make an update, of the mean times of these steps.
    pub local_core_s: Seconds,
    /// The same of the steps of the training.
    pub core_s: Seconds,
}

impl Communication {
    /// Compares the core times of steps without exchange with those of a training. An exchange takes place once in as many steps as make an
    /// update, so these are one sample. `None` without a sample of both.
    pub(crate) fn of(local: &LocalSteps, trained: &[Seconds]) -> Option<Self> {
        let per_update = local.per_update.max(1) as usize;
        let median = |times: &[Seconds]| {
            let mean = |steps: &[Seconds]| Seconds(steps.iter().map(|step| step.0).sum::<f64>() / per_update as f64);
            let updates: Vec<Seconds> = times.chunks_exact(per_update).map(mean).collect();
            Latency::of(&updates).map(|latency| latency.p50_s)
        };
        let (local_core_s, core_s) = (median(&local.core_s)?, median(trained)?);
        Some(Communication { local_steps: local.core_s.len() as u64, local_core_s, core_s })
    }

    /// Returns the share of a step of `core_s` that exceeds a step without exchange: communication that does not overlap with computation,
    /// waiting for slower processes, and what communication takes from computation. Negative if steps without exchange took longer.
    pub fn exposed_share(self) -> f64 {
        1.0 - self.local_core_s.0 / self.core_s.0
    }
}

/// What training together costs the processes that train a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "testing", derive(schemars::JsonSchema))]
pub struct GroupCommunication {
    /// The longest median core time of a step.
    pub core_s: Seconds,
    /// The median core time of a step without exchange: the median of the ranks without the slowest one.
    pub local_core_s: Seconds,
    /// The part of a step by which it is longer than such a step, as [`Communication::exposed_share`]. Waiting for the slowest rank is a
    /// part of it.
    pub exposed_share: f64,
    /// The rank whose steps without exchange take longest.
    pub slowest_rank: u32,
    /// By how much they are longer than the median of the others, as a share.
    pub slower_by: f64,
}

impl GroupCommunication {
    /// Returns the figures of a group from those of its ranks in order; `None` for one process.
    pub fn of(ranks: &[Communication]) -> Option<Self> {
        let mut others: Vec<Seconds> = ranks.iter().map(|own| own.local_core_s).collect();
        let slowest_rank = (0..others.len()).max_by(|a, b| others[*a].0.total_cmp(&others[*b].0))?;
        let max_s = others.remove(slowest_rank);
        let p50_s = Latency::of(&others)?.p50_s;
        let (core_s, slowest_rank) =
            (Seconds(ranks.iter().map(|own| own.core_s.0).fold(0.0, f64::max)), slowest_rank as u32);
        let group = Communication { core_s, local_core_s: p50_s, ..Communication::default() };
        let (exposed_share, slower_by) = (group.exposed_share(), max_s.0 / p50_s.0 - 1.0);
        Some(GroupCommunication { core_s, local_core_s: p50_s, exposed_share, slowest_rank, slower_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rank_is_known_and_waiting_for_it_is_part_of_the_share() {
        let rank = |core: f64, local: f64| Communication {
            local_steps: 50,
            local_core_s: Seconds(local),
            core_s: Seconds(core),
        };
        let group = GroupCommunication::of(&[rank(0.100, 0.080), rank(0.099, 0.095), rank(0.1, 0.080)]).unwrap();
        assert_eq!((group.core_s, group.local_core_s, group.slowest_rank), (Seconds(0.100), Seconds(0.080), 1));
        assert!((group.exposed_share - 0.2).abs() < 1e-12, "{}", group.exposed_share);
        assert!((group.slower_by - 0.1875).abs() < 1e-12, "{}", group.slower_by);
        assert_eq!(GroupCommunication::of(&[rank(0.1, 0.08)]), None);
    }
}
