//! What a session promises: its inputs and outputs, every batch size, several at once, memory that stays.

use std::sync::Arc;
use std::thread;

use flagperf::engine::{LentMemory, Options, Value};
use flagperf::tensor::{DType, Tensor};
use flagperf_onnx::layers::{self, Linear};
use flagperf_onnx::{Attribute, Graph};
use sysinfo::{ProcessesToUpdate, System};

use crate::Check;
use crate::bench::{BATCH, Bench};
use crate::graphs::{build, feed, numbers, spec, unary};
use crate::networks::{depthwise, residual};
use crate::numerics::agree;

pub const CHECKS: &[(&str, Check)] = &[
    ("inputs_and_outputs_are_those_of_the_model", inputs_and_outputs_are_those_of_the_model),
    ("outputs_have_the_shapes_and_types_declared", outputs_have_the_shapes_and_types_declared),
    ("odd_batches", odd_batches),
    ("several_inputs_and_outputs_keep_their_order", several_inputs_and_outputs_keep_their_order),
    ("independent_of_each_other", independent_of_each_other),
    ("loaded_and_dropped_again_and_again", loaded_and_dropped_again_and_again),
    ("memory_is_given_back_when_dropped", memory_is_given_back_when_dropped),
    ("outputs_stay_after_the_next_submit_and_the_session", outputs_stay),
    ("outputs_are_taken_back_as_inputs", outputs_are_taken_back_as_inputs),
    ("lent_memory_is_read_as_any_other", lent_memory),
    ("threads_are_as_many_as_asked_for", threads_are_as_many_as_asked_for),
];

/// Two inputs and three outputs of four types.
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

fn inputs_and_outputs_are_those_of_the_model(bench: &Bench) {
    for graph in [mixed(), residual(DType::F32), depthwise(DType::F32)] {
        let loaded = bench.load(&graph);
        assert_eq!(loaded.session.inputs(), graph.inputs);
        assert_eq!(loaded.session.outputs(), graph.outputs);
    }
}

fn outputs_have_the_shapes_and_types_declared(bench: &Bench) {
    let graph = mixed();
    let outputs = bench.load(&graph).run(&feed(&graph, BATCH));
    let specs: Vec<String> = outputs.iter().map(|output| output.spec().to_string()).collect();
    assert_eq!(specs, ["4,5,8,bool", "4,5,6,f32", "4,5,i64"]);
}

fn odd_batches(bench: &Bench) {
    let graph = residual(DType::F32);
    let mut loaded = bench.load(&graph);
    for rows in [BATCH, 1, 3, BATCH, 7, 1] {
        let outputs = loaded.run(&feed(&graph, rows));
        assert_eq!(outputs[0].shape(), [rows, 10]);
    }
}

fn several_inputs_and_outputs_keep_their_order(bench: &Bench) {
    let graph = build("swap", |g| {
        let [a, b, c] = [("b", "N,2,f32"), ("a", "N,3,f32"), ("c", "N,4,f32")]
            .map(|(name, text)| g.input(name, spec(text)).unwrap());
        let [b, c, a] = [("of_a", &b), ("of_c", &c), ("of_b", &a)]
            .map(|(name, x)| layers::add(g, &format!("{name}.add"), x, x).map(|y| (name, y)).unwrap());
        [b, c, a].into_iter().try_for_each(|(name, y)| g.output(name, &y))
    });
    let outputs = bench.load(&graph).run(&feed(&graph, 2));
    let widths: Vec<usize> = outputs.iter().map(|output| output.shape()[1]).collect();
    assert_eq!(widths, [3, 4, 2]);
}

fn independent_of_each_other(bench: &Bench) {
    let graphs = [residual(DType::F32), mixed()];
    let alone = graphs.each_ref().map(|graph| bench.load(graph).run(&feed(graph, 3)));
    assert!(alone.iter().flatten().all(|output| output.bytes().iter().any(|byte| *byte != 0)));
    thread::scope(|scope| {
        for (graph, expected) in graphs.iter().zip(&alone) {
            let mut loaded = bench.load(graph);
            scope.spawn(move || {
                for _ in 0..5 {
                    let outputs = loaded.run(&feed(graph, 3));
                    for (output, expected) in outputs.iter().zip(expected) {
                        match loaded.session.device().starts_with("cuda") {
                            // There, another algorithm may be chosen in another thread, which rounds otherwise.
                            true => agree(output, expected, DType::F32).unwrap(),
                            false => assert_eq!(output.bytes(), expected.bytes()),
                        }
                    }
                }
            });
        }
    });
}

fn loaded_and_dropped_again_and_again(bench: &Bench) {
    let graph = doubled();
    for rows in 1..9 {
        assert_eq!(bench.load(&graph).run(&feed(&graph, rows))[0].shape(), [rows, 3]);
    }
}

/// Ten sessions of 16 MiB of weights, after three in which libraries keep what they keep: one that was not given back would
/// show tenfold.
fn memory_is_given_back_when_dropped(bench: &Bench) {
    let graph = unary("N,2048,f32", |g, x| layers::linear(g, "wide", x, Linear::new(2048, 2048)));
    let inputs = feed(&graph, 2);
    let grown = |loads: usize| {
        for _ in 0..loads {
            assert_eq!(bench.load(&graph).run(&inputs)[0].shape(), [2, 2048]);
        }
        resident()
    };
    let (before, after) = (grown(3), grown(10));
    let weights = 2048 * 2048 * 4;
    assert!(after < before + 5 * weights, "{before} bytes before, {after} after");
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let this = sysinfo::get_current_pid().unwrap();
    let mut system = System::new().unwrap();
    let _ = system.refresh_processes(ProcessesToUpdate::Some(&[this]), true);
    system.process(this).unwrap().memory()
}

fn outputs_stay(bench: &Bench) {
    let graph = doubled();
    let mut loaded = bench.load(&graph);
    let [first, second] = [1, 2].map(|seed| Value::Host(numbers(&[2, 3], seed, 1.0, 2.0)));
    let outputs = loaded.session.submit(std::slice::from_ref(&first)).unwrap();
    loaded.session.submit(&[second]).unwrap();
    loaded.session.sync().unwrap();
    drop(loaded);
    let twice: Vec<f64> = first.to_host().unwrap().to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(outputs[0].to_host().unwrap().to_f64(), twice);
}

fn outputs_are_taken_back_as_inputs(bench: &Bench) {
    let graph = doubled();
    let mut loaded = bench.load(&graph);
    let once = loaded.session.submit(&[Value::Host(numbers(&[2, 3], 1, 1.0, 2.0))]).unwrap();
    let twice = loaded.session.submit(&once).unwrap();
    loaded.session.sync().unwrap();
    let doubled: Vec<f64> = once[0].to_host().unwrap().to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(twice[0].to_host().unwrap().to_f64(), doubled);
}

fn lent_memory(bench: &Bench) {
    let graph = doubled();
    let mut loaded = bench.load(&graph);
    let numbers = numbers(&[2, 3], 1, 1.0, 2.0);
    let mut memory = loaded.session.lend(0, numbers.bytes().len()).unwrap();
    memory.bytes_mut().copy_from_slice(numbers.bytes());
    let memory: Arc<dyn LentMemory> = memory.into();
    let lent = Tensor::from_memory([2, 3], DType::F32, memory, 0).unwrap();
    let twice: Vec<f64> = numbers.to_f64().iter().map(|x| 2.0 * x).collect();
    assert_eq!(loaded.run(&[lent])[0].to_f64(), twice);
}

fn threads_are_as_many_as_asked_for(bench: &Bench) {
    let graph = residual(DType::F32);
    for threads in [1, 2] {
        let options = Options { threads, ..bench.options(DType::F32) };
        let mut loaded = bench.try_load(&graph, &options).unwrap();
        assert!([0, threads].contains(&loaded.session.threads()), "{} threads", loaded.session.threads());
        assert_eq!(loaded.run(&feed(&graph, 2))[0].shape(), [2, 10]);
    }
}
