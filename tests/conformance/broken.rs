//! Engines that compute as they should and break one promise: the suite must find each of them.

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use flagperf::engine::{
    Artifact, DeviceTensor, Engine, EngineError, Facts, Options, Session, Unavailable, Value, find,
};
use flagperf::tensor::{Tensor, TensorSpec};
use flagperf_onnx::ValueInfo;

use crate::bench::{Bench, Form, Subject};

/// How an engine is broken, and the check that finds it.
pub const FAULTS: &[(&str, Fault)] = &[
    ("sessions::memory_is_given_back_when_dropped", Fault::KeepsMemory),
    ("sessions::nothing_is_left_when_dropped", Fault::KeepsFiles),
    ("sessions::nothing_is_left_when_dropped", Fault::KeepsThreads),
    ("sessions::threads_are_as_many_as_asked_for", Fault::StartsOneThread),
    ("sessions::outputs_stay_after_the_next_submit_and_the_session", Fault::OverwritesOutputs),
    ("sessions::outputs_stay_when_many_are_kept", Fault::OverwritesOutputs),
    ("sessions::outputs_stay_when_many_are_kept", Fault::OverwritesOldOutputs),
    ("sessions::outputs_have_the_shapes_and_types_declared", Fault::LosesOutput),
    ("sessions::several_inputs_and_outputs_keep_their_order", Fault::ReversesOutputs),
    ("computes::residual_network", Fault::GivesInputs),
];

/// A promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 16 MiB of every load are never given back.
    KeepsMemory,
    /// Every load leaves a file open.
    KeepsFiles,
    /// Every load leaves a thread.
    KeepsThreads,
    /// It computes with one thread and tells another number.
    StartsOneThread,
    /// Every output is read from one place, which the next submit writes over.
    OverwritesOutputs,
    /// The same with 32 places.
    OverwritesOldOutputs,
    /// The last output is missing.
    LosesOutput,
    /// Outputs come in another order.
    ReversesOutputs,
    /// Outputs are wrong.
    GivesInputs,
}

/// Checks that a broken engine is found.
pub fn is_found(check: crate::Check, fault: Fault) {
    let engine: &'static dyn Engine = Box::leak(Box::new(Broken(fault)));
    let bench = Bench { subject: Subject::row(engine), form: Form::Graph };
    let found = catch_unwind(AssertUnwindSafe(|| check(&bench))).is_err();
    assert!(found, "{fault:?} was not found");
}

/// candle, with a fault.
struct Broken(Fault);

impl Broken {
    fn whole(&self) -> &'static dyn Engine {
        find("candle").unwrap()
    }
}

impl Engine for Broken {
    fn facts(&self) -> Facts {
        self.whole().facts()
    }

    fn check(&self) -> Result<String, Unavailable> {
        self.whole().check()
    }

    fn load(&self, artifact: Artifact<'_>, options: &Options) -> Result<Box<dyn Session>, EngineError> {
        let (fault, asked) = (self.0, options.threads);
        match fault {
            Fault::KeepsMemory => _ = vec![1u8; 16 << 20].leak(),
            Fault::KeepsFiles => std::mem::forget(File::open("/dev/null").unwrap()),
            Fault::KeepsThreads => _ = thread::spawn(thread::park),
            _ => {}
        }
        let threads = if fault == Fault::StartsOneThread { 1 } else { asked };
        let whole = self.whole().load(artifact, &Options { threads, ..options.clone() })?;
        let places = (0..if fault == Fault::OverwritesOldOutputs { 32 } else { 1 }).map(|_| Arc::default()).collect();
        Ok(Box::new(BrokenSession { whole, fault, asked, places, submitted: 0 }))
    }
}

struct BrokenSession {
    whole: Box<dyn Session>,
    fault: Fault,
    asked: usize,
    places: Vec<Arc<Mutex<Option<Tensor>>>>,
    submitted: usize,
}

impl Session for BrokenSession {
    fn inputs(&self) -> &[ValueInfo] {
        self.whole.inputs()
    }

    fn outputs(&self) -> &[ValueInfo] {
        self.whole.outputs()
    }

    fn submit(&mut self, inputs: &[Value]) -> Result<Vec<Value>, EngineError> {
        let mut outputs = self.whole.submit(inputs)?;
        match self.fault {
            Fault::LosesOutput => _ = outputs.pop(),
            Fault::ReversesOutputs => outputs.reverse(),
            Fault::GivesInputs => outputs = inputs.to_vec(),
            Fault::OverwritesOutputs | Fault::OverwritesOldOutputs => {
                let place = &self.places[self.submitted % self.places.len()];
                *place.lock().unwrap() = Some(outputs[0].to_host()?);
                outputs = vec![Value::Device(Arc::new(Overwritten(Arc::clone(place))))];
            }
            _ => {}
        }
        self.submitted += 1;
        Ok(outputs)
    }

    fn threads(&self) -> usize {
        self.asked
    }
}

/// What lies in a place at the time when it is read.
#[derive(Debug)]
struct Overwritten(Arc<Mutex<Option<Tensor>>>);

impl DeviceTensor for Overwritten {
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
