//! Engines that compute correctly but violate one promise of the trait: the suite must detect each of them.

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use flagperf_core::description::EngineDescription;
use flagperf_core::tensor::{Tensor, TensorSpec};
use flagperf_engine::{
    Artifact, DeviceTensor, Engine, EngineError, LoadOptions, Session, SessionFacts, Unavailable, Value, find,
};
use flagperf_onnx::ValueInfo;

use crate::harness::{Harness, ModelForm, Subject};

/// Each fault with the check that must detect it.
pub const FAULTS: &[(&str, Fault)] = &[
    ("sessions::memory_is_released_when_dropped", Fault::LeaksMemory),
    ("sessions::nothing_is_left_when_dropped", Fault::LeaksFiles),
    ("sessions::nothing_is_left_when_dropped", Fault::LeaksThreads),
    ("sessions::thread_count_is_as_requested", Fault::StartsOneThread),
    ("sessions::outputs_survive_the_next_submit_and_the_session", Fault::OverwritesOutputs),
    ("sessions::outputs_survive_when_many_are_kept", Fault::OverwritesOutputs),
    ("sessions::outputs_survive_when_many_are_kept", Fault::OverwritesOldOutputs),
    ("sessions::outputs_have_the_declared_shapes_and_types", Fault::DropsOutput),
    ("sessions::several_inputs_and_outputs_keep_their_order", Fault::ReversesOutputs),
    ("computes::residual_network", Fault::ReturnsInputs),
];

/// A violated promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every load leaks 16 MiB.
    LeaksMemory,
    /// Every load leaves a file open.
    LeaksFiles,
    /// Every load leaves a thread running.
    LeaksThreads,
    /// It computes with one thread and reports another number.
    StartsOneThread,
    /// Every output is read from one slot, which the next submit overwrites.
    OverwritesOutputs,
    /// The same with 32 slots.
    OverwritesOldOutputs,
    /// The last output is missing.
    DropsOutput,
    /// Outputs are in the wrong order.
    ReversesOutputs,
    /// The inputs are returned as outputs.
    ReturnsInputs,
}

/// Checks that a check detects an engine with a fault.
pub fn assert_detects(check: crate::Check, fault: Fault) {
    let engine: &'static dyn Engine = Box::leak(Box::new(FaultyEngine(fault)));
    let harness = Harness { subject: Subject::row(engine), form: ModelForm::Graph };
    let found = catch_unwind(AssertUnwindSafe(|| check(&harness))).is_err();
    assert!(found, "{fault:?} was not detected");
}

/// The engine `interpreter` with a fault.
struct FaultyEngine(Fault);

impl FaultyEngine {
    fn intact(&self) -> &'static dyn Engine {
        find("interpreter").unwrap()
    }
}

impl Engine for FaultyEngine {
    fn description(&self) -> EngineDescription {
        self.intact().description()
    }

    fn check(&self) -> Result<String, Unavailable> {
        self.intact().check()
    }

    fn load(&self, artifact: Artifact<'_>, options: &LoadOptions) -> Result<Box<dyn Session>, EngineError> {
        let (fault, requested_threads) = (self.0, options.threads);
        match fault {
            Fault::LeaksMemory => _ = vec![1u8; 16 << 20].leak(),
            Fault::LeaksFiles => std::mem::forget(File::open("/dev/null").unwrap()),
            Fault::LeaksThreads => _ = thread::spawn(thread::park),
            _ => {}
        }
        let threads = if fault == Fault::StartsOneThread { 1 } else { requested_threads };
        let intact = self.intact().load(artifact, &LoadOptions { threads, ..options.clone() })?;
        let slots = (0..if fault == Fault::OverwritesOldOutputs { 32 } else { 1 }).map(|_| Arc::default()).collect();
        Ok(Box::new(FaultySession { intact, fault, requested_threads, slots, submitted: 0 }))
    }
}

struct FaultySession {
    intact: Box<dyn Session>,
    fault: Fault,
    requested_threads: usize,
    slots: Vec<Arc<Mutex<Option<Tensor>>>>,
    submitted: usize,
}

impl Session for FaultySession {
    fn inputs(&self) -> &[ValueInfo] {
        self.intact.inputs()
    }

    fn outputs(&self) -> &[ValueInfo] {
        self.intact.outputs()
    }

    fn compute(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let mut outputs = self.intact.submit(inputs)?;
        match self.fault {
            Fault::DropsOutput => _ = outputs.pop(),
            Fault::ReversesOutputs => outputs.reverse(),
            Fault::ReturnsInputs => outputs = inputs.to_vec(),
            Fault::OverwritesOutputs | Fault::OverwritesOldOutputs => {
                let slot = &self.slots[self.submitted % self.slots.len()];
                *slot.lock().unwrap() = Some(outputs[0].to_host()?);
                outputs = vec![Value::Device(Arc::new(SlotOutput(Arc::clone(slot))))];
            }
            _ => {}
        }
        self.submitted += 1;
        Ok(outputs)
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts { threads: self.requested_threads, ..SessionFacts::default() }
    }
}

/// An output that is read from a slot, with whatever the slot contains at that time.
#[derive(Debug)]
struct SlotOutput(Arc<Mutex<Option<Tensor>>>);

impl DeviceTensor for SlotOutput {
    fn spec(&self) -> TensorSpec {
        self.0.lock().unwrap().as_ref().unwrap().spec()
    }

    fn to_host(&self) -> Result<Tensor, EngineError> {
        Ok(self.0.lock().unwrap().clone().unwrap())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
