//! Operators that a vendor brings as shared libraries, for the engines that call them: `include/flagperf_operator.h`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{DType, Error};

/// The most dimensions of a tensor.
const RANK_MAX: usize = 16;

#[repr(C)]
struct CTensor {
    data: *mut c_void,
    shape: *const i64,
    rank: i32,
    element_type: i32,
}

#[repr(C)]
struct CAttribute {
    name: *const c_char,
    integer: i64,
    number: f64,
}

#[repr(C)]
struct COutput {
    shape: [i64; RANK_MAX],
    rank: i32,
    element_type: i32,
}

type OutputFn = unsafe extern "C" fn(*const CTensor, i32, *const CAttribute, i32, i32, *mut COutput) -> *const c_char;
type RunFn =
    unsafe extern "C" fn(*const CTensor, i32, *mut CTensor, i32, *const CAttribute, i32, *mut c_void) -> *const c_char;

/// A tensor in the memory of the device for which a library was built: contiguous, in row-major order.
#[derive(Clone, Debug)]
pub struct OperatorTensor {
    /// The address; null is accepted for a tensor without elements.
    pub data: *mut c_void,
    /// The sizes, outermost first.
    pub shape: Vec<i64>,
    /// The type of the elements.
    pub dtype: DType,
}

/// An attribute: an integer or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OperatorAttribute {
    /// An integer.
    Integer(i64),
    /// A number.
    Number(f64),
}

/// An opened library of an operator. It is never closed: work that it enqueued may still run.
pub struct OperatorLibrary {
    output: OutputFn,
    run: RunFn,
}

impl OperatorLibrary {
    /// Opens the library for a kind of device, `cpu` or `cuda`, in the folder of the libraries of the operator `VENDOR.NAME`.
    ///
    /// # Errors
    /// When the file cannot be opened or does not export the two functions.
    pub fn open(name: &str, folder: &Path, device: &str) -> Result<Self, Error> {
        let path = &folder.join(format!("{device}.so"));
        let failed = |reason: &dyn std::fmt::Display| Error::Unavailable {
            reason: format!("the operator's library `{}` cannot be opened: {reason}", path.display()),
            remedy: format!("build it first: `flagperf operator build {}`", name.replacen('.', "/", 1)),
        };
        if !path.is_file() {
            return Err(failed(&"it is not a file"));
        }
        // SAFETY: a vendor's operator is code that the user chose to run; its initializers run here.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| failed(&error))?;
        // SAFETY: the header gives functions of these names these signatures.
        let (output, run) = unsafe {
            (
                *library.get::<OutputFn>(b"flagperf_operator_output\0").map_err(|error| failed(&error))?,
                *library.get::<RunFn>(b"flagperf_operator_run\0").map_err(|error| failed(&error))?,
            )
        };
        std::mem::forget(library);
        Ok(OperatorLibrary { output, run })
    }

    /// Returns the shape and type of output `place` for these inputs, of which only shapes and types are read.
    ///
    /// # Errors
    /// With the operator's reason why it does not accept them.
    pub fn output(
        &self,
        inputs: &[Option<OperatorTensor>],
        attributes: &[(String, OperatorAttribute)],
        place: usize,
    ) -> Result<(Vec<usize>, DType), String> {
        let (inputs, attributes) = (c_tensors(inputs), Attributes::new(attributes));
        let mut output = COutput { shape: [0; RANK_MAX], rank: -1, element_type: 0 };
        // SAFETY: the arrays have the given lengths and live until the call returns; the function writes only `output`.
        let reason = unsafe {
            (self.output)(
                inputs.as_ptr(),
                inputs.len() as i32,
                attributes.as_ptr(),
                attributes.len(),
                place as i32,
                &raw mut output,
            )
        };
        check_reason(reason)?;
        let rank = usize::try_from(output.rank).ok().filter(|rank| *rank <= RANK_MAX);
        let rank = rank.ok_or_else(|| format!("the operator gives output {place} {} dimensions", output.rank))?;
        let size = |size: &i64| {
            usize::try_from(*size).map_err(|_| format!("the operator gives output {place} a size of {size}"))
        };
        let shape = output.shape[..rank].iter().map(size).collect::<Result<_, _>>()?;
        let dtype = dtype(output.element_type);
        Ok((shape, dtype.ok_or_else(|| format!("the operator gives output {place} the type {}", output.element_type))?))
    }

    /// Enqueues the operator on `stream`, or computes at once on the CPU.
    ///
    /// # Safety
    /// Each tensor must describe memory that the library's device can access, that is as long as its shape and type
    /// require, and that lives until the stream has passed the work. Outputs must have the shapes and types that
    /// [`OperatorLibrary::output`] returned, and overlap nothing.
    ///
    /// # Errors
    /// With the operator's reason; nothing was enqueued then.
    pub unsafe fn run(
        &self,
        inputs: &[Option<OperatorTensor>],
        outputs: &[Option<OperatorTensor>],
        attributes: &[(String, OperatorAttribute)],
        stream: *mut c_void,
    ) -> Result<(), String> {
        let (inputs, mut outputs, attributes) = (c_tensors(inputs), c_tensors(outputs), Attributes::new(attributes));
        // SAFETY: the arrays have the given lengths and live until the call returns; the caller guarantees the rest.
        let reason = unsafe {
            (self.run)(
                inputs.as_ptr(),
                inputs.len() as i32,
                outputs.as_mut_ptr(),
                outputs.len() as i32,
                attributes.as_ptr(),
                attributes.len(),
                stream,
            )
        };
        check_reason(reason)
    }
}

/// Attributes as C reads them.
struct Attributes {
    /// The texts to which `list` points.
    _names: Vec<CString>,
    list: Vec<CAttribute>,
}

impl Attributes {
    fn new(attributes: &[(String, OperatorAttribute)]) -> Self {
        let names: Vec<CString> =
            attributes.iter().map(|(name, _)| CString::new(name.replace('\0', "")).unwrap_or_default()).collect();
        let attribute = |(name, (_, value)): (&CString, &(String, OperatorAttribute))| {
            let (integer, number) = match value {
                OperatorAttribute::Integer(integer) => (*integer, 0.0),
                OperatorAttribute::Number(number) => (0, *number),
            };
            CAttribute { name: name.as_ptr(), integer, number }
        };
        let list = names.iter().zip(attributes).map(attribute).collect();
        Attributes { _names: names, list }
    }

    fn as_ptr(&self) -> *const CAttribute {
        self.list.as_ptr()
    }

    fn len(&self) -> i32 {
        self.list.len() as i32
    }
}

/// Returns tensors as C reads them. They point to the shapes of `tensors`.
fn c_tensors(tensors: &[Option<OperatorTensor>]) -> Vec<CTensor> {
    let convert = |tensor: &Option<OperatorTensor>| match tensor {
        Some(OperatorTensor { data, shape, dtype }) => {
            CTensor { data: *data, shape: shape.as_ptr(), rank: shape.len() as i32, element_type: element_type(*dtype) }
        }
        None => CTensor { data: null_mut(), shape: null(), rank: -1, element_type: 0 },
    };
    tensors.iter().map(convert).collect()
}

fn check_reason(reason: *const c_char) -> Result<(), String> {
    if reason.is_null() {
        return Ok(());
    }
    // SAFETY: the header requires static text.
    Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
}

/// The numbers of ONNX's TensorProto.DataType.
const ELEMENT_TYPES: [(DType, i32); DType::COUNT] = [
    (DType::F64, 11),
    (DType::F32, 1),
    (DType::F16, 10),
    (DType::BF16, 16),
    (DType::I64, 7),
    (DType::I32, 6),
    (DType::I16, 5),
    (DType::I8, 3),
    (DType::U64, 13),
    (DType::U32, 12),
    (DType::U16, 4),
    (DType::U8, 2),
    (DType::Bool, 9),
];

fn element_type(dtype: DType) -> i32 {
    ELEMENT_TYPES.iter().find(|(known, _)| *known == dtype).map_or(0, |(_, number)| *number)
}

fn dtype(element_type: i32) -> Option<DType> {
    ELEMENT_TYPES.iter().find(|(_, number)| *number == element_type).map(|(dtype, _)| *dtype)
}
