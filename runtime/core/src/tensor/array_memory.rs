//! A shared array of `ndarray` as tensor memory.

use std::any::Any;

use bytemuck::Pod;
use ndarray::ArcArray1;

use super::HostMemory;

/// A dense array as tensor memory.
pub(super) struct ArrayMemory<T>(pub(super) ArcArray1<T>);

impl<T: Pod + Send + Sync> HostMemory for ArrayMemory<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.0.as_slice().expect("the array is dense"))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
