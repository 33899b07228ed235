//! Measures the cost of a script around the engine: the forward function of ResNet-50 and the decode loop of SmolLM2 on
//! the null engine, and the cost of an allocation with the counting allocator.
//!
//! Run with `cargo bench --bench script_overhead`; `host_overhead` measures the host's own part of a step.

use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex};

use flagperf_core::limits::Limits;
use flagperf_core::measure::{Clock, MonotonicClock};
use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, Value, find};
use flagperf_script::{CaseScripts, ForwardKind, HostServices, ScriptChoice, ScriptConfig, Sessions};
use indexmap::IndexMap;

const CALLS: u32 = 200_000;

fn main() {
    let clock = Arc::new(MonotonicClock::start());
    let measure = |name: &str, mut work: Box<dyn FnMut()>| {
        (0..CALLS / 10).for_each(|_| work());
        let begin = clock.now();
        (0..CALLS).for_each(|_| work());
        println!("{name}: {:.3} us", clock.now().since(begin).0 * 1e6 / f64::from(CALLS));
    };

    let extra = [("inputs", "input", "N,3,224,224,f32"), ("outputs", "output", "N,1000,f32")];
    let extra = extra.map(|(key, name, spec)| (key.to_owned(), serde_json::json!({ name: spec })));
    let options = LoadOptions { batch_size: 64, extra: IndexMap::from(extra), ..LoadOptions::default() };
    let load = || find("null").expect("a row of the table").load(Artifact::Onnx(Path::new("foo")), &options);
    let mut bare = load().expect("the null engine accepts any model");
    let session = Arc::new(Mutex::new(load().expect("the null engine accepts any model")));

    let host = HostServices { log: Arc::new(|_, _, _| {}), clock: clock.clone() };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/resnet50");
    let shared = || Some("lib/classification".to_owned());
    let choice = ScriptChoice { forward: shared(), evaluator: shared(), ..ScriptChoice::default() };
    let begin = clock.now();
    let scripts =
        CaseScripts::load(&dir, &choice, &Limits::default(), host.clone()).expect("the case's scripts compile");
    println!("loading the scripts of a case, first: {:.3} ms", clock.now().since(begin).0 * 1e3);
    let begin = clock.now();
    (0..10).for_each(|_| drop(CaseScripts::load(&dir, &choice, &Limits::default(), host.clone())));
    println!("loading the scripts of a case: {:.3} ms", clock.now().since(begin).0 * 1e2);
    let sessions = Sessions::from([("model".to_owned(), session)]);
    let mut forward = scripts.forward(ForwardKind::Model, sessions);

    let images =
        Tensor::from_vec([64, 3, 224, 224], vec![0.0f32; 64 * 3 * 224 * 224]).expect("the shape fits the data");
    let inputs = IndexMap::from([("images".to_owned(), images.clone())]);
    let values = [Value::Host(images)];
    measure(
        "null engine alone",
        Box::new(move || drop(black_box(bare.submit(&values).expect("the engine accepts the images")))),
    );
    measure(
        "with the script around it",
        Box::new(move || drop(black_box(forward.call(&inputs).expect("the script runs")))),
    );
    measure("allocating and freeing 64 bytes", Box::new(|| drop(black_box(Vec::<u8>::with_capacity(64)))));
    measure_decode_loop(host);
}

/// Measures a token of SmolLM2's decode loop on the null engine: 60 states that grow by a position each.
fn measure_decode_loop(host: HostServices) {
    const NEW_TOKENS: usize = 256;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/smollm2_135m");
    let config = serde_json::json!({
        "size": "135m", "task": "generation", "prompt_length": 64, "new_tokens": NEW_TOKENS, "temperature": 0.0,
        "top_k": 0, "top_p": 1.0, "weights": null, "seed": 0,
    });
    let config: ScriptConfig = serde_json::from_value(config).expect("a map");
    let clock = host.clock.clone();
    let scripts = CaseScripts::load(&dir, &ScriptChoice::default(), &Limits::default(), host).expect("they compile");
    let model = scripts.create_model(&config, Path::new(".")).expect("the graphs are built");
    let load = |graph| find("null").expect("a row of the table").load(Artifact::Graph(graph), &LoadOptions::default());
    let load = |graph| Arc::new(Mutex::new(load(graph).expect("the null engine accepts any model")));
    let sessions: Sessions = model.graphs.iter().map(|(name, graph)| (name.clone(), load(graph))).collect();
    let forward = scripts.forward(ForwardKind::Model, sessions);
    let mut forward = forward.with_config(&config).expect("settings");
    let tokens = Tensor::from_vec([1, 64], vec![1i64; 64]).expect("the shape fits the data");
    let lengths = Tensor::from_vec([1], vec![64i64]).expect("the shape fits the data");
    let inputs = [("input_ids", tokens.clone()), ("attention_mask", tokens), ("lengths", lengths)];
    let inputs: IndexMap<String, Tensor> = inputs.map(|(name, tensor)| (name.to_owned(), tensor)).into();
    let answers = 20;
    let mut answer = || drop(black_box(forward.call(&inputs).expect("the script runs")));
    answer();
    let begin = clock.now();
    (0..answers).for_each(|_| answer());
    let time = clock.now().since(begin).0;
    println!("decode loop, a token: {:.3} us", time * 1e6 / f64::from(answers) / NEW_TOKENS as f64);
}
