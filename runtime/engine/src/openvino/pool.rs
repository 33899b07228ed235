//! A pool of inference requests, which are reused as soon as their outputs are no longer referenced. Leasing and
//! returning a request takes constant time, however many outputs the host keeps.
//!
//! Does not depend on OpenVINO.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of requests whose outputs are used without a copy. The outputs of further requests are copied, because
/// creating a request takes longer than copying most outputs, and each request holds the memory of all its values.
const PINNED_MAX: usize = 8;

/// The idle requests of one session.
pub(super) struct Pool<R> {
    /// `None` once the session has been dropped.
    idle: Mutex<Option<Vec<R>>>,
    pinned: AtomicUsize,
}

impl<R> Default for Pool<R> {
    fn default() -> Self {
        Pool { idle: Mutex::new(Some(Vec::new())), pinned: AtomicUsize::new(0) }
    }
}

impl<R> Pool<R> {
    /// Leases an idle request, or a new one from `make` when none is idle.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn lease<E>(self: &Arc<Self>, make: impl FnOnce() -> Result<R, E>) -> Result<Lease<R>, E> {
        let idle = self.idle().as_mut().and_then(Vec::pop);
        let request = idle.map_or_else(make, Ok)?;
        Ok(Lease { request: Some(request), is_pinned: false, pool: Arc::clone(self) })
    }

    /// Frees the idle requests; requests returned later are freed immediately.
    pub(super) fn close(&self) {
        drop(self.idle().take());
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<R>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in use. Dropping the lease returns the request to the pool.
pub(super) struct Lease<R> {
    /// `Some` until the lease is dropped.
    request: Option<R>,
    is_pinned: bool,
    pool: Arc<Pool<R>>,
}

impl<R> Lease<R> {
    /// Pins the request, so that its outputs can be used without a copy while it computes nothing else. Returns `false`
    /// when `PINNED_MAX` requests are already pinned.
    pub(super) fn pin(&mut self) -> bool {
        if !self.is_pinned {
            let more = |pinned| (pinned < PINNED_MAX).then_some(pinned + 1);
            self.is_pinned = self.pool.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        }
        self.is_pinned
    }
}

impl<R> Deref for Lease<R> {
    type Target = R;

    fn deref(&self) -> &R {
        self.request.as_ref().expect("present until the lease is dropped")
    }
}

impl<R> DerefMut for Lease<R> {
    fn deref_mut(&mut self) -> &mut R {
        self.request.as_mut().expect("present until the lease is dropped")
    }
}

impl<R> Drop for Lease<R> {
    fn drop(&mut self) {
        if self.is_pinned {
            self.pool.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        if let (Some(idle), Some(request)) = (self.pool.idle().as_mut(), self.request.take()) {
            idle.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    /// Leases a request; `made` counts the requests created so far.
    fn lease(pool: &Arc<Pool<u32>>, made: &Cell<u32>) -> Lease<u32> {
        let make = || {
            made.set(made.get() + 1);
            Ok::<_, Infallible>(made.get())
        };
        pool.lease(make).unwrap()
    }

    #[test]
    fn keeping_outputs_pins_and_creates_only_a_few_requests() {
        let (pool, made) = (Arc::default(), Cell::new(0));
        let mut kept = Vec::new();
        for _ in 0..1_000 {
            let mut lease = lease(&pool, &made);
            if lease.pin() {
                kept.push(lease);
            }
        }
        assert_eq!((kept.len(), made.get()), (PINNED_MAX, PINNED_MAX as u32 + 1));
        kept.pop();
        assert!(lease(&pool, &made).pin(), "one is free again");
    }

    #[test]
    fn a_returned_request_is_reused() {
        let (pool, made) = (Arc::default(), Cell::new(0));
        let (first, second) = (lease(&pool, &made), lease(&pool, &made));
        assert_eq!((*first, *second), (1, 2));
        drop(first);
        assert_eq!((*lease(&pool, &made), made.get()), (1, 2));
    }

    #[test]
    fn a_closed_pool_keeps_nothing() {
        let (pool, made) = (Arc::default(), Cell::new(0));
        let held = lease(&pool, &made);
        pool.close();
        drop(held);
        assert_eq!(*lease(&pool, &made), 2);
    }
}
