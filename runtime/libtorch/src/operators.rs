//! Operators of the vendor: libraries with the interface of `flagperf_operator.h`, called with libtorch's memory and on its
//! stream.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::null_mut;

use flagperf_onnx::Attribute;
use flagperf_onnx_exec::{CustomOperator, OpError};
use flagperf_plugin::operator::{OperatorAttribute, OperatorLibrary, OperatorTensor};
use flagperf_plugin::{DType as PluginDType, Error};
use tch::{Device, Kind, TchError, Tensor};

use crate::capture;
use crate::tensor::{self, TorchTensor, sizes, torch_error};

/// Where a tensor lies in the memory that an operator receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Wherever libtorch allocated it.
    #[default]
    Plain,
    /// Between margins, which are checked after each call; the inputs' margins are NaN.
    Guarded {
        /// Whether the first element lies one element behind an address that suits vectors.
        shifted: bool,
    },
}

/// The bytes of each margin.
const MARGIN: usize = 1 << 20;
/// The most bytes of a tensor between margins.
const BYTES_MAX: i64 = 1 << 46;
/// The bytes that fill the margins of inputs, which are NaN in every floating-point type, and of outputs, which no operator
/// computes from them.
const INPUT_FILL: i64 = 0xff;
const OUTPUT_FILL: i64 = 0x5a;

/// The opened operators of a graph, by their names with the domain.
#[derive(Default)]
pub struct Operators {
    libraries: BTreeMap<String, OperatorLibrary>,
    placement: Placement,
}

impl Operators {
    /// Opens the libraries of operators for a device, each in the folder of its operator.
    ///
    /// # Errors
    /// When a library is missing or does not have the interface.
    pub fn open(folders: &BTreeMap<String, PathBuf>, device: Device, placement: Placement) -> Result<Self, Error> {
        let kind = if device == Device::Cpu { "cpu" } else { "cuda" };
        let open = |(name, folder): (&String, &PathBuf)| Ok((name.clone(), OperatorLibrary::open(name, folder, kind)?));
        Ok(Operators { libraries: folders.iter().map(open).collect::<Result<_, Error>>()?, placement })
    }

    fn find(&self, operator: &CustomOperator) -> Option<&OperatorLibrary> {
        self.libraries.get(&operator.full_name())
    }

    /// Returns whether an operator was opened.
    pub fn has(&self, operator: &CustomOperator) -> bool {
        self.find(operator).is_some()
    }

    /// Runs an operator on tensors of a device.
    ///
    /// # Errors
    /// With the operator's reason, and when it writes outside of its outputs.
    pub fn run(
        &self,
        operator: &CustomOperator,
        inputs: &[Option<Tensor>],
        device: Device,
    ) -> Result<Vec<TorchTensor>, OpError> {
        let library = self.find(operator).ok_or_else(|| OpError::unsupported("an operator that was not opened"))?;
        let refused = |reason: String| OpError::invalid_operands(format!("`{}`: {reason}", operator.full_name()));
        let attributes = attributes(operator)?;
        let inputs: Vec<Option<Placed>> = inputs
            .iter()
            .map(|input| input.as_ref().map(|input| Placed::copy(input, self.placement)).transpose())
            .collect::<Result<_, _>>()
            .map_err(torch_error)?;
        let arguments: Vec<Option<OperatorTensor>> = inputs
            .iter()
            .map(|input| input.as_ref().map(|input| argument(&input.tensor)).transpose())
            .collect::<Result<_, _>>()?;
        let mut outputs = Vec::new();
        for place in 0..operator.outputs {
            let (shape, dtype) = library.output(&arguments, &attributes, place).map_err(refused)?;
            let dtype: flagperf_onnx::DType = dtype.name().parse().map_err(OpError::library)?;
            let output = Placed::empty(&sizes(&shape), tensor::kind(dtype)?, device, self.placement, OUTPUT_FILL);
            outputs.push(output.map_err(torch_error)?);
        }
        let results: Vec<Option<OperatorTensor>> =
            outputs.iter().map(|output| argument(&output.tensor).map(Some)).collect::<Result<_, _>>()?;
        let stream = stream(device).map_err(OpError::library)?;
        // SAFETY: the tensors are dense, of this device, and freed by libtorch's allocator in the order of the stream; the
        // outputs are new.
        unsafe { library.run(&arguments, &results, &attributes, stream) }.map_err(refused)?;
        let written = outputs.iter().chain(inputs.iter().flatten()).find_map(|placed| placed.damaged().transpose());
        match written.transpose().map_err(torch_error)? {
            Some(side) => Err(refused(format!("it writes outside of its outputs: {side}"))),
            None => Ok(outputs.into_iter().map(|output| TorchTensor(output.tensor)).collect()),
        }
    }
}

fn stream(device: Device) -> Result<*mut c_void, Error> {
    match device {
        Device::Cuda(index) => capture::current_stream(index),
        _ => Ok(null_mut()),
    }
}

fn attributes(operator: &CustomOperator) -> Result<Vec<(String, OperatorAttribute)>, OpError> {
    let convert = |(name, value): (&String, &Attribute)| {
        let value = match value {
            Attribute::Int(value) => OperatorAttribute::Integer(*value),
            Attribute::Float(value) => OperatorAttribute::Number(f64::from(*value)),
            _ => {
                return Err(OpError::unsupported(format!(
                    "the attribute `{name}`, which is neither an integer nor a number"
                )));
            }
        };
        Ok((name.clone(), value))
    };
    operator.attributes.iter().map(convert).collect()
}

fn argument(tensor: &Tensor) -> Result<OperatorTensor, OpError> {
    let name = tensor::dtype(tensor.kind()).name();
    let dtype = PluginDType::from_name(name).ok_or_else(|| OpError::unsupported(format!("tensors of `{name}`")))?;
    Ok(OperatorTensor { data: tensor.data_ptr(), shape: tensor.size(), dtype })
}

/// A dense tensor, with the memory around it if it has margins.
struct Placed {
    tensor: Tensor,
    /// The bytes before the tensor, and those behind it.
    margins: Option<[Tensor; 2]>,
    /// What the margins contain.
    fill: i64,
}

impl Placed {
    fn empty(size: &[i64], kind: Kind, device: Device, placement: Placement, fill: i64) -> Result<Self, TchError> {
        let Placement::Guarded { shifted } = placement else {
            return Ok(Placed { tensor: Tensor::f_empty(size, (kind, device))?, margins: None, fill });
        };
        let bytes = size.iter().try_fold(kind.elt_size_in_bytes() as i64, |bytes, size| bytes.checked_mul(*size));
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX);
        let bytes = bytes.ok_or_else(|| TchError::Torch(format!("an output of the shape {size:?} is too large")))?;
        let before = (MARGIN + if shifted { kind.elt_size_in_bytes() } else { 0 }) as i64;
        let memory = Tensor::f_full([before + bytes + MARGIN as i64], fill, (Kind::Uint8, device))?;
        let margins = [memory.f_narrow(0, 0, before)?, memory.f_narrow(0, before + bytes, MARGIN as i64)?];
        let inner = memory.f_narrow(0, before, bytes)?.f_view_dtype(kind)?.f_view(size)?;
        Ok(Placed { tensor: inner, margins: Some(margins), fill })
    }

    /// Returns the elements of a tensor, in row-major order.
    fn copy(tensor: &Tensor, placement: Placement) -> Result<Self, TchError> {
        if placement == Placement::Plain {
            return Ok(Placed { tensor: tensor.f_contiguous()?, margins: None, fill: INPUT_FILL });
        }
        let mut placed = Placed::empty(&tensor.size(), tensor.kind(), tensor.device(), placement, INPUT_FILL)?;
        placed.tensor.f_copy_(tensor)?;
        Ok(placed)
    }

    /// Returns which margin has other bytes than before; waits for the device.
    fn damaged(&self) -> Result<Option<&'static str>, TchError> {
        let Some(margins) = &self.margins else { return Ok(None) };
        for (margin, name) in margins.iter().zip(["before the first element", "behind the last element"]) {
            if margin.f_ne(self.fill)?.f_any()?.f_int64_value(&[])? != 0 {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}
