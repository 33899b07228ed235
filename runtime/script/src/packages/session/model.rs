//! The type of a loaded model.

use std::sync::{Arc, Mutex};

use super::run_counter::RunCounter;
use crate::sandbox::lock;
use flagperf_engine::Session;

/// A loaded model.
#[derive(Clone)]
pub(crate) struct Model {
    pub(super) session: Arc<Mutex<Box<dyn Session>>>,
    pub(super) runs: Arc<Mutex<RunCounter>>,
}

impl Model {
    pub(crate) fn new(session: Arc<Mutex<Box<dyn Session>>>) -> Self {
        let runs = RunCounter::new(&**lock(&session));
        Model { session, runs: Arc::new(Mutex::new(runs)) }
    }

    /// Returns the counter of the model's runs.
    pub(crate) fn run_counter(&self) -> Arc<Mutex<RunCounter>> {
        self.runs.clone()
    }
}
