//! Copies the next batch of a training to the device while a step is computed.

use flagperf_core::description::OWN_STREAM_OPTION;
use flagperf_core::event::{Failure, is_processor};
use flagperf_core::step::EngineRole;
use flagperf_engine::{EngineError, Session, Value};
use flagperf_onnx::{Graph, Node, OPSET, ValueInfo};
use flagperf_plan::Job;
use flagperf_script::Sessions;

use super::super::load::has_option;
use super::super::phase::failure;
use super::model::load_graph;

/// A session of the engine whose outputs are its inputs: on the device of the session that trains.
pub struct Transfer {
    sessions: Sessions,
}

impl Transfer {
    /// Loads the session for these fields. `None` if the sessions that train compute on the processor, or the engine has no sessions that
    /// compute beside others.
    ///
    /// # Errors
    /// When the engine cannot load it.
    pub fn load(
        fields: &[ValueInfo],
        training: &Sessions,
        job: &Job,
        role: EngineRole,
    ) -> Result<Option<Self>, Failure> {
        let mut on_processor = false;
        for session in training.values() {
            let session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
            on_processor |= is_processor(&session.facts().device);
        }
        let beside = with_own_stream(job)?;
        let Some(beside) = beside.filter(|_| !on_processor) else { return Ok(None) };
        let sessions = load_graph(&copies(fields), "transfer", &beside, role)?;
        Ok(Some(Transfer { sessions }))
    }

    /// Starts to copy fields, whose memory must not change before [`Transfer::finish`] has returned. Returns the copies.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn start(&self, fields: &[Value]) -> Result<Vec<Value>, Failure> {
        self.with_session(|session| session.submit(fields))
    }

    /// Waits until the fields have been copied.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn finish(&self) -> Result<(), Failure> {
        self.with_session(|session| session.sync())
    }

    fn with_session<T>(&self, call: impl FnOnce(&mut dyn Session) -> Result<T, EngineError>) -> Result<T, Failure> {
        let session = self.sessions.values().next().expect("copies are one graph");
        let mut session = session.lock().map_err(|_| failure(&"the engine panicked earlier", ""))?;
        call(session.as_mut()).map_err(|e| failure(&e, ""))
    }
}

/// Returns the job with sessions that compute beside others; `None` if its engine has none.
///
/// # Errors
/// When the library of the engine cannot be opened.
pub fn with_own_stream(job: &Job) -> Result<Option<Job>, Failure> {
    let mut job = job.clone();
    let has_streams = has_option(&job, OWN_STREAM_OPTION)?;
    job.engine.options.insert(OWN_STREAM_OPTION.to_owned(), true.into());
    Ok(has_streams.then_some(job))
}

/// Returns a graph whose outputs are its inputs.
fn copies(fields: &[ValueInfo]) -> Graph {
    let mut graph = Graph { name: "transfer".to_owned(), opset: OPSET, inputs: fields.to_vec(), ..Graph::default() };
    for ValueInfo { name, spec } in fields {
        let copy = format!("{name}.copy");
        graph.nodes.push(Node {
            name: copy.clone(),
            op: "Identity".to_owned(),
            inputs: vec![name.clone()],
            outputs: vec![copy.clone()],
            ..Node::default()
        });
        graph.values.insert(copy.clone(), spec.clone());
        graph.outputs.push(ValueInfo { name: copy, spec: spec.clone() });
    }
    graph
}
