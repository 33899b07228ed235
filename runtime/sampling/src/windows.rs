//! The windows of a case: when its phases and passes began and ended, and on which device they ran, from the events.

use flagperf_core::event::Event;
use flagperf_core::measure::Nanos;
use flagperf_core::step::Phase;
use flagperf_core::units::Seconds;

/// A pass of a measured loop, in time since the case began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassWindow {
    /// Arrival of the event that begins the pass.
    pub begin: Seconds,
    /// Arrival of the first event with times of the pass.
    pub end: Seconds,
    /// Samples of the pass, without padding and failed samples.
    pub samples: u64,
}

/// The device of a phase, as its engine describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredDevice {
    /// Unique id, when the vendor's monitor knows it with certainty.
    pub id: Option<String>,
    /// Whether it is the processor.
    pub is_processor: bool,
}

/// When a phase and its passes began and ended, in time since the case began.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseWindows {
    pub phase: Phase,
    /// Arrival of the last event of the phase before; the begin of the case for the first phase.
    pub end_before: Seconds,
    /// Arrival of its first event.
    pub begin: Seconds,
    /// Arrival of its last event.
    pub end: Seconds,
    /// Its device; `None` when it loaded no engine.
    pub device: Option<MeasuredDevice>,
    /// The passes that ended.
    pub passes: Vec<PassWindow>,
}

/// Collects the windows of a case from its events.
#[derive(Debug, Default)]
pub struct WindowCollector {
    phases: Vec<PhaseWindows>,
    open: Option<(Seconds, Option<Seconds>, u64)>,
}

impl WindowCollector {
    /// Adds an event that arrived `at` after the start of the case.
    pub fn add(&mut self, phase: Phase, at: Nanos, event: &Event) {
        // The one is no event of a worker, and the others are not stored, so that nobody could compute the windows again.
        if matches!(event, Event::Observed { .. }) || event.is_progress() {
            return;
        }
        let at = at.since(Nanos(0));
        if self.phases.last().is_none_or(|last| last.phase != phase) {
            self.open = None;
            let end_before = self.phases.last().map_or(Seconds(0.0), |last| last.end);
            let (begin, end, device, passes) = (at, at, None, Vec::new());
            self.phases.push(PhaseWindows { phase, end_before, begin, end, device, passes });
        }
        let Some(current) = self.phases.last_mut() else { return };
        current.end = at;
        match event {
            Event::Engine(facts) => {
                let device = MeasuredDevice { id: facts.device_id.clone(), is_processor: facts.runs_on_processor() };
                current.device = Some(device);
            }
            Event::PassBegin { .. } => self.open = Some((at, None, 0)),
            Event::Steps { times, .. } => {
                if let Some((_, end, samples)) = &mut self.open {
                    end.get_or_insert(at);
                    *samples += times.0.iter().map(|step| u64::from(step.samples)).sum::<u64>();
                }
            }
            Event::PassEnd(_) => {
                if let Some((begin, Some(end), samples)) = self.open.take() {
                    current.passes.push(PassWindow { begin, end, samples });
                }
            }
            _ => {}
        }
    }

    /// Returns the windows of each phase, in order.
    pub fn phases(&self) -> &[PhaseWindows] {
        &self.phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_which_is_not_stored_ends_no_window() {
        let mut windows = WindowCollector::default();
        let at = |second: u64| Nanos(second * 1_000_000_000);
        windows.add(Phase::Infer, at(1), &Event::TrialBegin { trial: 0, scheduled: None, queries_per_s: None });
        let (elapsed_s, expected_s) = (Seconds(1.0), Seconds(9.0));
        windows.add(Phase::Infer, at(2), &Event::TrialProgress { trial: 0, answered: 1, elapsed_s, expected_s });
        assert_eq!(windows.phases()[0].end, Seconds(1.0));
    }
}
