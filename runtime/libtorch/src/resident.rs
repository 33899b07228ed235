//! Tensors of the host that a captured run needs: they are copied to the device by the runs before, because a capture cannot.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use flagperf_onnx::Tensor as HostTensor;
use flagperf_onnx_exec::OpError;
use tch::{Kind, TchError, Tensor};

use crate::tensor::TorchTensor;

/// The kind, shape and bits of a number.
type ScalarKey = (Kind, Vec<i64>, u64);

/// Tensors that were copied to the device while a capture was prepared, by shape, type and bytes. They live as long as the
/// captured runs that read them.
#[derive(Default)]
pub struct ResidentTensors {
    keeps: AtomicBool,
    tensors: Mutex<HashMap<(String, Vec<u8>), TorchTensor>>,
    /// Single numbers on the device.
    scalars: Mutex<HashMap<ScalarKey, TorchTensor>>,
}

impl ResidentTensors {
    /// Calls `prepare`, during which tensors are kept.
    pub fn keep_during<T>(&self, prepare: impl FnOnce() -> T) -> T {
        self.keeps.store(true, Ordering::Relaxed);
        let result = prepare();
        self.keeps.store(false, Ordering::Relaxed);
        result
    }

    /// Returns the tensor with the elements of `host`: the kept one, or the one that `upload` returns.
    ///
    /// # Errors
    /// Those of `upload`.
    pub fn find_or(
        &self,
        host: &HostTensor,
        upload: impl FnOnce() -> Result<TorchTensor, OpError>,
    ) -> Result<TorchTensor, OpError> {
        self.kept(&self.tensors, || (host.spec().to_string(), host.bytes().to_vec()), upload)
    }

    /// Returns the number of `x` on the device, whose bits are `bits`: the kept one, or the one that `fill` returns.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn find_scalar(
        &self,
        x: &Tensor,
        bits: u64,
        fill: impl FnOnce() -> Result<Tensor, TchError>,
    ) -> Result<Tensor, TchError> {
        let make = || fill().map(TorchTensor);
        self.kept(&self.scalars, || (x.kind(), x.size(), bits), make).map(|scalar| scalar.0)
    }

    /// Returns the tensor of a key that is kept, or the one that `make` returns, which is kept from then on while a capture is prepared.
    fn kept<K: Eq + Hash, E>(
        &self,
        tensors: &Mutex<HashMap<K, TorchTensor>>,
        key: impl FnOnce() -> K,
        make: impl FnOnce() -> Result<TorchTensor, E>,
    ) -> Result<TorchTensor, E> {
        if !self.keeps.load(Ordering::Relaxed) {
            return make();
        }
        let mut tensors = tensors.lock().unwrap_or_else(PoisonError::into_inner);
        match tensors.entry(key()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(new) => Ok(new.insert(make()?).clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::TorchOps;
    use flagperf_onnx_exec::TensorOps;
    use tch::Device;

    #[test]
    fn a_tensor_is_copied_once_while_a_capture_is_prepared() {
        let ops = TorchOps::on(Device::Cpu);
        let upload = |values: [i64; 2]| {
            let tensor = ops.upload(&HostTensor::from_vec([2], values.to_vec()).unwrap()).unwrap();
            (tensor.0.data_ptr() as usize, tensor)
        };
        let (first, second) = (upload([1, 2]), upload([1, 2]));
        assert_ne!(first.0, second.0);
        ops.resident.keep_during(|| {
            let (first, second, other) = (upload([1, 2]), upload([1, 2]), upload([2, 1]));
            assert_eq!(first.0, second.0);
            assert_ne!(first.0, other.0);
        });
    }
}
