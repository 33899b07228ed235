//! A lock that keeps other sessions off the devices while a run is being captured.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Waiting for a device or allocating on it during a capture is an error in CUDA, and invalidates the capture.
static DEVICES: RwLock<()> = RwLock::new(());

/// Held while this session may submit work to a device; a graph capture waits for it. The lock is not reentrant: each
/// call of the plug-in takes it at most once.
pub struct DeviceLock {
    _shared: Option<RwLockReadGuard<'static, ()>>,
    _exclusive: Option<RwLockWriteGuard<'static, ()>>,
}

impl DeviceLock {
    /// Takes the lock for anything but a capture.
    pub fn shared() -> Self {
        let guard = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
        DeviceLock { _shared: Some(guard), _exclusive: None }
    }

    /// Takes the lock for a capture, after waiting until no other session uses a device.
    pub fn exclusive() -> Self {
        let guard = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
        DeviceLock { _shared: None, _exclusive: Some(guard) }
    }
}
