//! Tests of the speeds of sides of several devices, runs and queries.

use flagperf_core::event::ModelFacts;
use flagperf_core::measure::{Latency, ScenarioFigures, TrialFigures};
use flagperf_core::step::Step;
use flagperf_core::units::{SamplesPerSecond, Seconds};
use flagperf_result::testing;

use super::*;
use crate::ratio::CONFIDENCE;

/// Returns the record of a device in a run, with a throughput known to ±2 % and the times of its queries.
fn record(run: u32, throughput: f64, latency_s: f64) -> (PathBuf, Record) {
    let mut record = testing::record();
    record.run = format!("run{run}");
    record.device = Some(throughput as u32);
    let phase = &mut record.phases[0];
    let measured = &mut phase.measured[0];
    measured.throughput_core_samples_per_s = Some(SamplesPerSecond(throughput));
    measured.throughput_core_interval = Some(testing::interval(throughput, 0.02));
    let latency = Latency { p50_s: Seconds(latency_s), ..Latency::default() };
    let trial = TrialFigures { queries_per_s: Some(throughput), latency: Some(latency), ..TrialFigures::default() };
    phase.scenario = Some(ScenarioFigures { report: None, trials: vec![trial] });
    (PathBuf::from(format!("run{run}/h_noderank0_device{throughput}")), record)
}

fn side(results: Vec<(PathBuf, Record)>) -> Side {
    Side { name: "side".to_owned(), results }
}

fn compared(first: Vec<(PathBuf, Record)>, second: Vec<(PathBuf, Record)>) -> Comparison {
    let options = CompareOptions { interleaved: false, anyway: false, confidence: CONFIDENCE };
    compare([&side(first), &side(second)], options).expect("the sides are of the same work")
}

#[test]
fn the_devices_of_a_run_are_one_speed_whose_error_is_the_sum_of_theirs() {
    assert_eq!(headline(&record(1, 1.0, 1.0).1).map(|measured| measured.step), Some(Step::Validation));
    let two = |run, of_device| vec![record(run, of_device, 0.1), record(run, 2.0 * of_device, 0.3)];
    let found = compared(two(1, 100.0), two(2, 110.0));
    let core = found.core.expect("both sides have it");
    assert_eq!(core.blocks, [[300.0, 330.0]]);
    let ratio = core.ratio.expect("each device has an interval");
    assert!((ratio.high / ratio.ratio).ln() - 0.02 * 2f64.sqrt() < 1e-9, "{ratio:?}");
    assert_eq!(core.verdict, Some(SpeedVerdict::Faster));
    let latency = found.scenario[&ScenarioFigure::LatencyP50S];
    assert_eq!((latency.sides, latency.ratio), ([Some(0.3), Some(0.3)], None), "the longest of the devices");
    assert_eq!(found.scenario[&ScenarioFigure::QueriesPerS].sides[0].map(f64::round), Some(300.0));
    assert!(found.differences.iter().all(|difference| difference.what != "devices"), "{:?}", found.differences);
}

#[test]
fn another_number_of_devices_is_a_difference_and_runs_of_different_numbers_are_not_compared() {
    let sides = [side(vec![record(1, 100.0, 0.1)]), side(vec![record(2, 100.0, 0.1), record(2, 90.0, 0.1)])];
    let options = CompareOptions { interleaved: false, anyway: false, confidence: CONFIDENCE };
    let refused = compare([&sides[0], &sides[1]], options).expect_err("they are not of the same work").to_string();
    assert!(refused.ends_with("devices is 1 and 2"), "{refused}");
    let options = CompareOptions { anyway: true, ..options };
    let found = compare([&sides[0], &sides[1]], options).expect("it is asked for");
    let devices = found.differences.iter().find(|difference| difference.what == "devices").expect("they differ");
    assert_eq!((devices.first.as_str(), devices.second.as_str()), ("1", "2"));
    assert_eq!(found.core.map(|core| core.throughput_samples_per_s[1].round()), Some(190.0));
    let mixed = side(vec![record(1, 100.0, 0.1), record(2, 100.0, 0.1), record(2, 90.0, 0.1)]);
    let error = compare([&mixed, &mixed], options).expect_err("one run lacks a device").to_string();
    assert!(error.ends_with("its runs have results of different numbers of devices: 1, 2"), "{error}");
}

#[test]
fn a_side_of_copies_or_of_different_work_is_not_compared() {
    let options = CompareOptions { interleaved: false, anyway: false, confidence: CONFIDENCE };
    let refused = |results: Vec<(PathBuf, Record)>| {
        let side = side(results);
        compare([&side, &side], options).expect_err("it is refused").to_string()
    };
    let copies = refused(vec![record(1, 100.0, 0.1), record(1, 100.0, 0.1)]);
    assert!(copies.ends_with("are results of one run on one device"), "{copies}");
    let (path, mut other) = record(2, 100.0, 0.1);
    other.phases[0].measured[0].batch_size = 4;
    let mixed = refused(vec![record(1, 100.0, 0.1), (path, other)]);
    assert!(mixed.contains("its results are of different work: batch size is 4 and 8, in `run2/"), "{mixed}");
}

#[test]
fn queries_that_became_slower_are_found_in_repeats() {
    let runs = |first: u32, latency_s: f64| {
        (0..4u32).map(|run| record(first + run, 100.0, latency_s * (1.0 + 0.01 * f64::from(run)))).collect::<Vec<_>>()
    };
    let found = compared(runs(0, 0.1), runs(10, 0.12));
    let latency = found.scenario[&ScenarioFigure::LatencyP50S];
    assert_eq!(latency.verdict, Some(SpeedVerdict::Slower));
    assert_eq!(found.scenario[&ScenarioFigure::QueriesPerS].verdict, Some(SpeedVerdict::NoDifferenceSeen));
    let slowdowns = found.slowdowns(10.0);
    assert_eq!(slowdowns.len(), 1, "{slowdowns:?}");
    assert!(slowdowns[0].starts_with("median latency: 20.0 % longer, at least 1"), "{slowdowns:?}");
    assert!(slowdowns[0].ends_with("with 95 % confidence (allowed: 10 %)"), "{slowdowns:?}");
    assert_eq!(found.slowdowns(20.0).len(), 0);
    assert_eq!(compared(runs(10, 0.12), runs(0, 0.1)).slowdowns(0.0).len(), 0);
}

#[test]
fn models_with_other_numbers_of_parameters_are_other_work() {
    let with = |parameters: Option<u64>| {
        let (path, mut record) = record(1, 100.0, 0.1);
        record.phases[0].model = Some(ModelFacts { parameters, ..ModelFacts::default() });
        Side { name: "side".to_owned(), results: vec![(path, record)] }
    };
    let options = |anyway| CompareOptions { interleaved: true, anyway, confidence: CONFIDENCE };
    let [full, tiny] = [with(Some(25_557_032)), with(Some(709_000))];
    let refused = compare([&full, &tiny], options(false)).unwrap_err().to_string();
    assert!(refused.contains("parameters of the model is 25557032 and 709000"), "{refused}");
    // An engine that reads the model itself does not tell.
    for unknown in [&with(None), &full] {
        assert!(compare([&full, unknown], options(false)).is_ok());
    }
}
