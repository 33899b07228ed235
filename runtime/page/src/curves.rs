//! The curves of a result, read from its files: times of steps and queries, readings of monitors, losses.

use std::path::Path;

use flagperf_core::measure::Distribution;
use flagperf_core::run_files::{EVENTS_FILE, MONITOR_FILE, QUERIES_FILE, samples_file};
use flagperf_core::step::Phase;
use flagperf_result::{Record, measured_scenario};

use super::envelope::Envelope;
use super::event_file::CaseEvents;
use super::figures::{FIRST_TOKENS, LATENCIES, NEXT_TOKENS, Subject};
use super::monitor_file::{Readings, read_monitors};
use super::step_file::{read_queries, read_steps};

/// The shortest distance of steps that are drawn separately, in seconds.
const WIDTH_S: f64 = 1e-6;

/// The curves of a result.
pub(super) struct Curves {
    pub(super) phases: Vec<PhaseCurves>,
    /// The times of the queries of a scenario, of its last trial: those that they have.
    pub(super) queries: Vec<(&'static Subject, Distribution)>,
    /// The loss of each step of the last repetition of a training.
    pub(super) loss: Envelope,
    /// Which files could not be read, and why.
    pub(super) faults: Vec<String>,
}

/// The steps of a measured loop, and what the monitors read meanwhile.
pub(super) struct PhaseCurves {
    pub(super) phase: Phase,
    /// When the first step began and the last one ended, in seconds since the case began.
    pub(super) window: (f64, f64),
    /// The times in *core*.
    pub(super) times: Envelope,
    pub(super) distribution: Distribution,
    pub(super) readings: Readings,
}

/// Reads the curves of a result whose files are in `folder`, each with at most `buckets_max` points. A file that is missing has none.
pub(super) fn read_curves(folder: &Path, record: &Record, buckets_max: usize) -> Curves {
    let mut faults = Vec::new();
    let mut add_fault = |file: &str, error: std::io::Error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            faults.push(format!("`{file}`: {error}"));
        }
    };
    let resumed =
        record.training().and_then(|training| training.resumed).map_or((0, 0), |part| (part.rounds, part.steps));
    let events = CaseEvents::new(resumed, buckets_max).read(&folder.join(EVENTS_FILE)).unwrap_or_else(|error| {
        add_fault(EVENTS_FILE, error);
        CaseEvents::new(resumed, buckets_max)
    });
    let mut phases = Vec::new();
    for phase in record.phases.iter().filter(|phase| !phase.measured.is_empty()).map(|phase| phase.phase) {
        let file = samples_file(phase);
        match read_phase(&folder.join(&file), phase, &events, buckets_max) {
            Ok(curves) => phases.extend((curves.distribution.total() > 0).then_some(curves)),
            Err(error) => add_fault(&file, error),
        }
    }
    let mut queries = Vec::new();
    if measured_scenario(record).is_some() {
        match read_query_times(&folder.join(QUERIES_FILE)) {
            Ok(found) => queries.extend(found.into_iter().filter(|(_, times)| times.total() > 0)),
            Err(error) => add_fault(QUERIES_FILE, error),
        }
    }
    let windows: Vec<(f64, f64)> = phases.iter().map(|phase| phase.window).collect();
    match read_monitors(&folder.join(MONITOR_FILE), &windows, buckets_max) {
        Ok(readings) => phases.iter_mut().zip(readings).for_each(|(phase, readings)| phase.readings = readings),
        Err(error) => add_fault(MONITOR_FILE, error),
    }
    Curves { phases, queries, loss: events.loss, faults }
}

/// Reads the times of the queries of the last trial.
fn read_query_times(path: &Path) -> std::io::Result<[(&'static Subject, Distribution); 3]> {
    let none = || [&LATENCIES, &FIRST_TOKENS, &NEXT_TOKENS].map(|subject| (subject, Distribution::fine()));
    let (mut times, mut last) = (none(), 0);
    read_queries(path, |row| {
        if row.trial != last {
            (times, last) = (none(), row.trial);
        }
        let own = [Some(row.latency_s), row.first_token_s, row.next_token_s];
        times.iter_mut().zip(own).for_each(|((_, times), own)| own.into_iter().for_each(|time| times.add(time)));
    })?;
    Ok(times)
}

/// Reads the steps of a phase. A pass begins when its event arrived, and its steps follow each other.
fn read_phase(path: &Path, phase: Phase, events: &CaseEvents, buckets_max: usize) -> std::io::Result<PhaseCurves> {
    let begins: Vec<f64> = events.passes.iter().filter(|(own, _)| *own == phase).map(|(_, at)| *at).collect();
    let begin = begins.first().copied().unwrap_or(0.0);
    let (mut times, mut distribution) = (Envelope::new(begin, WIDTH_S, buckets_max), Distribution::fine());
    let (mut at, mut pass, mut next) = (begin, None, 0);
    read_steps(path, |row| {
        if pass != Some(row.pass) {
            at = begins.get(next).copied().unwrap_or(at).max(at);
            (pass, next) = (Some(row.pass), next + 1);
        }
        times.add(at, row.core_s);
        distribution.add(row.core_s);
        at += row.total_s;
    })?;
    Ok(PhaseCurves { phase, window: (begin, at), times, distribution, readings: Readings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_core::event::Event;
    use flagperf_core::step::Step;
    use flagperf_core::units::Seconds;
    use flagperf_result::{EventChain, testing};

    #[test]
    fn steps_follow_each_other_from_the_begin_of_their_pass() {
        let folder = tempfile::tempdir().unwrap();
        let mut chain = EventChain::create(&folder.path().join(EVENTS_FILE)).unwrap();
        for (at, pass) in [(10.0, 0), (20.0, 1)] {
            chain.push(Seconds(at), Phase::Validate, &Event::PassBegin { step: Step::Validation, pass }).unwrap();
        }
        let head = "pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs\n";
        let rows = "0,8,0.5,1.0,0,0,0.5,0\n0,8,0.5,3.0,0,0,0.5,0\n1,8,0,2.0,0,0,0,0\n";
        std::fs::write(folder.path().join("samples.validate.csv"), format!("{head}{rows}")).unwrap();
        let curves = read_curves(folder.path(), &testing::record(), 1 << 20);
        let [phase] = &curves.phases[..] else { panic!("one phase: {:?}", curves.faults) };
        let points: Vec<_> = phase.times.buckets().iter().map(|bucket| (bucket.at.round(), bucket.mean)).collect();
        assert_eq!(points, [(10.0, 1.0), (12.0, 3.0), (20.0, 2.0)]);
        assert_eq!((phase.window, curves.faults.len()), ((10.0, 22.0), 0));
    }

    #[test]
    fn a_damaged_file_is_named_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("samples.validate.csv"), "x").unwrap();
        let faults = read_curves(folder.path(), &testing::record(), 100).faults;
        assert_eq!(faults, ["`samples.validate.csv`: it does not have the columns of a run"]);
    }
}
