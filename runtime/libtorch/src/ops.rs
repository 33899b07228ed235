//! The executor's operations, implemented with libtorch's operators.

mod attention;
pub mod compiled;
mod elementwise;
mod gradient;
mod movement;
mod products;
mod update;
mod windows;

use std::sync::Arc;

use flagperf_onnx::{DType, Tensor as HostTensor};
use flagperf_onnx_exec::{
    Binary, Bitwise, Conv, ConvEpilogue, CustomOperator, Elementwise, ElementwiseFunction, ElementwiseOperand, OpError,
    PadMode, Pool, Reduce, ReducedOutputs, ScatterAxis, TensorOps, Unary, Update,
};
use tch::{Device, Kind, TchError, Tensor};

use crate::group::Group;
use crate::operators::Operators;
use crate::resident::ResidentTensors;
use crate::shim;
use crate::tensor::{self, TorchTensor, sizes, torch_error};

/// libtorch on one device.
pub struct TorchOps {
    /// The device that holds the tensors.
    pub device: Device,
    /// Whether filters, and therefore all outputs of convolutions, use the channels-last layout.
    pub channels_last: bool,
    /// Whether cuDNN fuses additions and ReLU into its convolutions.
    pub fused_convolutions: bool,
    /// Whether the device computes elementwise operators in a row in one function.
    pub fused_elementwise: bool,
    /// What captured runs need of the host.
    pub resident: ResidentTensors,
    /// The operators of the vendor that the graph uses.
    pub operators: Operators,
    /// The processes that train the model together.
    pub group: Option<Arc<Group>>,
}

type OpResult = Result<TorchTensor, OpError>;

/// Wraps the result of a libtorch operator.
fn wrap(result: Result<Tensor, TchError>) -> OpResult {
    result.map(TorchTensor).map_err(torch_error)
}

impl TensorOps for TorchOps {
    type Tensor = TorchTensor;

    fn name(&self) -> &'static str {
        "libtorch"
    }

    fn dtypes(&self) -> &'static [DType] {
        &tensor::DTYPES
    }

    fn upload(&self, host: &HostTensor) -> OpResult {
        self.resident.find_or(host, || {
            let uploaded = tensor::upload(host, self.device)?;
            if self.channels_last { wrap(tensor::channels_last(uploaded)) } else { Ok(TorchTensor(uploaded)) }
        })
    }

    fn download(&self, x: &TorchTensor, dtype: DType) -> Result<HostTensor, OpError> {
        let stored = tensor::dtype(x.0.kind());
        let mut bytes = vec![0; x.0.numel() * stored.size()];
        tensor::download(&x.0, &mut bytes)?;
        let host = HostTensor::from_bytes(tensor::shape(&x.0), stored, &bytes).map_err(OpError::library)?;
        Ok(if stored == dtype { host } else { host.cast(dtype) })
    }

    fn shape(&self, x: &TorchTensor) -> Vec<usize> {
        tensor::shape(&x.0)
    }

    fn dtype(&self, x: &TorchTensor) -> DType {
        tensor::dtype(x.0.kind())
    }

    fn unary(&self, kind: Unary, x: &TorchTensor) -> OpResult {
        wrap(elementwise::unary(kind, &x.0))
    }

    fn binary(&self, kind: Binary, a: &TorchTensor, b: &TorchTensor) -> OpResult {
        wrap(elementwise::binary(kind, &a.0, &b.0))
    }

    fn add_scaled(&self, a: &TorchTensor, b: &TorchTensor, factor: f64) -> OpResult {
        wrap(shim::add_scaled(&a.0, &b.0, factor))
    }

    fn multiply_add(&self, a: &TorchTensor, b: &TorchTensor, c: &TorchTensor, subtract: bool) -> OpResult {
        wrap(shim::multiply_add(&a.0, &b.0, &c.0, if subtract { -1.0 } else { 1.0 }))
    }

    fn sum_of_squares(&self, x: &TorchTensor, axes: &[usize]) -> OpResult {
        wrap(elementwise::sum_of_squares(&x.0, &sizes(axes)))
    }

    fn select(&self, condition: &TorchTensor, a: &TorchTensor, b: &TorchTensor) -> OpResult {
        let operand = |x: &TorchTensor| self.on_device(&x.0);
        wrap(operand(a).and_then(|a| a.f_where_self(&operand(condition)?, &operand(b)?)))
    }

    fn bitwise(&self, kind: Bitwise, a: &TorchTensor, b: Option<&TorchTensor>) -> Option<OpResult> {
        let other = || b.map(|b| &b.0);
        Some(wrap(match kind {
            Bitwise::And => a.0.f_bitwise_and_tensor(other()?),
            Bitwise::Or => a.0.f_bitwise_or_tensor(other()?),
            Bitwise::Xor => a.0.f_bitwise_xor_tensor(other()?),
            Bitwise::Not => a.0.f_bitwise_not(),
        }))
    }

    fn triangle(&self, x: &TorchTensor, diagonal: i64, upper: bool) -> Option<OpResult> {
        Some(wrap(if upper { x.0.f_triu(diagonal) } else { x.0.f_tril(diagonal) }))
    }

    fn draws(&self) -> bool {
        true
    }

    fn drop_elements(&self, x: &TorchTensor, ratio: f64) -> OpResult {
        wrap(x.0.f_dropout(ratio, true))
    }

    fn silu_product(&self, gate: &TorchTensor, x: &TorchTensor) -> OpResult {
        let operands = [ElementwiseOperand::Input(0), ElementwiseOperand::Input(1)];
        let function = ElementwiseFunction::default().then(Elementwise::SiluProduct, &operands);
        self.compiled(&function, &[&gate.0, &x.0])
            .unwrap_or_else(|| self.binary(Binary::Mul, &self.unary(Unary::Silu, gate)?, x))
    }

    fn compiles(&self, operation: Elementwise) -> bool {
        self.fused_elementwise && self.device != Device::Cpu && compiled::has_expression(operation)
    }

    fn elementwise(&self, function: &ElementwiseFunction, inputs: &[TorchTensor]) -> OpResult {
        let tensors: Vec<&Tensor> = inputs.iter().map(|input| &input.0).collect();
        self.compiled(function, &tensors).unwrap_or_else(|| function.apply(self, inputs))
    }

    /// On the CPU, libtorch multiplies each matrix with several threads.
    fn merges_products(&self) -> bool {
        self.device != Device::Cpu
    }

    fn has_custom(&self, operator: &CustomOperator) -> bool {
        self.operators.has(operator)
    }

    fn custom(&self, operator: &CustomOperator, inputs: &[Option<TorchTensor>]) -> Result<Vec<TorchTensor>, OpError> {
        let on_device = |input: &Option<TorchTensor>| input.as_ref().map(|input| self.on_device(&input.0)).transpose();
        let inputs = inputs.iter().map(on_device).collect::<Result<Vec<_>, _>>().map_err(torch_error)?;
        self.operators.run(operator, &inputs, self.device)
    }

    fn matmul(&self, a: &TorchTensor, b: &TorchTensor) -> OpResult {
        wrap(a.0.f_matmul(&b.0))
    }

    fn integer_product(&self, a: &TorchTensor, b: &TorchTensor) -> OpResult {
        wrap(products::integer_product(&a.0, &b.0))
    }

    fn float8_product(&self, x: &TorchTensor, weight: &TorchTensor) -> OpResult {
        wrap(products::float8_product(&x.0, &weight.0))
    }

    fn linear(&self, x: &TorchTensor, weight: &TorchTensor, bias: &TorchTensor) -> OpResult {
        wrap(x.0.f_linear(&weight.0.f_transpose(0, 1).map_err(torch_error)?, Some(&bias.0)))
    }

    fn linear_relu(&self, x: &TorchTensor, weight: &TorchTensor, bias: &TorchTensor) -> OpResult {
        if self.device == Device::Cpu || [x, weight, bias].iter().any(|operand| operand.0.requires_grad()) {
            return self.unary(Unary::Relu, &self.linear(x, weight, bias)?);
        }
        wrap(products::linear_relu(&x.0, &weight.0, &bias.0))
    }

    fn attention(
        &self,
        q: &TorchTensor,
        k: &TorchTensor,
        v: &TorchTensor,
        mask: Option<&TorchTensor>,
        scale: f64,
    ) -> OpResult {
        let mask = mask.map(|mask| self.on_device(&mask.0).map_err(torch_error)).transpose()?;
        wrap(attention::attention(&q.0, &k.0, &v.0, mask.as_ref(), scale))
    }

    fn conv(&self, x: &TorchTensor, weight: &TorchTensor, bias: Option<&TorchTensor>, conv: &Conv) -> OpResult {
        // A weight that is an input is not in the layout of the convolutions yet.
        let weight = if self.channels_last {
            tensor::channels_last(weight.0.shallow_clone())
        } else {
            Ok(weight.0.shallow_clone())
        };
        wrap(weight.and_then(|weight| windows::conv(&x.0, &weight, bias.map(|bias| &bias.0), conv)))
    }

    /// Uses cuDNN's fused kernel where there is one. Otherwise, the device computes all that follows the convolution in one function, or
    /// the sum and the activation are computed in place, as in PyTorch's modules: nothing else refers to the result yet.
    fn conv_fused(
        &self,
        x: &TorchTensor,
        weight: &TorchTensor,
        bias: Option<&TorchTensor>,
        conv: &Conv,
        after: ConvEpilogue<'_, TorchTensor>,
    ) -> OpResult {
        if x.0.requires_grad() || weight.0.requires_grad() {
            // Backward reads the result of the convolution unchanged.
            return after.apply(self, self.conv(x, weight, bias, conv)?);
        }
        if self.can_fuse(x, conv, &after) {
            let residual = after.residual.map(|residual| &residual.0);
            return wrap(windows::conv_relu(&x.0, &weight.0, bias.map(|bias| &bias.0), residual, conv));
        }
        if let Some(fused) = self.compiled_epilogue(x, weight, bias, conv, &after) {
            return fused;
        }
        let mut y = self.conv(x, weight, bias, conv)?.0;
        if let Some(residual) = after.residual {
            y = y.f_add_(&residual.0).map_err(torch_error)?;
        }
        wrap(after.activation.map_or(Ok(y.shallow_clone()), |kind| elementwise::unary_in_place(kind, y)))
    }

    fn max_pool(&self, x: &TorchTensor, pool: &Pool) -> OpResult {
        wrap(windows::max_pool(&x.0, pool))
    }

    fn average_pool(&self, x: &TorchTensor, pool: &Pool) -> OpResult {
        if pool.dilations != [1, 1] {
            return Err(OpError::unsupported("`dilations` of a mean"));
        }
        wrap(windows::average_pool(&x.0, pool))
    }

    fn batch_norm(
        &self,
        x: &TorchTensor,
        scale: &TorchTensor,
        bias: &TorchTensor,
        epsilon: f64,
    ) -> Result<[TorchTensor; 3], OpError> {
        gradient::batch_norm(&x.0, &scale.0, &bias.0, epsilon)
            .map(|results| results.map(TorchTensor))
            .map_err(torch_error)
    }

    fn record(&self, leaves: &[TorchTensor]) -> Result<Vec<TorchTensor>, OpError> {
        gradient::record(leaves).map_err(torch_error)
    }

    fn gradients(
        &self,
        loss: &TorchTensor,
        leaves: &[TorchTensor],
        reduced: &[ReducedOutputs],
    ) -> Result<Vec<TorchTensor>, OpError> {
        if reduced.is_empty() {
            return gradient::gradients(loss, leaves).map_err(torch_error);
        }
        let gradients = self.group()?.gradients(loss, leaves, reduced);
        shim::record(false);
        gradients
    }

    fn all_reduce(&self, tensors: &[TorchTensor], root: Option<u32>) -> Result<Vec<TorchTensor>, OpError> {
        self.group()?.all_reduce(tensors, root)
    }

    fn broadcast(&self, tensors: &[TorchTensor], root: u32) -> Result<Vec<TorchTensor>, OpError> {
        self.group()?.broadcast(tensors, root)
    }

    fn norm(&self, tensors: &[TorchTensor]) -> OpResult {
        wrap(shim::norm(tensors))
    }

    fn update(&self, update: &Update<'_, TorchTensor>) -> Result<(), OpError> {
        update::update(update)
    }

    fn reduce(&self, kind: Reduce, x: &TorchTensor, axes: &[usize]) -> OpResult {
        let (x, axes) = (&x.0, sizes(axes));
        wrap(match kind {
            Reduce::Mean => x.f_mean_dim(&axes[..], true, x.kind()),
            Reduce::Sum => x.f_sum_dim_intlist(&axes[..], true, x.kind()),
            Reduce::Max => x.f_amax(&axes[..], true),
            Reduce::Min => x.f_amin(&axes[..], true),
            Reduce::Product => {
                axes.iter().try_fold(x.shallow_clone(), |product, axis| product.f_prod_dim_int(*axis, true, x.kind()))
            }
        })
    }

    fn arg_max(&self, x: &TorchTensor, axis: usize, last: bool) -> OpResult {
        let (x, axis) = (&x.0, axis as i64);
        if !last {
            return wrap(x.f_argmax(axis, true));
        }
        let from_end = x.f_flip([axis]).and_then(|x| x.f_argmax(axis, true));
        wrap(from_end.and_then(|place| place.f_neg()?.f_add_scalar(x.size()[axis as usize] - 1)))
    }

    fn cumulative_sum(&self, x: &TorchTensor, axis: usize) -> OpResult {
        wrap(x.0.f_cumsum(axis as i64, x.0.kind()))
    }

    fn softmax(&self, x: &TorchTensor, axis: usize, log: bool) -> OpResult {
        wrap(if log { x.0.f_log_softmax(axis as i64, None) } else { x.0.f_softmax(axis as i64, None) })
    }

    fn layer_norm(
        &self,
        x: &TorchTensor,
        scale: &TorchTensor,
        bias: Option<&TorchTensor>,
        axis: usize,
        epsilon: f64,
    ) -> OpResult {
        let normalized = x.0.size().split_off(axis);
        let fitting = |weight: &TorchTensor| weight.0.f_broadcast_to(&normalized[..]).map_err(torch_error);
        let (scale, bias) = (fitting(scale)?, bias.map(fitting).transpose()?);
        wrap(x.0.f_layer_norm(&normalized[..], Some(scale), bias, epsilon, true))
    }

    fn reshape(&self, x: &TorchTensor, shape: &[usize]) -> OpResult {
        wrap(self.on_device(&x.0).and_then(|x| x.f_reshape(sizes(shape))))
    }

    fn permute(&self, x: &TorchTensor, order: &[usize]) -> OpResult {
        wrap(x.0.f_permute(sizes(order)))
    }

    fn concat(&self, parts: &[TorchTensor], axis: usize) -> OpResult {
        let parts: Vec<&Tensor> = parts.iter().map(|part| &part.0).collect();
        wrap(Tensor::f_cat(&parts, axis as i64))
    }

    fn slice(&self, x: &TorchTensor, axis: usize, start: usize, count: usize, step: i64) -> OpResult {
        wrap(movement::slice(&x.0, axis as i64, start as i64, count as i64, step))
    }

    fn gather(&self, x: &TorchTensor, indices: &TorchTensor, axis: usize) -> OpResult {
        // An index on the host needs no copy to the device, which a captured run could not make.
        if indices.0.device() == Device::Cpu && indices.0.size().is_empty() {
            return wrap(i64::try_from(&indices.0).and_then(|index| x.0.f_select(axis as i64, index)));
        }
        wrap(self.on_device(&indices.0).and_then(|indices| movement::gather(&x.0, &indices, axis)))
    }

    fn gather_elements(&self, x: &TorchTensor, indices: &TorchTensor, axis: usize) -> OpResult {
        wrap(self.on_device(&indices.0).and_then(|indices| movement::gather_elements(&x.0, &indices, axis)))
    }

    fn tensor_scatter(
        &self,
        cache: TorchTensor,
        update: &TorchTensor,
        first: Option<&TorchTensor>,
        along: ScatterAxis,
        in_place: bool,
    ) -> OpResult {
        let first = first.map(|first| self.on_device(&first.0).map_err(torch_error)).transpose()?;
        wrap(movement::tensor_scatter(cache.0, &update.0, first.as_ref(), along, in_place))
    }

    fn rms_norm(&self, x: &TorchTensor, scale: &TorchTensor, axis: usize, epsilon: f64) -> OpResult {
        let normalized = x.0.size().split_off(axis);
        let scale = scale.0.f_broadcast_to(&normalized[..]).map_err(torch_error)?;
        wrap(x.0.f_rms_norm(&normalized[..], Some(scale), epsilon))
    }

    fn rotate(&self, x: &TorchTensor, cos: &TorchTensor, sin: &TorchTensor, interleaved: bool) -> OpResult {
        match self.compiled_functions(&[&x.0, &cos.0, &sin.0]) {
            Some(functions) => wrap(functions.rotate(&x.0, &cos.0, &sin.0, interleaved)),
            None => wrap(shim::rotate(&x.0, &cos.0, &sin.0, interleaved)),
        }
    }

    fn expand(&self, x: &TorchTensor, shape: &[usize]) -> OpResult {
        wrap(self.on_device(&x.0).and_then(|x| x.f_broadcast_to(sizes(shape))))
    }

    fn pad(&self, x: &TorchTensor, pads: &[(usize, usize)], mode: PadMode) -> OpResult {
        wrap(movement::pad(&x.0, pads, mode))
    }

    fn cast(&self, x: &TorchTensor, dtype: DType) -> OpResult {
        wrap(x.0.f_to_kind(tensor::kind(dtype)?))
    }
}

impl TorchOps {
    /// Returns the operations on a device, with the defaults of the options.
    pub fn on(device: Device) -> Self {
        let (resident, operators) = (ResidentTensors::default(), Operators::default());
        let [channels_last, fused_convolutions, fused_elementwise] = [true; 3];
        TorchOps { device, channels_last, fused_convolutions, fused_elementwise, resident, operators, group: None }
    }

    fn group(&self) -> Result<&Group, OpError> {
        self.group.as_deref().ok_or_else(|| OpError::unsupported("means over processes without `process_group`"))
    }

    /// Whether cuDNN has a fused kernel for the convolution: the activation is ReLU, the padding is symmetric, the type
    /// has at most 32 bits, and there is one group.
    fn can_fuse(&self, x: &TorchTensor, conv: &Conv, after: &ConvEpilogue<'_, TorchTensor>) -> bool {
        self.fused_convolutions
            && self.device != Device::Cpu
            && matches!(after.activation, Some(Unary::Relu))
            && matches!(x.0.kind(), Kind::Float | Kind::Half | Kind::BFloat16)
            && conv.before == conv.after
            && conv.groups == 1
    }

    /// Returns the tensor on this device. A scalar may still be on the CPU: a captured run could not copy it, but fills memory.
    fn on_device(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let options = (x.kind(), self.device);
        match x.numel() {
            _ if x.device() == self.device => Ok(x.shallow_clone()),
            1 if elementwise::is_integer(x) => {
                let number = x.f_int64_value(&vec![0; x.dim()])?;
                self.resident.find_scalar(x, number as u64, || Tensor::f_full(x.size(), number, options))
            }
            1 => {
                let number = x.f_double_value(&vec![0; x.dim()])?;
                self.resident.find_scalar(x, number.to_bits(), || Tensor::f_full(x.size(), number, options))
            }
            _ => x.f_to(self.device),
        }
    }
}
