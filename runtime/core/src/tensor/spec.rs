//! Element types and tensor specifications, in the notation used throughout the project: `N,3,224,224,f16`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The type of a tensor's elements. `flagperf_plugin::DType` is the same list for plug-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper 16 bits of binary32.
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// Boolean: one byte per value, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, in the order of the documentation.
    pub const ALL: [DType; 13] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::Bool,
    ];

    /// Returns the name of the type in KServe's protocol.
    pub const fn kserve_name(self) -> &'static str {
        match self {
            DType::F64 => "FP64",
            DType::F32 => "FP32",
            DType::F16 => "FP16",
            DType::BF16 => "BF16",
            DType::I64 => "INT64",
            DType::I32 => "INT32",
            DType::I16 => "INT16",
            DType::I8 => "INT8",
            DType::U64 => "UINT64",
            DType::U32 => "UINT32",
            DType::U16 => "UINT16",
            DType::U8 => "UINT8",
            DType::Bool => "BOOL",
        }
    }

    /// Returns the type with a name in KServe's protocol.
    pub fn with_kserve_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.kserve_name() == name)
    }

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Returns the name used in specifications: `f32`, `i64`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "u64",
            DType::U32 => "u32",
            DType::U16 => "u16",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// Returns whether the type is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DType {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| SpecError::UnknownDType(text.to_owned()))
    }
}

/// One dimension of a tensor: a size, a name that stands for one size everywhere in a graph, or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Fixed(usize),
    /// A symbolic size such as `N`.
    Named(String),
    /// Any size, written `?`.
    Unknown,
}

impl Dim {
    /// Returns the size, if it is known.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Dim::Fixed(size) => Some(*size),
            _ => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::Fixed(size)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

impl FromStr for Dim {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match text {
            "?" => Ok(Dim::Unknown),
            _ if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(named) => {
                Ok(Dim::Named(text.to_owned()))
            }
            _ => text.parse().map(Dim::Fixed).map_err(|_| SpecError::BadDim(text.to_owned())),
        }
    }
}

/// The shape and element type of a tensor. The text form lists the dimensions, then the type: `N,3,224,224,f16`, or
/// `f32` for a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    /// The dimensions, outermost first.
    pub dims: Vec<Dim>,
    /// The element type.
    pub dtype: DType,
}

impl TensorSpec {
    /// Returns a specification of the given dimensions and element type.
    pub fn new(dims: impl IntoIterator<Item = impl Into<Dim>>, dtype: DType) -> Self {
        TensorSpec { dims: dims.into_iter().map(Into::into).collect(), dtype }
    }

    /// Returns the bytes of a tensor whose first dimension, unless it is fixed, is `rows`; `None` if another dimension is not fixed, or if
    /// they are too many.
    pub fn bytes_of_rows(&self, rows: usize) -> Option<usize> {
        let sizes = self.dims.iter().enumerate().map(|(at, dim)| dim.fixed().or((at == 0).then_some(rows)));
        super::byte_count(&sizes.collect::<Option<Vec<usize>>>()?, self.dtype)
    }

    /// Returns the sizes, if every dimension is known.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(Dim::fixed).collect()
    }

    /// Returns whether a tensor of this shape and type satisfies the specification. A named dimension admits any size.
    pub fn admits(&self, shape: &[usize], dtype: DType) -> bool {
        dtype == self.dtype
            && shape.len() == self.dims.len()
            && self.dims.iter().zip(shape).all(|(dim, size)| dim.fixed().is_none_or(|fixed| fixed == *size))
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for dim in &self.dims {
            write!(f, "{dim},")?;
        }
        self.dtype.fmt(f)
    }
}

impl FromStr for TensorSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let dtype = parts.pop().unwrap_or_default().parse()?;
        let dims = parts.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(TensorSpec { dims, dtype })
    }
}

impl Serialize for TensorSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TensorSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A tensor specification that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The last part is not an element type.
    #[error("unknown element type `{0}` (known: {known})", known = DType::ALL.map(DType::name).join(", "))]
    UnknownDType(String),
    /// A dimension is neither a size, nor a name, nor `?`.
    #[error("invalid dimension `{0}` (expected a size such as 224, a name such as N, or ?)")]
    BadDim(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_survives_formatting_and_parsing() {
        for text in ["N,3,224,224,f16", "f32", "?,512,i64", "batch_1,1,bool"] {
            let spec: TensorSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn invalid_text_is_refused_with_the_offending_part() {
        assert_eq!("3,f33".parse::<TensorSpec>(), Err(SpecError::UnknownDType("f33".into())));
        assert_eq!("3x,f32".parse::<TensorSpec>(), Err(SpecError::BadDim("3x".into())));
    }

    #[test]
    fn a_named_dimension_admits_any_size() {
        let spec: TensorSpec = "N,3,f32".parse().unwrap();
        assert!(spec.admits(&[7, 3], DType::F32));
        assert!(!spec.admits(&[7, 4], DType::F32));
        assert!(!spec.admits(&[7, 3], DType::F16));
    }
}
