//! Collects the trials of a scenario and computes their figures.
//!
//! A worker shares its memory with a vendor's code, so what it reports must be complete and free of contradictions.

use flagperf_core::event::Event;
use flagperf_core::measure::{QueryTimes, Scenario, ScenarioFigures, ScenarioReport, TrialEnd, TrialFigures};

/// The events of a scenario. The times of queries are kept until the report states by which percentile and bound they are judged.
#[derive(Debug, Default)]
pub struct TrialCollector {
    open: Vec<QueryTimes>,
    ended: Vec<(TrialEnd, Vec<QueryTimes>)>,
    figures: Option<ScenarioFigures>,
}

impl TrialCollector {
    /// Adds an event.
    ///
    /// # Errors
    /// When it contradicts those before it.
    pub fn add(&mut self, event: &Event) -> Result<(), String> {
        let due = u32::try_from(self.ended.len()).unwrap_or(u32::MAX);
        match event {
            _ if self.figures.is_some() => Err("the scenario reported more after its end".to_owned()),
            Event::Queries { times } if times.0.iter().all(|query| query.trial == due) => {
                self.open.extend_from_slice(&times.0);
                Ok(())
            }
            Event::Queries { .. } => Err(format!("queries of another trial were reported in trial {due}")),
            Event::TrialEnd(end) => {
                let queries = std::mem::take(&mut self.open);
                check_trial(end, due, &queries)?;
                self.ended.push((*end, queries));
                Ok(())
            }
            Event::Scenario(report) => {
                self.figures = Some(self.end(report)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, report: &ScenarioReport) -> Result<ScenarioFigures, String> {
        if !self.open.is_empty() || self.ended.is_empty() {
            return Err("the scenario ended without the end of a trial".to_owned());
        }
        Ok(ScenarioFigures { report: Some(report.clone()), trials: self.figures_of(&report.scenario) })
    }

    /// Computes the figures of the trials that have ended, and drops the times of their queries.
    fn figures_of(&mut self, scenario: &Scenario) -> Vec<TrialFigures> {
        std::mem::take(&mut self.ended).iter().map(|(end, queries)| TrialFigures::of(end, queries, scenario)).collect()
    }

    /// Returns the figures; `None` without a scenario. Those of a scenario that did not end have neither percentile nor verdict.
    pub fn finish(&mut self) -> Option<ScenarioFigures> {
        let partial = !self.ended.is_empty();
        self.figures.take().or_else(|| {
            partial.then(|| ScenarioFigures { report: None, trials: self.figures_of(&Scenario::default()) })
        })
    }
}

/// Checks that all queries of a trial were answered in order, unless it was cut: one batch after the other, or, at a server that answers
/// several queries at the same time, in the order of their ends.
fn check_trial(end: &TrialEnd, due: u32, queries: &[QueryTimes]) -> Result<(), String> {
    if end.trial != due {
        return Err(format!("the end of trial {} was reported in trial {due}", end.trial));
    }
    let answered = queries.len() as u64;
    if answered > end.scheduled || answered < end.scheduled && !end.is_cut {
        return Err(format!("trial {due} answered {answered} of {} queries", end.scheduled));
    }
    let batches = queries.windows(2).all(|pair| {
        let (before, after) = (&pair[0], &pair[1]);
        match after.batch == before.batch {
            _ if end.overlap => after.batch == before.batch + 1 && after.ended_s.0 >= before.ended_s.0,
            true => (after.started_s, after.ended_s, after.core_s) == (before.started_s, before.ended_s, before.core_s),
            false => after.batch == before.batch + 1 && after.started_s.0 >= before.ended_s.0,
        }
    });
    match batches && queries.first().is_none_or(|query| query.batch == 0) {
        true => Ok(()),
        false => Err(format!("the batches of trial {due} are not one after the other")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::measure::{Arrival, QueryColumns};
    use flagperf_core::units::Seconds;

    fn query(number: u64) -> QueryTimes {
        let at = |s: f64| Seconds(number as f64 + s);
        QueryTimes {
            trial: 0,
            scheduled_s: at(0.0),
            issued_s: at(0.1),
            started_s: at(0.2),
            ended_s: at(0.9),
            core_s: Seconds(0.5),
            batch: number,
            ..QueryTimes::default()
        }
    }

    fn queries(times: Vec<QueryTimes>) -> Event {
        Event::Queries { times: QueryColumns(times) }
    }

    fn end(trial: u32, scheduled: u64, is_cut: bool) -> Event {
        Event::TrialEnd(TrialEnd { trial, scheduled, is_cut, ..TrialEnd::default() })
    }

    fn report() -> Event {
        let scenario = Scenario { kind: Arrival::Server, percentile: 0.9, samples_per_query: 1, ..Scenario::default() };
        Event::Scenario(Box::new(ScenarioReport { scenario, ..ScenarioReport::default() }))
    }

    fn collect(events: &[Event]) -> Result<Option<ScenarioFigures>, String> {
        let mut collector = TrialCollector::default();
        events.iter().try_for_each(|event| collector.add(event))?;
        Ok(collector.finish())
    }

    #[test]
    fn the_figures_are_those_of_all_queries_of_each_trial() {
        let all = collect(&[
            queries((0..40).map(query).collect()),
            queries((40..70).map(query).collect()),
            end(0, 70, false),
            report(),
        ]);
        let figures = all.unwrap().unwrap();
        assert_eq!(
            (figures.trials.len(), figures.trials[0].queries, figures.trials[0].percentile_s.is_some()),
            (1, 70, true)
        );
        assert_eq!(collect(&[]), Ok(None));
    }

    #[test]
    fn a_scenario_that_did_not_end_keeps_its_trials_without_a_verdict() {
        let figures = collect(&[queries(vec![query(0)]), end(0, 1, false)]).unwrap().unwrap();
        assert!(figures.report.is_none() && figures.trials[0].holds.is_none());
    }

    #[test]
    fn contradictions_are_found() {
        let of = |events: &[Event]| collect(events).unwrap_err();
        let one = || queries(vec![query(0)]);
        assert_eq!(of(&[one(), end(1, 1, false)]), "the end of trial 1 was reported in trial 0");
        assert_eq!(of(&[one(), end(0, 2, false)]), "trial 0 answered 1 of 2 queries");
        assert_eq!(of(&[one(), end(0, 0, true)]), "trial 0 answered 1 of 0 queries");
        assert!(collect(&[one(), end(0, 2, true), report()]).is_ok(), "a trial that was cut answers fewer");
        assert_eq!(of(&[one(), report()]), "the scenario ended without the end of a trial");
        assert_eq!(of(&[one(), end(0, 1, false), one()]), "queries of another trial were reported in trial 1");
        assert_eq!(of(&[one(), end(0, 1, false), report(), report()]), "the scenario reported more after its end");
        let order = "the batches of trial 0 are not one after the other";
        for wrong in [
            vec![QueryTimes { batch: 1, ..query(0) }],
            vec![query(0), QueryTimes { batch: 2, ..query(1) }],
            vec![query(0), QueryTimes { batch: 0, ..query(1) }],
            vec![
                query(0),
                QueryTimes { scheduled_s: Seconds(0.0), issued_s: Seconds(0.0), started_s: Seconds(0.5), ..query(1) },
            ],
        ] {
            let count = wrong.len() as u64;
            assert_eq!(of(&[queries(wrong), end(0, count, false)]), order);
        }
    }

    #[test]
    fn queries_at_a_server_may_overlap_but_not_go_back() {
        let overlapping = |times: Vec<QueryTimes>| {
            let scheduled = times.len() as u64;
            let end = Event::TrialEnd(TrialEnd { scheduled, overlap: true, ..TrialEnd::default() });
            collect(&[queries(times), end, report()]).map(|figures| figures.unwrap().trials[0].queries)
        };
        let long = |number: u64, ended: f64| QueryTimes { ended_s: Seconds(ended), ..query(number) };
        assert_eq!(overlapping(vec![long(0, 5.0), long(1, 5.5)]), Ok(2));
        let order = Err("the batches of trial 0 are not one after the other".to_owned());
        assert_eq!(overlapping(vec![long(0, 5.0), long(1, 4.0)]), order);
        assert_eq!(overlapping(vec![long(0, 5.0), QueryTimes { batch: 0, ..long(1, 5.5) }]), order);
    }
}
