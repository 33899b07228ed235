//! Collects the passes of a measured loop and computes its figures.
//!
//! A worker shares its memory with a vendor's code, so what it reports must be complete and free of contradictions: each
//! pass begins once, has times, and ends once, in order.

use flagperf_core::event::Step;
use flagperf_core::measure::{Measurement, Nanos, PassEvidence, PassReport, StepTimes};
use flagperf_core::units::Seconds;

/// Ratio of the core time of the first pass to that of a later one above which there is a warning.
const PASS_RATIO_WARNING: f64 = 1.5;
/// Core time of the first pass below which there is no such warning.
const PASS_TIME_MIN: Seconds = Seconds(0.01);

/// Returns a warning when a later pass is much faster than the first. All passes have the same samples, so they take
/// the same time unless the engine caches results. The first pass of a training contains its warm-up.
pub fn slow_first_pass(measured: &Measurement) -> Option<String> {
    if measured.step == Step::Training {
        return None;
    }
    let (first, later) = measured.passes.split_first()?;
    let shortest =
        later.iter().filter(|pass| pass.samples == first.samples).map(|pass| pass.core_s.0).reduce(f64::min)?;
    let factor = first.core_s.0 / shortest;
    (first.core_s.0 > PASS_TIME_MIN.0 && factor > PASS_RATIO_WARNING).then(|| {
        let name = measured.step.name();
        format!(
            "{name}: the first pass's core time was {factor:.1}x that of a later pass; does the engine cache results, or was the machine busy?"
        )
    })
}

/// The events of one measured loop.
#[derive(Debug)]
pub struct LoopCollector {
    step: Step,
    /// The pass in progress.
    open: Option<OpenPass>,
    steps: Vec<StepTimes>,
    passes: Vec<PassEvidence>,
    report: Option<PassReport>,
}

#[derive(Debug)]
struct OpenPass {
    began: Nanos,
    /// Arrival of its first times.
    ended: Option<Nanos>,
}

impl LoopCollector {
    /// Creates a collector for the loop of `step`.
    pub fn new(step: Step) -> Self {
        LoopCollector { step, open: None, steps: Vec::new(), passes: Vec::new(), report: None }
    }

    /// Returns the step of the loop.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Adds the begin of a pass.
    ///
    /// # Errors
    /// When another pass is in progress, or the next pass is another one.
    pub fn begin(&mut self, pass: u32, at: Nanos) -> Result<(), String> {
        if self.open.is_some() || pass != self.next() {
            return Err(format!("pass {pass} began when pass {} was due", self.next()));
        }
        self.open = Some(OpenPass { began: at, ended: None });
        Ok(())
    }

    /// Adds the times of steps of the pass in progress.
    ///
    /// # Errors
    /// When they belong to another pass.
    pub fn add_times(&mut self, steps: &[StepTimes], at: Nanos) -> Result<(), String> {
        let due = self.next();
        match &mut self.open {
            Some(open) if steps.iter().all(|step| step.pass == due) => {
                open.ended.get_or_insert(at);
                self.steps.extend_from_slice(steps);
                Ok(())
            }
            _ => Err(format!("times of a pass were reported that is not in progress, after {} passes", due)),
        }
    }

    /// Adds the end of the pass in progress.
    ///
    /// # Errors
    /// When it is the end of another pass, or the pass has no times.
    pub fn end(&mut self, report: &PassReport) -> Result<(), String> {
        let due = self.next();
        let Some((began, ended)) = self.open.take().and_then(|open| Some((open.began, open.ended?))) else {
            return Err(format!("the end of pass {} was reported without times", report.pass));
        };
        if report.pass != due {
            return Err(format!("the end of pass {} was reported in pass {due}", report.pass));
        }
        let conductor_s = Some(ended.since(began));
        self.passes.push(PassEvidence { accuracy: report.accuracy.clone(), conductor_s });
        self.report = Some(report.clone());
        Ok(())
    }

    /// Returns the core time of each step.
    pub fn core_times(&self) -> Vec<Seconds> {
        self.steps.iter().map(|step| step.core_s).collect()
    }

    /// Returns the number of passes that have ended.
    pub fn passes(&self) -> usize {
        self.passes.len()
    }

    /// Returns the figures of the passes that have ended; `None` without any.
    pub fn measurement(&self) -> Option<Measurement> {
        let passes = self.next();
        let complete = self.steps.partition_point(|step| step.pass < passes);
        Some(Measurement::of(self.report.as_ref()?, &self.passes, &self.steps[..complete]))
    }

    /// Returns the index of the next pass or of the one in progress.
    fn next(&self) -> u32 {
        u32::try_from(self.passes.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pass: u32) -> Vec<StepTimes> {
        vec![StepTimes { pass, samples: 2, core_s: Seconds(0.5), ..StepTimes::default() }; 4]
    }

    fn report(pass: u32) -> PassReport {
        PassReport { pass, ..PassReport::default() }
    }

    fn ended(passes: u32) -> LoopCollector {
        let mut collector = LoopCollector::new(Step::Inference);
        for pass in 0..passes {
            collector.begin(pass, Nanos(u64::from(pass) * 4_000_000_000)).unwrap();
            collector.add_times(&times(pass), Nanos(u64::from(pass) * 4_000_000_000 + 2_500_000_000)).unwrap();
            collector.end(&report(pass)).unwrap();
        }
        collector
    }

    #[test]
    fn figures_contain_only_passes_that_ended() {
        let mut collector = ended(2);
        collector.begin(2, Nanos(0)).unwrap();
        collector.add_times(&times(2), Nanos(0)).unwrap();
        let figures = collector.measurement().unwrap();
        assert_eq!((figures.samples, figures.steps, figures.passes.len()), (16, 8, 2));
        assert_eq!(figures.passes[1].conductor_s, Some(Seconds(2.5)));
        assert!(LoopCollector::new(Step::Inference).measurement().is_none());
    }

    #[test]
    fn passes_out_of_order_twice_or_without_times_are_contradictions() {
        assert_eq!(ended(1).begin(2, Nanos(0)).unwrap_err(), "pass 2 began when pass 1 was due");
        assert_eq!(ended(1).begin(0, Nanos(0)).unwrap_err(), "pass 0 began when pass 1 was due");
        ended(1).add_times(&times(1), Nanos(0)).unwrap_err();
        assert_eq!(ended(1).end(&report(0)).unwrap_err(), "the end of pass 0 was reported without times");
        let mut open = ended(1);
        open.begin(1, Nanos(0)).unwrap();
        open.add_times(&times(0), Nanos(0)).unwrap_err();
        open.add_times(&times(1), Nanos(0)).unwrap();
        assert_eq!(open.end(&report(0)).unwrap_err(), "the end of pass 0 was reported in pass 1");
        let mut open = ended(0);
        open.begin(0, Nanos(0)).unwrap();
        open.end(&report(0)).unwrap_err();
    }
}
