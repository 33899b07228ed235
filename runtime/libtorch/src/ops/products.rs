//! Products of matrices that libtorch has functions of their own for.

use tch::{Device, Kind, TchError, Tensor};

/// Computes the product in i32 of two matrices of i8. On a CUDA device, cuBLAS multiplies i8 only in these sizes, and libtorch does not
/// multiply i32. Sums of products of i8 are exact in f64.
pub fn integer_product(a: &Tensor, b: &Tensor) -> Result<Tensor, TchError> {
    let ((rows, inner), (_, columns)) = (a.size2()?, b.size2()?);
    if a.device() == Device::Cpu || (rows > 16 && inner % 8 == 0 && columns % 8 == 0) {
        return a.f_internal_int_mm(b);
    }
    let [a, b] = [a, b].map(|factor| factor.f_to_kind(Kind::Double));
    a?.f_matmul(&b?)?.f_to_kind(Kind::Int)
}

/// Computes x · weightᵀ in bf16 of numbers in FP8, whose bits are u8.
pub fn float8_product(x: &Tensor, weight: &Tensor) -> Result<Tensor, TchError> {
    let (x, weight) =
        (x.f_view_dtype(Kind::Float8e4m3fn)?, weight.f_view_dtype(Kind::Float8e4m3fn)?.f_transpose(0, 1)?);
    if x.device() == Device::Cpu {
        return x.f_to_kind(Kind::Float)?.f_matmul(&weight.f_to_kind(Kind::Float)?)?.f_to_kind(Kind::BFloat16);
    }
    let scale = Tensor::f_ones([], (Kind::Float, x.device()))?;
    x.f_internal_scaled_mm(&weight, &scale, &scale, None::<Tensor>, None, Kind::BFloat16, false)
}

/// Computes max(x · weight + bias, 0) in one kernel of cuBLAS.
pub fn linear_relu(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor, TchError> {
    let mut size = x.size();
    let columns = size.pop().unwrap_or_default();
    let flat = x.f_reshape([size.iter().product(), columns])?;
    size.extend(bias.size());
    bias.f_internal_addmm_activation(&flat, weight, false)?.f_view(&size[..])
}
