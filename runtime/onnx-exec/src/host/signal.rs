//! Operators of signals on the host: windows, DFT and STFT, by their definitions.

use std::f64::consts::TAU;
use std::sync::Arc;

use super::entries::element_type;
use super::{HostFunction, input, optional};
use crate::OpError;
use crate::resolve::Source;
use crate::result_size::check_result_size;
use crate::shape_arithmetic::resolve_axis;
use flagperf_onnx::{DType, Tensor};

pub(crate) fn hann_window(source: &Source<'_>) -> Result<HostFunction, OpError> {
    window(source, [0.5, 0.5, 0.0])
}

pub(crate) fn hamming_window(source: &Source<'_>) -> Result<HostFunction, OpError> {
    window(source, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

pub(crate) fn blackman_window(source: &Source<'_>) -> Result<HostFunction, OpError> {
    window(source, [0.42, 0.5, 0.08])
}

/// A window `a - b cos(2πn/N) + c cos(4πn/N)`.
fn window(source: &Source<'_>, [a, b, c]: [f64; 3]) -> Result<HostFunction, OpError> {
    let dtype = element_type(source.attributes.int("output_datatype", 1)?)?;
    let periodic = source.attributes.flag("periodic", true)?;
    Ok(Arc::new(move |inputs| {
        let size = input(inputs, 0)?.to_f64().first().copied().unwrap_or(0.0).max(0.0) as usize;
        check_result_size(&[size], DType::F64)?;
        let period = if periodic { size as f64 } else { size as f64 - 1.0 };
        let value = |n: usize| {
            let angle = TAU * n as f64 / period;
            a - b * angle.cos() + c * (2.0 * angle).cos()
        };
        Ok(vec![Tensor::from_vec([size], (0..size).map(value).collect())?.cast(dtype)])
    }))
}

/// Returns the discrete Fourier transform of complex numbers, of which those beyond the last are zero.
fn transform(line: &[[f64; 2]], length: usize, outputs: usize, inverse: bool) -> Vec<[f64; 2]> {
    let sign = if inverse { 1.0 } else { -1.0 };
    let roots: Vec<[f64; 2]> = (0..length)
        .map(|i| {
            let angle = sign * TAU * i as f64 / length as f64;
            [angle.cos(), angle.sin()]
        })
        .collect();
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    let output = |k: usize| {
        let mut sum = [0.0; 2];
        for (n, [re, im]) in line.iter().enumerate().take(length) {
            let [cos, sin] = roots[n * k % length];
            sum[0] += re * cos - im * sin;
            sum[1] += re * sin + im * cos;
        }
        sum.map(|part| part * scale)
    };
    (0..outputs).map(output).collect()
}

/// `DFT` along an axis; the last dimension holds real and imaginary parts.
pub(crate) fn dft(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let attributes = source.attributes;
    let (inverse, onesided) = (attributes.flag("inverse", false)?, attributes.flag("onesided", false)?);
    let default = attributes.int("axis", if source.opset < 20 { 1 } else { -2 })?;
    if inverse && onesided {
        return Err(OpError::unsupported("`inverse` with `onesided`"));
    }
    Ok(Arc::new(move |inputs| {
        let x = input(inputs, 0)?;
        let number = |i: usize| optional(inputs, i).and_then(|x| x.to_f64().first().copied());
        let axis = resolve_axis(number(2).map_or(default, |axis| axis as i64), x.shape().len())?;
        let [outer @ .., parts] = x.shape() else { return Err(OpError::invalid_operands("the input is a number")) };
        if axis >= outer.len() || !(1..=2).contains(parts) {
            return Err(OpError::invalid_operands(format!("axis {axis} of {:?} is no signal", x.shape())));
        }
        let length = number(1).map_or(outer[axis], |length| length.max(0.0) as usize);
        let outputs = if onesided { length / 2 + 1 } else { length };
        let (before, after) = (outer[..axis].iter().product::<usize>(), outer[axis + 1..].iter().product::<usize>());
        let mut shape = [outer, &[2]].concat();
        shape[axis] = outputs;
        check_result_size(&shape, DType::F64)?;
        let (numbers, mut result) = (x.to_f64(), vec![0.0; shape.iter().product()]);
        for (b, a) in (0..before).flat_map(|b| (0..after).map(move |a| (b, a))) {
            let at = |n: usize| ((b * outer[axis] + n) * after + a) * parts;
            let complex = |n: usize| [numbers[at(n)], if *parts == 2 { numbers[at(n) + 1] } else { 0.0 }];
            let line: Vec<[f64; 2]> = (0..outer[axis]).map(complex).collect();
            for (k, value) in transform(&line, length, outputs, inverse).into_iter().enumerate() {
                result[((b * outputs + k) * after + a) * 2..][..2].copy_from_slice(&value);
            }
        }
        Ok(vec![Tensor::from_vec(shape, result)?.cast(x.dtype())])
    }))
}

/// `STFT`: the DFT of frames of a signal `batch,length,parts`, each times a window.
pub(crate) fn stft(source: &Source<'_>) -> Result<HostFunction, OpError> {
    let onesided = source.attributes.flag("onesided", true)?;
    Ok(Arc::new(move |inputs| {
        let signal = input(inputs, 0)?;
        let number = |i: usize| optional(inputs, i).and_then(|x| x.to_f64().first().copied());
        let window = optional(inputs, 2).map(Tensor::to_f64);
        let step = number(1).filter(|step| *step >= 1.0);
        let step = step.ok_or_else(|| OpError::invalid_operands("`frame_step` must be positive"))? as usize;
        let (batch, length, parts) = match signal.shape() {
            [batch, length] => (*batch, *length, 1),
            [batch, length, parts @ 1..=2] => (*batch, *length, *parts),
            shape => return Err(OpError::invalid_operands(format!("{shape:?} is no signal"))),
        };
        let frame = number(3).map(|frame| frame as usize).or(window.as_ref().map(Vec::len));
        let frame = frame.filter(|frame| (1..=length).contains(frame));
        let frame = frame.ok_or_else(|| OpError::invalid_operands("the frame does not fit the signal"))?;
        if window.as_ref().is_some_and(|window| window.len() != frame) {
            return Err(OpError::invalid_operands("the window and the frame differ in length"));
        }
        let frames = (length - frame) / step + 1;
        let outputs = if onesided { frame / 2 + 1 } else { frame };
        check_result_size(&[batch, frames, outputs, 2], DType::F64)?;
        let (numbers, mut result) = (signal.to_f64(), Vec::new());
        for (b, f) in (0..batch).flat_map(|b| (0..frames).map(move |f| (b, f))) {
            let complex = |n: usize| {
                let at = (b * length + f * step + n) * parts;
                let factor = window.as_ref().map_or(1.0, |window| window[n]);
                [numbers[at] * factor, if parts == 2 { numbers[at + 1] * factor } else { 0.0 }]
            };
            let line: Vec<[f64; 2]> = (0..frame).map(complex).collect();
            result.extend(transform(&line, frame, outputs, false).into_iter().flatten());
        }
        Ok(vec![Tensor::from_vec([batch, frames, outputs, 2], result)?.cast(signal.dtype())])
    }))
}
