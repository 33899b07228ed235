//! The promises of a session: declared inputs and outputs, any batch size, concurrent sessions, outputs that stay
//! valid.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{LentMemory, LoadOptions, Value};
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{Attribute, Graph};

use crate::Check;
use crate::graphs::{build, feed, numbers, spec, unary};
use crate::harness::{BATCH, Harness};
use crate::networks::{depthwise, residual};
use crate::numerics::check_close;
use crate::process::{ProcessResources, resident_bytes, tasks};

pub const CHECKS: &[(&str, Check)] = &[
    ("inputs_and_outputs_are_those_of_the_model", inputs_and_outputs_are_those_of_the_model),
    ("outputs_have_the_declared_shapes_and_types", outputs_have_the_declared_shapes_and_types),
    ("odd_batches", odd_batches),
    ("several_inputs_and_outputs_keep_their_order", several_inputs_and_outputs_keep_their_order),
    ("independent_of_each_other", independent_of_each_other),
    (NOTHING_IS_LEFT, nothing_is_left_when_dropped),
    (MEMORY_IS_RELEASED, memory_is_released_when_dropped),
    ("outputs_survive_the_next_submit_and_the_session", outputs_survive),
    ("outputs_survive_when_many_are_kept", outputs_survive_when_many_are_kept),
    ("outputs_can_be_inputs", outputs_can_be_inputs),
    ("lent_memory_is_read_like_any_other", lent_memory),
    (THREAD_COUNT, thread_count_is_as_requested),
];

const NOTHING_IS_LEFT: &str = "nothing_is_left_when_dropped";
const MEMORY_IS_RELEASED: &str = "memory_is_released_when_dropped";
const THREAD_COUNT: &str = "thread_count_is_as_requested";

/// Checks that count resources of the whole process, and therefore run while no other check does.
pub const EXCLUSIVE: [&str; 3] = [NOTHING_IS_LEFT, MEMORY_IS_RELEASED, THREAD_COUNT];

/// Builds a graph of two inputs and three outputs with four types.
fn mixed() -> Graph {
    build("mixed", |g| {
        let ids = g.input("ids", spec("N,5,i64"))?;
        let x = g.input("x", spec("N,5,8,f32"))?;
        let embedded = layers::embedding(g, "table", &ids, [7, 8], DType::F32)?;
        let sum = layers::add(g, "sum", &embedded, &x)?;
        let hidden = layers::linear(g, "hidden", &sum, Linear::new(8, 6))?;
        let arguments = [("axis".to_owned(), Attribute::Int(-1)), ("keepdims".to_owned(), Attribute::Int(0))];
        let best = g.node("best", "ArgMax", &[Some(&hidden)], arguments.into_iter().collect(), 1)?;
        let larger = g.node("larger", "Greater", &[Some(&embedded), Some(&x)], Default::default(), 1)?;
        g.output("larger_than_x", &larger[0])?;
        g.output("scores", &hidden)?;
        g.output("classes", &best[0])
    })
}

fn doubled() -> Graph {
    unary("N,3,f32", |g, x| layers::add(g, "double", x, x))
}

fn inputs_and_outputs_are_those_of_the_model(harness: &Harness) {
    for graph in [mixed(), residual(DType::F32), depthwise(DType::F32)] {
        let loaded = harness.load(&graph);
        assert_eq!(loaded.session.inputs(), graph.inputs);
        assert_eq!(loaded.session.outputs(), graph.outputs);
    }
}

fn outputs_have_the_declared_shapes_and_types(harness: &Harness) {
    let graph = mixed();
    let outputs = harness.load(&graph).run(&feed(&graph, BATCH));
    let specs: Vec<String> = outputs.iter().map(|output| output.spec().to_string()).collect();
    assert_eq!(specs, ["4,5,8,bool", "4,5,6,f32", "4,5,i64"]);
}

fn odd_batches(harness: &Harness) {
    let graph = residual(DType::F32);
    let mut loaded = harness.load(&graph);
    for rows in [BATCH, 1, 3, BATCH, 7, 1] {
        let outputs = loaded.run(&feed(&graph, rows));
        assert_eq!(outputs[0].shape(), [rows, 10]);
    }
}

fn several_inputs_and_outputs_keep_their_order(harness: &Harness) {
    let graph = build("swap", |g| {
        let [a, b, c] = [("b", "N,2,f32"), ("a", "N,3,f32"), ("c", "N,4,f32")]
            .map(|(name, text)| g.input(name, spec(text)).unwrap());
        let [b, c, a] = [("of_a", &b), ("of_c", &c), ("of_b", &a)]
            .map(|(name, x)| layers::add(g, &format!("{name}.add"), x, x).map(|y| (name, y)).unwrap());
        [b, c, a].into_iter().try_for_each(|(name, y)| g.output(name, &y))
    });
    let outputs = harness.load(&graph).run(&feed(&graph, 2));
    let widths: Vec<usize> = outputs.iter().map(|output| output.shape()[1]).collect();
    assert_eq!(widths, [3, 4, 2]);
}

fn independent_of_each_other(harness: &Harness) {
    let graphs = [residual(DType::F32), mixed()];
    let alone = graphs.each_ref().map(|graph| harness.load(graph).run(&feed(graph, 3)));
    assert!(alone.iter().flatten().all(|output| output.bytes().iter().any(|byte| *byte != 0)));
    thread::scope(|scope| {
        for (graph, expected) in graphs.iter().zip(&alone) {
            let mut loaded = harness.load(graph);
            scope.spawn(move || {
                for _ in 0..5 {
                    let outputs = loaded.run(&feed(graph, 3));
                    for (output, expected) in outputs.iter().zip(expected) {
                        match loaded.session.facts().device.starts_with("cuda") {
                            // On CUDA, another thread may choose another algorithm, which rounds differently.
                            true => check_close(output, expected, DType::F32).unwrap(),
                            false => assert_eq!(output.bytes(), expected.bytes()),
                        }
                    }
                }
            });
        }
    });
}

/// Checks that no thread, open file or process remains; threads may take a moment to end.
fn nothing_is_left_when_dropped(harness: &Harness) {
    const LOADS: usize = 8;
    const MOMENTS: usize = 200;
    let graph = doubled();
    let load = |rows| assert_eq!(harness.load(&graph).run(&feed(&graph, rows))[0].shape(), [rows, 3]);
    (1..3).for_each(load);
    let before = ProcessResources::current();
    (1..=LOADS).for_each(load);
    let after = (0..MOMENTS).map(|_| ProcessResources::current()).find(|left| {
        let settled = left.is_within(&before);
        if !settled {
            thread::sleep(Duration::from_millis(50));
        }
        settled
    });
    assert!(after.is_some(), "{before:?} before {LOADS} loads, {:?} after", ProcessResources::current());
}

/// Checks that memory does not grow with every load; memory that libraries and the allocator reserve grows
/// occasionally.
fn memory_is_released_when_dropped(harness: &Harness) {
    const ROUNDS: usize = 8;
    const LOADS: usize = 2;
    let graph = unary("N,2048,f32", |g, x| layers::linear(g, "wide", x, Linear::new(2048, 2048)));
    let inputs = feed(&graph, 2);
    let load = || assert_eq!(harness.load(&graph).run(&inputs)[0].shape(), [2, 2048]);
    let mut readings = Vec::new();
    (0..3).for_each(|_| load());
    readings.push(resident_bytes());
    for _ in 0..ROUNDS {
        (0..LOADS).for_each(|_| load());
        readings.push(resident_bytes());
    }
    let weights = 2048 * 2048 * size_of::<f32>() as u64;
    assert!(
        !is_leak(&readings, LOADS as u64 * weights),
        "{LOADS} loads of {weights} bytes between these: {readings:?}"
    );
}

/// Returns whether memory grows by more than half of `loaded` between most pairs of consecutive readings.
fn is_leak(readings: &[u64], loaded: u64) -> bool {
    let leaked = |pair: &[u64]| pair[1].saturating_sub(pair[0]) > loaded / 2;
    let rounds = readings.len() - 1;
    readings.windows(2).filter(|pair| leaked(pair)).count() > rounds / 2
}

/// Checks that a leak in every load is distinguished from memory that is allocated once, whenever that happens.
pub fn a_leak_is_distinguished_from_a_fixed_amount() {
    let loaded = 32 << 20;
    let leak: Vec<u64> = (0..9).map(|round| (300 << 20) + round * loaded).collect();
    assert!(is_leak(&leak, loaded));
    let half: Vec<u64> = leak.iter().map(|bytes| bytes * 3 / 4).collect();
    assert!(is_leak(&half, loaded), "a leak of three quarters of each load");
    for jump in 1..9 {
        let fixed: Vec<u64> = (0..9).map(|round| (300 << 20) + if round >= jump { 10 * loaded } else { 0 }).collect();
        assert!(!is_leak(&fixed, loaded), "a fixed amount of ten loads at round {jump}");
    }
    let swings: Vec<u64> = (0..9).map(|round| (300 << 20) + (round % 2) * 4 * loaded).collect();
    assert!(!is_leak(&swings, loaded), "memory that is allocated and released again");
}

fn outputs_survive(harness: &Harness) {
    let graph = doubled();
    let mut loaded = harness.load(&graph);
    let [first, second] = [1, 2].map(|seed| Value::Host(numbers(&[2, 3], seed, 1.0, 2.0)));
    let outputs = loaded.session.submit(std::slice::from_ref(&first)).unwrap();
    loaded.session.submit(&[second]).unwrap();
    loaded.session.sync().unwrap();
    drop(loaded);
    let twice: Vec<f64> = first.to_host().unwrap().to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(outputs[0].to_host().unwrap().to_f64(), twice);
}

/// Keeps more outputs than any engine has buffers for: fetched immediately, fetched late, and while new ones are
/// computed.
fn outputs_survive_when_many_are_kept(harness: &Harness) {
    const BATCHES: usize = 48;
    let graph = doubled();
    let mut loaded = harness.load(&graph);
    let batch = |seed: usize| numbers(&[2, 3], seed, 1.0, 2.0);
    let (mut fetched, mut late) = (Vec::new(), Vec::new());
    for seed in 0..BATCHES {
        late.push(loaded.session.submit(&[Value::Host(batch(seed))]).unwrap());
        fetched.push(loaded.run(&[batch(BATCHES + seed)]).remove(0));
    }
    loaded.session.sync().unwrap();
    let late = late.iter().map(|outputs| outputs[0].to_host().unwrap());
    for (seed, output) in late.chain(fetched).enumerate() {
        let twice: Vec<f64> = batch(seed).to_f64().iter().map(|x| 2.0 * x).collect();
        assert_eq!(output.to_f64(), twice, "batch {seed}");
    }
    assert_eq!(loaded.run(&[batch(7)])[0].shape(), [2, 3]);
}

fn outputs_can_be_inputs(harness: &Harness) {
    let graph = doubled();
    let mut loaded = harness.load(&graph);
    let once = loaded.session.submit(&[Value::Host(numbers(&[2, 3], 1, 1.0, 2.0))]).unwrap();
    let twice = loaded.session.submit(&once).unwrap();
    loaded.session.sync().unwrap();
    let doubled: Vec<f64> = once[0].to_host().unwrap().to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(twice[0].to_host().unwrap().to_f64(), doubled);
}

fn lent_memory(harness: &Harness) {
    let graph = doubled();
    let mut loaded = harness.load(&graph);
    let numbers = numbers(&[2, 3], 1, 1.0, 2.0);
    let mut memory = loaded.session.lend(0, numbers.bytes().len()).unwrap();
    memory.bytes_mut().copy_from_slice(numbers.bytes());
    let memory: Arc<dyn LentMemory> = memory.into();
    let lent = Tensor::from_memory([2, 3], DType::F32, memory, 0).unwrap();
    let twice: Vec<f64> = numbers.to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(loaded.run(&[lent])[0].to_f64(), twice);
}

/// Checks that each additional requested thread adds one thread: among those that the session starts or, if the library
/// keeps threads for later sessions, among all threads that were started after the first session.
fn thread_count_is_as_requested(harness: &Harness) {
    let graph = residual(DType::F32);
    let load = |threads: usize| {
        let mut loaded = harness.try_load(&graph, &LoadOptions { threads, ..harness.options(DType::F32) }).unwrap();
        let reported = loaded.session.facts().threads;
        assert!([0, threads].contains(&reported), "{reported} threads");
        assert_eq!(loaded.run(&feed(&graph, BATCH))[0].shape(), [BATCH, 10]);
        loaded
    };
    drop(load(1));
    let first = tasks();
    let started = |threads: usize| {
        let before = tasks();
        let _loaded = load(threads);
        let now = tasks();
        (now.difference(&before).count(), now.difference(&first).count())
    };
    let ((two, two_kept), (four, four_kept)) = (started(2), started(4));
    let as_requested = four == two + 2 || four_kept == two_kept + 2;
    assert!(as_requested, "2 threads: {two} started, {two_kept} kept; 4 threads: {four} started, {four_kept} kept");
}
