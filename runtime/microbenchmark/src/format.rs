//! The formats of numbers under FlagPerf's names.

use flagperf_core::tensor::DType;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A format of numbers in which an operator computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Format {
    /// The name: `FP16`.
    pub name: &'static str,
    /// The type of the elements.
    pub dtype: DType,
    /// The largest difference from the result in f64 that rounding explains, relative to the largest element.
    pub rounding: f64,
}

const fn format(name: &'static str, dtype: DType, rounding: f64) -> Format {
    Format { name, dtype, rounding }
}

/// Every format. Products in TF32 have operands with 10 bits of mantissa, as FP16 has. Tensors contain FP8 (E4M3) as bytes, and products
/// of it are in BF16.
pub const FORMATS: [Format; 11] = [
    format("FP64", DType::F64, 1e-12),
    Format::FP32,
    format("TF32", DType::F32, 2e-3),
    format("FP16", DType::F16, 2e-3),
    format("BF16", DType::BF16, 1.6e-2),
    format("FP8", DType::U8, 1.6e-2),
    format("INT64", DType::I64, 0.0),
    format("INT32", DType::I32, 0.0),
    format("INT16", DType::I16, 0.0),
    format("INT8", DType::I8, 0.0),
    format("BOOL", DType::Bool, 0.0),
];

impl Format {
    /// Single precision.
    pub const FP32: Format = format("FP32", DType::F32, 1e-5);

    /// Returns the format with a name, in any letter case.
    pub fn find(name: &str) -> Option<Format> {
        FORMATS.into_iter().find(|format| format.name.eq_ignore_ascii_case(name))
    }

    /// Returns whether products are computed in TF32.
    pub fn is_tf32(&self) -> bool {
        self.name == "TF32"
    }

    /// Returns whether the elements are numbers in FP8.
    pub fn is_fp8(&self) -> bool {
        self.name == "FP8"
    }

    /// Returns the unit of the rate of a product.
    pub fn rate_unit(&self) -> &'static str {
        if self.dtype.is_float() || self.is_fp8() { "FLOP/s" } else { "OP/s" }
    }

    /// Returns the name under which vendor.yaml states the peak rate of a device.
    pub fn peak_name(&self) -> &'static str {
        match self {
            _ if self.is_tf32() => "tf32",
            _ if self.is_fp8() => "f8",
            _ => self.dtype.name(),
        }
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Format::find(&name).ok_or_else(|| D::Error::custom(format!("unknown format `{name}`")))
    }
}
