//! Who may ask a device for something while a run is captured: nobody else.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// CUDA refuses to wait for a device that is being captured, or to allocate there, and spoils the capture.
static DEVICES: RwLock<()> = RwLock::new(());

/// The right to use the devices, as long as it lives; to be taken once a call.
pub struct Turn {
    _among_others: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Turn {
    /// For everything but a capture.
    pub fn among_others() -> Self {
        let guard = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
        Turn { _among_others: Some(guard), _alone: None }
    }

    /// For a capture; waits until no other session uses a device.
    pub fn alone() -> Self {
        let guard = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
        Turn { _among_others: None, _alone: Some(guard) }
    }
}
