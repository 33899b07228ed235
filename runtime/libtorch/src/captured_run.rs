//! A run of the graph that is captured once for each set of input shapes, and replayed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use flagperf_onnx_exec::Executor;
use flagperf_plugin::{Error, Input};
use tch::Device;

use crate::capture::CapturedGraph;
use crate::device_output::{DeviceOutput, HeldTensor};
use crate::executor_error;
use crate::ops::TorchOps;
use crate::session::{duplicate_all, to_plugin_error, to_tensors};
use crate::shim::copy_all;
use crate::tensor::{TorchTensor, sizes};

/// The number of runs before a capture, the same as PyTorch's own. During these runs libraries select their algorithms.
const WARMUPS: usize = 3;

/// A captured run, with its inputs and outputs at fixed addresses.
pub struct CapturedRun {
    inputs: Vec<TorchTensor>,
    outputs: Vec<TorchTensor>,
    /// For each input, the output that lies in its memory, unless it is a cache.
    changed_as: Vec<Option<usize>>,
    /// For each of these inputs, the copy of that output after the last run.
    current: Vec<Option<TorchTensor>>,
    /// For each input that no run changes, the tensor of the device that the last run was given.
    given: Vec<Option<Weak<HeldTensor>>>,
    caches: Vec<Cache>,
    graph: CapturedGraph,
}

/// An input that a run updates in place and returns as an output. It is not copied.
struct Cache {
    input: usize,
    output: usize,
    /// The output of the last run, if the host still has it.
    last: Weak<HeldTensor>,
}

impl CapturedRun {
    /// Whether the run was captured for inputs of these shapes.
    pub fn matches(&self, inputs: &[Input<'_, DeviceOutput>]) -> bool {
        let size = |input: &Input<'_, DeviceOutput>| match input {
            Input::Own(own) => own.held().memory().0.size(),
            Input::Host(view) => sizes(view.shape),
        };
        self.inputs.iter().map(|input| input.0.size()).eq(inputs.iter().map(size))
    }

    pub fn capture(device_index: usize, executor: &Executor<TorchOps>, inputs: &[TorchTensor]) -> Result<Self, Error> {
        let inputs = duplicate_all(inputs)?;
        tch::Cuda::synchronize(device_index as i64);
        let run = || executor.run(inputs.clone()).map_err(executor_error);
        let capture = || CapturedGraph::capture(device_index, WARMUPS, run);
        let (graph, outputs) = executor.ops().resident.keep_during(capture)?;
        let cache = |input: &usize| {
            let address = inputs[*input].0.data_ptr();
            let output = outputs.iter().position(|output| output.0.data_ptr() == address && output.0.numel() > 0)?;
            Some(Cache { input: *input, output, last: Weak::new() })
        };
        let caches: Vec<Cache> = executor.overwritten_inputs().iter().filter_map(cache).collect();
        let is_cache = |output: &usize| caches.iter().any(|cache| cache.output == *output);
        let copied = (0..outputs.len()).filter(|output| !is_cache(output));
        let by_address: HashMap<usize, usize> =
            copied.rev().map(|output| (outputs[output].0.data_ptr() as usize, output)).collect();
        let changed_as = inputs.iter().map(|input| by_address.get(&(input.0.data_ptr() as usize)).copied()).collect();
        let current = inputs.iter().map(|_| None).collect();
        let mut given = vec![Some(Weak::new()); inputs.len()];
        let changed = executor.changed_inputs().iter().chain(executor.overwritten_inputs());
        changed.for_each(|input| given[*input] = None);
        Ok(CapturedRun { inputs, outputs, changed_as, current, given, caches, graph })
    }

    /// Replays the run. Returns caches as they are, and copies of the other outputs, because the next run overwrites them.
    pub fn replay(&mut self, device: Device, given: &[Input<'_, DeviceOutput>]) -> Result<Vec<DeviceOutput>, Error> {
        let updated = self.keep_other_caches(given)?;
        let inputs = to_tensors(device, given)?;
        let is_current = |i: usize| {
            let same = |current: &TorchTensor| current.0.data_ptr() == inputs[i].0.data_ptr();
            updated.iter().any(|(input, _)| *input == i)
                || self.current[i].as_ref().is_some_and(same)
                || self.given[i].as_ref().is_some_and(|last| is_same(last, &given[i]))
        };
        let others = (0..inputs.len()).filter(|i| !is_current(*i)).map(|i| (&inputs[i], &self.inputs[i]));
        let (from, to): (Vec<&TorchTensor>, Vec<&TorchTensor>) = others.unzip();
        copy_all(&to, &from).map_err(to_plugin_error)?;
        self.graph.replay()?;
        updated.iter().for_each(|(_, held)| held.note_overwritten());
        let is_cache = |output: usize| self.caches.iter().any(|cache| cache.output == output);
        let copied: Vec<usize> = (0..self.outputs.len()).filter(|output| !is_cache(*output)).collect();
        let mut outputs = self.outputs.clone();
        for (output, copy) in copied.iter().zip(duplicate_all(copied.iter().map(|output| &self.outputs[*output]))?) {
            outputs[*output] = copy;
        }
        for (place, current) in self.changed_as.iter().zip(&mut self.current) {
            *current = place.map(|place| outputs[place].clone());
        }
        for (last, given) in self.given.iter_mut().zip(given) {
            let now = match given {
                Input::Own(own) => Arc::downgrade(own.held()),
                Input::Host(_) => Weak::new(),
            };
            *last = last.take().map(|_| now);
        }
        let outputs: Vec<DeviceOutput> = outputs.into_iter().map(DeviceOutput::new).collect();
        self.caches.iter_mut().for_each(|cache| cache.last = Arc::downgrade(outputs[cache.output].held()));
        Ok(outputs)
    }

    /// Copies the caches of the last run that the host still has, except those that are inputs again in their place: returns these
    /// with the index of the input.
    fn keep_other_caches(&self, given: &[Input<'_, DeviceOutput>]) -> Result<Vec<(usize, Arc<HeldTensor>)>, Error> {
        let mut updated = Vec::new();
        for cache in &self.caches {
            let Some(last) = cache.last.upgrade() else { continue };
            match &given[cache.input] {
                Input::Own(own) if Arc::ptr_eq(own.held(), &last) => updated.push((cache.input, last)),
                _ => last.move_to(duplicate_all([&self.inputs[cache.input]])?.remove(0)),
            }
        }
        Ok(updated)
    }
}

/// Returns whether an input is a tensor that was given before.
fn is_same(last: &Weak<HeldTensor>, given: &Input<'_, DeviceOutput>) -> bool {
    matches!(given, Input::Own(own) if last.as_ptr() == Arc::as_ptr(own.held()) && last.strong_count() > 0)
}
