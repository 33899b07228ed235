//! What a sidecar writes: each line of the input is the reply to one request, in a session that loads a model and runs it.
//! The sidecar is a shell, so a run takes milliseconds; the list of options is also parsed alone.

#![no_main]

mod support;

use flagperf_core::description::{DescriptionMessage, OptionMessage};
use flagperf_core::tensor::{DType, Tensor};
use flagperf_engine::{Artifact, EngineError, LoadOptions, Value, find};
use flagperf_onnx::{Graph, GraphBuilder, layers};
use libfuzzer_sys::fuzz_target;

/// Replies to each line of its input with the next line of the file `$0`, and exits after the last one.
const SHELL: &str = r#"exec 3<"$0"; next=; IFS= read -r next <&3 || exit 0
while IFS= read -r request; do printf '%s\n' "$next"; IFS= read -r next <&3 || exit 0; done"#;
/// The kinds of input.
const SESSION: usize = 0;
const OPTIONS: usize = 1;

fuzz_target!(init: begin(), |input: &[u8]| {
    let Some((kind, text)) = support::split_kind(input, 2) else { return };
    if kind == SESSION {
        let replies = support::write("replies", text);
        if let Err(error) = run_session(&replies.to_string_lossy()) {
            assert!(!error.to_string().is_empty());
        }
        return;
    }
    if let Ok(list) = serde_json::from_slice::<Vec<serde_json::Value>>(text) {
        let _ = OptionMessage::parse_list(list, |_| false);
    }
    if let Ok(message) = serde_json::from_slice::<DescriptionMessage>(text) {
        let written = serde_json::to_string(&message).expect("a message is plain data");
        assert_eq!(serde_json::from_str::<DescriptionMessage>(&written).expect("it was written"), message);
    }
});

fn begin() {
    // Rust's own main function does the same; that of libFuzzer ends when a sidecar has closed its input.
    // SAFETY: no other thread runs yet, and ignoring a signal calls no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    support::write_seeds(seeds);
}

fn run_session(replies: &str) -> Result<(), EngineError> {
    let options = LoadOptions {
        command: ["sh", "-c", SHELL, replies].map(str::to_owned).to_vec(),
        folder: support::FOLDER.clone(),
        scratch: support::FOLDER.join("scratch"),
        batch_size: 2,
        ..LoadOptions::default()
    };
    let engine = find("sidecar").expect("the engine of sidecars");
    let mut session = engine.load(Artifact::Graph(&graph()), &options)?;
    let inputs = session.inputs().to_vec();
    let values = inputs.iter().map(|input| {
        let shape: Vec<usize> = input.spec.dims.iter().map(|dim| dim.fixed().unwrap_or(2)).collect();
        let bytes = flagperf_onnx::byte_count(&shape, input.spec.dtype).filter(|bytes| *bytes <= 1 << 20)?;
        Tensor::from_bytes(shape, input.spec.dtype, &vec![0; bytes]).ok().map(Value::Host)
    });
    let Some(values) = values.collect::<Option<Vec<Value>>>() else { return Ok(()) };
    for _ in 0..2 {
        let outputs = session.submit(&values)?;
        assert_eq!(outputs.len(), session.outputs().len());
        let _ = (session.device_memory(), session.vendor_time(), session.facts(), session.modules());
        for output in &outputs {
            let spec = output.spec();
            let bytes = spec.fixed_shape().and_then(|shape| flagperf_onnx::byte_count(&shape, spec.dtype));
            if bytes.is_some_and(|bytes| bytes <= 1 << 20) {
                assert_eq!(output.to_host()?.spec(), spec);
            }
        }
    }
    let _ = session.ask("question", &serde_json::Value::Null)?;
    Ok(())
}

fn graph() -> Graph {
    let mut graph = GraphBuilder::new("m");
    let x = graph.input("x", "N,2,f32".parse().expect("a specification")).expect("an input");
    let y = layers::relu(&mut graph, "r", &x).expect("a layer");
    graph.output("y", &y).expect("an output");
    graph.finish().expect("a graph")
}

fn seeds() -> Vec<Vec<u8>> {
    let hello = r#"{"answer":"hello","protocol":1,"name":"own","version":"1","roles":["framework","compiler"],"kinds":["onnx"],"precisions":["f32"],"options":[{"name":"level","kind":"integer","min":0,"default":0,"about":"a level"}]}"#;
    let loaded = r#"{"answer":"loaded","device":"cpu","threads":1}"#;
    let renamed =
        r#"{"answer":"loaded","inputs":[{"name":"x","spec":"N,2,f32"}],"outputs":[{"name":"y","spec":"N,2,f32"}]}"#;
    let done = r#"{"answer":"done"}"#;
    let ran = r#"{"answer":"ran","run":1,"outputs":["2,2,f32"],"seconds":0.5,"third":{"type":"int","repr":"7"}}"#;
    let reshaped = r#"{"answer":"ran","outputs":["4,f32"]}"#;
    let memory = r#"{"answer":"memory","bytes":5,"modules":["/a.py"]}"#;
    let again = r#"{"answer":"ran","outputs":["2,2,f32"]}"#;
    let answered = r#"{"answer":"answered","value":{"a":[1]}}"#;
    let error = r#"{"answer":"error","reason":"no","operator":{"op":"Relu","node":"r"}}"#;
    let sessions = [
        vec![hello, loaded, done, ran, memory, done, done, again, memory, done, answered],
        vec![hello, renamed, done, reshaped, memory, done, done, error],
        vec![hello, error],
    ];
    let description = DescriptionMessage {
        name: "own".to_owned(),
        about: "about".to_owned(),
        framework: true,
        compiler: true,
        precisions: vec![DType::F32],
        opset_max: 17,
        compiles: true,
        loads_compiled: false,
        compiled_extensions: vec!["bin".to_owned()],
        options: None,
    };
    let options = r#"[{"name":"level","kind":"integer","min":0,"default":0,"about":"a level"},{"name":"mode","kind":"choice","values":["a","b"],"default":"a","about":"a mode"}]"#;
    let replies = sessions.iter().map(|lines| support::seed_of_kind(SESSION, lines.join("\n") + "\n"));
    let description = serde_json::to_string(&description).expect("plain data");
    replies.chain([support::seed_of_kind(OPTIONS, description), support::seed_of_kind(OPTIONS, options)]).collect()
}
