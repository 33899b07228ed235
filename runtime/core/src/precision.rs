//! The precision that a case computes in.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tensor::DType;

/// The precision of a case: the value of the key `precision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision: values and products in f32.
    Fp32,
    /// Half precision: values in f16.
    Fp16,
    /// Values in bf16: the exponent of f32 with 7 bits of mantissa.
    Bf16,
    /// Values in f32, whose products the device may compute with 10 bits of mantissa (TensorFloat-32). A model in TF32 is
    /// the same as in fp32.
    Tf32,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Precision; 4] = [Precision::Fp32, Precision::Fp16, Precision::Bf16, Precision::Tf32];
    /// The names of [`Precision::ALL`].
    pub const NAMES: [&str; 4] = ["fp32", "fp16", "bf16", "tf32"];

    /// Returns the name, as the configuration and FlagPerf's result spell it.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the element type of weights, inputs and outputs.
    pub const fn dtype(self) -> DType {
        match self {
            Precision::Fp32 | Precision::Tf32 => DType::F32,
            Precision::Fp16 => DType::F16,
            Precision::Bf16 => DType::BF16,
        }
    }

    /// Returns the name of the arithmetic, under which vendor.yaml states the peak of a device.
    pub const fn arithmetic(self) -> &'static str {
        match self {
            Precision::Tf32 => "tf32",
            other => other.dtype().name(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_files_is_the_name() {
        for precision in Precision::ALL {
            assert_eq!(serde_json::to_value(precision).unwrap(), precision.name());
        }
        assert_eq!(Precision::ALL.map(Precision::arithmetic), ["f32", "f16", "bf16", "tf32"]);
    }
}
