//! Every operator on an engine of this program, and what makes a measurement not count.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flagperf_core::measure::{FixedClock, MonotonicClock};
use flagperf_core::tensor::{DType, Tensor};
use flagperf_core::units::{Bytes, Seconds};
use flagperf_engine::EngineSource;
use indexmap::IndexMap;

use super::check::{Comparison, Reference};
use super::graph::{GradientBy, operator_graph};
use super::inputs::draw;
use super::*;

fn job(operator: &Operator, format: &str, engine: &str, scratch: &Path) -> OperatorJob {
    let size =
        |(name, size): &(&str, usize)| ((*name).to_owned(), if *name == "Melements" { 1 } else { *size.min(&24) });
    OperatorJob {
        operator: operator.name.to_owned(),
        format: Format::find(format).unwrap(),
        sizes: operator.sizes.iter().map(size).collect(),
        engine: EngineSource { engine: engine.to_owned(), ..EngineSource::default() },
        monitor: None,
        time_s: Seconds(1e-3),
        seed: 7,
        scratch: scratch.to_owned(),
    }
}

#[test]
fn every_operator_has_a_graph_in_each_of_its_formats() {
    for operator in &OPERATORS {
        let sizes = Sizes::of(operator, &IndexMap::new()).unwrap();
        for format in FORMATS.iter().filter(|format| operator.check_format(**format).is_ok()) {
            let gradients = [GradientBy::Engine, GradientBy::StandardOperators].map(Some);
            // What is dropped at random only its engine knows.
            let known = if operator.dropped > 0.0 { &gradients[..1] } else { &gradients };
            for gradient in if operator.has_gradient { known } else { &[None] } {
                let graph = operator_graph(operator, &sizes, format.dtype, *gradient).unwrap();
                assert_eq!(graph.graph.outputs.len(), graph.scales.len(), "{}", operator.name);
                for output in &graph.graph.outputs {
                    assert!(output.spec.fixed_shape().is_some(), "{} {}", operator.name, output.spec);
                }
            }
        }
    }
}

#[test]
fn every_operator_is_measured_and_right() {
    let scratch = tempfile::tempdir().unwrap();
    for operator in &OPERATORS {
        if operator.dropped > 0.0 {
            let job = job(operator, "FP32", "interpreter", scratch.path());
            let error = measure_operator(&job, &MonotonicClock::start()).unwrap_err().to_string();
            assert!(error.contains("`training_mode`"), "{}: {error}", operator.name);
            continue;
        }
        let is_known = |name: &&str| operator.check_format(Format::find(name).unwrap()).is_ok();
        let format = ["FP32", "INT32", "INT8", "FP8"].into_iter().find(is_known).unwrap();
        let times = measure_operator(&job(operator, format, "interpreter", scratch.path()), &MonotonicClock::start());
        let times = times.unwrap_or_else(|error| panic!("{}: {error}", operator.name));
        let kernels = kernel_times(
            &job(operator, format, "interpreter", scratch.path()),
            Seconds(1e-3),
            Arc::new(MonotonicClock::start()),
        );
        let kernels = kernels.unwrap_or_else(|error| panic!("{}: {error}", operator.name));
        assert!(kernels.len() == 1 && kernels[0].0 > 0.0, "{}: {kernels:?}", operator.name);
        let figures = OperatorFigures::of(&times, None, &DataSheet::default());
        // Other reasons depend on the speed of this machine.
        let wrong = |reason: &Reason| reason.starts_with("the outputs of");
        assert!(!figures.reasons.iter().any(wrong), "{}: {:?}", operator.name, figures.reasons);
        assert!(times.comparison.compared > 0 && figures.call_s.0 > 0.0, "{}", operator.name);
        assert!(times.rounds.len() >= 5 && times.calls_s.len() >= 5, "{}", operator.name);
    }
}

#[test]
fn an_engine_that_returns_zeros_does_not_count() {
    let scratch = tempfile::tempdir().unwrap();
    let abs = Operator::find("abs").unwrap();
    let times = measure_operator(&job(abs, "FP32", "null", scratch.path()), &MonotonicClock::start()).unwrap();
    let reasons = OperatorFigures::of(&times, None, &DataSheet::default()).reasons;
    assert!(reasons[0].starts_with("the outputs of a measured call differ from the reference by 1.0e0"), "{reasons:?}");
}

#[test]
fn sizes_are_flagperfs_unless_they_are_given() {
    let mm = Operator::find("mm").unwrap();
    let given = IndexMap::from([("K".to_owned(), 6)]);
    let sizes = Sizes::of(mm, &given).unwrap();
    assert_eq!((sizes.shape("M,N"), sizes.shape("N,K")), (vec![8192, 8192], vec![8192, 6]));
    assert_eq!(mm.flops.unwrap()(&sizes), 2.0 * 8192.0 * 8192.0 * 6.0);
    assert_eq!(sizes.tile(mm).shape("M,N,K"), [8, 8192, 6]);
    let prime = Sizes::of(mm, &IndexMap::from([("M".to_owned(), 8191)])).unwrap();
    assert_eq!(prime.tile(mm).shape("M"), [1], "a tile is a divisor");
    for (name, size, expected) in [
        ("m", 1, "operator `mm` has no dimension `m` (known: M, N, K)"),
        ("M", 0, "dimension `M` of operator `mm` cannot be 0 (1 to 1099511627776)"),
    ] {
        assert_eq!(Sizes::of(mm, &IndexMap::from([(name.to_owned(), size)])).unwrap_err().to_string(), expected);
    }
}

#[test]
fn an_output_is_compared_with_the_repetitions_of_its_tile() {
    let mm = Operator::find("mm").unwrap();
    let sizes =
        |m: usize| Sizes::of(mm, &[("M", m), ("N", 5), ("K", 3)].map(|(n, s)| (n.to_owned(), s)).into()).unwrap();
    let tile = operator_graph(mm, &sizes(2), DType::F32, None).unwrap();
    let draw = |i: usize| {
        let (name, _, elements) = mm.inputs[i];
        draw(name, elements, &tile.graph.inputs[i].spec, 1, 3).unwrap()
    };
    let inputs = [draw(0), draw(1)];
    let reference = Reference::compute(mm, &tile, None, &inputs, (2.0, 1e-5)).unwrap();
    let executor = flagperf_onnx_exec::Executor::load(&tile.graph, flagperf_onnx_exec::ReferenceOps).unwrap();
    let output = executor.run_host(&inputs).unwrap().remove(0).to_f64();
    let whole = |values: Vec<f64>| [Tensor::from_vec([4, 3], values).unwrap().cast(DType::F32)];
    let repeated = [output.clone(), output.clone()].concat();
    let right = reference.compare(&whole(repeated.clone()));
    assert!(right.is_right() && right.compared == 12 && right.elements == 12, "{right:?}");
    let mut changed = repeated.clone();
    changed[10] += 0.1;
    assert!(!reference.compare(&whole(changed)).is_right());
    let mut not_a_number = repeated;
    not_a_number[11] = f64::NAN;
    assert!(reference.compare(&whole(not_a_number)).wrong.unwrap().starts_with("element 11 is NaN instead of "));
    let other = [Tensor::from_vec([5, 3], vec![0f32; 15]).unwrap()];
    assert_eq!(reference.compare(&other).wrong.unwrap(), "an output `5,3,f32` instead of repetitions of `2,3,f32`");
}

#[test]
fn a_sum_beyond_the_range_of_its_type_is_expected_to_be_infinite() {
    let sum = Operator::find("sum").unwrap();
    let tile_sizes = Sizes::of(sum, &IndexMap::from([("Melements".to_owned(), 1)])).unwrap();
    let tile = operator_graph(sum, &tile_sizes, DType::F16, None).unwrap();
    let input = Tensor::from_vec([1, 1024, 1024], vec![0.03125f32; 1 << 20]).unwrap().cast(DType::F16);
    for (tiles, right, wrong) in [(1.0, 32768.0, f64::INFINITY), (4.0, 131_072.0, 30000.0)] {
        let reference = Reference::compute(sum, &tile, None, std::slice::from_ref(&input), (tiles, 2e-3)).unwrap();
        let compared = |value: f64| reference.compare(&[Tensor::scalar(value).cast(DType::F16)]).is_right();
        assert_eq!((compared(right), compared(wrong)), (true, false), "{tiles} tiles");
    }
}

#[test]
fn dropped_elements_are_as_many_as_their_probability_says_and_the_others_are_right() {
    let operator = Operator::find("native_dropout").unwrap();
    let sizes = Sizes::of(operator, &IndexMap::from([("Melements".to_owned(), 1)])).unwrap();
    let kept = operator.without_drops();
    let tile = operator_graph(&kept, &sizes, DType::F32, Some(GradientBy::StandardOperators)).unwrap();
    let forward = operator_graph(&kept, &sizes, DType::F32, None).unwrap();
    let input = draw("a", operators::Elements::Normal, &tile.graph.inputs[0].spec, 1, 3).unwrap();
    let inputs = std::slice::from_ref(&input);
    let reference = Reference::compute(operator, &tile, Some(&forward.graph), inputs, (1.0, 1e-5)).unwrap();
    // Returns the sum and the gradient of an engine that keeps these elements and multiplies them.
    let outputs = |keeps: &dyn Fn(u64) -> bool, factor: f64, seed: u64| {
        let mut random = flagperf_onnx::RandomStream::new(seed, "mask");
        let gradient: Vec<f64> =
            (0..input.len()).map(|_| if keeps(random.below(1000)) { factor } else { 0.0 }).collect();
        let sum: f64 = input.to_f64().iter().zip(&gradient).map(|(a, kept)| a * kept).sum();
        [Tensor::scalar(sum), Tensor::from_vec(input.shape(), gradient).unwrap()].map(|output| output.cast(DType::F32))
    };
    let keeps = |drawn: u64| drawn >= 200;
    let right = outputs(&keeps, 1.25, 1);
    let found = reference.compare(&right);
    assert!(found.is_right() && found.elements == found.compared, "{found:?}");
    let wrong = |outputs: &[Tensor]| reference.compare(outputs).wrong.unwrap_or_default();
    assert!(wrong(&outputs(&|_| true, 1.25, 1)).contains("a share of 0 of the elements is dropped instead of 0.2"));
    assert!(wrong(&outputs(&|_| false, 1.25, 1)).contains("a share of 1 of the elements is dropped instead of 0.2"));
    assert!(wrong(&outputs(&|drawn| drawn >= 210, 1.25, 1)).contains("of the elements is dropped instead of 0.2"));
    let scaled = reference.compare(&outputs(&keeps, 1.2, 1));
    assert!(scaled.error > scaled.limit, "{scaled:?}");
    let other_sum = [Tensor::scalar(0.0).cast(DType::F32), right[1].clone()];
    assert!(wrong(&[Tensor::scalar(1e5f32), right[1].clone()]).starts_with("the sum is 100000 instead of "));
    assert!(reference.compare(&other_sum).is_right(), "chance explains a sum of zero");
    assert!(check::drop_the_same(&right, &right) && !check::drop_the_same(&right, &outputs(&keeps, 1.25, 2)));
}

fn times() -> OperatorTimes {
    let right = Comparison { error: 1e-6, limit: 1e-5, compared: 8, elements: 8, wrong: None };
    OperatorTimes {
        engine: "interpreter".to_owned(),
        version: "1".to_owned(),
        device: "cuda:0".to_owned(),
        device_name: Some("Chip-1".to_owned()),
        driver: None,
        threads: 0,
        warnings: Vec::new(),
        nodes: 1,
        inputs_on_device: true,
        input_sets: 4,
        bytes: Bytes(1000),
        device_memory: None,
        load_s: Seconds(0.1),
        first_call_s: Seconds(1.0),
        warmup_calls: 5,
        calls_s: vec![Seconds(0.02), Seconds(0.03)],
        rounds: vec![Round { calls: 10, time_s: Seconds(0.1) }, Round { calls: 10, time_s: Seconds(0.3) }],
        kernels_s: Vec::new(),
        new_inputs_s: Seconds(0.03),
        deferred_s: Seconds(0.0),
        comparison: right.clone(),
        comparison_of_new_inputs: right,
        compared_smaller: None,
    }
}

#[test]
fn figures_follow_from_times() {
    let sheet = DataSheet { flops_per_s: Some(1e6), bytes_per_s: Some(1e5), ..DataSheet::default() };
    let figures = OperatorFigures::of(&times(), Some(5000.0), &sheet);
    assert!((figures.call_s.0 - 0.02).abs() < 1e-12, "all rounds together: {figures:?}");
    assert!((figures.fastest_s.0 - 0.01).abs() < 1e-12 && (figures.slowest_s.0 - 0.03).abs() < 1e-12);
    assert_eq!((figures.flops_per_s, figures.peak_share), (Some(250_000.0), Some(0.25)));
    let bytes = OperatorFigures::of(&times(), None, &sheet);
    assert_eq!((bytes.bytes_per_s, bytes.peak_share), (50_000.0, Some(0.5)));
    assert!(figures.reasons.is_empty() && bytes.reasons.is_empty());
    let in_host_memory = OperatorTimes { inputs_on_device: false, ..times() };
    assert_eq!(OperatorFigures::of(&in_host_memory, None, &sheet).peak_share, None);
}

#[test]
fn what_an_honest_engine_cannot_show_does_not_count() {
    let sheet = DataSheet { bytes_per_s: Some(4e4), source: "its sheet".to_owned(), ..DataSheet::default() };
    let none = DataSheet::default();
    let reason = |times: &OperatorTimes, sheet: &DataSheet| OperatorFigures::of(times, None, sheet).reasons.join("; ");
    assert_eq!(reason(&times(), &sheet), "it is faster than the device can be: 125 % of the figure in its sheet");
    let deferred = OperatorTimes { deferred_s: Seconds(0.011), ..times() };
    let found = reason(&deferred, &none);
    assert!(found.starts_with("reading outputs took 11.000 ms longer the first time"), "{found}");
    let remembered = OperatorTimes { new_inputs_s: Seconds(0.3), ..times() };
    assert_eq!(
        reason(&remembered, &none),
        "a call with new inputs took 300.000 ms, 10 times as long as the slowest with known ones"
    );
    let other = Comparison { error: 0.5, ..times().comparison };
    let wrong = OperatorTimes { comparison_of_new_inputs: other, ..times() };
    assert_eq!(
        reason(&wrong, &none),
        "the outputs of a call with new inputs differ from the reference by 5.0e-1 of its largest element (allowed: 1.0e-5)"
    );
}

#[test]
fn a_limit_is_the_fastest_size_of_its_operator() {
    let size = |size: usize, calls: u64| {
        let rounds = vec![Round { calls, time_s: Seconds(1.0) }];
        SizeTimes { size, flops: Some(100.0), times: OperatorTimes { rounds, ..times() } }
    };
    let measured = LimitTimes::Operator(vec![size(1024, 10), size(2048, 30), size(4096, 20)]);
    let best = measured.value(&DataSheet::default()).unwrap();
    assert_eq!((best.value, best.size), (3000.0, Some(2048)));
    let transfers = LimitTimes::Transfers {
        device: String::new(),
        device_name: None,
        bytes: Bytes(600),
        times_s: [1.0, 2.0, 50.0].map(Seconds).to_vec(),
    };
    assert_eq!(transfers.value(&DataSheet::default()).unwrap().value, 300.0, "of the median time");
}

#[test]
fn each_limit_has_a_unit_and_is_that_of_so_many_devices() {
    let found = |name: &str| Limit::find(name).map(|limit| limit.unit());
    assert_eq!((found("computation-FP8"), found("computation-INT8")), (Ok("FLOP/s"), Ok("OP/s")));
    assert!(found("interconnect").unwrap_err().starts_with("unknown limit `interconnect` (known: computation-FP64, "));
    for limit in &LIMITS {
        let format = limit.name.strip_prefix("computation-");
        assert_eq!(
            format,
            limit.operator().map(|(_, format)| format.name).filter(|_| format.is_some()),
            "{}",
            limit.name
        );
    }
    assert!(!Limit::find("interconnect-h2d").unwrap().is_of_several_devices());
    assert!(Limit::find("interconnect-MPI_intraserver").unwrap().is_of_several_devices());
    let of = |hosts: usize, devices: u32| {
        let size = GroupSize { hosts, devices };
        LIMITS.iter().filter(|limit| limit.is_of(size)).map(|limit| limit.name).collect::<Vec<_>>()
    };
    let (one, two, two_hosts) = (of(1, 1), of(1, 2), of(2, 1));
    assert_eq!(one.len() + two.len() + two_hosts.len(), LIMITS.len());
    assert_eq!(two_hosts, ["interconnect-MPI_interserver", "interconnect-P2P_interserver"]);
    assert_eq!(
        (of(1, 4), of(2, 2)),
        (two[..1].to_vec(), two_hosts[..1].to_vec()),
        "one is that of exactly two devices"
    );
}

#[test]
fn limits_of_memory_need_a_device_with_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let settings = job(Operator::find("abs").unwrap(), "FP32", "interpreter", scratch.path());
    for limit in ["main_memory-capacity", "interconnect-h2d", "interconnect-d2h"] {
        let job = LimitJob { limit: limit.to_owned(), settings: settings.clone(), group: None };
        let error = measure_limit(&job, &FixedClock::stepping(1000), &AtomicU64::new(0)).unwrap_err().to_string();
        assert_eq!(error, "`cpu` has no memory of its own: the engine computes in host memory", "{limit}");
    }
}
