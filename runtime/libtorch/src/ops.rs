//! The operations of the executor as libtorch's operators.

mod attention;
mod elementwise;
mod movement;
mod windows;

use flagperf_onnx::exec::{After, Binary, Conv, OpError, PadMode, Pool, Reduce, TensorOps, Unary};
use flagperf_onnx::{DType, Tensor as HostTensor};
use tch::{Device, Kind, TchError, Tensor};

use crate::tensor::{self, Shared, sizes, torch_error};

/// libtorch on one device.
#[derive(Clone, Copy, Debug)]
pub struct TorchOps {
    /// Where tensors lie.
    pub device: Device,
    /// Whether filters, and with them everything that convolutions make, have their channels together in memory.
    pub channels_last: bool,
    /// Whether cuDNN adds and rectifies within its convolutions.
    pub fused_convolutions: bool,
}

type Made = Result<Shared, OpError>;

/// What an operator of libtorch made.
fn made(result: Result<Tensor, TchError>) -> Made {
    result.map(Shared).map_err(torch_error)
}

impl TensorOps for TorchOps {
    type Tensor = Shared;

    fn name(&self) -> &'static str {
        "libtorch"
    }

    fn dtypes(&self) -> &'static [DType] {
        &DType::ALL
    }

    fn upload(&self, host: &HostTensor) -> Made {
        let there = tensor::upload(host, self.device)?;
        if self.channels_last { made(tensor::channels_last(there)) } else { Ok(Shared(there)) }
    }

    fn download(&self, x: &Shared, dtype: DType) -> Result<HostTensor, OpError> {
        let kept = tensor::dtype(x.0.kind());
        let mut bytes = vec![0; x.0.numel() * kept.size()];
        tensor::download(&x.0, &mut bytes)?;
        let host = HostTensor::from_bytes(tensor::shape(&x.0), kept, &bytes).map_err(OpError::library)?;
        Ok(if kept == dtype { host } else { host.cast(dtype) })
    }

    fn shape(&self, x: &Shared) -> Vec<usize> {
        tensor::shape(&x.0)
    }

    fn dtype(&self, x: &Shared) -> DType {
        tensor::dtype(x.0.kind())
    }

    fn unary(&self, kind: Unary, x: &Shared) -> Made {
        made(elementwise::unary(kind, &x.0))
    }

    fn binary(&self, kind: Binary, a: &Shared, b: &Shared) -> Made {
        made(elementwise::binary(kind, &a.0, &b.0))
    }

    fn select(&self, condition: &Shared, a: &Shared, b: &Shared) -> Made {
        made(a.0.f_where_self(&condition.0, &b.0))
    }

    fn matmul(&self, a: &Shared, b: &Shared) -> Made {
        made(a.0.f_matmul(&b.0))
    }

    fn attention(&self, q: &Shared, k: &Shared, v: &Shared, mask: Option<&Shared>, scale: f64) -> Made {
        let mask = mask.map(|mask| self.here(&mask.0).map_err(torch_error)).transpose()?;
        made(attention::attention(&q.0, &k.0, &v.0, mask.as_ref(), scale))
    }

    fn conv(&self, x: &Shared, weight: &Shared, bias: Option<&Shared>, conv: &Conv) -> Made {
        made(windows::conv(&x.0, &weight.0, bias.map(|bias| &bias.0), conv))
    }

    /// cuDNN's kernel for all of it where there is one; else the sum and the activation are computed in place, as modules
    /// of PyTorch do: nothing else has the result yet.
    fn conv_fused(
        &self,
        x: &Shared,
        weight: &Shared,
        bias: Option<&Shared>,
        conv: &Conv,
        after: After<'_, Shared>,
    ) -> Made {
        if self.fuses(x, conv, &after) {
            let residual = after.residual.map(|residual| &residual.0);
            return made(windows::conv_relu(&x.0, &weight.0, bias.map(|bias| &bias.0), residual, conv));
        }
        let mut y = self.conv(x, weight, bias, conv)?.0;
        if let Some(residual) = after.residual {
            y = y.f_add_(&residual.0).map_err(torch_error)?;
        }
        made(after.activation.map_or(Ok(y.shallow_clone()), |kind| elementwise::unary_in_place(kind, y)))
    }

    fn max_pool(&self, x: &Shared, pool: &Pool) -> Made {
        made(windows::max_pool(&x.0, pool))
    }

    fn average_pool(&self, x: &Shared, pool: &Pool) -> Made {
        if pool.dilations != [1, 1] {
            return Err(OpError::lacks("`dilations` of a mean"));
        }
        made(windows::average_pool(&x.0, pool))
    }

    fn reduce(&self, kind: Reduce, x: &Shared, axes: &[usize]) -> Made {
        let (x, axes) = (&x.0, sizes(axes));
        made(match kind {
            Reduce::Mean => x.f_mean_dim(&axes[..], true, x.kind()),
            Reduce::Sum => x.f_sum_dim_intlist(&axes[..], true, x.kind()),
            Reduce::Max => x.f_amax(&axes[..], true),
            Reduce::Min => x.f_amin(&axes[..], true),
        })
    }

    fn arg_max(&self, x: &Shared, axis: usize, last: bool) -> Made {
        let (x, axis) = (&x.0, axis as i64);
        if !last {
            return made(x.f_argmax(axis, true));
        }
        let from_end = x.f_flip([axis]).and_then(|x| x.f_argmax(axis, true));
        made(from_end.and_then(|place| place.f_neg()?.f_add_scalar(x.size()[axis as usize] - 1)))
    }

    fn softmax(&self, x: &Shared, axis: usize, log: bool) -> Made {
        made(if log { x.0.f_log_softmax(axis as i64, None) } else { x.0.f_softmax(axis as i64, None) })
    }

    fn layer_norm(&self, x: &Shared, scale: &Shared, bias: Option<&Shared>, axis: usize, epsilon: f64) -> Made {
        let normalized = x.0.size().split_off(axis);
        let fitting = |weight: &Shared| weight.0.f_broadcast_to(&normalized[..]).map_err(torch_error);
        let (scale, bias) = (fitting(scale)?, bias.map(fitting).transpose()?);
        made(x.0.f_layer_norm(&normalized[..], Some(scale), bias, epsilon, true))
    }

    fn reshape(&self, x: &Shared, shape: &[usize]) -> Made {
        made(self.here(&x.0).and_then(|x| x.f_reshape(sizes(shape))))
    }

    fn permute(&self, x: &Shared, order: &[usize]) -> Made {
        made(x.0.f_permute(sizes(order)))
    }

    fn concat(&self, parts: &[Shared], axis: usize) -> Made {
        let parts: Vec<&Tensor> = parts.iter().map(|part| &part.0).collect();
        made(Tensor::f_cat(&parts, axis as i64))
    }

    fn slice(&self, x: &Shared, axis: usize, start: usize, count: usize, step: i64) -> Made {
        made(movement::slice(&x.0, axis as i64, start as i64, count as i64, step))
    }

    fn gather(&self, x: &Shared, indices: &Shared, axis: usize) -> Made {
        made(self.here(&indices.0).and_then(|indices| movement::gather(&x.0, &indices, axis)))
    }

    fn expand(&self, x: &Shared, shape: &[usize]) -> Made {
        made(self.here(&x.0).and_then(|x| x.f_broadcast_to(sizes(shape))))
    }

    fn pad(&self, x: &Shared, pads: &[(usize, usize)], mode: PadMode) -> Made {
        made(movement::pad(&x.0, pads, mode))
    }

    fn cast(&self, x: &Shared, dtype: DType) -> Made {
        made(x.0.f_to_kind(tensor::kind(dtype)))
    }
}

impl TorchOps {
    /// Whether cuDNN has one kernel for the convolution and what follows: rectified, padded alike, of 16 bits, not by
    /// channel.
    fn fuses(&self, x: &Shared, conv: &Conv, after: &After<'_, Shared>) -> bool {
        self.fused_convolutions
            && self.device != Device::Cpu
            && matches!(after.activation, Some(Unary::Relu))
            && matches!(x.0.kind(), Kind::Half | Kind::BFloat16)
            && conv.before == conv.after
            && conv.groups == 1
    }

    /// The tensor on this device: a single number may lie on the processor.
    fn here(&self, x: &Tensor) -> Result<Tensor, TchError> {
        if x.device() == self.device { Ok(x.shallow_clone()) } else { x.f_to(self.device) }
    }
}
