//! Limits of scripts and workers.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Seconds};

/// Limits for scripts and workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum number of operations in one call of a script.
    pub script_operations: u64,
    /// Maximum wall time of one call of a script in seconds, native calls included, time inside engines excluded.
    pub script_time_s: Seconds,
    /// Maximum heap memory of a script in bytes, tensors included.
    pub script_memory_bytes: Bytes,
    /// Maximum resident memory of the worker and all of its descendants, and maximum heap of the worker, in bytes; a
    /// worker that exceeds it ends. 0 means no limit.
    pub worker_memory_bytes: Bytes,
    /// Whether the worker restricts itself before it runs an engine.
    #[serde(default)]
    pub protected: bool,
    /// Maximum wall time of a phase in seconds, after which the worker is killed.
    pub phase_time_s: Seconds,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            script_operations: 50_000_000,
            script_time_s: Seconds(30.0),
            script_memory_bytes: Bytes(1 << 30),
            worker_memory_bytes: Bytes(0),
            protected: false,
            phase_time_s: Seconds(24.0 * 3600.0),
        }
    }
}
