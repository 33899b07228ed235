//! A language model with a cache of fixed length, run by the interpreter one prompt at a time: what others must answer.

use std::collections::HashMap;

use flagperf_core::tensor::Tensor;
use flagperf_engine::{Artifact, LoadOptions, Session, Value, find};
use flagperf_onnx::Model;

/// A model with a cache of fixed length, run by the interpreter.
pub struct LanguageModel {
    session: Box<dyn Session>,
    length: usize,
}

impl LanguageModel {
    /// Loads the only graph of a model.
    pub fn new(mut model: Model) -> Self {
        let graph = model.graphs.swap_remove(Model::SINGLE).expect("one graph");
        let mask = graph.inputs.iter().find(|input| input.name == "attention_mask").expect("a mask");
        let length = mask.spec.dims[1].fixed().expect("the length of the cache");
        let engine = find("interpreter").expect("the engine");
        let session = engine.load(Artifact::Graph(&graph), &LoadOptions::default());
        LanguageModel { session: session.unwrap_or_else(|error| panic!("{error}")), length }
    }

    /// Returns the most probable tokens after a prompt, as many as fit into the cache.
    pub fn generate(&mut self, prompt: &[i64]) -> Vec<i64> {
        let integers = |shape: &[usize], values: Vec<i64>| {
            Value::Host(Tensor::from_vec(shape.to_vec(), values).expect("a tensor"))
        };
        let (mut cache, mut tokens): (HashMap<String, Value>, Vec<i64>) = (HashMap::new(), Vec::new());
        let (mut first, mut read) = (0, prompt.to_vec());
        while first < self.length {
            let count = read.len();
            let inputs: Vec<Value> = self
                .session
                .inputs()
                .iter()
                .map(|input| match input.name.as_str() {
                    "input_ids" => integers(&[1, count], read.clone()),
                    "position_ids" => integers(&[1, count], (first..first + count).map(|place| place as i64).collect()),
                    "attention_mask" => integers(&[1, self.length], vec![1; self.length]),
                    "first" => integers(&[1], vec![first as i64]),
                    name => cache.remove(&name.replace("past", "present")).unwrap_or_else(|| {
                        let sizes = input.spec.dims.iter().map(|dim| dim.fixed().unwrap_or_default());
                        let shape: Vec<usize> = std::iter::once(1).chain(sizes.skip(1)).collect();
                        Value::Host(Tensor::from_vec(shape, Vec::<f32>::new()).expect("an empty cache"))
                    }),
                })
                .collect();
            let outputs = self.session.submit(&inputs).expect("outputs");
            let named = self.session.outputs().iter().map(|output| output.name.clone()).zip(outputs);
            cache = named.collect();
            let token = cache["token"].to_host().expect("on the host").as_slice::<i64>().expect("i64")[0];
            tokens.push(token);
            first += count;
            read = vec![token];
        }
        tokens.truncate(self.length - prompt.len());
        tokens
    }
}
