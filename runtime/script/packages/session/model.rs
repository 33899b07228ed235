//! The type of a loaded model.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::engine::Session;

/// A loaded model.
#[derive(Clone)]
pub(crate) struct Model {
    pub(super) session: Arc<Mutex<Box<dyn Session>>>,
    pub(super) rows: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn new(session: Arc<Mutex<Box<dyn Session>>>) -> Self {
        Model { session, rows: Arc::default() }
    }

    /// Returns the counter of the rows that were run through the model.
    pub(crate) fn row_counter(&self) -> Arc<AtomicU64> {
        self.rows.clone()
    }
}
